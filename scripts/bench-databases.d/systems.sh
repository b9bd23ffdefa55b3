# The file systems that scripts/bench-databases compares, each at $work/mounts/NAME.
# shellcheck shell=bash disable=SC2154

loop=
region=
cluster=
# The regions of caches, by system.
declare -A server=() cache=()

wants() { [[ " ${systems[*]} " == *" $1 "* ]]; }
# kind SYSTEM: without the flush period after an @.
kind() { echo "${1%@*}"; }

# A file on the disk whose every byte was written once: a sparse one is slower the first time.
disk_file() {
    local bytes
    bytes=$(numfmt --from=iec "$size")
    dd if=/dev/zero of="$1" bs=4M count=$((bytes >> 22)) oflag=direct status=none
}

# pool_up NAME VDEV...: a process that has a new pool.
pool_up() {
    local name=$1
    disk_file "$work/$name"
    "$fastness" pool create "$name" "$work/$name" "${@:2}" --foreground >"$work/$name.said" 2>&1 &
    server[$name]=$!
    wait_until grep -q Ctrl-C "$work/$name.said" || { cat "$work/$name.said" >&2 && return 1; }
}

# files_up SYSTEM POOL [OPTION...]
files_up() {
    "$fastness" fs create "$2/$1" "${@:3}" --mount "$work/mounts/$1" >/dev/null
}

systems_up() {
    export FASTNESS_RUN_DIR=$work/run FASTNESS_STATE_DIR=$work/state
    local system
    for system in "${systems[@]}"; do mkdir -p "$work/mounts/$system"; done
    if wants pmem || wants disabled; then
        region=$(mktemp -u -p /dev/shm fastness-bench.XXXXXX)
        pool_up pm log "$region" --emulate-pm
    fi
    ! wants pmem || files_up pmem pm
    ! wants disabled || files_up disabled pm -o sync=disabled
    if wants lwb; then
        pool_up lwb
        files_up lwb lwb
    fi
    local kinds
    kinds=" $(for system in "${systems[@]}"; do printf '%s ' "$(kind "$system")"; done)"
    if [[ $kinds =~ " "(ext4|responder|run)" " ]]; then
        mkdir -p "$work/mounts/ext4"
        disk_file "$work/ext4"
        # Nothing is discarded or initialised later.
        mkfs.ext4 -q -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 "$work/ext4"
        loop=$(losetup --find --show --direct-io=on "$work/ext4")
        mount "$loop" "$work/mounts/ext4"
    fi
    [[ $kinds != *" ceph"* ]] || ceph_up
    for system in "${systems[@]}"; do
        case $(kind "$system") in
        responder) responder_up "$system" ext4 ;;
        run) run_up "$system" ext4 ;;
        ceph-mount) responder_up "$system" ceph ;;
        ceph-run) run_up "$system" ceph ;;
        ceph-melov) run_up "$system" ceph --protocol melov ;;
        esac
    done
    ! wants tmpfs || mount -t tmpfs -o size="$size" tmpfs "$work/mounts/tmpfs"
}

# A cluster of one node, and a client of it.
ceph_up() {
    cluster=$(mktemp -u -p /dev/shm fastness-bench-ceph.XXXXXX)
    scripts/one-node-ceph up "$cluster" && scripts/one-node-ceph mount "$cluster" "$work/mounts/ceph"
}

# cache_options SYSTEM: a region for it, and its flush period.
cache_options() {
    cache[$1]=$(mktemp -u -p /dev/shm fastness-bench.XXXXXX)
    options=(--pm "${cache[$1]}" --size 1G)
    [[ $1 != *@* ]] || options+=(--flush-ms "${1#*@}")
}

# responder_up SYSTEM BELOW [OPTION...]: a cache in emulated PM in front of a folder of the system BELOW.
responder_up() {
    local options behind=$work/mounts/$2/behind-$1
    mkdir -p "$behind"
    cache_options "$1"
    "$fastness" responder mount "$behind" "$work/mounts/$1" "${options[@]}" "${@:3}" >"$work/$1.said" 2>&1 &
    server[$1]=$!
    wait_until grep -q Ctrl-C "$work/$1.said" || { cat "$work/$1.said" >&2 && return 1; }
}

# run_up SYSTEM BELOW [OPTION...]: the same cache by `fastness run`: programs get its library, and find the directory by
# way of a program that does nothing, since only what that starts sees the mount.
run_up() {
    local pid options behind=$work/mounts/$2/behind-$1
    mkdir -p "$behind"
    cache_options "$1"
    "$fastness" run --dir "$behind" "${options[@]}" "${@:3}" -- \
        sh -c "echo \$\$ >'$work/$1.pid'; exec sleep infinity" >"$work/$1.said" 2>&1 &
    server[$1]=$!
    wait_until test -s "$work/$1.pid" || { cat "$work/$1.said" >&2 && return 1; }
    pid=$(cat "$work/$1.pid")
    wait_until grep -q sleep "/proc/$pid/comm" || return 1
    rmdir "$work/mounts/$1"
    ln -s "/proc/$pid/root$behind" "$work/mounts/$1"
}

# Programs that are started from now on are for this system. They see what a program of `fastness run` sees: SQLite
# resolves links in its paths, and would find the directory behind the mount elsewhere.
load_library() {
    local pid variables
    unset LD_PRELOAD FASTNESS_LEASES
    enter=()
    [ -s "$work/$1.pid" ] || return 0
    pid=$(cat "$work/$1.pid")
    enter=(nsenter -t "$pid" -m --)
    mapfile -t variables < <(tr '\0' '\n' <"/proc/$pid/environ" | grep -E '^(LD_PRELOAD|FASTNESS_LEASES)=')
    # The library knows one protocol.
    [ "$(kind "$1")" = ceph-melov ] || [ ${#variables[@]} = 2 ] || { echo "bench-databases: no library to load" >&2 && return 1; }
    [ ${#variables[@]} = 0 ] || export "${variables[@]}"
}

# Whatever state they are in. A pool whose process is gone lets its mount and its programs go.
systems_down() {
    local pid system
    for pid in "$work"/*.pid; do [ ! -s "$pid" ] || kill "$(cat "$pid")" 2>/dev/null || true; done
    for pid in "${server[@]}"; do kill -INT "$pid" 2>/dev/null || true; done
    for pid in "${server[@]}"; do
        timeout 20 tail --pid="$pid" -f /dev/null || kill -KILL "$pid" 2>/dev/null || true
    done
    for system in "${systems[@]}" ext4; do
        ! grep -q " $work/mounts/$system " /proc/mounts || umount "$work/mounts/$system" 2>/dev/null ||
            umount -l "$work/mounts/$system" || true
    done
    [ -z "$loop" ] || losetup -d "$loop" || true
    rm -f ${region:+"$region"} "${cache[@]}"
    [ -z "$cluster" ] || {
        scripts/one-node-ceph unmount "$cluster" "$work/mounts/ceph"
        scripts/one-node-ceph down "$cluster"
        rm -rf "$cluster"
    }
}

# Nothing of this turn is written in another's.
system_sync() {
    load_library ""
    [ "$1" = folder ] || sync -f "$work/mounts/$1/"
    case $1 in
    pmem | disabled) "$fastness" pool sync pm >/dev/null ;;
    lwb) "$fastness" pool sync lwb >/dev/null ;;
    folder) sync -f "$work" ;;
    esac
    [ -z "${cache[$1]:-}" ] || "$fastness" responder flush "${cache[$1]}" >/dev/null
}

transport() {
    if [ "$(cat /sys/module/fuse/parameters/enable_uring 2>/dev/null)" = Y ] && [ "${FASTNESS_FUSE_TRANSPORT:-}" != device ]; then
        echo io_uring
    else
        echo /dev/fuse
    fi
}

# counted SYSTEM: bytes to persistent memory so far, and to the disk.
counted() {
    local pool
    case $1 in
    pmem | disabled) pool=pm ;;
    lwb) pool=lwb ;;
    ext4)
        # Sectors written.
        echo "0 $(($(awk '{ print $7 }' "/sys/block/${loop#/dev/}/stat") * 512))"
        return
        ;;
    *) return 1 ;;
    esac
    local pm
    pm=$("$fastness" metrics | sed -n "s/^fastness_log_medium_events_total{pool=\"$pool\",event=\"bytes\"} //p")
    # A pool writes its disk with direct I/O, so that what it wrote is what reached the disk's file.
    echo "${pm:-0} $(sed -n 's/^write_bytes: //p' "/proc/${server[$pool]}/io")"
}
