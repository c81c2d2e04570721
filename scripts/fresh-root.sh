#!/usr/bin/env bash
# Tries this repository from zero: a new Debian in a folder, and the committed files in it.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    cat <<'TEXT'
usage: scripts/fresh-root.sh [SUITE [COMMAND...]]

Makes a minimal Debian SUITE (default bookworm) with debootstrap in a temporary folder, unpacks HEAD
there and runs COMMAND (default scripts/demo.sh) in it for 20 minutes at most. Needs root, debootstrap
and a Debian mirror (MIRROR, if debootstrap's own choice does not do). Leaves nothing behind.
TEXT
}

case "${1:-}" in -h | --help) usage && exit 0 ;; esac
suite=${1:-bookworm}
[ $# = 0 ] || shift
[ $# != 0 ] || set -- scripts/demo.sh
[ "$(id -u)" = 0 ] || { echo 'fresh-root: must be root' >&2 && exit 1; }
command -v debootstrap >/dev/null || { echo 'fresh-root: install debootstrap first' >&2 && exit 1; }

fresh=$(mktemp -d)
child=
# The mounts live in a namespace of their own, which ends with its first process.
finish() {
    if [ -n "$child" ]; then
        kill "$child" 2>/dev/null || true
        wait "$child" || true
    fi
    rm -rf --one-file-system "$fresh" "$fresh.log"
}
trap finish EXIT
trap 'exit 130' INT TERM

debootstrap --variant=minbase "$suite" "$fresh" ${MIRROR:+"$MIRROR"} >"$fresh.log" 2>&1 || {
    tail -n 5 "$fresh.log" >&2
    exit 1
}
rm -f "$fresh.log"
mkdir -p "$fresh/srv/r2ccl"
git archive HEAD | tar -x -C "$fresh/srv/r2ccl"
cp /etc/resolv.conf "$fresh/etc/resolv.conf"
# Certificates of the local network's own authority, where it has one.
if compgen -G '/usr/local/share/ca-certificates/*.crt' >/dev/null; then
    mkdir -p "$fresh/usr/local/share/ca-certificates"
    cp /usr/local/share/ca-certificates/*.crt "$fresh/usr/local/share/ca-certificates/"
fi

begin=$SECONDS
status=0
# shellcheck disable=SC2016
timeout --kill-after=3 1200 unshare --mount --pid --fork --kill-child --propagation private bash -c '
    set -e
    fresh=$1
    shift
    mount -t proc proc "$fresh/proc"
    mount --rbind /dev "$fresh/dev"
    exec chroot "$fresh" /usr/bin/env -i HOME=/tmp LANG=C.UTF-8 \
        PATH=/usr/sbin:/usr/bin:/sbin:/bin sh -c "cd /srv/r2ccl && exec \"\$@\"" sh "$@"
' bash "$fresh" "$@" &
child=$!
wait "$child" || status=$?
child=
printf 'fresh-root: %s on a new %s: exit status %s after %s s\n' \
    "$*" "$suite" "$status" $((SECONDS - begin))
exit "$status"
