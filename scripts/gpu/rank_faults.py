"""One rank of the check under faults: collectives, compared, until the time is over."""

import sys
import time

import torch
import torch.distributed as dist

import rank_collectives as collectives
import rank_common as common

COUNTS = [1, 1021, 262147, 4 << 20]


def rounds(checker, seconds):
    """Rounds of all operations; rank 0 says when to stop."""
    end = time.monotonic() + seconds
    done = 0
    while True:
        more = torch.tensor([int(time.monotonic() < end)], device="cuda")
        dist.broadcast(more, 0)
        if not int(more):
            return done
        for dtype in (torch.float32, torch.bfloat16):
            for count in COUNTS:
                collectives.all_reduce(checker, count, dtype)
                collectives.broadcast(checker, count, dtype)
                collectives.send_receive(checker, count, dtype)
                collectives.all_gather(checker, count, dtype)
                collectives.reduce_scatter(checker, count, dtype)
                collectives.all_to_all(checker, count, dtype)
        done += 1


def work():
    """seconds (argument 1)."""
    chosen = common.device()
    common.join(common.store(), "faults", chosen)
    checker = collectives.Checker()
    done = rounds(checker, float(sys.argv[1]))
    common.leave()
    return {"problems": checker.problems[:20], "cases": checker.cases, "rounds": done}


if __name__ == "__main__":
    common.main(work)
