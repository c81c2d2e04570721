#!/usr/bin/env bash
# The first process of the lab's guest, whose root is the host's file system: makes what the command
# writes to private to the guest, starts the network, runs the command and switches the guest off.
# The folder of this run (see lab.sh) is where "init" was started from, as a link to this file.
set -euo pipefail
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
run=${0%/*}
lab=$(dirname "$(readlink -f "$0")")
readonly HIDDEN=(/run /dev/shm /tmp)

# Whatever happens, the guest ends: by system call, since there may be no `poweroff` on the host.
switch_off() {
    perl -e 'syscall(169, 0xfee1dead, 672274793, 0x4321fedc)'
}
trap switch_off EXIT

# Mounts nowhere but in the guest: "mount" keeps notes in /run, which is the host's at first.
mount_here() { mount --no-mtab "$@"; }

# bind FROM TO MODE: shows folder FROM at TO as well, MODE ro or rw.
bind() {
    mkdir -p "$2"
    mount_here --bind "$1" "$2"
    mount_here -o "remount,bind,$3" "$2"
}

# visible PLACE STAGE: puts the folders that the run needs beneath PLACE into STAGE, which will cover it.
visible() {
    local index folder
    for index in "${!folders[@]}"; do
        folder=${folders[$index]}
        case "$folder" in
        "$1"/*) bind "$folder" "$2${folder#"$1"}" "${modes[$index]}" ;;
        esac
    done
}

# The host's files are read-only, but for the folders given to --write; the usual places of temporary
# files are the guest's own and begin empty, but for what the run needs from there.
make_files() {
    local index place
    mount_here -t proc proc /proc
    mount_here -t sysfs sysfs /sys
    mount_here -t devtmpfs devtmpfs /dev
    ln -s /proc/self/fd /dev/fd
    ln -s /proc/self/fd/0 /dev/stdin
    ln -s /proc/self/fd/1 /dev/stdout
    ln -s /proc/self/fd/2 /dev/stderr
    mkdir -p /dev/pts /dev/shm
    mount_here -t devpts devpts /dev/pts
    for index in "${!folders[@]}"; do
        [ "${modes[$index]}" = ro ] || bind "${folders[$index]}" "${folders[$index]}" rw
    done
    for place in "${HIDDEN[@]}"; do
        mount_here -t tmpfs -o mode=1777 tmpfs "$run/stage"
        visible "$place" "$run/stage"
        mount_here --move "$run/stage" "$place"
    done
    chmod 755 /run
    mount_here -o remount,bind,ro /
}

# Ends all that the command left running, so that nothing holds the output open.
end_others() {
    local process
    for process in /proc/[0-9]*; do
        case " $$ $outputs " in
        *" ${process#/proc/} "*) ;;
        *) kill -9 "${process#/proc/}" 2>/dev/null || true ;;
        esac
    done
}

# The command writes to pipes, as it would under a test runner; LAB_OUTPUT and LAB_ERRORS are devices
# that lead to guest.sh.
run_command() {
    local status=0
    mkfifo /run/lab.output /run/lab.errors
    # Other devices than serial lines change nothing by themselves.
    stty raw -echo <"$LAB_OUTPUT" 2>/dev/null || true
    stty raw -echo <"$LAB_ERRORS" 2>/dev/null || true
    cat /run/lab.output >"$LAB_OUTPUT" &
    outputs=$!
    cat /run/lab.errors >"$LAB_ERRORS" &
    outputs="$outputs $!"
    cd "$directory"
    ulimit -l unlimited
    env -i "${environment[@]}" "PATH=$lab/bin:$path" LAB=1 \
        setsid --wait "${command[@]}" </dev/null >/run/lab.output 2>/run/lab.errors || status=$?
    end_others
    # shellcheck disable=SC2086
    wait $outputs || true
    echo "$status" >"$run/status"
    sync
}

mapfile -d '' -t command <"$run/command"
mapfile -d '' -t environment <"$run/environment"
mapfile -d '' -t folders <"$run/folders"
mapfile -d '' -t modes <"$run/modes"
directory=$(cat "$run/directory")
path=$PATH
for variable in "${environment[@]}"; do
    case "$variable" in PATH=*) path=${variable#PATH=} ;; esac
done

make_files
# shellcheck source=scripts/lab/network.sh
. "$lab/network.sh"
make_network
run_command
