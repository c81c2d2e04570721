#!/usr/bin/env bash
# Runs real NCCL over a net plugin on this machine's NVIDIA GPUs and checks what comes out.
# Needs: at least one NVIDIA GPU and a python3 with PyTorch (CUDA build). Uses JAX, nvcc and
# Open MPI where they are found. See `scripts/gpu-check.sh --help` and docs/TESTING.md.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${PYTHON:-python3}

if ! command -v "$python" >/dev/null; then
    echo "gpu-check: no '$python' found; install Python 3.10 or newer, or set PYTHON" >&2
    exit 2
fi
export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
exec "$python" "$here/gpu/check.py" "$@"
