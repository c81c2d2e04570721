#!/usr/bin/env bash
# How long a stream stands still when its NIC dies, on software NICs in a network namespace of its own.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/toolchain.sh

usage() {
    cat <<'TEXT'
usage: scripts/failover-times.sh [REPEATS]

Runs a stream over two software NICs REPEATS times (default 20) without a fault, with the address of its NIC
taken away, with all packets to it swallowed in silence, and with those of its queue pair alone, in turn;
prints the longest time between two completed messages of each run in milliseconds, and the medians. The
runs without a fault are the reference: what they take is not the fault's. Nothing else should run.
TEXT
}

case "${1:-}" in -h | --help) usage && exit 0 ;; esac
repeats=${1:-20}
if [ -z "${FAILOVER_TIMES_ALONE:-}" ]; then
    scripts/setup.sh --dev --quiet
    scripts/build.sh
    export FAILOVER_TIMES_ALONE=1
    exec unshare --net --map-root-user -- "$0" "$repeats"
fi
use_toolchain
products=$(target_folder)/release
result=$(mktemp)
trap 'rm -f "$result"' EXIT

ip link set lo up
# Rules that are made later come before what is local.
ip rule add pref 100 lookup local
ip rule del pref 0
for nic in 1 2; do ip addr add "10.9.0.$nic/32" dev lo; done
export R2CCL_FABRIC=soft R2CCL_SOFT_NICS=10.9.0.1@2G,10.9.0.2@2G R2CCL_LOG=error NCCL_SOCKET_IFNAME=lo

# The port of the side that has dialled, of the only connection of NIC 1.
dialled_port() {
    local listening
    listening=$(ss -Hltn src 10.9.0.1 | awk '{ sub(/.*:/, "", $4); print $4 }')
    ss -Htn state established src 10.9.0.1 dst 10.9.0.1 |
        awk '{ sub(/.*:/, "", $3); print $3 }' | grep -vxF "$listening" | head -n 1
}

swallow() { ip rule add pref 10 "$@" blackhole; }

moved() { awk '/lo:/ { print $2 }' /proc/net/dev; }

# await_bytes COUNT PID: waits until so many bytes more have moved; PID has to move them.
await_bytes() {
    local until=$(($(moved) + $1))
    while [ "$(moved)" -lt "$until" ]; do
        kill -0 "$2" 2>/dev/null || {
            echo 'failover-times: the stream was over too early; is this machine busy?' >&2
            exit 1
        }
        sleep 0.01
    done
}

# run FAULT: the stream, with a fault when its backup is in service; prints the longest gap.
run() {
    "$products/r2ccl" bench --plugin "$products/libnccl-net-r2ccl.so" --pattern stream --sizes 256K \
        --seconds 3 --json >"$result" &
    local job=$!
    # More than a hold-down at the rate of the NIC.
    await_bytes 500000000 "$job"
    case "$1" in
    address) ip addr del 10.9.0.1/32 dev lo ;;
    silence) swallow to 10.9.0.1 ;;
    queue-pair)
        port=$(dialled_port)
        swallow ipproto tcp sport "$port"
        swallow ipproto tcp dport "$port"
        ;;
    esac
    wait "$job"
    case "$1" in
    address) ip addr add 10.9.0.1/32 dev lo ;;
    silence | queue-pair) while ip rule del pref 10 2>/dev/null; do :; done ;;
    esac
    python3 -c 'import json, sys
run = json.load(open(sys.argv[1]))
assert run["good"], run
print(run["rows"][0]["gap_ns"] / 1e6)' "$result"
}

declare -A gaps
for _ in $(seq "$repeats"); do
    for fault in none address silence queue-pair; do
        gap=$(run "$fault")
        gaps[$fault]+="$gap "
        printf '%-10s %6.1f ms\n' "$fault" "$gap"
    done
done
for fault in none address silence queue-pair; do
    tr ' ' '\n' <<<"${gaps[$fault]}" | grep . | sort -n | awk -v fault="$fault" '
        { value[NR] = $1 }
        END { printf "%-10s median %.1f ms, worst %.1f ms of %d\n", fault, value[int((NR + 1) / 2)], value[NR], NR }'
done
