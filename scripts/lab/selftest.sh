#!/usr/bin/env bash
# Tries the lab itself: what lab.sh promises its callers, and what is inside.
# shellcheck disable=SC2317  # functions that "expect" calls
set -euo pipefail
here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
lab=$here/../lab.sh

usage() {
    cat <<'TEXT'
usage: scripts/lab/selftest.sh

Boots the lab a dozen times (half a minute to a minute) and checks its devices, its cuts, and how it ends. Needs scripts/lab.sh --setup.
The last line says how many checks failed; the exit status is 1 if any did.
TEXT
}

case "${1:-}" in -h | --help) usage && exit 0 ;; esac
"$lab" --check || exit 125
. "$here/expect.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

same() { [ "$1" = "$2" ] || { printf '        %q instead of %q\n' "$1" "$2" && return 1; }; }

# status_of COMMAND...: prints its exit status; its output goes to files.
status_of() {
    local status=0
    "$@" >"$scratch/out" 2>"$scratch/errors" || status=$?
    echo "$status"
}

# Commands begin with this, which tells the folder of their run.
readonly NAME_RUN='grep -o "init=[^ ]*" /proc/cmdline;'
run_folder() { sed -n 's|^init=\(.*\)/init$|\1|p' "$scratch/out"; }
await_start() {
    local attempt
    for ((attempt = 0; attempt < 1000; attempt++)); do
        [ -z "$(run_folder)" ] || return 0
        sleep 0.02
    done
    return 1
}

# The process group of the kernel that runs from folder $1.
group_of() {
    local process
    for process in /proc/[0-9]*; do
        ! tr '\0' ' ' <"$process/cmdline" 2>/dev/null | grep -q "^[^ ]*linux-.* init=$1/init" ||
            sed 's/(.*)//' "$process/stat" | cut -d' ' -f5
    done 2>/dev/null | head -n1
}
# Living processes (zombies wait for whoever started them) of group $1.
members_of() {
    cat /proc/[0-9]*/stat 2>/dev/null | sed 's/(.*)//' |
        awk -v group="$1" '$4 == group && $2 != "Z"' || true
}

# gone FOLDER [GROUP]: whether folder and processes vanish.
gone() {
    local deadline=$((SECONDS + 5))
    while [ -e "$1" ] || [ -n "$(members_of "${2:-none}")" ]; do
        [ "$SECONDS" -lt "$deadline" ] || return 1
        sleep 0.02
    done
}

# test_end SIGNAL STATUS: a signal to lab.sh ends everything.
test_end() {
    local signal=$1 process folder group status=0
    : >"$scratch/out"
    "$lab" bash -c "$NAME_RUN sleep 60" >"$scratch/out" 2>/dev/null &
    process=$!
    expect "$signal: it starts" await_start
    folder=$(run_folder)
    group=$(group_of "$folder")
    expect "$signal: its processes are found" [ -n "$(members_of "$group")" ]
    kill -s "$signal" "$process"
    wait "$process" 2>/dev/null || status=$?
    expect "$signal: status" same "$status" "$2"
    expect "$signal: nothing is left" gone "$folder" "$group"
}

test_status() {
    expect 'status 0' same "$(status_of "$lab" true)" 0
    expect 'nothing is printed' same "$(cat "$scratch/out" "$scratch/errors")" ''
    expect 'status 7' same "$(status_of "$lab" bash -c 'exit 7')" 7
    expect 'no such command' same "$(status_of "$lab" no-such-command)" 127
}

test_passing() {
    local seen text=$'two  words\nand \'quotes\' é'
    # shellcheck disable=SC2016
    seen=$(TEXT=$text "$lab" bash -c 'printf "%s|%s|%s" "$1" "$TEXT" "$PWD"' bash "$text") || true
    expect 'arguments, environment and folder pass' same "$seen" "$text|$text|$(pwd -P)"
    seen=$("$lab" bash -c 'echo out; echo error >&2' 2>&1 >/dev/null) || true
    expect 'errors are apart from output' same "$seen" error
    head -c 3000000 "$("$here/kernel.sh" --path)" >"$scratch/bytes"
    expect 'bytes pass unchanged' cmp "$scratch/bytes" <(cd "$scratch" && "$lab" cat bytes)
}

test_files() {
    local seen
    mkdir "$scratch/writable"
    # shellcheck disable=SC2016
    status_of "$lab" --write "$scratch/writable" \
        bash -c 'for folder; do echo new >"$folder/r2ccl-file"; done' bash \
        "$scratch/writable" "$here" /etc /tmp >/dev/null
    expect '--write lets it write' same "$(cat "$scratch/writable/r2ccl-file")" new
    seen=$(ls "$here/r2ccl-file" /etc/r2ccl-file /tmp/r2ccl-file 2>/dev/null) || true
    expect 'elsewhere the host stays as it is' same "$seen" ''
}

test_limit() {
    expect 'time limit' same "$(status_of "$lab" --limit 2 bash -c "$NAME_RUN sleep 60")" 124
    expect 'time limit: nothing is left' gone "$(run_folder)"
    expect 'left processes do not delay the end' same \
        "$(status_of "$lab" --limit 20 bash -c 'sleep 600 & exit 3')" 3
}

begin=$SECONDS
test_status
test_passing
test_files
test_limit
test_end TERM 143
test_end KILL 137
expect 'inside the lab' "$lab" --limit 100 bash "$here/selftest-inside.sh"
echo "selftest: $failures failed, $((SECONDS - begin)) s"
exit $((failures > 0))
