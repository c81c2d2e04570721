"""One rank of the speed check: all-reduce times by size."""

import sys

import torch
import torch.distributed as dist

import rank_common as common


def bandwidth(sizes, chosen):
    """For each size in bytes the seconds of each timed all-reduce of float32."""
    result = {}
    for size in sizes:
        data = torch.zeros(size // 4, device=chosen)
        times = 20 if size <= 16 << 20 else 5
        common.timed(lambda tensor=data: dist.all_reduce(tensor), 2)
        dist.barrier()
        result[str(size)] = common.timed(lambda tensor=data: dist.all_reduce(tensor), times)
        del data
    return result


def work():
    """Argument: sizes in bytes, comma-separated."""
    sizes = [int(size) for size in sys.argv[1].split(",")]
    chosen = common.device()
    common.join(common.store(), "speed", chosen)
    result = {"bandwidth": bandwidth(sizes, chosen)}
    common.leave()
    return result if common.RANK == 0 else {}


if __name__ == "__main__":
    common.main(work)
