#!/usr/bin/env bash
# Tries RDMA devices in the kernel lab: the conformance list, faults, and the plugin between two hosts.
set -euo pipefail
here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
cd "$here/../.."
. scripts/toolchain.sh

usage() {
    cat <<'TEXT'
usage: scripts/lab/verbs.sh [TEST-NAME...]

Builds the tests of plugin-tests/tests/verbs and runs them in the kernel lab: three minutes and a half
beside the build. Needs scripts/lab.sh --setup. TEST-NAMEs, or parts of them, choose among the tests.
TEXT
}

case "${1:-}" in -h | --help) usage && exit 0 ;; esac
scripts/lab.sh --check || exit 125
use_toolchain
cargo build --locked -p r2ccl -p r2ccl-cli
# The name of the program that cargo has made.
tests=$(cargo test --locked -p r2ccl-plugin-tests --test verbs --no-run 2>&1 | tee /dev/stderr |
    sed -nE 's/^ *Executable .*\((.*)\)$/\1/p')
[ -n "$tests" ] || exit 1
# The wires are there once: one test at a time.
exec scripts/lab.sh --limit $((400 + 5 * ${PLUGIN_TEST_CYCLES:-0})) --read "$(target_folder)" "$tests" --ignored --test-threads=1 "$@"
