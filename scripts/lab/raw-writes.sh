#!/usr/bin/env bash
# What the protocol costs on Soft-RoCE: the plugin's stream against a bare loop of RDMA writes.
set -euo pipefail
here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
cd "$here/../.."
. scripts/toolchain.sh

usage() {
    cat <<'TEXT'
usage: scripts/lab/raw-writes.sh [TRIPLES [MESSAGES]]

Runs blocks of MESSAGES (default 200) of 512 KiB, 8 in flight, over one path in the kernel lab: as a bare loop
of RDMA writes, as a stream of the plugin's, and as that again for control, in turn in the same processes,
TRIPLES times (default 120). Prints JSON: rates, and the median of the ratios with its 95 % interval. Nothing
else should run; as root, `nice -n -20` before it makes it so.
TEXT
}

case "${1:-}" in -h | --help) usage && exit 0 ;; esac
scripts/lab.sh --check || exit 125
use_toolchain
cargo build --locked --release -p r2ccl >&2
cargo build --locked --release -p r2ccl-plugin-tests --example raw-writes >&2
products=$(target_folder)/release
export R2CCL_PLUGIN=$products/libr2ccl.so
# The lab has one CPU: a host that moves it around makes its system calls slow, at times.
exec taskset -c "$(($(nproc) - 1))" scripts/lab.sh --limit 1800 --read "$products" "$products/examples/raw-writes" "${1:-120}" "${2:-200}"
