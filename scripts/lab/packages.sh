# Sourced by lab.sh, which knows where it is ($here): what the lab needs from the distribution.
# shellcheck shell=bash disable=SC2034

# Lines "PACKAGE WHAT-SHOWS-IT": a command, or a file when it begins with a slash.
readonly RUN_NEEDS='
ibverbs-providers /etc/libibverbs.d/rxe.driver
ibverbs-utils ibv_rc_pingpong
iproute2 rdma
perl-base perl
util-linux setpriv'
readonly BUILD_NEEDS='
bc bc
binutils strip
bison bison
flex flex
gcc gcc
libc6-dev /usr/include/stdlib.h
make make
xz-utils xz'
readonly QEMU_NEEDS='
busybox-static busybox
cpio cpio
kmod depmod
qemu-system-x86 qemu-system-x86_64
xz-utils xz'

# missing_packages LIST: the packages of LIST that are not installed.
missing_packages() {
    local package evidence
    while read -r package evidence; do
        case "$evidence" in
        '') ;;
        /*) [ -e "$evidence" ] || echo "$package" ;;
        *) PATH=$PATH:/usr/sbin:/sbin command -v "$evidence" >/dev/null || echo "$package" ;;
        esac
    done <<<"$1"
}

# The guest runs this machine's own programs.
check_machine() {
    [ "$(uname -sm)" = 'Linux x86_64' ] || die "the lab needs Linux on x86-64; this is $(uname -sm)."
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        die "'$*' needs root and there is no sudo; run scripts/lab.sh --setup as root once."
    fi
}

# install_packages LIST: installs what is missing. Calls no package manager when all is there.
install_packages() {
    local missing
    mapfile -t missing < <(missing_packages "$1")
    [ "${#missing[@]}" != 0 ] || return 0
    command -v apt-get >/dev/null || die "no apt-get here, and missing: ${missing[*]}" \
        "The lab is for Debian and Ubuntu: its kernel is built from their source packages."
    say "installing: ${missing[*]}"
    as_root apt-get update -q -c "$here/apt.conf" >/dev/null ||
        say "apt-get update failed; going on with the lists that are there"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-remove \
        --no-install-recommends -c "$here/apt.conf" "${missing[@]}" >/dev/null ||
        die "apt-get could not install: ${missing[*]}" "Its own message is above."
}
