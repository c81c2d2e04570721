"""One rank that splits its communicator, works on both, aborts it in mid-operation and begins anew."""

import time

import torch
import torch.distributed as dist

import rank_common as common

ELEMENTS = 262147
ABORT_LIMIT_S = 20


def summed(group, chosen, number):
    """A checked all-reduce on `group`. Returns a problem or None."""
    data = torch.full((ELEMENTS,), float(common.RANK + number), device=chosen)
    dist.all_reduce(data, group=group)
    expected = sum(range(common.RANKS)) + common.RANKS * number
    if bool((data == expected).all()):
        return None
    return f"wrong sum {data[0].item()} instead of {expected} (step {number})"


def split(chosen):
    """Parent and child used in turn, the child destroyed, the parent used on."""
    problems = [summed(None, chosen, 1)]
    # With a device bound to the parent, torch makes this one by ncclCommSplit.
    child = dist.new_group(list(range(common.RANKS)))
    for number in range(2, 12):
        problems += [summed(child, chosen, number), summed(None, chosen, number)]
    torch.cuda.synchronize()
    dist.destroy_process_group(child)
    problems.append(summed(None, chosen, 12))
    torch.cuda.synchronize()
    return problems


def abort(chosen):
    """Everybody aborts while rank 0 waits for an operation that nobody else joins."""
    if common.RANK == 0:
        dist.all_reduce(torch.ones(ELEMENTS, device=chosen), async_op=True)
        # Long enough for its first steps to be on the way, whatever the machine does.
        time.sleep(0.2)
    started = time.monotonic()
    dist.distributed_c10d._abort_process_group()
    seconds = time.monotonic() - started
    late = seconds > ABORT_LIMIT_S
    return seconds, [f"the abort took {seconds:.1f} s"] if late else []


def work():
    """Split, abort, and the same once more with new communicators."""
    chosen = common.device()
    shared = common.store()
    problems, seconds = [], []
    for turn in range(2):
        common.join(shared, f"turn{turn}", chosen)
        problems += split(chosen)
        took, late = abort(chosen)
        seconds.append(round(took, 3))
        problems += late
    common.join(shared, "last", chosen)
    problems.append(summed(None, chosen, 20))
    common.leave()
    return {"problems": [text for text in problems if text], "abort_seconds": seconds}


if __name__ == "__main__":
    common.main(work)
