"""Facts about the machine and the files that a result is worth nothing without."""

import os
import platform
import shutil
import subprocess
from pathlib import Path

import elf


def _output(command, limit_s=60):
    if shutil.which(command[0]) is None:
        return None
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None


def gpus():
    """One line per GPU: name, memory, driver. Empty if there is none."""
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    lines = (_output(query) or "").splitlines()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible:
        lines = lines[: len(visible.split(","))]
    return [line.strip() for line in lines if line.strip()]


def torch_facts(python, env):
    """Version of PyTorch, of CUDA and of the NCCL it was built for, asked in a process."""
    program = (
        "import torch; print(torch.__version__, torch.version.cuda, "
        "'.'.join(map(str, torch.cuda.nccl.version())), torch.cuda.device_count())"
    )
    try:
        answer = subprocess.run(
            [python, "-c", program], capture_output=True, text=True, timeout=180,
            check=False, env=env,
        )
    except subprocess.TimeoutExpired:
        return {"error": "importing torch took more than 180 s"}
    if answer.returncode != 0:
        return {"error": answer.stderr.strip()[-400:]}
    version, cuda, nccl, devices = answer.stdout.split()
    return {"torch": version, "cuda": cuda, "nccl_of_torch": nccl, "devices": int(devices)}


def _memory_gib():
    with open("/proc/meminfo", encoding="utf-8") as lines:
        total = next(line for line in lines if line.startswith("MemTotal"))
    return round(int(total.split()[1]) / 2**20, 1)


def commit(near):
    """The commit of the working tree at `near`, with a mark if it has changes."""
    found = _output(["git", "-C", str(near), "rev-parse", "HEAD"])
    if found is None:
        return None
    changed = _output(["git", "-C", str(near), "status", "--porcelain", "-uno"])
    return found + ("-changed" if changed else "")


def file_facts(path):
    """Path, size, hash and net tables of a plugin."""
    path = Path(path)
    return {
        "file": path.name,
        "bytes": path.stat().st_size,
        "sha256": elf.sha256(path),
        "tables": [f"v{version}" for version in elf.net_versions(path)],
    }


def facts():
    """The machine."""
    wanted = ("NCCL_", "R2CCL_", "CUDA_", "TORCH_", "OMPI_", "FI_", "OFI_")
    settings = {k: v for k, v in sorted(os.environ.items()) if k.startswith(wanted)}
    return {
        "gpus": gpus(),
        "links": _output(["nvidia-smi", "topo", "-m"]),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": _memory_gib(),
        "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()),
        "python": platform.python_version(),
        "settings": settings,
    }
