"""One rank of the collectives check: each operation's result is compared with what it must be.

Inputs are patterns of (index, rank, case) in a range in which every sum is exact in the type, so
results are compared for equality, bit by bit, and any misplaced or lost chunk shows.
"""

import sys

import torch
import torch.distributed as dist

import rank_common as common

RANK, RANKS = common.RANK, common.RANKS
# Sums over all ranks stay exact below these.
EXACT = {
    torch.float64: 2**40,
    torch.float32: 2**24,
    torch.float16: 2**11,
    torch.bfloat16: 2**8,
    torch.int64: 2**40,
    torch.int32: 2**30,
    torch.uint8: 2**8 - 1,
    torch.int8: 2**7 - 1,
}
SMALL, ODD, MIDDLE = 1, 1021, 262147
F32_COUNTS = [1, 3, ODD, 16384, MIDDLE, 4 << 20, 16 << 20]


def pattern(count, dtype, rank, case):
    """`count` elements that differ by index, rank and case, in the exact range of `dtype`."""
    mixed = torch.arange(count, device="cuda", dtype=torch.int64)
    mixed.mul_(2654435761).add_((rank + 1) * 2654436389 + case * 97)
    mixed.bitwise_xor_(mixed >> 15).bitwise_and_(2**62 - 1)
    return mixed.remainder_(EXACT[dtype] // RANKS).to(dtype)


class Checker:
    """Counts cases and keeps what was wrong."""

    def __init__(self):
        self.case = 0
        self.cases = {}
        self.problems = []

    def next(self):
        """A new case number, the same on all ranks."""
        self.case += 1
        return self.case

    def check(self, kind, detail, actual, expected):
        """Compares; the first difference goes into the report."""
        self.cases[kind] = self.cases.get(kind, 0) + 1
        if torch.equal(actual, expected):
            return
        wrong = (actual != expected).flatten().nonzero().flatten()
        first = int(wrong[0])
        text = (
            f"{kind} {detail}: {len(wrong)} of {expected.numel()} elements wrong, first at "
            f"{first}: {actual.flatten()[first].item()} instead of "
            f"{expected.flatten()[first].item()}"
        )
        self.problems.append(text)


def inputs(count, dtype, case):
    """What each rank contributes to the case."""
    return [pattern(count, dtype, rank, case) for rank in range(RANKS)]


def all_reduce(checker, count, dtype):
    """Sum always, maximum too."""
    for op, combine in ((dist.ReduceOp.SUM, torch.add), (dist.ReduceOp.MAX, torch.maximum)):
        parts = inputs(count, dtype, checker.next())
        mine = parts[RANK].clone()
        dist.all_reduce(mine, op)
        expected = parts[0]
        for part in parts[1:]:
            expected = combine(expected, part)
        checker.check("all_reduce", f"{dtype} {count} {op}", mine, expected)


def all_gather(checker, count, dtype):
    """`count` elements from each rank."""
    parts = inputs(count, dtype, checker.next())
    gathered = torch.empty(count * RANKS, device="cuda", dtype=dtype)
    dist.all_gather_into_tensor(gathered, parts[RANK].clone())
    checker.check("all_gather", f"{dtype} {count}", gathered, torch.cat(parts))


def reduce_scatter(checker, count, dtype):
    """`count` elements to each rank."""
    parts = inputs(count * RANKS, dtype, checker.next())
    mine = torch.empty(count, device="cuda", dtype=dtype)
    dist.reduce_scatter_tensor(mine, parts[RANK].clone())
    expected = torch.stack(parts).sum(0, dtype=dtype)[RANK * count : (RANK + 1) * count]
    checker.check("reduce_scatter", f"{dtype} {count}", mine, expected)


def broadcast(checker, count, dtype):
    """From the first and from the last rank."""
    for root in (0, RANKS - 1):
        case = checker.next()
        mine = pattern(count, dtype, RANK, case)
        dist.broadcast(mine, root)
        expected = pattern(count, dtype, root, case)
        checker.check("broadcast", f"{dtype} {count} from {root}", mine, expected)


def all_to_all(checker, count, dtype):
    """Equal shares, then uneven ones with some of zero elements."""
    parts = inputs(count * RANKS, dtype, checker.next())
    mine = torch.empty_like(parts[RANK])
    dist.all_to_all_single(mine, parts[RANK].clone())
    expected = torch.cat([part[RANK * count : (RANK + 1) * count] for part in parts])
    checker.check("all_to_all", f"{dtype} {count}", mine, expected)

    share = [[(a + b) % 3 * (count // 2 + 1) for b in range(RANKS)] for a in range(RANKS)]
    case = checker.next()
    parts = [pattern(sum(share[rank]), dtype, rank, case) for rank in range(RANKS)]
    split = [torch.split(part, share[rank]) for rank, part in enumerate(parts)]
    expected = torch.cat([split[rank][RANK] for rank in range(RANKS)])
    mine = torch.empty_like(expected)
    received = [share[rank][RANK] for rank in range(RANKS)]
    dist.all_to_all_single(mine, parts[RANK].clone(), received, share[RANK])
    checker.check("all_to_all_uneven", f"{dtype} {count}", mine, expected)


def send_receive(checker, count, dtype):
    """Round the ring as one group, then along it one by one."""
    case = checker.next()
    following, previous = (RANK + 1) % RANKS, (RANK - 1) % RANKS
    outgoing = pattern(count, dtype, RANK, case)
    mine = torch.empty_like(outgoing)
    operations = [
        dist.P2POp(dist.isend, outgoing, following),
        dist.P2POp(dist.irecv, mine, previous),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    expected = pattern(count, dtype, previous, case)
    checker.check("send_recv", f"{dtype} {count} ring", mine, expected)

    mine = pattern(count, dtype, 0, checker.next())
    expected = mine.clone()
    if RANK > 0:
        mine.zero_()
        dist.recv(mine, RANK - 1)
    if RANK < RANKS - 1:
        dist.send(mine, RANK + 1)
    checker.check("send_recv", f"{dtype} {count} chain", mine, expected)


def two_groups(checker):
    """Two communicators of the same ranks, both at work at once."""
    groups = [dist.new_group(list(range(RANKS))) for _ in range(2)]
    parts = [inputs(MIDDLE, torch.float32, checker.next()) for _ in groups]
    mine = [part[RANK].clone() for part in parts]
    pairs = list(zip(mine, groups, strict=True))
    for _round in range(3):
        started = [dist.all_reduce(data, group=group, async_op=True) for data, group in pairs]
        for handle in started:
            handle.wait()
        for tensor, part in zip(mine, parts, strict=True):
            checker.check("two_groups", f"{MIDDLE}", tensor, torch.stack(part).sum(0))
            tensor.copy_(part[RANK])
    torch.cuda.synchronize()
    for group in groups:
        dist.destroy_process_group(group)


def cuda_graph(checker):
    """An all-reduce captured once and replayed with new inputs."""
    static = torch.zeros(MIDDLE, device="cuda")
    dist.all_reduce(static)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        dist.all_reduce(static)
    for _round in range(3):
        parts = inputs(MIDDLE, torch.float32, checker.next())
        static.copy_(parts[RANK])
        graph.replay()
        torch.cuda.synchronize()
        checker.check("cuda_graph", f"{MIDDLE}", static, torch.stack(parts).sum(0))
    del graph


def counts(dtype, level):
    """How many elements each case has."""
    if level == "few":
        return [SMALL, ODD, MIDDLE]
    if dtype == torch.float32:
        return F32_COUNTS if level == "all" else F32_COUNTS[:-2]
    return [SMALL, ODD, MIDDLE]


def work():
    """level (argument 1): `few` (two types), `many` (all types) or `all` (up to 64 MiB too)."""
    level = sys.argv[1]
    types = [torch.float32, torch.bfloat16] if level == "few" else list(EXACT)
    chosen = common.device()
    common.join(common.store(), "collectives", chosen)
    checker = Checker()
    for dtype in types:
        for count in counts(dtype, level):
            all_reduce(checker, count, dtype)
            broadcast(checker, count, dtype)
            send_receive(checker, count, dtype)
            per_rank = max(1, count // RANKS)
            all_gather(checker, per_rank, dtype)
            reduce_scatter(checker, per_rank, dtype)
            all_to_all(checker, per_rank, dtype)
    if level != "few":
        two_groups(checker)
        cuda_graph(checker)
    library = common.loaded_libnccl()
    common.leave()
    return {"problems": checker.problems[:20], "cases": checker.cases, "libnccl": library}


if __name__ == "__main__":
    common.main(work)
