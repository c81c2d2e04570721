"""How fast: all-reduce over the plugin against NCCL's socket transport, in interleaved launches."""

import statistics

import launch
import nccl_log

MIB = 1 << 20
SIZES = [1 * MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB, 1024 * MIB]
# The socket transport at its best, as far as tuning by hand has found.
TUNED = {
    "socket, lo, 4 threads x 2 sockets": {
        "NCCL_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_NTHREADS": "4",
        "NCCL_NSOCKS_PERTHREAD": "2",
    },
    "socket, lo, 2 threads x 1 socket, 16 channels": {
        "NCCL_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_NTHREADS": "2",
        "NCCL_NSOCKS_PERTHREAD": "1",
        "NCCL_MIN_NCHANNELS": "16",
    },
}
PLUGIN, SOCKET = "plugin, default", "socket, default"
TUNED_ROUNDS = 2
# What the project wants to reach on two GPUs of one host, everything at its default.
BANDWIDTH_SIZE, BANDWIDTH_BAR = 256 * MIB, 2.0


def series(context, more):
    """Name -> environment of everything measured. `more`: [(name, settings)] of the caller."""
    chosen = {PLUGIN: context.plugin_env(), SOCKET: context.socket_env()}
    chosen["plugin, 16 channels"] = {**context.plugin_env(), "NCCL_MIN_NCHANNELS": "16"}
    for name, settings in TUNED.items():
        chosen[name] = {**context.socket_env(), **settings}
    for name, settings in more:
        chosen[name] = settings
    return chosen


def _launch(context, name, number, env, sizes):
    stem = "".join(letter if letter.isalnum() else "-" for letter in name)
    arguments = ["rank_speed.py", ",".join(map(str, sizes))]
    # No TUNING lines: writing one per operation would take time, too.
    outcome = launch.run_ranks(
        context, f"speed-{stem}-{number}", arguments, 2, env, 120, subsystems="INIT,NET,ENV"
    )
    if outcome.logs and "NCCL_NET" in env:
        outcome.problems += nccl_log.problems(outcome.logs, env["NCCL_NET"])
    return outcome


def _collect(outcomes):
    """Size -> median GiB/s over the launches' medians, with their range."""
    table = {}
    for outcome in outcomes:
        for size, seconds in outcome.ranks[0].get("bandwidth", {}).items():
            rate = int(size) / statistics.median(seconds) / 2**30
            table.setdefault(int(size), []).append(round(rate, 3))
    return table


def run(context, rounds, more):
    """The part. Needs two GPUs: ranks that share one are time-sliced."""
    if context.gpus < 2:
        return {"skipped": "needs two GPUs, one rank each", "problems": []}
    outcomes = {}
    chosen = series(context, more)
    for number in range(rounds):
        for name, env in chosen.items():
            if name not in (PLUGIN, SOCKET) and number >= TUNED_ROUNDS:
                continue
            sizes = SIZES[:-1] if context.quick else SIZES
            outcome = _launch(context, name, number, env, sizes)
            outcomes.setdefault(name, []).append(outcome)
    return _result(outcomes)


def _result(outcomes):
    flat = [item for items in outcomes.values() for item in items]
    table = {name: _collect(items) for name, items in outcomes.items()}
    result = {
        "problems": [f"{item.name}: {text}" for item in flat for text in item.problems],
        "launches": [item.report() for item in flat],
        "gib_per_s": {name: {str(s): r for s, r in rows.items()} for name, rows in table.items()},
        "bars": _bars(table),
    }
    result["markdown"] = markdown(table)
    return result


def _bars(table):
    ours, theirs = (table[name].get(BANDWIDTH_SIZE) for name in (PLUGIN, SOCKET))
    bars = []
    if ours and theirs:
        ratio = statistics.median(ours) / statistics.median(theirs)
        bars.append(("256 MiB, plugin / socket", round(ratio, 2), ">=", BANDWIDTH_BAR))
    return [
        {"what": what, "value": value, "bar": f"{sign} {bar}",
         "met": value >= bar if sign == ">=" else value <= bar}
        for what, value, sign, bar in bars
    ]


def markdown(table):
    """The tables for a report."""
    sizes = sorted({size for rows in table.values() for size in rows})
    lines = ["All-reduce fp32, algorithm bandwidth in GiB/s, median of the launches' medians:", ""]
    lines.append("| setting | " + " | ".join(f"{size // MIB} MiB" for size in sizes) + " |")
    lines.append("|---" * (len(sizes) + 1) + "|")
    for name, rows in table.items():
        cells = [f"{statistics.median(rows[s]):.2f}" if s in rows else "" for s in sizes]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
