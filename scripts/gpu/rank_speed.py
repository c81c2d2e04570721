"""One rank of the speed check: all-reduce times by size, and the latency of 8 bytes."""

import sys
import time

import torch
import torch.distributed as dist

import rank_common as common

WARM_UP, BATCHES, BATCH, SYNCHRONOUS = 2000, 500, 20, 10_000


def timed(call, times):
    """Seconds of each of `times` calls, the device idle before and after each."""
    seconds = []
    for _ in range(times):
        torch.cuda.synchronize()
        started = time.perf_counter()
        call()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
    return seconds


def latency(chosen):
    """Seconds per 8-byte all-reduce: one at a time, and in batches without waiting between."""
    data = torch.ones(2, device=chosen)

    def one():
        dist.all_reduce(data)

    def many():
        for _ in range(BATCH):
            dist.all_reduce(data)

    timed(one, WARM_UP)
    single = timed(one, SYNCHRONOUS)
    batched = [seconds / BATCH for seconds in timed(many, BATCHES)]
    return {"synchronous_s": sorted(single), "batched_s": sorted(batched)}


def bandwidth(sizes, chosen):
    """For each size in bytes the seconds of each timed all-reduce of float32."""
    result = {}
    for size in sizes:
        data = torch.zeros(size // 4, device=chosen)
        times = 20 if size <= 16 << 20 else 5
        timed(lambda tensor=data: dist.all_reduce(tensor), 2)
        dist.barrier()
        result[str(size)] = timed(lambda tensor=data: dist.all_reduce(tensor), times)
        del data
    return result


def work():
    """sizes in bytes, comma-separated (argument 1, may be `-`), `latency` or not (argument 2)."""
    sizes = [] if sys.argv[1] == "-" else [int(size) for size in sys.argv[1].split(",")]
    chosen = common.device()
    common.join(common.store(), "speed", chosen)
    result = {"latency": latency(chosen)} if sys.argv[2] == "latency" else {}
    result["bandwidth"] = bandwidth(sizes, chosen)
    common.leave()
    if common.RANK != 0:
        return {}
    single = result.get("latency", {}).get("synchronous_s", [])
    if single:
        # A thousand values say no more than these.
        result["latency"]["synchronous_s"] = [single[len(single) * p // 100] for p in range(100)]
    return result


if __name__ == "__main__":
    common.main(work)
