# Acknowledged against recovered. Sourced by scripts/pm-guest and by the guest.

# check_acks ACKS REPORT NAME: ACKS is what `fastness log write --ack` printed, REPORT has a line
#   recovered NAME: EXIT-CODE FIRST LAST COUNT BROKEN
# as `recovered_line` makes it. One record may be there, or one trim done, that was not acknowledged any more.
check_acks() {
    awk -v name="$3:" -v every="$TRIM_EVERY" '
        function fail(text) { print text; failed = 1; exit 1 }
        FNR == NR && /^trimmed [0-9]+$/ { trimmed = $2; trims++; next }
        FNR == NR && /^[0-9]+$/ { if ($1 != last + 1) fail("acknowledged " $1 " after " last); last = $1; next }
        FNR == NR { next }
        $1 == "recovered" && $2 == name { seen = 1; code = $3; from = $4; to = $5; count = $6; broken = $7 }
        END {
            if (failed) exit 1
            said = last + 0 " acknowledged, " trimmed + 0 " trimmed; recovered " from + 0 " to " to + 0
            if (!seen) { print "nothing was recovered; " last + 0 " acknowledged"; exit 1 }
            if (last == 0) { print "nothing was acknowledged"; exit 1 }
            if (code != 0 || broken != 0) { print said ", exit code " code ", " broken " broken"; exit 1 }
            # Cut between a trim and the line that says so?
            trimming = trims > 0 && last % every == 0 && trimmed != last
            if (count == 0 && (trimming || trimmed == last)) { print said; exit 0 }
            if (count != to - from + 1) { print said ", but " count " records"; exit 1 }
            if (to < last || to > last + 1) { print said ": the newest is wrong"; exit 1 }
            if (from != trimmed + 1 && !(trimming && from == last + 1)) { print said ": the oldest is wrong"; exit 1 }
            print said
        }' "$1" "$2"
}

# Every this many records some of the writers trim.
TRIM_EVERY=256

# recovered_line NAME PROGRAM LOG: looks twice, then empties the log; the three have to agree.
recovered_line() {
    local first second third code
    timeout 60 "$2" log verify "$3" >/dev/null || { echo "recovered $1: verify-failed 0 0 0 0"; return; }
    first=$(timeout 60 "$2" log recover --keep "$3" | grep '^\(recovered\|content\)')
    second=$(timeout 60 "$2" log recover --keep "$3" | grep '^\(recovered\|content\)')
    third=$(timeout 60 "$2" log recover "$3" 2>&1)
    code=$?
    echo "$third"
    third=$(echo "$third" | grep '^\(recovered\|content\)')
    [ "$first" = "$second" ] && [ "$second" = "$third" ] || code=differs
    echo "$third" | awk -v name="$1" -v code="$code" '
        $1 == "recovered" { all = $2 }
        $1 == "content" && $2 != "no" { count = $2; from = $5; to = $7 + 0; broken = $8 + 0; order = $0 ~ /none missing/ }
        END {
            if (all != count + 0 || (count > 0 && !order)) code = "wrong-content"
            print "recovered " name ": " code, from + 0, to + 0, count + 0, broken + 0
        }'
}

# expect_verdicts ACKS VERDICT...: a verdict is "right" or "wrong", then the fields of a recovered line.
expect_verdicts() {
    local acks=$1 verdict found
    shift
    for verdict; do
        echo "recovered judge: ${verdict#* }" >"$acks.report"
        found=wrong
        check_acks "$acks" "$acks.report" judge >/dev/null && found=right
        [ "$found" = "${verdict%% *}" ] || { echo "check_acks: $verdict: found $found"; return 1; }
    done
}

# Planted defects, that check_acks must find. The argument names a scratch file.
judge_the_judge() {
    local TRIM_EVERY=64
    seq 128 >"$1"
    expect_verdicts "$1" "right 0 1 128 128 0" "right 0 1 129 129 0" "wrong 0 1 127 127 0" "wrong 0 1 130 130 0" \
        "wrong 0 2 128 127 0" "wrong 0 1 128 127 0" "wrong 0 1 128 128 1" "wrong 6 1 128 128 0" "wrong 0 0 0 0 0" ||
        return
    # Cut while trimming: all there, all gone, or the next one there; what was trimmed may not come back.
    { seq 64; echo "trimmed 64"; seq 65 128; } >"$1"
    expect_verdicts "$1" "right 0 65 128 64 0" "right 0 0 0 0 0" "right 0 129 129 1 0" "wrong 0 1 128 128 0" \
        "wrong 0 66 128 63 0" "wrong 0 130 130 1 0"
}
