#!/usr/bin/env bash
# Builds the plugin and the command-line tool and says where they are.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/toolchain.sh

usage() {
    cat <<'TEXT'
usage: scripts/build.sh [--debug] [-- CARGO-ARGUMENTS]

Builds libnccl-net-r2ccl.so (what NCCL loads) and r2ccl (the command) in release mode.

  --debug   the debug profile instead, as the tests use it
TEXT
}

profile=release
while [ $# -gt 0 ]; do
    case "$1" in
    --debug) profile=debug ;;
    --) shift && break ;;
    -h | --help) usage && exit 0 ;;
    *) usage >&2 && exit 2 ;;
    esac
    shift
done

scripts/setup.sh --quiet
use_toolchain
flags=()
[ "$profile" = debug ] || flags+=(--release)
cargo build --locked -p r2ccl -p r2ccl-cli "${flags[@]}" "$@"

# Cargo cannot put hyphens into a library's name, and NCCL looks for one with hyphens. A rename is
# atomic, so that a job that has the old file open keeps it whole.
products="$(target_folder)/$profile"
cp "$products/libr2ccl.so" "$products/.libnccl-net-r2ccl.so.new"
mv "$products/.libnccl-net-r2ccl.so.new" "$products/libnccl-net-r2ccl.so"
printf 'plugin:  %s\ncommand: %s\n' "$products/libnccl-net-r2ccl.so" "$products/r2ccl"
