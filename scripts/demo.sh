#!/usr/bin/env bash
# From a fresh checkout to a running demonstration: installs what is missing, builds, runs `r2ccl demo`.
# Arguments go to `r2ccl demo`; scripts/demo.sh --help lists them.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/toolchain.sh

scripts/build.sh
use_toolchain
exec "$(target_folder)/release/r2ccl" demo "$@"
