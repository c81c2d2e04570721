#!/usr/bin/env bash
# Installs what building R2CCL needs on Debian (12 or newer) and Ubuntu (22.04 or newer).
# Calls no package manager when nothing is missing. Works as root or through sudo.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/toolchain.sh

usage() {
    cat <<'TEXT'
usage: scripts/setup.sh [--dev] [--quiet]

Installs a C compiler, a Rust toolchain and what translates the headers of libibverbs (cmake,
libclang and a few libraries), unless they are there. A cargo that is new enough is taken as it is;
else the newest one that the distribution packages is installed.

  --dev     also what scripts/test.sh needs: rustfmt, clippy, nm, ip
  --quiet   say nothing when nothing is missing
TEXT
}

dev=0 quiet=0
for argument in "$@"; do
    case "$argument" in
    --dev) dev=1 ;;
    --quiet) quiet=1 ;;
    -h | --help) usage && exit 0 ;;
    *) usage >&2 && exit 2 ;;
    esac
done

say() { printf 'setup: %s\n' "$*"; }
die() {
    printf 'setup: %s\n' "$@" >&2
    exit 1
}

needed=$(rust_needed)
missing=()     # packages
want_rust=0    # the toolchain is missing or too old
want_lint=0    # rustfmt or clippy is missing

have_clang() {
    ldconfig -p 2>/dev/null | grep -q 'libclang[-.0-9]*\.so' && return 0
    compgen -G '/usr/lib/llvm-*/lib/libclang[-.][0-9s]*' >/dev/null
}

# The crate ibverbs-sys configures rdma-core to read its headers; nothing of it ends in our products.
find_missing_for_headers() {
    local program
    for program in cmake make python3; do
        command -v "$program" >/dev/null || missing+=("$program")
    done
    command -v pkg-config >/dev/null || missing+=(pkg-config)
    [ -e /usr/include/infiniband/verbs.h ] || missing+=(libibverbs-dev)
    pkg-config --exists libnl-3.0 2>/dev/null || missing+=(libnl-3-dev)
    pkg-config --exists libnl-route-3.0 2>/dev/null || missing+=(libnl-route-3-dev)
    have_clang || missing+=(libclang-dev)
}

find_missing() {
    printf '#include <stdlib.h>\n' | cc -E - >/dev/null 2>&1 || missing+=(gcc libc6-dev)
    [ -e /etc/ssl/certs/ca-certificates.crt ] || [ -d /etc/pki ] || missing+=(ca-certificates)
    find_missing_for_headers
    use_toolchain || want_rust=1
    [ "$dev" = 1 ] || return 0
    command -v nm >/dev/null || missing+=(binutils)
    command -v ip >/dev/null || missing+=(iproute2)
    if [ "$want_rust" = 1 ]; then
        want_lint=1
    else
        cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 || want_lint=1
    fi
}

# Runs a command as root.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        die "'$*' needs root and there is no sudo." "Run scripts/setup.sh as root once."
    fi
}

# apt's candidate of package $1 as MAJOR.MINOR, empty if there is none.
packaged_version() {
    LC_ALL=C apt-cache policy "$1" 2>/dev/null |
        sed -nE 's/^  Candidate: ([0-9]+:)?([0-9]+\.[0-9]+).*/\2/p'
}

# Lines "VERSION RUSTC CARGO RUSTFMT CLIPPY", newest first, of what the distribution packages.
# Debian keeps a second, newer toolchain for its browsers (-web); Ubuntu has one a release (-1.NN).
packaged_toolchains() {
    {
        echo "$(packaged_version rustc) rustc cargo rustfmt rust-clippy"
        echo "$(packaged_version rustc-web) rustc-web cargo-web rustfmt-web rust-web-clippy"
        apt-cache pkgnames rustc-1. | sed -nE 's/^rustc-(1\.[0-9]+)$/\1/p' |
            sed -E 's/.*/& rustc-& cargo-& rustfmt-& rust-&-clippy/'
    } | grep -E '^[0-9]' | sort -rV
}

# Adds the packages of the newest toolchain that is new enough and removes nothing of the user's.
choose_toolchain() {
    local version rustc cargo rustfmt clippy found=none
    while read -r version rustc cargo rustfmt clippy; do
        if ! version_at_least "$version" "$needed"; then
            [ "$found" != none ] || found="none, the newest is $version"
            break
        fi
        if apt-get -s -q --no-remove --no-install-recommends install "$rustc" "$cargo" \
            >/dev/null 2>&1; then
            say "taking the distribution's Rust $version ($rustc, $cargo)"
            missing+=("$rustc" "$cargo")
            [ "$dev" = 0 ] || add_if_packaged "$rustfmt" "$clippy"
            return 0
        fi
        found="$version, but not beside what is installed (try: apt-get -s install $cargo)"
    done <<TOOLCHAINS
$(packaged_toolchains)
TOOLCHAINS
    die "R2CCL needs Rust $needed or newer; new enough in this distribution's packages: $found." \
        "Install a toolchain with rustup (https://rustup.rs), then run this script again."
}

add_if_packaged() {
    local package
    for package in "$@"; do
        [ -z "$(packaged_version "$package")" ] || missing+=("$package")
    done
}

# rustfmt and clippy of the toolchain that is already there; scripts/test.sh skips what stays absent.
choose_lint() {
    local owner
    owner=$(dpkg -S "$(readlink -f "$(command -v rustc)")" 2>/dev/null | cut -d: -f1 || true)
    case "$owner" in
    rustc) add_if_packaged rustfmt rust-clippy ;;
    rustc-web) add_if_packaged rustfmt-web rust-web-clippy ;;
    rustc-1.*) add_if_packaged "rustfmt-${owner#rustc-}" "rust-${owner#rustc-}-clippy" ;;
    *) say "rustfmt or clippy is missing; with rustup: rustup component add rustfmt clippy" ;;
    esac
}

find_missing
if [ "${#missing[@]}" = 0 ] && [ "$want_rust" = 0 ] && [ "$want_lint" = 0 ]; then
    [ "$quiet" = 1 ] || say "nothing to install ($(rustc --version), $(cc --version | head -n1))"
    exit 0
fi

if [ "$want_lint" = 1 ] && [ "$want_rust" = 0 ] && [ "${#missing[@]}" = 0 ]; then
    case "$(command -v rustc)" in
    /usr/*) ;;
    *) choose_lint && exit 0 ;;
    esac
fi

if ! command -v apt-get >/dev/null; then
    [ "$want_rust" = 0 ] || missing+=("Rust $needed or newer (https://rustup.rs)")
    die "no apt-get here: please install by hand: ${missing[*]}"
fi

say "reading the package lists (apt-get update)"
as_root apt-get update -q -o DPkg::Lock::Timeout=120 >/dev/null ||
    say "apt-get update failed; going on with the lists that are there"
if [ "$want_rust" = 1 ]; then choose_toolchain; elif [ "$want_lint" = 1 ]; then choose_lint; fi
[ "${#missing[@]}" != 0 ] || exit 0

say "installing: ${missing[*]}"
as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-remove \
    --no-install-recommends -o DPkg::Lock::Timeout=120 "${missing[@]}" >/dev/null ||
    die "apt-get could not install: ${missing[*]}" "Its own message is above."
use_toolchain || die "the toolchain was installed, but no cargo $needed or newer is found in PATH."
say "done ($(rustc --version))"
