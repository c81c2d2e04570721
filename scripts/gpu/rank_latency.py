"""One rank of the latency check: 8-byte all-reduces over the plugin and over NCCL's sockets.

Four communicators of one process take turns, two over either network: launches differ by more
than networks do, and the two of one network tell how much of a difference is chance.
"""

import datetime
import statistics
import sys

import torch
import torch.distributed as dist

import rank_common as common

# Operations of one turn: each by itself, then batches without waiting between.
SINGLE, BATCHES, BATCH = 200, 20, 20
WARM_UP_TURNS = 10


def group(network):
    """A process group of all ranks whose communicator uses `network`, as NCCL names it."""
    options = dist.ProcessGroupNCCL.Options()
    options.config.net_name = network
    limit = datetime.timedelta(seconds=common.OPERATION_LIMIT_S)
    return dist.new_group(backend="nccl", pg_options=options, timeout=limit)


def turn(data, chosen):
    """One turn of one group: seconds of an operation by itself, and of one among others."""

    def one():
        dist.all_reduce(data, group=chosen)

    def many():
        for _ in range(BATCH):
            dist.all_reduce(data, group=chosen)

    single, batched = common.timed(one, SINGLE), common.timed(many, BATCHES)
    return {"single": statistics.median(single), "batched": statistics.median(batched) / BATCH}


def work():
    """Arguments: the names of the two networks, the number of rounds."""
    ours, theirs, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
    chosen = common.device()
    # Bound to no device, or the groups would be split off from the default group's communicator.
    common.join(common.store(), "latency", None)
    groups = [group(name) for name in (ours, theirs, ours, theirs)]
    data = torch.zeros(2, device=chosen)
    for number in range(WARM_UP_TURNS * len(groups)):
        turn(data, groups[number % len(groups)])
    turns = [[] for _ in groups]
    for number in range(rounds):
        # There and back, so that a drift of the machine hits all alike.
        order = range(len(groups)) if number % 2 == 0 else reversed(range(len(groups)))
        for index in order:
            turns[index].append(turn(data, groups[index]))
    common.leave()
    return {"turns": turns} if common.RANK == 0 else {}


if __name__ == "__main__":
    common.main(work)
