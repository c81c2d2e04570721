#!/usr/bin/env bash
# All checks of this repository, cheap ones first. CI runs this very script.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/toolchain.sh

usage() {
    cat <<'TEXT'
usage: scripts/test.sh [--quick]

fmt, clippy, documentation, build, generated code, tests; stops at the first phase that fails. Where the
kernel lab is ready (scripts/lab.sh --setup), its own test and those of RDMA devices run as well. With
CI=true in the environment it is made ready first, and it is a failure if that cannot be done.

  --quick   build and tests only, without the lab
TEXT
}

# The release whose formatting and lints count. Others know other lints: they only inform.
LINT_RELEASE=1.95

quick=0
for argument in "$@"; do
    case "$argument" in
    --quick) quick=1 ;;
    -h | --help) usage && exit 0 ;;
    *) usage >&2 && exit 2 ;;
    esac
done

phase_names=() phase_seconds=()

# phase NAME COMMAND...: runs it, remembers its time, ends the script if it fails.
phase() {
    local name=$1 begin=$SECONDS
    shift
    printf '\n== %s\n' "$name"
    "$@" || {
        printf 'test.sh: phase "%s" failed (%s)\n' "$name" "$*" >&2
        exit 1
    }
    phase_names+=("$name") phase_seconds+=($((SECONDS - begin)))
}

# A lint phase: strict with the toolchain that the lints are kept clean for.
lint() {
    if "$@"; then return 0; fi
    case "$(rustc --version)" in
    "rustc $LINT_RELEASE."*) return 1 ;;
    *) printf 'test.sh: not counted, since only %s decides here: %s\n' "$LINT_RELEASE" "$*" ;;
    esac
}

clippy() { lint cargo clippy --locked --workspace --all-targets -- -D warnings; }
# For readers of the code: links to private items lead somewhere here.
documentation() {
    RUSTDOCFLAGS='-D warnings -A rustdoc::private_intra_doc_links' lint \
        cargo doc --locked --workspace --no-deps --document-private-items --quiet
}

report_times() {
    local index
    printf '\n== times\n'
    for index in "${!phase_names[@]}"; do
        printf '%5s s  %s\n' "${phase_seconds[$index]}" "${phase_names[$index]}"
    done
}

have_nextest() { cargo nextest --version >/dev/null 2>&1; }

# Documentation examples, which nextest does not run.
examples() { cargo test --locked --workspace --doc --quiet; }

# Runs all tests; the last line is a summary.
tests() {
    if have_nextest; then
        cargo nextest run --locked --workspace --no-fail-fast
        return
    fi
    local log status=0
    log=$(mktemp)
    cargo test --locked --workspace --no-fail-fast 2>&1 | tee "$log" || status=$?
    awk '/^test result:/ { passed += $4; failed += $6; skipped += $8 }
        END { printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped }' "$log"
    rm -f "$log"
    return "$status"
}

if [ "$quick" = 1 ]; then scripts/setup.sh --quiet; else scripts/setup.sh --dev; fi
use_toolchain

if [ "$quick" = 0 ]; then
    if cargo fmt --version >/dev/null 2>&1; then
        phase format lint cargo fmt --all --check
    else
        echo 'test.sh: rustfmt is absent, formatting is not checked'
    fi
    if cargo clippy --version >/dev/null 2>&1; then
        phase clippy clippy
    else
        echo 'test.sh: clippy is absent, lints are not checked'
    fi
    phase documentation documentation
fi
# The tests in plugin-tests load the plugin and run the command that this leaves beside them.
phase build cargo build --locked --workspace
if [ "$quick" = 0 ]; then
    phase bindings scripts/regen-bindings.sh --check
    if have_nextest; then phase examples examples; fi
    if command -v cargo-deny >/dev/null; then
        phase dependencies cargo deny --offline check bans licenses sources
    fi
    if [ "${CI:-}" = true ]; then phase 'kernel of the lab' scripts/lab.sh --setup; fi
    if scripts/lab.sh --check; then
        phase 'kernel lab' scripts/lab/selftest.sh
        phase 'RDMA devices' scripts/lab/verbs.sh
    else
        echo 'test.sh: the kernel lab is not tested, and the tests of RDMA devices count as skipped'
    fi
fi
report_times
printf '\n== tests\n'
tests
