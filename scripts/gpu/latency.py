"""How long 8 bytes take: all-reduce over the plugin against NCCL's socket transport.

Both networks are measured in turns inside the same processes (`rank_latency.py`). A launch gives
two ratios of plugin and socket, each the median over its rounds, and one of either network to
itself as a control.
"""

import math
import statistics

import launch

ROUNDS, QUICK_ROUNDS = 40, 10
# All-reduce of 8 bytes, plugin / socket transport.
BAR = 1.05
KINDS = {"single": "one at a time", "batched": "back to back"}
# Which communicators of rank_latency.py are compared: they are plugin, socket, plugin, socket.
PAIRS = {"plugin / socket": [(0, 1), (2, 3)], "plugin / plugin": [(0, 2)],
         "socket / socket": [(1, 3)]}


def interval(values):
    """Median, and the bounds that hold the true one with 95 % or more, by order statistics."""
    values = sorted(values)
    count = len(values)
    outside, below = 0.0, 0
    while below < count // 2:
        outside += math.comb(count, below) / 2**count
        if outside > 0.025:
            break
        below += 1
    low = max(below - 1, 0)
    return statistics.median(values), values[low], values[count - 1 - low]


def _ratios(turns, kind, pair):
    return [a[kind] / b[kind] for a, b in zip(turns[pair[0]], turns[pair[1]], strict=True)]


def _table(outcomes):
    """Kind -> comparison -> its ratios, one for each launch and pair; and the times in µs."""
    table = {kind: {name: [] for name in PAIRS} for kind in KINDS}
    times = {kind: {"plugin": [], "socket": []} for kind in KINDS}
    for outcome in outcomes:
        turns = outcome.ranks[0].get("turns")
        if not turns:
            continue
        for kind in KINDS:
            for name, pairs in PAIRS.items():
                for pair in pairs:
                    ratio = statistics.median(_ratios(turns, kind, pair))
                    table[kind][name].append(round(ratio, 3))
            for index, group in enumerate(turns):
                name = "plugin" if index % 2 == 0 else "socket"
                median = statistics.median(item[kind] for item in group)
                times[kind][name].append(round(median * 1e6, 2))
    return table, times


def _problems(context, outcome):
    found = [f"{outcome.name}: {text}" for text in outcome.problems]
    for log in outcome.logs:
        missing = {context.network, "Socket"} - set(log.networks)
        if missing:
            found.append(f"{log.path.name}: no 'Using network' for {sorted(missing)}")
    return found


def run(context, launches):
    """The part. Needs two GPUs: ranks that share one are time-sliced."""
    if context.gpus < 2:
        return {"skipped": "needs two GPUs, one rank each", "problems": []}
    # A communicator's own choice counts only where the environment makes none.
    env = {name: text for name, text in context.plugin_env().items() if name != "NCCL_NET"}
    rounds = str(QUICK_ROUNDS if context.quick else ROUNDS)
    arguments = ["rank_latency.py", context.network, "Socket", rounds]
    outcomes = [
        # No TUNING lines: writing one per operation would be part of the latency.
        launch.run_ranks(context, f"latency-{number}", arguments, 2, env, 120,
                         subsystems="INIT,NET,ENV")
        for number in range(launches)
    ]
    table, times = _table(outcomes)
    result = {
        "problems": [text for outcome in outcomes for text in _problems(context, outcome)],
        "launches": [outcome.report() for outcome in outcomes],
        "ratios": table, "microseconds": times, "bars": _bars(table),
    }
    result["markdown"] = markdown(table, times)
    return result


def _bars(table):
    bars = []
    for kind, words in KINDS.items():
        ratios = table[kind]["plugin / socket"]
        if ratios:
            median, _, high = interval(ratios)
            bars.append({"what": f"8 bytes, {words}, plugin / socket", "value": round(median, 3),
                         "upper": high, "bar": f"<= {BAR}", "met": high <= BAR})
    return bars


def markdown(table, times):
    """The table for a report."""
    lines = ["8-byte all-reduce, medians over the launches; ratios with 95 % intervals:", "",
             "| how | plugin | socket | " + " | ".join(PAIRS) + " |", "|---" * 6 + "|"]
    for kind, words in KINDS.items():
        cells = [f"{statistics.median(times[kind][name] or [math.nan]):.1f} µs"
                 for name in ("plugin", "socket")]
        for name in PAIRS:
            ratios = table[kind][name]
            cells.append("{:.3f} [{:.3f}, {:.3f}]".format(*interval(ratios)) if ratios else "")
        lines.append(f"| {words} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
