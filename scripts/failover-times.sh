#!/usr/bin/env bash
# How long a stream stands still when its NIC dies, on software NICs in a network namespace of its own.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/toolchain.sh

usage() {
    cat <<'TEXT'
usage: scripts/failover-times.sh [REPEATS [FAULT...]]

Runs a checked stream over two software NICs; REPEATS times (default 20) each FAULT strikes and is repaired.
Prints the longest time between two completed messages with the fault and without, and medians, 99th
percentiles and worst at the end. Two seconds for each fault; nothing else should run. Faults, all by default:
  address     the NIC's address is taken away, which is an event
  silence     all packets to it are swallowed in silence
  queue-pair  those of its queue pair alone are; it is the NIC that goes on
TEXT
}

case "${1:-}" in -h | --help) usage && exit 0 ;; esac
repeats=${1:-20}
faults=("${@:2}")
[ ${#faults[@]} != 0 ] || faults=(address silence queue-pair)
if [ -z "${FAILOVER_TIMES_ALONE:-}" ]; then
    scripts/setup.sh --dev --quiet
    scripts/build.sh
    export FAILOVER_TIMES_ALONE=1
    exec unshare --net --map-root-user -- "$0" "$repeats" "${faults[@]}"
fi
use_toolchain
products=$(target_folder)/release
. scripts/failover-loop.sh

ip link set lo up
# Rules that are made later come before what is local.
ip rule add pref 100 lookup local
ip rule del pref 0
for nic in 1 2; do ip addr add "10.9.0.$nic/32" dev lo; done
export R2CCL_FABRIC=soft R2CCL_SOFT_NICS=10.9.0.1@2G,10.9.0.2@2G R2CCL_LOG=error NCCL_SOCKET_IFNAME=lo
export R2CCL_HOLD_DOWN=50ms R2CCL_FLAP_DAMPING=0
# A portion is 157 MB, or 0.6 s.
# shellcheck disable=SC2034
readonly SIZE=256K MESSAGES=600 MIDDLE=60000000

stream() {
    exec "$products/r2ccl" bench --plugin "$products/libnccl-net-r2ccl.so" --pattern stream --check \
        --sizes "$(yes "$SIZE" | head -n "$1" | paste -sd,)" --iterations "$MESSAGES"
}

moved() { awk '/lo:/ { print $2 }' /proc/net/dev; }

# The port of the side that has dialled, of the only connection of NIC 1.
dialled_port() {
    local listening
    listening=$(ss -Hltn src 10.9.0.1 | awk '{ sub(/.*:/, "", $4); print $4 }')
    ss -Htn state established src 10.9.0.1 dst 10.9.0.1 |
        awk '{ sub(/.*:/, "", $3); print $3 }' | grep -vxF "$listening" | head -n 1
}

swallow() { ip rule add pref 10 "$@" blackhole; }

strike() {
    local port
    case "$1" in
    address) ip addr del 10.9.0.1/32 dev lo ;;
    silence) swallow to 10.9.0.1 ;;
    queue-pair)
        port=$(dialled_port)
        swallow ipproto tcp sport "$port"
        swallow ipproto tcp dport "$port"
        ;;
    *) usage >&2 && exit 2 ;;
    esac
}

repair() {
    case "$1" in
    address) ip addr add 10.9.0.1/32 dev lo ;;
    *) while ip rule del pref 10 2>/dev/null; do :; done ;;
    esac
}

measure "$repeats" "${faults[@]}"
