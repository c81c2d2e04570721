"""Two ranks, one of which is killed in the middle of traffic: the other must get an error."""

import os
import signal
import time

import torch
import torch.distributed as dist

import rank_common as common

ELEMENTS, BEFORE = 4 << 20, 20


def work():
    """The last rank kills itself; the others count the seconds until their error."""
    chosen = common.device()
    shared = common.store()
    common.join(shared, "death", chosen)
    data = torch.ones(ELEMENTS, device=chosen)
    for _ in range(BEFORE):
        dist.all_reduce(data)
        data.fill_(1.0)
    torch.cuda.synchronize()
    if common.RANK == common.RANKS - 1:
        shared.set("died", str(time.monotonic()))
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        while True:
            dist.all_reduce(data, async_op=True).wait()
            torch.cuda.synchronize()
    except dist.DistBackendError as error:
        seconds = time.monotonic() - float(shared.get("died"))
        text = str(error)
    common.write_result({"problems": [], "seconds": seconds, "error": text[:1500]})
    # The communicator is broken: leaving in order would wait for the dead.
    os._exit(0)


if __name__ == "__main__":
    common.main(work)
