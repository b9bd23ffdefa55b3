# What a script of tests has checked: for scripts/test-files, test-databases and test-responder, which set `work` (a folder).
# shellcheck shell=bash disable=SC2154

passed=0 failed=0 skipped=0

# judge NAME COMMAND...: a command that must succeed; if it does not, the end of $work/log is shown.
judge() {
    local name=$1
    shift
    if "$@"; then
        echo "ok: $name"
        passed=$((passed + 1))
    else
        echo "FAILED: $name"
        tail -40 "$work/log"
        failed=$((failed + 1))
    fi
}

# check NAME COMMAND...: the same; what the command says goes to $work/log.
check() {
    local name=$1
    shift
    judge "$name" logged "$@"
}
logged() { "$@" >"$work/log" 2>&1; }

# skip NAME: what is needed for it could not be installed.
skip() {
    echo "SKIPPED: $1 (not installed)"
    skipped=$((skipped + 1))
}

# all_in_all: the summary, and the exit code; 3: nothing could be run.
all_in_all() {
    echo "$passed passed, $failed failed, $skipped skipped"
    [ $failed = 0 ] || return 1
    [ $passed -gt 0 ] || return 3
}
