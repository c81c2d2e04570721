#!/usr/bin/env bash
# Runs the guest for lab.sh: guest.sh RUN KERNEL LIMIT MEMORY LOG. KERNEL is a User-Mode Linux, or the
# folder that qemu.sh makes. The exit status is that of the command.
# The input is a pipe from lab.sh; when that is gone, even killed, the guest ends and folder RUN with it.
# Therefore this is a session of its own, which survives the end of lab.sh's process group.
set -euo pipefail
run=$1 kernel=$2 limit=$3 memory=$4 log=$5
watcher='' guest='' readers=''

# shellcheck disable=SC2317
finish() {
    # Silent, since the shell speaks of children that it finds killed.
    exec 2>/dev/null
    # shellcheck disable=SC2086
    kill -9 $watcher $readers || true
    [ -z "$guest" ] || kill -9 -- "-$guest" || true
    wait || true
    rm -rf "$run"
}
trap finish EXIT
trap '' INT TERM HUP
trap 'exit 125' USR1
late=0
trap 'late=1' USR2

# Waits for the end of lab.sh or of the time, whichever comes first.
{
    seen=0
    read -r -t "$limit" || seen=$?
    if [ "$seen" -gt 128 ]; then kill -USR2 $$; else kill -USR1 $$; fi
} <&0 &
watcher=$!

# The guest gets pipes of this run, since User-Mode Linux makes its descriptors non-blocking, which would
# hit everybody who shares the caller's output.
mkfifo "$run/output" "$run/errors"
cat "$run/output" </dev/null &
readers=$!
cat "$run/errors" >&2 </dev/null &
readers="$readers $!"

# The kernel hands words of its command line that it does not know to init, as environment.
if [ -d "$kernel" ]; then
    # Two CPUs that take turns: with a thread for each, the kernel can stumble over patches of its own code.
    # shellcheck disable=SC2054
    machine=(qemu-system-x86_64 -accel tcg,thread=single -cpu max -smp 2 -m "$memory" -M pc,usb=off
        -nodefaults -no-user-config -display none -no-reboot -serial "file:$log"
        -device virtio-serial-pci
        -chardev "file,id=output,path=$run/output" -device virtserialport,chardev=output,nr=1
        -chardev "file,id=errors,path=$run/errors" -device virtserialport,chardev=errors,nr=2
        -fsdev local,id=root,path=/,security_model=none,multidevs=remap
        -device virtio-9p-pci,fsdev=root,mount_tag=root
        -kernel "$kernel/kernel" -initrd "$kernel/initrd" -append "console=ttyS0 quiet panic=-1
        mitigations=off nokaslr LAB_INIT=$run/init LAB_OUTPUT=/dev/vport0p1 LAB_ERRORS=/dev/vport0p2")
else
    # shellcheck disable=SC2054
    machine=("$kernel" "mem=${memory}M" rootfstype=hostfs rootflags=/ root=/dev/root rw "init=$run/init"
        quiet panic=-1 LAB_OUTPUT=/dev/ttyS0 LAB_ERRORS=/dev/ttyS1
        con=null con0=null,fd:5 ssl=null ssl0=null,fd:3 ssl1=null,fd:4 "uml_dir=$run/uml" umid=guest)
fi
# The group to kill is that of the machine: User-Mode Linux leaves any other.
setsid setpriv --pdeathsig KILL "${machine[@]}" </dev/null \
    3>"$run/output" 4>"$run/errors" 5>>"$log" >>"$log" 2>&1 &
guest=$!
# Silent, since the shell speaks of a guest that stumbles while it switches off.
{ wait "$guest" || true; } 2>/dev/null
trap '' USR2
{
    kill -9 -- "-$guest"
    wait "$guest"
} 2>/dev/null || true
# shellcheck disable=SC2086
wait $readers || true

# User-Mode Linux may stumble while it switches off: only the file says how the command ended.
[ ! -s "$run/status" ] || exit "$(<"$run/status")"
if [ "$late" = 1 ]; then
    echo "lab: ended after $limit s; --limit gives more" >&2
    exit 124
fi
tail -n 20 "$log" >&2
echo "lab: the guest died before the command ended; the end of its log is above" >&2
exit 125
