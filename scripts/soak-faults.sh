#!/usr/bin/env bash
# A thousand deaths and returns of a NIC under one checked job.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/toolchain.sh

usage() {
    cat <<'TEXT'
usage: scripts/soak-faults.sh [CYCLES]

Takes the addresses of two software NICs away and gives them back in turn, CYCLES times (default 1000),
while a checked stream runs, and asks that memory, descriptors and threads stay as they are. Some ten minutes.
TEXT
}

case "${1:-}" in -h | --help) usage && exit 0 ;; esac
scripts/setup.sh --dev
use_toolchain
cargo build --locked --workspace
PLUGIN_TEST_CYCLES=${1:-1000} cargo test --locked -p r2ccl-plugin-tests --test faults -- \
    --exact cycles_leave_nothing_behind --nocapture
