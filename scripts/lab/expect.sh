# shellcheck shell=bash
# The report of a self-test. For sourcing; counts in `failures`.

failures=0

# expect WORDS COMMAND...: one line of the report. A "!" before the command turns its result round.
expect() {
    local words=$1 status=0
    shift
    if [ "$1" = '!' ]; then
        shift
        ! "$@" || status=1
    else
        "$@" || status=1
    fi
    if [ "$status" = 0 ]; then
        echo "ok      $words"
    else
        echo "FAILED  $words"
        failures=$((failures + 1))
    fi
}
