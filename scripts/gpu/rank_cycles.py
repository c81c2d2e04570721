"""One rank that makes and destroys its communicators many times and watches what that costs."""

import gc
import os
import sys

import torch
import torch.distributed as dist

import rank_common as common

ELEMENTS = 262147


def usage():
    """Open descriptors, threads and resident bytes of this process."""
    with open("/proc/self/status", encoding="utf-8") as status:
        fields = dict(line.split(":", 1) for line in status if ":" in line)
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": int(fields["Threads"]),
        "rss_kib": int(fields["VmRSS"].split()[0]),
    }


class LogTail:
    """Reads what NCCL has added to its log since the last look."""

    def __init__(self, path):
        self.path, self.offset = path, 0

    def read(self):
        """The new text."""
        with open(self.path, "rb") as log:
            log.seek(self.offset)
            new = log.read()
        self.offset += len(new)
        return new.decode(errors="replace")


def cycle(number, shared, chosen, log):
    """Makes the group, moves data, destroys it. Returns a problem or None."""
    common.join(shared, f"cycle{number}", chosen)
    data = torch.full((ELEMENTS,), float(common.RANK + number), device=chosen)
    dist.all_reduce(data)
    expected = sum(range(common.RANKS)) + common.RANKS * number
    right = bool((data == expected).all())
    common.leave()
    text = log.read()
    network = os.environ["GPU_CHECK_NETWORK"]
    if not right:
        return f"cycle {number}: wrong sum {data[0].item()} instead of {expected}"
    if f"Using network {network}" not in text:
        return f"cycle {number}: no 'Using network {network}' in NCCL's log"
    return None


def work():
    """cycles (argument 1)."""
    cycles = int(sys.argv[1])
    chosen = common.device()
    shared = common.store()
    log = LogTail(os.environ["NCCL_DEBUG_FILE"])
    problems, series = [], []
    for number in range(cycles):
        problem = cycle(number, shared, chosen, log)
        if problem:
            problems.append(problem)
            break
        gc.collect()
        series.append(usage())
    return {"problems": problems, "series": series, "libnccl": common.loaded_libnccl()}


if __name__ == "__main__":
    common.main(work)
