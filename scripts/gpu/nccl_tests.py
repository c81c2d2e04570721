"""nccl-tests with data checks: built where that is possible, run by Open MPI, two ranks."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import elf
import launch
import nccl_log

# (program, arguments): one sweep of sizes each, and all types and operations for a few sizes.
SWEEP = "-b 8 -e 64M -f 8 -n 3 -w 1 -c 1".split()
SHORT = "-b 8 -e 1M -f 32 -n 2 -w 1 -c 1".split()
ALL_TYPES = "-b 8 -e 256K -f 32 -n 1 -w 0 -c 1 -d all -o all".split()
RUNS = [
    ("all_reduce", SWEEP),
    ("all_reduce", ALL_TYPES),
    ("all_gather", SWEEP),
    ("reduce_scatter", SWEEP),
    ("broadcast", SWEEP),
    ("alltoall", SWEEP),
    ("sendrecv", SWEEP),
]
RANKS = 2
VERDICT = re.compile(r"# Out of bounds values : (\d+) (\w+)")
AVERAGE = re.compile(r"# Avg bus bandwidth\s*: ([\d.]+)")
ROW = re.compile(r"^ *\d+ +\d+ +\w+ +\w+ +-?\d+ ", re.MULTILINE)
# Each rank its own host id, GPU and log; $1 is the log's stem, $2 the number of GPUs.
WRAPPER = """#!/bin/sh
stem=$1 gpus=$2
shift 2
rank=$OMPI_COMM_WORLD_RANK
export NCCL_HOSTID=h$rank NCCL_DEBUG_FILE=$stem.$rank.nccl NCCL_TESTS_DEVICE=0
export CUDA_VISIBLE_DEVICES=$((rank % gpus))
exec "$@"
"""


def default_libnccl():
    """The libnccl of the Python packages, None if there is none."""
    try:
        import nvidia.nccl as package
    except ImportError:
        return None
    found = Path(list(package.__path__)[0]) / "lib" / "libnccl.so.2"
    return found if found.exists() else None


def header_of(libnccl):
    """The nccl.h that belongs to a library: beside it, or in ../include."""
    for place in (libnccl.parent / "nccl.h", libnccl.parent.parent / "include" / "nccl.h"):
        if place.exists():
            return place
    return None


def nccl_home(context, libnccl):
    """A folder with include/nccl.h and lib/libnccl.so of one version."""
    home = context.scratch / "nccl-home"
    shutil.rmtree(home, ignore_errors=True)
    (home / "include").mkdir(parents=True)
    (home / "lib").mkdir()
    for name in ("libnccl.so", "libnccl.so.2"):
        (home / "lib" / name).symlink_to(libnccl)
    header = header_of(libnccl)
    if header is not None:
        (home / "include" / "nccl.h").symlink_to(header)
    return home


def programs(source):
    """The folder under `source` with the built programs, None if there is none."""
    for folder in (source, source / "build"):
        if (folder / "all_reduce_perf").exists():
            return folder
    return None


def _mpi_home():
    mpicc = shutil.which("mpicc")
    asked = [mpicc, "--showme:incdirs"] if mpicc else None
    if asked:
        answer = subprocess.run(asked, capture_output=True, text=True, timeout=30, check=False)
        for folder in answer.stdout.split():
            if (Path(folder) / "mpi.h").exists():
                return Path(folder).parent
    return None


def build(context, source, home):
    """Builds the sources in a copy of their own. Returns (folder or None, problem or None)."""
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not Path(nvcc).exists():
        return None, "nccl-tests are not built and there is no nvcc"
    mpi = _mpi_home()
    if mpi is None:
        return None, "nccl-tests are not built and there is no Open MPI (mpicc)"
    copy = context.scratch / "nccl-tests"
    shutil.copytree(source, copy, dirs_exist_ok=True)
    command = [
        "make", f"-j{os.cpu_count()}", "MPI=1", f"MPI_HOME={mpi}", f"NCCL_HOME={home}",
        f"CUDA_HOME={Path(nvcc).resolve().parent.parent}", "CUDARTLIB=cudart_static",
        "NVCC_GENCODE=-arch=native",
    ]
    env = context.base_env()
    status, output, seconds = launch.run_command(
        context, "nccl-tests-build", command, env, 240, cwd=copy
    )
    if status != 0:
        return None, f"nccl-tests did not build in {seconds:.0f} s: {output[-800:]}"
    return programs(copy), None


def _environment(context, home, protocol):
    env = context.base_env()
    paths = [str(home / "lib"), str(context.plugin.parent), env.get("LD_LIBRARY_PATH", "")]
    env.update(context.plugin_env())
    env.update(
        # The name without prefix and suffix: releases before 2.21 take nothing else.
        NCCL_NET_PLUGIN=context.plugin.name.removeprefix("libnccl-net-").removesuffix(".so"),
        LD_LIBRARY_PATH=":".join(path for path in paths if path),
        NCCL_DEBUG="INFO",
        NCCL_DEBUG_SUBSYS="INIT,NET,TUNING,ENV",
        OMPI_ALLOW_RUN_AS_ROOT="1",
        OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
    )
    if protocol:
        env["NCCL_PROTO"] = protocol
    return env


def _run(context, folder, home, number, program, arguments, protocol):
    name = f"nccl-tests-{number}-{program}-{protocol or 'default'}"
    wrapper = context.scratch / "nccl-tests-rank.sh"
    wrapper.write_text(WRAPPER)
    wrapper.chmod(0o755)
    stem = context.out / "logs" / name
    command = ["mpirun", "-np", str(RANKS), "--oversubscribe", "--bind-to", "none",
               "--mca", "btl", "self,vader", "--mca", "pml", "ob1"]
    command += [str(wrapper), str(stem), str(context.gpus)]
    command += [str(folder / f"{program}_perf"), "-g", "1", *arguments]
    env = _environment(context, home, protocol)
    status, output, seconds = launch.run_command(context, name, command, env, 120)
    logs = [nccl_log.Log(f"{stem}.{rank}.nccl") for rank in range(RANKS)]
    outcome = launch.Outcome(name, _verdict(status, output), [], logs, seconds)
    if outcome.problems and not any(not log.empty for log in logs):
        return outcome, output
    version = next((log.version for log in logs if log.version), None)
    table = version and nccl_log.expected_table(version, elf.net_versions(context.plugin))
    checked = protocol if program not in ("alltoall", "sendrecv") else None
    outcome.problems += nccl_log.problems(logs, context.network, table, checked)
    return outcome, output


def _verdict(status, output):
    problems = [] if status == 0 else [f"ended with {status}: {output.strip()[-600:]}"]
    found = VERDICT.search(output)
    if found is None:
        problems.append("no verdict on the data")
    elif found.group(1) != "0" or found.group(2) != "OK":
        problems.append(f"wrong data: {found.group(0)}")
    if not ROW.search(output):
        problems.append("no rows of results")
    return problems


def run(context, source):
    """The part. `source`: a folder with nccl-tests' sources or programs, None to skip."""
    if source is None:
        return {"skipped": "no --nccl-tests DIR", "problems": []}
    if shutil.which("mpirun") is None:
        return {"problems": ["nccl-tests need Open MPI's mpirun: install it, or leave them out"]}
    libnccl = context.libnccl or default_libnccl()
    if libnccl is None:
        return {"problems": ["no libnccl.so.2 found: name one with --libnccl FILE"]}
    home = nccl_home(context, Path(libnccl))
    folder, problem = programs(Path(source)), None
    if folder is None:
        folder, problem = build(context, Path(source), home)
    if problem:
        return {"problems": [problem]}
    runs = [(program, arguments, "Simple") for program, arguments in RUNS]
    runs += [("all_reduce", SHORT, "LL"), ("all_gather", SHORT, "LL")]
    if context.quick:
        runs = [(program, SHORT, protocol) for program, _a, protocol in runs[:1] + runs[2:]]
    result = {"problems": [], "launches": [], "libnccl": str(libnccl)}
    for number, (program, arguments, protocol) in enumerate(runs):
        outcome, output = _run(context, folder, home, number, program, arguments, protocol)
        average = AVERAGE.search(output)
        report = {**outcome.report(), "arguments": " ".join(arguments),
                  "rows": len(ROW.findall(output)),
                  "bus_gb_per_s": float(average.group(1)) if average else None}
        result["launches"].append(report)
        result["problems"] += [f"{outcome.name}: {text}" for text in outcome.problems]
    return result
