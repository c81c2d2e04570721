#!/usr/bin/env bash
# Runs a command inside a small Linux of its own that has RDMA NICs (Soft-RoCE), switches and cuts.
set -euo pipefail
here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lab" && pwd)

usage() {
    cat <<'TEXT'
usage: scripts/lab.sh [OPTIONS] COMMAND...
       scripts/lab.sh [--qemu] --setup | --check

Runs COMMAND as root of a User-Mode Linux whose kernel has Soft-RoCE: devices rxe_a0 and rxe_a1 of
host 0, rxe_b0 and rxe_b1 of host 1, number 0 of both on one switch and number 1 on another.
`lab-cut NIC HOW` and `lab-heal NIC HOW` cut and heal them; `scripts/lab.sh lab-cut --help` lists how.
COMMAND finds the caller's environment, folder and files, read-only; /tmp, /run and /dev/shm are its
own. Its output and exit status are passed through; its input is empty.

  --qemu           Debian's own kernel, on a machine that QEMU emulates: about ten times slower, with two
                   CPUs and without a build; a cross-check
  --limit S        end it after S seconds (default 120) with status 124
  --memory MIB     the guest's memory (default 512)
  --write FOLDER   a folder that COMMAND may write to (can be repeated)
  --read FOLDER    a folder in /tmp, /run or /dev/shm that COMMAND may read (can be repeated)
  --log FILE       keep the kernel's messages
  --setup          install what is missing (apt, root or sudo) and build the kernel: some minutes, once
  --check          say whether the lab can run at once; status 1 if it needs --setup first

Status 125 says that the lab itself failed. Needs no root but for --setup. docs/TESTING.md tells more.
TEXT
}

say() { printf 'lab: %s\n' "$*" >&2; }
die() {
    printf 'lab: %s\n' "$@" >&2
    exit 125
}
# shellcheck source=scripts/lab/packages.sh
. "$here/packages.sh"

limit=120 memory=512 log='' kernel_script=$here/kernel.sh needs=$RUN_NEEDS build_needs=$BUILD_NEEDS
folders=("$here" "$(pwd -P)") modes=(ro ro) action=run

need_value() { [ $# -ge 2 ] || die "$1 needs a value; see scripts/lab.sh --help"; }
number() { case "$2" in '' | *[!0-9]* | 0*) die "$1 wants a number, not '$2'" ;; esac; }

# show FOLDER MODE: the command will see it.
show() {
    local folder
    folder=$(cd "$1" 2>/dev/null && pwd -P) || die "no folder '$1'"
    case "$folder" in
    / | /dev/shm | /run | /tmp) die "$folder is the guest's own; name a folder in it" ;;
    esac
    folders+=("$folder") modes+=("$2")
}

keep_log() { log=$(realpath -- "$1") || die "--log: '$1' is not a file name"; }

setup() {
    local kernel
    check_machine
    install_packages "$needs$build_needs"
    kernel=$(APT_CONFIG=$here/apt.conf "$kernel_script") || exit 125
    say "ready: $kernel"
}

# What keeps the lab from running at once, if anything.
obstacle() {
    local missing
    check_machine
    mapfile -t missing < <(missing_packages "$needs")
    [ "${#missing[@]}" = 0 ] || {
        echo "not installed: ${missing[*]}"
        return
    }
    "$kernel_script" --path >/dev/null || echo "its kernel is not built yet"
}

check() {
    local reason
    reason=$(obstacle)
    [ -n "$reason" ] || exit 0
    say "$reason; run scripts/lab.sh --setup"
    exit 1
}

while [ $# -gt 0 ]; do
    case "$1" in
    --qemu) kernel_script=$here/qemu.sh needs=$RUN_NEEDS$QEMU_NEEDS build_needs='' ;;
    --limit) need_value "$@" && number "$@" && limit=$2 && shift ;;
    --memory) need_value "$@" && number "$@" && memory=$2 && shift ;;
    --log) need_value "$@" && keep_log "$2" && shift ;;
    --read) need_value "$@" && show "$2" ro && shift ;;
    --write) need_value "$@" && show "$2" rw && shift ;;
    --setup) action=setup ;;
    --check) action=check ;;
    -h | --help) usage && exit 0 ;;
    --) shift && break ;;
    -*) usage >&2 && exit 125 ;;
    *) break ;;
    esac
    shift
done
case "$action" in
setup) setup && exit 0 ;;
check) check ;;
esac
[ $# -gt 0 ] || { usage >&2 && exit 125; }
reason=$(obstacle)
[ -z "$reason" ] || die "$reason; run scripts/lab.sh --setup (some minutes, once)."
kernel=$("$kernel_script" --path)

# The name is short and without blanks, since it stands in the kernel's command line.
run=$(mktemp -d /tmp/r2ccl-lab.XXXXXX)
trap 'rm -rf "$run"' EXIT
folders+=("$run") modes+=(rw)
mkdir "$run/stage"
ln -s "$here/init.sh" "$run/init"
printf '%s\0' "$@" >"$run/command"
env -0 >"$run/environment"
printf '%s\0' "${folders[@]}" >"$run/folders"
printf '%s\0' "${modes[@]}" >"$run/modes"
pwd -P >"$run/directory"

# guest.sh cleans up when this end of its input closes, as it does whenever and however this script ends.
exec 9> >(exec setsid bash "$here/guest.sh" "$run" "$kernel" "$limit" "$memory" "${log:-$run/log}")
guest=$!
# shellcheck disable=SC2317
finish() {
    exec 9>&-
    wait "$guest" || true
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP
status=0
wait "$guest" || status=$?
exit "$status"
