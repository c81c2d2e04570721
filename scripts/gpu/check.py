"""Runs real NCCL over a net plugin on this machine's GPUs and checks what comes out.

Each part starts its own processes, every rank as a host of its own (NCCL_HOSTID), so that all
traffic crosses the plugin, on a single GPU too. Results: OUT/results.json, OUT/summary.md and
OUT/logs.tar.gz. Exit status: 0 if all parts passed or were skipped for a named reason, 1 if one
failed, 2 if the check could not start.
"""

import argparse
import json
import lzma
import shutil
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import elf
import faults
import latency
import launch
import machine
import nccl_tests
import parts
import speed

# In this order; the measurements last, since they say most when all else is known to be right.
PARTS = ["collectives", "versions", "loading", "cycles", "lifecycle", "training", "death",
         "jax", "nccl-tests", "faults", "speed", "latency"]


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="gpu-check.sh", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add = parser.add_argument
    add("--plugin", required=True, type=Path, metavar="FILE", help="libnccl-net-<name>.so")
    add("--network", default="R2CCL", help="its name in NCCL's log (default: %(default)s)")
    add("--out", type=Path, default=Path("gpu-check-results"), metavar="DIR")
    add("--faults", dest="only", action="store_const", const="faults", help="only that part")
    add("--command", type=Path, metavar="FILE",
        help="the r2ccl of the same build, which breaks NICs in the part faults")
    add("--only", default=",".join(PARTS), metavar="NAMES", help=f"of {','.join(PARTS)}")
    add("--quick", action="store_true", help="fewer sizes, cycles and steps")
    add("--libnccl", type=Path, metavar="FILE",
        help="another libnccl.so.2, or one packed as .xz, to be preloaded")
    add("--nccl-tests", type=Path, metavar="DIR", help="sources or built programs")
    add("--rounds", type=int, default=5,
        help="interleaved launches of speed, launches of latency (%(default)s)")
    add("--env", action="append", default=[], metavar="NAME=VALUE",
        help="more environment for the plugin's launches")
    add("--series", action="append", default=[], metavar="'LABEL: NAME=VALUE …'",
        help="one more series in the speed table")
    add("--limit", type=float, default=540.0, metavar="SECONDS",
        help="for everything together (%(default)s)")
    add("--strict", action="store_true", help="a speed bar that is not met is a failure")
    add("--commit", help="what to note as the commit of the plugin (default: asks git)")
    return parser.parse_args()


def fail(text):
    """Says why the check cannot start."""
    print(f"gpu-check: {text}", file=sys.stderr)
    sys.exit(2)


def settings_of(words):
    """NAME=VALUE words as a dict."""
    pairs = [word.split("=", 1) for word in words]
    wrong = [pair[0] for pair in pairs if len(pair) != 2]
    if wrong:
        fail(f"'{wrong[0]}' is not NAME=VALUE")
    return dict(pairs)


def unpacked(path, folder):
    """The library itself, taken out of its .xz if it is packed."""
    if path.suffix != ".xz":
        return path.resolve()
    target = folder / "libnccl" / "libnccl.so.2"
    target.parent.mkdir(parents=True, exist_ok=True)
    with lzma.open(path) as source, open(target, "wb") as sink:
        shutil.copyfileobj(source, sink, 1 << 22)
    header = path.parent / "nccl.h"
    if header.exists():
        shutil.copy(header, target.parent / "nccl.h")
    return target


def check_plugin(path):
    """The plugin's absolute path; ends the program if it is none."""
    if not path.exists():
        fail(f"{path} does not exist; build it with scripts/build.sh")
    if not path.name.startswith("libnccl-net-"):
        fail(f"{path.name}: NCCL before 2.21 finds only libnccl-net-NAME.so; rename it")
    try:
        if not elf.net_versions(path):
            fail(f"{path} exports no ncclNetPlugin_vN")
    except ValueError as error:
        fail(f"{path}: {error}")
    return path.resolve()


def run_part(name, context, options, more):
    """One part's result; an exception of ours is a failure of the part, not the end."""
    try:
        if name == "nccl-tests":
            return nccl_tests.run(context, options.nccl_tests)
        if name == "faults":
            return faults.run(context, options.command and options.command.resolve())
        if name == "speed":
            return speed.run(context, options.rounds, more)
        if name == "latency":
            return latency.run(context, options.rounds)
        return getattr(parts, name)(context)
    except Exception as error:
        return {"problems": [f"{type(error).__name__}: {error}"]}


def verdict(result):
    """One word."""
    if result.get("problems"):
        return "FAILED"
    return "skipped" if "skipped" in result else "passed"


def remark(name, result):
    """What the summary says beside the word."""
    if result.get("problems"):
        return result["problems"][0][:160].replace("|", "/").replace("\n", " ")
    if "skipped" in result:
        return result["skipped"]
    if "struck" in result:
        moved = {name: report["failovers"] for name, report in result["chaos"].items()}
        return f"{result['struck']} faults, paths that failed {moved}, " \
               f"{sum(result['cases'].values())} cases right, losses equal bit by bit"
    if "cases" in result:
        cases = ", ".join(f"{kind} {count}" for kind, count in result["cases"].items())
        return f"{sum(result['cases'].values())} cases: {cases}"
    if name == "versions":
        return ", ".join(result["tables"])
    if name == "cycles":
        return f"{result['cycles'][0]} cycles, growth {result['growth']['plugin'][0]}"
    if name == "lifecycle":
        return f"splits and aborts, the longest abort {result['abort_seconds']:.2f} s"
    if name == "training":
        row = result["rank0"]
        return f"{result['ranks']} ranks, {result['steps']} steps, loss {row['first']:.4f} to " \
               f"{row['last']:.4f}, equal bit by bit"
    if name == "death":
        return f"error after {result['seconds_to_error']:.2f} s"
    if "bars" in result:
        return "; ".join(f"{bar['what']} {bar['value']}" for bar in result["bars"])
    return f"{len(result.get('launches', []))} launches"


def bar_line(bar):
    """What was measured, and whether it meets what it has to; judged by its bound if it has one."""
    shown = f"at most {bar['upper']}" if "upper" in bar else bar["value"]
    word = "met" if bar["met"] else "NOT met"
    return f"* {bar['what']}: {shown} (bar {bar['bar']}): {word}"


def summary(report):
    """Markdown: the machine, a row per part, the speed tables."""
    facts, plugin = report["machine"], report["plugin"]
    torch = report["torch"]
    lines = [
        f"GPUs: {'; '.join(facts['gpus'])}. Cores: {facts['cores']}. Kernel {facts['kernel']}.",
        f"PyTorch {torch.get('torch')}, CUDA {torch.get('cuda')}, its NCCL "
        f"{torch.get('nccl_of_torch')}; NCCL in the logs: {', '.join(report['nccl']) or 'none'}.",
        f"Plugin {plugin['file']}, sha256 {plugin['sha256']}, commit {report['commit']}, "
        f"tables {' '.join(plugin['tables'])}.",
        "",
        "| part | result | s | |",
        "|---|---|---|---|",
    ]
    for name, result in report["parts"].items():
        row = [name, verdict(result), f"{result['seconds']:.0f}", remark(name, result)]
        lines.append("| " + " | ".join(row) + " |")
    for result in report["parts"].values():
        if "markdown" in result:
            lines += ["", result["markdown"], "", *map(bar_line, result["bars"])]
    for name, result in report["parts"].items():
        lines += [f"\n{name}: {text}" for text in result.get("problems", [])[:8]]
    return "\n".join(lines) + "\n"


def save(context, report):
    """Writes what is known so far, so that a check that is cut short leaves its results."""
    found = set()
    for result in report["parts"].values():
        for item in result.get("launches", []):
            found.update(item.get("nccl", []))
    report["nccl"] = sorted(found)
    (context.out / "results.json").write_text(json.dumps(report, indent=1) + "\n")
    (context.out / "summary.md").write_text(summary(report))


def pack_logs(context):
    """One file of logs, which is easier to keep and to send than a hundred."""
    folder = context.out / "logs"
    if folder.is_dir():
        with tarfile.open(context.out / "logs.tar.gz", "w:gz") as archive:
            archive.add(folder, "logs")
        shutil.rmtree(folder)


def main():
    """All parts asked for, in order."""
    options = arguments()
    wanted = [name for name in options.only.split(",") if name]
    unknown = [name for name in wanted if name not in PARTS]
    if unknown:
        fail(f"no part '{unknown[0]}'; there are {', '.join(PARTS)}")
    plugin = check_plugin(options.plugin)
    gpus = machine.gpus()
    if not gpus:
        fail("nvidia-smi shows no GPU on this machine")
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as scratch:
        sys.exit(checked(options, wanted, plugin, gpus, Path(scratch)))


def checked(options, wanted, plugin, gpus, scratch):
    """The check itself. Returns the exit status."""
    started = time.monotonic()
    context = launch.Context(
        out=options.out.resolve(), plugin=plugin, network=options.network, gpus=len(gpus),
        deadline=started + options.limit, quick=options.quick, scratch=scratch,
        libnccl=unpacked(options.libnccl, scratch) if options.libnccl else None,
        extra=settings_of(options.env),
    )
    more = []
    for text in options.series:
        label, _, words = text.partition(":")
        more.append((label.strip(), settings_of(words.split())))
    commit = options.commit or machine.commit(Path(__file__).parent)
    report = {"commit": commit, "command": sys.argv[1:], "machine": machine.facts(),
              "torch": machine.torch_facts(sys.executable, context.base_env()),
              "plugin": machine.file_facts(plugin), "parts": {}, "bars_count": options.strict}
    for name in wanted:
        begun = time.monotonic()
        print(f"gpu-check: {name} …", flush=True)
        result = run_part(name, context, options, more)
        result["seconds"] = round(time.monotonic() - begun, 1)
        report["parts"][name] = result
        print(f"gpu-check: {name} {verdict(result)} after {result['seconds']} s", flush=True)
        save(context, report)
    pack_logs(context)
    print((context.out / "summary.md").read_text())
    bars = [bar for result in report["parts"].values() for bar in result.get("bars", [])]
    missed = [bar for bar in bars if not bar["met"]]
    failed = [name for name, result in report["parts"].items() if result.get("problems")]
    return 1 if failed or (options.strict and missed) else 0


if __name__ == "__main__":
    main()
