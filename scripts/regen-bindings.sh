#!/bin/sh
# Makes src/abi/src/bindings.rs anew from nccl-headers, or with --check says whether it is current.
# Needs libclang (Debian: libclang-dev clang) and rustfmt.
set -eu
cd "$(dirname "$0")/.."

case "${1:-}" in
--check)
    exec cargo test --quiet -p r2ccl-abi --features bindgen --test regeneration
    ;;
"") ;;
*)
    echo "usage: scripts/regen-bindings.sh [--check]" >&2
    exit 2
    ;;
esac

# Cargo names the folder that the build script wrote to.
out_dir=$(cargo build --quiet -p r2ccl-abi --features bindgen --message-format=json |
    sed -n 's/.*"reason":"build-script-executed".*r2ccl-abi.*"out_dir":"\([^"]*\)".*/\1/p')
cp "$out_dir/bindings.rs" src/abi/src/bindings.rs
echo "wrote src/abi/src/bindings.rs"
