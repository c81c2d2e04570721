#!/usr/bin/env bash
# Simulated worlds by the hundred thousand, for hours, in portions: goes on where it was stopped.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/toolchain.sh

usage() {
    cat <<'TEXT'
usage: scripts/soak-sim.sh [WORLDS [LEDGER]]

Runs `r2ccl sim` until WORLDS worlds (default 1000000, seeds from 0 on) of exactly this core and
simulator are done, and stops at the first one that breaks a rule. LEDGER (default
target/soak-sim/CODE.txt, where CODE names the committed src/core and src/sim) gets a line for each
portion: first seed, worlds, seconds. Started again, with the same code, it goes on behind the last line.
TEXT
}

case "${1:-}" in -h | --help) usage && exit 0 ;; esac
wanted=${1:-1000000}
portion=5000
[ -z "$(git status --porcelain src/core src/sim)" ] || {
    echo 'soak-sim: commit src/core and src/sim first: the ledger speaks of committed code' >&2
    exit 1
}
code=$(git rev-parse HEAD:src/core HEAD:src/sim | cut -c1-10 | paste -sd-)
scripts/build.sh
use_toolchain
program=$(target_folder)/release/r2ccl
ledger=${2:-$(target_folder)/soak-sim/$code.txt}
mkdir -p "$(dirname "$ledger")"
[ -s "$ledger" ] || echo "# code $code" >"$ledger"
grep -qx "# code $code" "$ledger" || {
    echo "soak-sim: $ledger belongs to other code; name another file" >&2
    exit 1
}

finished() { awk '!/^#/ { sum += $2 } END { print sum + 0 }' "$ledger"; }
done_worlds=$(finished)
while [ "$done_worlds" -lt "$wanted" ]; do
    count=$((wanted - done_worlds < portion ? wanted - done_worlds : portion))
    begin=$SECONDS
    "$program" sim --first "$done_worlds" --worlds "$count" >"$ledger.last" 2>&1 || {
        status=$?
        tail -n 5 "$ledger.last" >&2
        exit "$status"
    }
    rm -f "$ledger.last"
    echo "$done_worlds $count $((SECONDS - begin))" >>"$ledger"
    done_worlds=$(finished)
    printf 'soak-sim: %s of %s worlds hold\n' "$done_worlds" "$wanted"
done
awk '!/^#/ { worlds += $2; seconds += $3 }
     END { printf "soak-sim: %d worlds hold, %.0f a second\n", worlds, worlds / (seconds ? seconds : 1) }' "$ledger"
