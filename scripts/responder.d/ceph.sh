# First Responder in front of CephFS: for scripts/test-responder. A cluster of one node (scripts/one-node-ceph), whose parts die
# while two programs write records, each to a file of its own.
#
# What needs no answer of the cluster must go on meanwhile: writes as long as there is room in PM, reads of what is there, the
# status, other files. Afterwards the cluster must have every record that was acknowledged, as another client of it sees it.
# shellcheck shell=bash disable=SC2034,SC2154

cluster=/dev/shm/$(basename "$work").ceph
# Milliseconds from one record to the next.
record_ms=3

node() { scripts/one-node-ceph "$1" "$cluster" "${@:2}"; }
ceph_up() {
    export CEPH_CONF=$cluster/ceph.conf
    node up && node mount "$work/ceph"
}
ceph_down() {
    [ -d "$cluster" ] || return 0
    node unmount "$work/ceph"
    node down
    rm -rf "$cluster"
}

# Two programs begin to write.
records_begin() {
    rm -f "$work"/acknowledged.*
    # shellcheck disable=SC2016
    "${through[@]}" bash -c 'for number in 1 2; do python3 "$0" write "$1/records.$number" "$2" >"$3.$number" & done; wait' \
        "$PWD/scripts/responder.d/records.py" "$mount" $record_ms "$work/acknowledged" 2>>"$work/log" &
    client=$!
    wait_until test -s "$work/acknowledged.1" -a -s "$work/acknowledged.2"
}
last_of() { grep -Eo '^[0-9]+$' "$work/acknowledged.$1" | tail -n 1; }
# go_on SECONDS WHAT: both programs write at least at a quarter of their pace.
go_on() {
    local before=("$(last_of 1)" "$(last_of 2)") number
    sleep "$1"
    for number in 1 2; do
        echo "  $2: file $number, ${before[number - 1]} to $(last_of $number)"
        [ "$(last_of $number)" -ge $((before[number - 1] + $1 * 1000 / record_ms / 4)) ] ||
            fail "writes to file $number do not go on" || return 1
    done
}
says() {
    timeout 10 "$fastness" responder status "$region" >"$work/status" 2>&1
    local code=$?
    [ $code != 124 ] || fail "the status hangs" || return 1
    grep -q "$1" "$work/status" || { cat "$work/status" && fail "the status does not say: $1"; }
}
# Everything arrives.
arrives() {
    timeout -k 5 90 "$fastness" responder flush "$region" >>"$work/log" 2>&1 || fail "not everything arrives" || return 1
    says "not in the directory *[0-9]* chunks" || return 1
    ! grep -q "cannot be flushed\|being flushed" "$work/status" || fail "flushes still fail" || return 1
}
# The records as another client of the cluster sees them.
check_records() {
    local number outcome=0 place=$work/second/${directory#"$work/ceph/"}
    node mount "$work/second" || return 1
    for number in 1 2; do
        echo "  $(last_of $number) was acknowledged last in file $number"
        timeout 60 python3 scripts/responder.d/records.py check "$place/records.$number" "$(last_of $number)" || outcome=1
    done
    node unmount "$work/second"
    return $outcome
}
# Everyone dies; the cluster has to serve again before those who wait for it are gone.
dies() {
    # shellcheck disable=SC2086
    kill -KILL $(for pid in $server $client; do descendants "$pid"; done) 2>/dev/null || true
}
after_death() {
    kill_all
    recovered && check_records
}

# dead DAEMON: it is killed under load, and comes back. In the end everyone dies.
dead() {
    cached 256M && records_begin || return 1
    go_on 2 "before" || return 1
    node kill "$1"
    sleep 1
    go_on 7 "without the $1" || return 1
    [ "$1" != osd ] || says "the directory has not answered for" || return 1
    node up
    arrives && go_on 1 "with it again" || return 1
    dies
    after_death && uncached
}
osd_dead() { dead osd; }
mds_dead() { dead mds; }
# The server dies as well, while there is no OSD.
dead_together() {
    cached 256M && records_begin || return 1
    go_on 2 "before" || return 1
    node kill osd
    go_on 4 "without the osd" || return 1
    dies
    sleep 1
    node up
    after_death && uncached
}
# lost HOW: our client of the cluster will never write again. Its descriptors fail, even those that had unwritten bytes.
lost() {
    cached 256M && records_begin || return 1
    go_on 1 "before" || return 1
    node "$1" "$work/ceph"
    sleep 1
    go_on 3 "without the client" || return 1
    says "cannot be flushed" || return 1
    dies
    kill_all
    # What a dead client has open, others wait for.
    [ "$1" = evict ] || node evict "$work/ceph" || return 1
    node unmount "$work/ceph"
    node mount "$work/ceph" || return 1
    after_death && uncached
}
evicted() { lost evict; }
client_dead() { lost kill; }
# refuses LIMIT FREE ERROR: no room, by the command LIMIT; room again by FREE.
refuses() {
    cached 256M && records_begin || return 1
    go_on 1 "before" || return 1
    $1
    sleep 3
    go_on 3 "without room" || return 1
    says "cannot be flushed.*$3" || return 1
    $2
    wait_until arrives || return 1
    go_on 1 "with room again" || return 1
    dies
    after_death && uncached
}
quota() { python3 -c 'import os, sys; os.setxattr(sys.argv[1], "ceph.quota.max_bytes", sys.argv[2].encode())' "$directory" "$1"; }
over_quota() { refuses "quota 4000000" "quota 0" "quota exceeded"; }
cluster_full() { refuses "node full yes" "node full no" "No space left"; }

ceph_cases() {
    local name
    for name in ${CASES:-osd_dead mds_dead dead_together evicted client_dead over_quota cluster_full}; do
        echo "$name, $what"
        judge "$name, $what" in_directory "$name"
    done
}
