"""What every rank process needs: its place, its process group, its result file."""

import datetime
import faulthandler
import json
import os
import signal
import sys
import time
import traceback

RANK = int(os.environ.get("RANK", "0"))
RANKS = int(os.environ.get("WORLD_SIZE", "1"))
# An operation that takes longer has hung: torch aborts the communicator and says where.
OPERATION_LIMIT_S = 60


def write_result(result):
    """Leaves `result` (a JSON object; its `problems` are sentences) for the launcher."""
    with open(os.environ["GPU_CHECK_RESULT"], "w", encoding="utf-8") as sink:
        json.dump(result, sink)


def main(work):
    """Runs `work()`, which returns the result, and ends the process with a fitting status."""
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    try:
        result = work()
    except Exception:
        traceback.print_exc()
        write_result({"problems": [traceback.format_exc(limit=-3)[-1500:]]})
        sys.exit(1)
    result.setdefault("problems", [])
    write_result(result)
    sys.exit(1 if result["problems"] else 0)


def device():
    """This rank's CUDA device, made current."""
    import torch

    chosen = torch.device("cuda", int(os.environ["GPU_CHECK_DEVICE"]))
    torch.cuda.set_device(chosen)
    return chosen


def store():
    """The key-value store all ranks share; rank 0 serves it."""
    import torch.distributed as dist

    limit = datetime.timedelta(seconds=OPERATION_LIMIT_S)
    port = int(os.environ["MASTER_PORT"])
    return dist.TCPStore(os.environ["MASTER_ADDR"], port, RANKS, RANK == 0, limit)


def join(shared, prefix, chosen):
    """Makes the default process group over NCCL, communicator included if `chosen` is a device."""
    import torch.distributed as dist

    dist.init_process_group(
        "nccl",
        store=dist.PrefixStore(prefix, shared),
        rank=RANK,
        world_size=RANKS,
        timeout=datetime.timedelta(seconds=OPERATION_LIMIT_S),
        device_id=chosen,
    )


def timed(call, times):
    """Seconds of each of `times` calls, the device idle before and after each."""
    import torch

    seconds = []
    for _ in range(times):
        torch.cuda.synchronize()
        started = time.perf_counter()
        call()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
    return seconds


def leave():
    """Destroys the process group."""
    import torch
    import torch.distributed as dist

    torch.cuda.synchronize()
    dist.destroy_process_group()


def loaded_libnccl():
    """Path of the libnccl that this process has mapped."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        paths = {line.split()[-1] for line in maps if "libnccl.so" in line}
    return sorted(paths)
