#!/usr/bin/env bash
# A thousand deaths and returns of a NIC under one checked job.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/toolchain.sh

usage() {
    cat <<'TEXT'
usage: scripts/soak-faults.sh [--lab] [CYCLES]

Takes the addresses of two software NICs away and gives them back in turn, CYCLES times (default 1000),
while a checked stream runs, and asks that memory, descriptors and threads stay as they are and that the
last cycles are as fast as the first. Some ten minutes.

  --lab   an RDMA NIC in the kernel lab instead, cut off in every way under a checked all-reduce;
          needs scripts/lab.sh --setup
TEXT
}

lab=0
case "${1:-}" in
-h | --help) usage && exit 0 ;;
--lab) lab=1 && shift ;;
esac
scripts/setup.sh --dev
use_toolchain
export PLUGIN_TEST_CYCLES=${1:-1000}
if [ "$lab" = 1 ]; then exec scripts/lab/verbs.sh --nocapture a_job_outlives_every_cut; fi
cargo build --locked --workspace
exec cargo test --locked -p r2ccl-plugin-tests --test faults -- \
    --exact cycles_leave_nothing_behind --nocapture
