# The programs that scripts/bench-databases runs. NAME_prepare, NAME_start and NAME_stop around each turn; the last line
# that NAME_client prints is how much it did a second.
# shellcheck shell=bash disable=SC2154,SC2034

declare -A needed=(
    [redis]='redis-server redis-benchmark' [sqlite]=python3 [rocksdb]=db_bench [postgresql]='pg_ctl pgbench'
    [mariadb]='mariadbd sysbench' [varmail]=python3 [oltp]=fio [append]=python3 [write4k]=fio
    [write64k]=fio
)
declare -A package=(
    [redis-server]=redis-server [redis-benchmark]=redis-tools [python3]=python3 [db_bench]=rocksdb-tools
    [pg_ctl]=postgresql [pgbench]=postgresql-contrib [mariadbd]=mariadb-server [sysbench]=sysbench [fio]=fio
)

# A client that hangs is ended, and the turn has failed. `enter`: what runs it where its system is.
enter=()
limited() { timeout -k 5 $((seconds * 3 + 60)) "${enter[@]}" "$@"; }
load() { limited python3 "$parts/load.py" "$1" "$mount" "$seconds"; }

# --- Redis: 16 clients set values of 100 bytes, the log synced before each answer ---
redis_prepare() { :; }
redis_start() { redis_begin --auto-aof-rewrite-percentage 0; }
redis_commands() { redis INFO stats | tr -d '\r' | sed -n 's/^total_commands_processed://p'; }
redis_client() {
    redis-benchmark -s "$work/redis.sock" -q -t set -c 16 -d 100 -r 100000 -n 2000000000 >/dev/null &
    local load=$! before after begin
    sleep 0.5
    before=$(redis_commands) begin=$EPOCHREALTIME
    sleep "$seconds"
    after=$(redis_commands)
    awk -v n=$((after - before)) -v a="$begin" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f\n", n / (b - a) }'
    kill "$load"
    wait "$load" 2>/dev/null || true
}

# --- SQLite: one program, one row a transaction, WAL, synchronous=FULL ---
sqlite_prepare() { :; }
sqlite_start() { :; }
sqlite_client() { load sqlite; }
sqlite_stop() { :; }

# --- RocksDB: one thread writes random keys, the log synced after each ---
rocksdb_prepare() { :; }
rocksdb_start() { rm -rf "$mount/rocks"; }
rocksdb_client() {
    limited db_bench --benchmarks=fillsync --num=100000000 --duration="$seconds" --ops_between_duration_checks=10 \
        --value_size=100 --db="$mount/rocks" | sed -n 's/^fillsync.* \([0-9]*\) ops\/sec.*/\1/p'
}
rocksdb_stop() { :; }

# --- PostgreSQL: pgbench as it comes (five statements a transaction), 4 clients, scale 10 ---
postgresql_prepare() {
    postgresql_make 'shared_buffers=256MB' 'max_wal_size=1GB' || return 1
    postgresql_start && postgres pgbench -q -i -s 10 postgres && postgresql_stop
}
postgresql_client() {
    limited runuser -u postgres -- env PATH="$PATH" PGHOST="$work/pg-socket" \
        pgbench -n -c 4 -j 2 -T "$seconds" postgres | sed -n 's/^tps = \([0-9.]*\).*/\1/p'
}
postgresql_stop() { postgresql_end; }

# --- MariaDB: sysbench inserts single rows, 4 clients ---
bench_rows() {
    limited sysbench oltp_insert --db-driver=mysql --mysql-socket="$work/maria.sock" --mysql-user=root --tables=1 \
        --table-size=10000 "$@"
}
mariadb_prepare() {
    mariadb_make && mariadb_start && maria -e 'CREATE DATABASE sbtest' && bench_rows prepare && mariadb_stop
}
mariadb_start() { mariadb_begin --innodb-buffer-pool-size=256M --innodb-log-file-size=96M; }
mariadb_client() {
    bench_rows --threads=4 --time="$seconds" run | sed -n 's/.*transactions: .*(\([0-9.]*\) per sec.*/\1/p'
}

# --- What filebench calls varmail: 4 processes, the files of a mail server (load.py) ---
varmail_prepare() { :; }
varmail_start() { :; }
varmail_client() { load varmail; }
varmail_stop() { :; }

# --- After filebench's oltp: a log with O_DSYNC, and four threads that read and write a table at random places ---
oltp() { limited fio "$parts/oltp.fio" --directory="$mount" --runtime="$seconds" "$@"; }
oltp_prepare() { oltp --create_only=1; }
oltp_start() { :; }
oltp_client() {
    oltp --output-format=json | python3 -c 'import json, sys
jobs = json.load(sys.stdin)["jobs"]
print(sum(job[kind]["iops"] for job in jobs for kind in ("read", "write")))'
}
oltp_stop() { :; }

# --- Appends of 100 bytes, each with fsync: how many a second, and what each of them writes ---
append_prepare() { :; }
append_start() {
    # Of what is no pool and no device of its own, bytes are not counted.
    counted "$system" >"$work/counted" || rm "$work/counted"
}
append_client() { load append; }
append_stop() {
    [ -e "$work/counted" ] || return 0
    local pm disk pm_before disk_before appends
    system_sync "$system"
    read -r pm_before disk_before <"$work/counted"
    read -r pm disk < <(counted "$system")
    appends=$(head -n 1 "$work/said")
    awk -v n="$appends" -v pm=$((pm - pm_before)) -v disk=$((disk - disk_before)) -v name="$system" -v OFS='\t' \
        'BEGIN { print "bytes to PM", name, 0, pm / n; print "bytes to disk", name, 0, disk / n }' >>"$results"
}

# --- One thread overwrites blocks of a file of 64 MiB at random places, each durable before the next (O_DSYNC) ---
synchronous() {
    limited fio --name=write --filename="$mount/$1" --bs="$1" --size=64m --ioengine=psync --rw=randwrite --sync=dsync --thread=1 \
        --invalidate=0 --time_based --runtime="$seconds" "${@:2}"
}
synchronous_client() {
    synchronous "$1" --output-format=json | python3 -c 'import json, sys
print(json.load(sys.stdin)["jobs"][0]["write"]["iops"])'
}
# Its blocks are there before.
write4k_prepare() { write_blocks 4k; }
write64k_prepare() { write_blocks 64k; }
write_blocks() { "${enter[@]}" dd if=/dev/zero of="$mount/$1" bs=1M count=64 conv=fsync; }
write4k_start() { :; }
write64k_start() { :; }
write4k_client() { synchronous_client 4k; }
write64k_client() { synchronous_client 64k; }
write4k_stop() { :; }
write64k_stop() { :; }
