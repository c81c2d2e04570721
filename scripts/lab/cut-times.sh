#!/usr/bin/env bash
# How long a stream stands still when its RDMA NIC is cut off, in the kernel lab with NCCL's own timers.
set -euo pipefail
here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
cd "$here/../.."
. scripts/toolchain.sh

usage() {
    cat <<'TEXT'
usage: scripts/lab/cut-times.sh [REPEATS [HOW...]]

Runs a checked stream between the two hosts of the kernel lab; REPEATS times (default 20) its receiver's NIC
is cut off in each HOW of lab-cut (default: carrier admin deaf mute cut rdma pair) and healed. Prints the
longest time between two completed messages with the cut and without, and medians, 99th percentiles and worst at
the end. A few seconds for each cut; nothing else should run.
TEXT
}

case "${1:-}" in -h | --help) usage && exit 0 ;; esac
repeats=${1:-20}
ways=("${@:2}")
[ ${#ways[@]} != 0 ] || ways=(carrier admin deaf mute cut rdma pair)
if [ -z "${LAB:-}" ]; then
    scripts/lab.sh --check || exit 125
    scripts/build.sh >&2
    use_toolchain
    products=$(target_folder)/release
    export CUT_TIMES_OF=$products
    # The lab has one CPU: a host that moves it around makes its system calls slow, at times.
    exec taskset -c "$(($(nproc) - 1))" scripts/lab.sh --limit $((60 + repeats * ${#ways[@]} * 12)) \
        --read "$products" "$here/cut-times.sh" "$repeats" "${ways[@]}"
fi
products=$CUT_TIMES_OF
. scripts/failover-loop.sh
export R2CCL_FABRIC=verbs R2CCL_LOG=error R2CCL_HOLD_DOWN=50ms R2CCL_FLAP_DAMPING=0
export NCCL_IB_TIMEOUT=20 NCCL_IB_RETRY_CNT=7
# shellcheck disable=SC2034
readonly SIZE=64K MESSAGES=6000 MIDDLE=100000000

stream() {
    exec "$products/r2ccl" bench --plugin "$products/libnccl-net-r2ccl.so" --pattern stream --check \
        --env 0:NCCL_IB_HCA=rxe_a --env 1:NCCL_IB_HCA=rxe_b --nics 0 \
        --sizes "$(yes "$SIZE" | head -n "$1" | paste -sd,)" --iterations "$MESSAGES"
}

moved() { echo $(($(cat /sys/class/net/b0/statistics/rx_bytes) + $(cat /sys/class/net/b1/statistics/rx_bytes))); }
strike() { lab-cut b0 "$1"; }
repair() { lab-heal b0; }

measure "$repeats" "${ways[@]}"
