# Sourced by failover-times.sh and lab/cut-times.sh: how long a stream stands still when something fails.
# shellcheck shell=bash
#
# The stream runs in portions, each a row of the table that `r2ccl bench` prints. In every third one a fault
# strikes in the middle, in the next one it is repaired, and the third is left alone: what that one takes is
# not the fault's. Who sources this has
#   strike FAULT, repair FAULT   makes the fault, and ends it
#   moved                        prints a number of bytes that grows as the stream moves
#   stream ROWS                  becomes the stream of so many portions, its table on standard output
#   MIDDLE                       bytes that a portion has moved in its middle
work=$(mktemp -d)
job=
finish() {
    [ -z "$job" ] || kill "$job" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT

# Waits until the portion that has just begun is in its middle.
await_middle() {
    local until=$(($(moved) + MIDDLE))
    while [ "$(moved)" -lt "$until" ]; do
        kill -0 "$job" 2>/dev/null || return 0
        sleep 0.005
    done
}

# Reads the next row of the table; leaves its longest gap in `gap`, in milliseconds.
next_row() {
    local words
    while read -r -a words <&3; do
        # Size with its unit, count, three pairs of number and unit with the rate in between, wrong bytes.
        [ "${#words[@]}" = 11 ] && [ "${words[1]}" = KiB ] || continue
        gap=$(awk -v value="${words[8]}" -v unit="${words[9]}" 'BEGIN {
            print value * (unit == "s" ? 1000 : unit == "ms" ? 1 : 0.001) }')
        return
    done
    echo 'failover-times: the stream has ended too early' >&2
    exit 1
}

# summary NAME: of numbers, one a line.
summary() {
    sort -n | awk -v name="$1" '{ value[NR] = $1 }
        END { printf "%-24s median %.1f ms, p99 %.1f ms, worst %.1f ms of %d\n", name,
            value[int((NR + 1) / 2)], value[int(NR * 0.99 + 0.99)], value[NR], NR }'
}

# measure REPEATS FAULT...: prints each time, and what they are together at the end.
measure() {
    local repeats=$1 fault hurt
    shift
    for fault in "$@"; do
        mkfifo "$work/table"
        stream $((3 * repeats + 1)) >"$work/table" &
        job=$!
        exec 3<"$work/table"
        # The first portion sets everything up.
        next_row
        for _ in $(seq "$repeats"); do
            await_middle
            strike "$fault"
            next_row
            repair "$fault"
            hurt=$gap
            next_row
            next_row
            printf '%-10s %6.1f ms, without %6.1f ms\n' "$fault" "$hurt" "$gap"
            echo "$hurt" >>"$work/hurt"
            echo "$gap" >>"$work/whole"
        done
        # The last line of the table says whether a byte was wrong.
        cat <&3
        exec 3<&-
        wait "$job"
        job=
        {
            summary "$fault" <"$work/hurt"
            summary "without, beside $fault" <"$work/whole"
        } >>"$work/summary"
        rm "$work/table" "$work/hurt" "$work/whole"
    done
    cat "$work/summary"
}
