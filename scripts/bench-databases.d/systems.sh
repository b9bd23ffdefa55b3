# The file systems that scripts/bench-databases compares, each at $work/mounts/NAME.
# shellcheck shell=bash disable=SC2154

loop=
region=
cache=
run_cache=
declare -A server=()

wants() { [[ " ${systems[*]} " == *" $1 "* ]]; }

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
    if wants ext4 || wants responder || wants run; then
        mkdir -p "$work/mounts/ext4"
        disk_file "$work/ext4"
        # Nothing is discarded or initialised later.
        mkfs.ext4 -q -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 "$work/ext4"
        loop=$(losetup --find --show --direct-io=on "$work/ext4")
        mount "$loop" "$work/mounts/ext4"
    fi
    ! wants responder || responder_up
    ! wants run || run_up
    ! wants tmpfs || mount -t tmpfs -o size="$size" tmpfs "$work/mounts/tmpfs"
}

# Not in a pool: ext4, and the same with a cache in emulated PM in front of it.
responder_up() {
    mkdir -p "$work/mounts/ext4/behind"
    cache=$(mktemp -u -p /dev/shm fastness-bench.XXXXXX)
    "$fastness" responder mount "$work/mounts/ext4/behind" "$work/mounts/responder" --pm "$cache" --size 1G \
        >"$work/responder.said" 2>&1 &
    server[responder]=$!
    wait_until grep -q Ctrl-C "$work/responder.said" || { cat "$work/responder.said" >&2 && return 1; }
}

# The same cache by `fastness run`: programs get its library, and find the directory by way of a program that
# does nothing, since only what that starts sees the mount.
run_up() {
    mkdir -p "$work/mounts/ext4/run"
    run_cache=$(mktemp -u -p /dev/shm fastness-bench.XXXXXX)
    "$fastness" run --dir "$work/mounts/ext4/run" --pm "$run_cache" --size 1G -- \
        sh -c "echo \$\$ >'$work/run.pid'; exec sleep infinity" >"$work/run.said" 2>&1 &
    server[run]=$!
    wait_until test -s "$work/run.pid" || { cat "$work/run.said" >&2 && return 1; }
    local pid
    pid=$(cat "$work/run.pid")
    wait_until grep -q sleep "/proc/$pid/comm" || return 1
    rmdir "$work/mounts/run"
    ln -s "/proc/$pid/root$work/mounts/ext4/run" "$work/mounts/run"
    mapfile -t run_environment < <(tr '\0' '\n' <"/proc/$pid/environ" | grep -E '^(LD_PRELOAD|FASTNESS_LEASES)=')
    [ ${#run_environment[@]} = 2 ] || { echo "bench-databases: no library to load" >&2 && return 1; }
}

# Programs that are started from now on are for this system. They see what a program of `fastness run` sees: SQLite
# resolves links in its paths, and would find the directory behind the mount elsewhere.
load_library() {
    unset LD_PRELOAD FASTNESS_LEASES
    enter=()
    [ "$1" != run ] || {
        enter=(nsenter -t "$(cat "$work/run.pid")" -m --)
        export "${run_environment[@]}"
    }
}

# Whatever state they are in. A pool whose process is gone lets its mount and its programs go.
systems_down() {
    local pid system
    [ ! -s "$work/run.pid" ] || kill "$(cat "$work/run.pid")" 2>/dev/null || true
    for pid in "${server[@]}"; do kill -INT "$pid" 2>/dev/null || true; done
    for pid in "${server[@]}"; do
        timeout 20 tail --pid="$pid" -f /dev/null || kill -KILL "$pid" 2>/dev/null || true
    done
    for system in "${systems[@]}" ext4; do
        ! grep -q " $work/mounts/$system " /proc/mounts || umount "$work/mounts/$system" 2>/dev/null ||
            umount -l "$work/mounts/$system" || true
    done
    [ -z "$loop" ] || losetup -d "$loop" || true
    rm -f ${region:+"$region"} ${cache:+"$cache"} ${run_cache:+"$run_cache"}
}

# Nothing of this turn is written in another's.
system_sync() {
    load_library ""
    [ "$1" = folder ] || sync -f "$work/mounts/$1/"
    case $1 in
    pmem | disabled) "$fastness" pool sync pm >/dev/null ;;
    lwb) "$fastness" pool sync lwb >/dev/null ;;
    responder) "$fastness" responder flush "$cache" >/dev/null ;;
    run) "$fastness" responder flush "$run_cache" >/dev/null ;;
    folder) sync -f "$work" ;;
    esac
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
    folder | responder | run | tmpfs) return 1 ;;
    esac
    local pm
    pm=$("$fastness" metrics | sed -n "s/^fastness_log_medium_events_total{pool=\"$pool\",event=\"bytes\"} //p")
    # A pool writes its disk with direct I/O, so that what it wrote is what reached the disk's file.
    echo "${pm:-0} $(sed -n 's/^write_bytes: //p' "/proc/${server[$pool]}/io")"
}
