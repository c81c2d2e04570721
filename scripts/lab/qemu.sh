#!/usr/bin/env bash
# Makes what lab.sh --qemu boots: a kernel as Debian packages it, and a start-up file system with the
# modules that the lab needs. Once for each version of this file.
set -euo pipefail
lab=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)

usage() {
    cat <<'TEXT'
usage: scripts/lab/qemu.sh [--path]

Prints the name of a folder with the files "kernel" and "initrd" in LAB_CACHE (default ~/.cache/r2ccl-lab),
made from the newest kernel package of the distribution if it is not there. Downloads 110 MB, builds nothing.

  --path   the name only; fails if the folder is not there
TEXT
}

cache=${LAB_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/r2ccl-lab}
# In the order in which they are asked for; what these need comes before them by itself.
modules=(virtio_pci virtio_console 9pnet_virtio 9p veth bridge sch_netem sch_prio sch_ingress cls_matchall
    cls_flower act_gact crc32_generic crc32c_generic rdma_rxe rdma_ucm)

say() { printf 'lab: %s\n' "$*" >&2; }
die() {
    printf 'lab: %s\n' "$@" >&2
    exit 1
}

# The newest packaged kernel for ordinary machines, neither for clouds nor with real-time patches.
newest_kernel() {
    apt-cache pkgnames linux-image- | grep -E '^linux-image-[0-9.]+(-[0-9]+|\+deb[0-9]+)-amd64$' |
        sort -V | tail -n1 || true
}

unpack_module() {
    case "$1" in
    *.xz) xz -dc "$1" ;;
    *.zst) zstd -dqc "$1" ;;
    *.gz) gzip -dc "$1" ;;
    *) cat "$1" ;;
    esac
}

# copy_modules ROOT VERSION: modules and the order to load them in, from the unpacked package in ROOT.
copy_modules() {
    local file name
    depmod -b "$1" "$2"
    for name in "${modules[@]}"; do
        # What is built in is not there and need not be.
        modprobe -d "$1" -S "$2" --show-depends "$name" 2>/dev/null | sed -n 's/^insmod \([^ ]*\).*/\1/p' || true
    done | awk '!seen[$1]++' | while read -r file; do
        name=$(basename "$file")
        unpack_module "$file" >"root/modules/${name%%.ko*}.ko"
        echo "${name%%.ko*}" >>root/modules/order
    done
    [ -e root/modules/rdma_rxe.ko ] || die "the kernel package $2 has no Soft-RoCE"
}

make_initrd() {
    local name
    mkdir -p root/bin root/proc root/dev root/host
    cp "$(command -v busybox)" root/bin/busybox
    for name in sh mount insmod cat switch_root; do ln -s busybox "root/bin/$name"; done
    cat >root/init <<'TEXT'
#!/bin/sh
while read -r module; do insmod "/modules/$module.ko"; done </modules/order
mount -t 9p -o rw,trans=virtio,version=9p2000.L,msize=512000,cache=loose root /host
exec switch_root /host "$LAB_INIT"
TEXT
    chmod 755 root/init
    (cd root && find . | cpio --create --format=newc --owner=0:0 --quiet | gzip -1) >initrd
}

build() {
    local package version scratch=$cache/qemu.new
    package=$(newest_kernel)
    version=${package#linux-image-}
    [ -n "$package" ] || die "apt knows no kernel package; run 'apt-get update' as root (Debian only)."
    rm -rf "$scratch"
    mkdir -p "$scratch/root/modules"
    cd "$scratch"
    say "fetching $package"
    # For root, apt would hand the download to a user who may not write here, and complain.
    apt-get -qq -o APT::Sandbox::User=root download "$package" >&2 ||
        die "apt could not download $package; run 'apt-get update' as root and try again."
    dpkg-deb --extract ./*.deb package
    [ -d package/lib/modules ] || ln -s usr/lib package/lib
    copy_modules "$PWD/package" "$version"
    make_initrd
    mv "package/boot/vmlinuz-$version" kernel
    rm -rf package root ./*.deb
    cd "$lab"
    mv "$scratch" "$folder"
}

key=$(sha256sum "$lab/qemu.sh" | cut -c1-12)
folder=$cache/qemu-$key
case "${1:-}" in
--path) [ -d "$folder" ] && echo "$folder" && exit 0 || exit 1 ;;
-h | --help) usage && exit 0 ;;
"") ;;
*) usage >&2 && exit 2 ;;
esac

if [ ! -d "$folder" ]; then
    mkdir -p "$cache"
    exec 9>"$cache/lock.qemu"
    flock 9
    [ -d "$folder" ] || build
fi
echo "$folder"
