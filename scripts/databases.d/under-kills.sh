# What each database does under kills: for scripts/test-databases and scripts/test-responder.
#
# For each NAME: NAME_prepare, _start (sets `database`), _client (prints a larger number for each acknowledged transaction),
# _last (prints the largest that is there, and how many there are, if that is known), _check and _stop.
# shellcheck shell=bash disable=SC2034,SC2154

declare -A program=([sqlite]=sqlite3 [postgresql]=pg_ctl [redis]=redis-server [mariadb]=mariadbd [rocksdb]=db_bench)
declare -A package=([sqlite]=sqlite3 [postgresql]=postgresql [redis]=redis-server [mariadb]=mariadb-server [rocksdb]=rocksdb-tools)

# install_databases NAME...
install_databases() {
    local name missing=()
    for name in "$@"; do
        command -v "${program[$name]}" >/dev/null || missing+=("${package[$name]}")
    done
    [ ${#missing[@]} -eq 0 ] || install_packages "${missing[@]}"
}

# check_acknowledged NAME TOTAL: what is in the database is no less than the client was told; it is whole. The client's words
# are in $work/acknowledged; TOTAL: how many were acknowledged since it was prepared.
check_acknowledged() {
    local name=$1 total=$2 last found count
    last=$(grep -Eo '^[0-9]+$' "$work/acknowledged" | tail -n 1 || true)
    found=$("${name}_last" 2>>"$work/log") || fail "it cannot be read" || return 1
    read -r found count <<<"$found"
    echo "  ${last:-0} was acknowledged last, $found is there${count:+; $count of $total}"
    [ -n "$last" ] || fail "nothing was acknowledged" || return 1
    [ "$found" -ge "$last" ] || fail "$last was acknowledged and is gone" || return 1
    [ "${count:-$total}" -ge "$total" ] || fail "$total were acknowledged, $count are there" || return 1
    "${name}_check" >>"$work/log" 2>&1 || fail "it is damaged" || return 1
}
acknowledged() { grep -Ec '^[0-9]+$' "$work/acknowledged" || true; }

# --- SQLite: no server; the client holds the database ---
sqlite_prepare() { sqlite3 "$mount/test.db" 'PRAGMA journal_mode=WAL; CREATE TABLE t(n INTEGER PRIMARY KEY, x TEXT);'; }
sqlite_start() { :; }
sqlite_client() {
    yes 'INSERT INTO t(x) VALUES(hex(randomblob(200))); SELECT max(n) FROM t;' |
        "${through[@]}" sqlite3 -cmd 'PRAGMA synchronous=FULL' "$mount/test.db"
}
sqlite_last() { sqlite3 -separator ' ' "$mount/test.db" 'SELECT max(n), count(*) FROM t;'; }
sqlite_check() { [ "$(sqlite3 "$mount/test.db" 'PRAGMA integrity_check;')" = ok ]; }
sqlite_stop() { :; }

# --- PostgreSQL: single inserts, and pgbench with 4 clients, whose sums must agree ---
postgresql_prepare() {
    postgresql_make 'shared_buffers=32MB' 'max_wal_size=64MB' || return 1
    postgresql_start
    sql -c 'CREATE TABLE t(n serial PRIMARY KEY, x text)' -c 'CREATE EXTENSION amcheck'
    postgres pgbench -q -i -s 1 postgres
    postgresql_stop
}
postgresql_client() {
    postgres pgbench -n -c 4 -T 30 postgres >/dev/null 2>&1 &
    yes "INSERT INTO t(x) VALUES(repeat('x', 200)) RETURNING n;" | sql
    wait
}
postgresql_last() { sql -F ' ' -c 'SELECT max(n), count(*) FROM t'; }
postgresql_check() {
    local sums
    sums=$(sql -c 'SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT coalesce(sum(delta), 0) FROM pgbench_history)
        AND (SELECT sum(tbalance) FROM pgbench_tellers) = (SELECT coalesce(sum(delta), 0) FROM pgbench_history)
        AND (SELECT sum(bbalance) FROM pgbench_branches) = (SELECT coalesce(sum(delta), 0) FROM pgbench_history)')
    [ "$sums" = t ] || fail "the sums of pgbench differ" || return 1
    postgres pg_amcheck -d postgres --heapallindexed
}
postgresql_stop() {
    sql -c CHECKPOINT
    postgresql_end
    postgres pg_checksums --check -D "$mount/pg"
}

# --- Redis ---
redis_prepare() { :; }
redis_start() { redis_begin; }
redis_client() { yes 'INCR n' | redis; }
redis_last() { redis GET n; }
redis_check() { redis-check-aof "$mount/redis/appendonlydir/appendonly.aof.manifest"; }

# --- MariaDB ---
mariadb_prepare() {
    mariadb_make || return 1
    mariadb_start
    maria -e 'CREATE DATABASE d; CREATE TABLE d.t(n BIGINT AUTO_INCREMENT PRIMARY KEY, x TEXT, y CHAR(40), KEY(y)) ENGINE=InnoDB'
    mariadb_stop
}
mariadb_start() { mariadb_begin --innodb-buffer-pool-size=64M --innodb-log-file-size=16M; }
mariadb_client() {
    yes "INSERT INTO t(x, y) VALUES(REPEAT('x', 200), UUID()); SELECT LAST_INSERT_ID();" | maria -n d
}
mariadb_last() { maria -e 'SELECT max(n), count(*) FROM d.t'; }
mariadb_check() { maria -e 'CHECK TABLE d.t EXTENDED' | grep -q 'status.OK'; }

# --- RocksDB: no server; db_bench writes keys in turn, each synced, and says how many it has finished ---
rocksdb_prepare() { :; }
rocksdb_start() { :; }
rocksdb_client() {
    rm -rf "$mount/rocks"
    "${through[@]}" db_bench --benchmarks=fillseq --sync=1 --num=10000000 --value_size=200 --write_buffer_size=1048576 \
        --db="$mount/rocks" 2>&1 | stdbuf -oL tr '\r' '\n' | sed -un 's/.*finished \([0-9]*\) ops.*/\1/p'
}
rocksdb_last() { ldb --db="$mount/rocks" scan --no_value --hex | grep -c '^0x'; }
rocksdb_check() { ldb --db="$mount/rocks" checkconsistency; }
rocksdb_stop() { :; }
