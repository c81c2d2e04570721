"""Starts the ranks of one launch, watches them, and collects results and NCCL's logs.

Every rank gets a host id of its own (`NCCL_HOSTID`), so NCCL takes each for a machine of its own
and sends everything between them through the network plugin, ranks that share a GPU included.
"""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import nccl_log

HERE = Path(__file__).resolve().parent
# Settings of a user's shell that would change what a check is about.
DROPPED = (
    "NCCL_ALGO NCCL_PROTO NCCL_NET NCCL_NET_PLUGIN NCCL_NET_PLUGIN_REF_COUNT NCCL_HOSTID "
    "NCCL_TUNER_PLUGIN NCCL_DEBUG NCCL_DEBUG_FILE NCCL_DEBUG_SUBSYS NCCL_P2P_DISABLE "
    "NCCL_SHM_DISABLE NCCL_MIN_NCHANNELS NCCL_MAX_NCHANNELS NCCL_NTHREADS NCCL_OOB_NET_ENABLE"
).split()
# How long the other ranks may go on when one has failed, and when asked to say where they are.
GRACE_S = 10.0
DUMP_S = 2.0


@dataclass
class Context:
    """What all launches share."""

    out: Path
    plugin: Path
    network: str
    gpus: int
    deadline: float
    scratch: Path
    libnccl: Path | None = None
    extra: dict = field(default_factory=dict)
    quick: bool = False

    def plugin_env(self, path=None):
        """Environment that makes NCCL use the plugin and nothing else."""
        return {
            "NCCL_NET_PLUGIN": str(path or self.plugin),
            "NCCL_NET": self.network,
            # Without it NCCL 2.28.3 to 2.29.7 loses a plugin after its last communicator.
            "NCCL_NET_PLUGIN_REF_COUNT": "1",
            **self.extra,
        }

    def socket_env(self):
        """Environment that makes NCCL use its own socket transport."""
        return {"NCCL_NET_PLUGIN": "none", "NCCL_NET": "Socket"}

    def base_env(self):
        """The caller's environment without what would disturb, NVLink multicast off."""
        env = {key: value for key, value in os.environ.items() if key not in DROPPED}
        # Nothing here crosses NVLink, and multicast can wedge GPUs that others share.
        env.setdefault("NCCL_NVLS_ENABLE", "0")
        return env


@dataclass
class Outcome:
    """What came of a launch. `problems` is empty if all went well."""

    name: str
    problems: list
    ranks: list
    logs: list
    seconds: float

    def report(self):
        """The part of it that goes into the JSON."""
        digest = nccl_log.digest(self.logs)
        seconds = round(self.seconds, 2)
        return {"launch": self.name, "problems": self.problems, "seconds": seconds, **digest}


def free_port():
    """A TCP port that was free a moment ago, below those that the kernel gives to outgoing
    connections (from 32768 on): the launch before may have left some of those behind."""
    while True:
        port = random.randrange(20000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port


def run_ranks(context, name, arguments, ranks, env, limit_s, **options):
    """Runs `arguments` (a Python file of this directory and its arguments) as `ranks` processes.

    options: subsystems (NCCL_DEBUG_SUBSYS), devices_visible (one GPU visible a rank), may_die
    (a set of ranks that are expected to be killed), meanwhile (called with the processes in a
    thread of its own, which must end when they do).
    """
    limit_s = min(limit_s, context.deadline - time.monotonic())
    if limit_s <= 5:
        return Outcome(name, ["no time left for it"], [{}] * ranks, [], 0.0)
    folder = context.out / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    started = time.monotonic()
    children = []
    for rank in range(ranks):
        rank_env = _rank_env(context, folder / name, rank, ranks, port, env, options)
        children.append(_start(folder / f"{name}.{rank}.out", arguments, rank_env))
    beside = threading.Thread(target=options.get("meanwhile") or (lambda _: None), args=[children])
    beside.start()
    problems = _watch(children, started + limit_s, options.get("may_die", set()))
    beside.join()
    results = [_result(folder / f"{name}.{rank}.json") for rank in range(ranks)]
    for rank, result in enumerate(results):
        problems += [f"rank {rank}: {text}" for text in result.get("problems", [])]
    for rank in _failed(children, options.get("may_die", set())):
        problems.append(f"rank {rank}: {_last_words(folder / f'{name}.{rank}.out')}")
    logs = [nccl_log.Log(folder / f"{name}.{rank}.nccl") for rank in range(ranks)]
    return Outcome(name, problems, results, logs, time.monotonic() - started)


def _rank_env(context, stem, rank, ranks, port, env, options):
    device = rank % context.gpus
    result = context.base_env()
    result.update(
        RANK=str(rank),
        WORLD_SIZE=str(ranks),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        NCCL_HOSTID=f"h{rank}",
        NCCL_DEBUG="INFO",
        NCCL_DEBUG_SUBSYS=options.get("subsystems", "INIT,NET,TUNING,ENV"),
        NCCL_DEBUG_FILE=f"{stem}.{rank}.nccl",
        GPU_CHECK_DEVICE=str(device),
        GPU_CHECK_RESULT=f"{stem}.{rank}.json",
        GPU_CHECK_NETWORK=env.get("NCCL_NET", ""),
    )
    if options.get("devices_visible"):
        result.update(CUDA_VISIBLE_DEVICES=str(device), GPU_CHECK_DEVICE="0")
    if context.libnccl is not None:
        result["LD_PRELOAD"] = str(context.libnccl)
    result.update(env)
    return result


def _start(output, arguments, env):
    command = [sys.executable, "-X", "faulthandler", str(HERE / arguments[0]), *arguments[1:]]
    with open(output, "wb") as sink:
        return subprocess.Popen(command, env=env, stdout=sink, stderr=subprocess.STDOUT)


def _failed(children, may_die):
    return [r for r, c in enumerate(children) if c.returncode != 0 and r not in may_die]


def _watch(children, deadline, may_die):
    """Waits for all; once one has failed, or time is up, ends the rest. Returns problems."""
    problems = []
    while any(child.poll() is None for child in children):
        now = time.monotonic()
        failed = [
            rank
            for rank, child in enumerate(children)
            if child.returncode not in (None, 0) and rank not in may_die
        ]
        if failed and not problems:
            problems.append(f"rank {failed[0]} ended with {children[failed[0]].returncode}")
            deadline = min(deadline, now + GRACE_S)
        if now > deadline:
            running = [rank for rank, child in enumerate(children) if child.poll() is None]
            problems.append(f"ranks {running} were still running at the limit and were killed")
            stop(children)
            break
        time.sleep(0.05)
    late = [rank for rank in _failed(children, may_die) if not problems]
    problems += [f"rank {rank} ended with {children[rank].returncode}" for rank in late]
    return problems


def stop(children):
    """Has the Python processes among `children` dump their stacks, then kills them by pid."""
    alive = [child for child in children if child.poll() is None]
    for child in alive:
        child.send_signal(signal.SIGUSR1)
    deadline = time.monotonic() + DUMP_S
    while time.monotonic() < deadline and any(child.poll() is None for child in alive):
        time.sleep(0.05)
    for child in alive:
        child.kill()
        child.wait()


def run_command(context, name, command, env, limit_s, cwd=None):
    """Runs one command to its end or limit. Returns (exit status or None, output, seconds)."""
    limit_s = min(limit_s, context.deadline - time.monotonic())
    if limit_s <= 5:
        return None, "no time left for it", 0.0
    folder = context.out / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    output = folder / f"{name}.out"
    started = time.monotonic()
    with open(output, "wb") as sink:
        child = subprocess.Popen(
            command, env=env, cwd=cwd, stdout=sink, stderr=subprocess.STDOUT
        )
        try:
            status = child.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            status = None
            # SIGTERM first: mpirun then ends its own ranks.
            child.terminate()
            try:
                child.wait(timeout=5)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
    return status, output.read_text(errors="replace"), time.monotonic() - started


def _result(path):
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}


def _last_words(path, lines=6):
    text = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
    return " | ".join(text[-lines:])[-1200:] or "said nothing"
