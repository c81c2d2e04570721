#!/usr/bin/env bash
# Builds the lab's kernel, once for each version of this file and of kernel.config. lab.sh calls it.
set -euo pipefail
lab=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)

usage() {
    cat <<'TEXT'
usage: scripts/lab/kernel.sh [--path]

Prints the file name of the lab's kernel: User-Mode Linux with Soft-RoCE, built from the newest kernel
source that the distribution packages. Builds it first if it is not there: about four minutes on two
CPUs, 160 MB of download, 2 GB of scratch space in LAB_CACHE (default ~/.cache/r2ccl-lab).

  --path   the name only; fails if the kernel is not there
TEXT
}

cache=${LAB_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/r2ccl-lab}
scratch=$cache/build

say() { printf 'lab: %s\n' "$*" >&2; }
die() {
    printf 'lab: %s\n' "$@" >&2
    exit 1
}

# The newest kernel source that apt knows, as a package name. Those with more words are variants.
newest_source() {
    apt-cache pkgnames linux-source- | grep -E '^linux-source-[0-9.]+$' | sort -V | tail -n1 || true
}

# Unpacks the kernel's source. Downloading a package needs no root, installing it would.
fetch() {
    local package tarball
    package=$(newest_source)
    [ -n "$package" ] || die "apt knows no linux-source package." \
        "Run 'apt-get update' as root; on other systems than Debian and Ubuntu the lab does not work."
    say "fetching $package"
    # For root, apt would hand the download to a user who may not write here, and complain.
    apt-get -qq -o APT::Sandbox::User=root download "$package" >&2 ||
        die "apt could not download $package; run 'apt-get update' as root and try again."
    dpkg-deb --extract ./*.deb .
    tarball=$(find usr/src -type f -name 'linux-source-*.tar.*' | head -n1)
    [ -n "$tarball" ] || die "$package holds no linux-source-*.tar.*"
    mkdir source
    tar -xf "$tarball" -C source --strip-components=1
    rm -rf usr ./*.deb
}

# What no option can say.
patch_source() {
    # Before 6.13 the kernel keeps 2696 bytes for the host's registers, and a CPU with AMX has more:
    # the first process would die.
    sed -i 's/HOST_FP_SIZE, 2696/HOST_FP_SIZE, 11264/' arch/x86/um/user-offsets.c
    # Soft-RoCE's retry timers count in ticks; ten milliseconds are too coarse.
    sed -i '/^config HZ$/,/default/s/default 100/default 1000/' arch/um/Kconfig
}

configure() {
    local option
    make -s ARCH=um allnoconfig KCONFIG_ALLCONFIG="$lab/kernel.config" >log 2>&1 || {
        tail -n 20 log >&2
        die "the kernel's source does not take the configuration"
    }
    # An option whose conditions are not met is dropped without a word.
    while read -r option; do
        grep -q "^$option=y" .config || die "$option is not possible with this source; see kernel.config"
    done < <(sed -n 's/^\(CONFIG_.*\)=y$/\1/p' "$lab/kernel.config")
}

build() {
    rm -rf "$scratch"
    mkdir -p "$scratch"
    trap 'rm -rf "$scratch"' EXIT
    cd "$scratch"
    fetch
    cd source
    patch_source
    configure
    say "building Linux $(make -s ARCH=um kernelversion); this takes some minutes"
    nice -n 19 make -s ARCH=um -j"$(nproc)" linux >log 2>&1 || {
        tail -n 30 log >&2
        die "the kernel could not be built; the end of its log is above"
    }
    strip -o "$kernel.new" linux
    # A run that looks for the kernel finds all of it or nothing.
    mv "$kernel.new" "$kernel"
    cd "$lab"
}

key=$(cat "$lab/kernel.config" "$lab/kernel.sh" | sha256sum | cut -c1-12)
kernel=$cache/linux-$key
case "${1:-}" in
--path) [ -x "$kernel" ] && echo "$kernel" && exit 0 || exit 1 ;;
-h | --help) usage && exit 0 ;;
"") ;;
*) usage >&2 && exit 2 ;;
esac

if [ ! -x "$kernel" ]; then
    mkdir -p "$cache"
    exec 9>"$cache/lock"
    flock --nonblock 9 || {
        say "another run is building a kernel; waiting for it"
        flock 9
    }
    [ -x "$kernel" ] || build
fi
echo "$kernel"
