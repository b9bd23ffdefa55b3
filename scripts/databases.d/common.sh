# Databases as Debian has them: installed, started and stopped, with their files in a mounted file system.
#
# For scripts/test-databases, test-responder and bench-databases, which set `work` (a folder) and `mount` (where the files
# are). A function NAME_start sets `database`, the process that kill_tree ends with all that it has started.
# shellcheck shell=bash disable=SC2034,SC2154

# Where PostgreSQL's and MariaDB's servers are is not in everyone's PATH.
find_postgresql() { compgen -G '/usr/lib/postgresql/*/bin' | sort -V | tail -1; }
export PATH=$PATH:/usr/sbin:$(find_postgresql)
policy=
database=
# What starts a program that holds files of a database: words before its name.
through=()

# install_packages PACKAGE...: what cannot be installed is missing afterwards.
install_packages() {
    # Packages must not start servers of their own.
    local at=/usr/sbin/policy-rc.d
    if [ ! -e $at ]; then
        policy=$at
        printf '#!/bin/sh\nexit 101\n' >$at && chmod +x $at
    fi
    (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@") \
        >/dev/null 2>&1 || true
    remove_policy
    PATH=$PATH:$(find_postgresql)
}
remove_policy() {
    [ -z "$policy" ] || rm -f "$policy"
    policy=
}

fail() {
    echo "  $*" >&2
    return 1
}

# wait_until COMMAND...: it succeeds within a minute.
wait_until() {
    local _
    for _ in $(seq 600); do
        "$@" >/dev/null 2>&1 && return 0
        sleep 0.1
    done
    fail "not within a minute: $*"
}

# kill_tree PID: a process, and those that it has started.
kill_tree() {
    local child
    for child in $(pgrep -P "$1" || true); do kill_tree "$child"; done
    kill -KILL "$1" 2>/dev/null || true
}

# --- PostgreSQL ---
postgres() { runuser -u postgres -- env PATH="$PATH" PGHOST="$work/pg-socket" "$@"; }
sql() { postgres psql -X -q -A -t -v ON_ERROR_STOP=1 -d postgres "$@"; }
# postgresql_make SETTING...: an empty database.
postgresql_make() {
    install -d -o postgres "$mount/pg" "$work/pg-socket"
    postgres initdb -k -D "$mount/pg" -A trust || return 1
    printf '%s\n' "listen_addresses=''" "unix_socket_directories='$work/pg-socket'" 'fsync=on' 'synchronous_commit=on' \
        'restart_after_crash=off' "$@" >>"$mount/pg/postgresql.conf"
}
postgresql_start() {
    # The postmaster itself, so that it can be killed, and reaped: a killed one that nothing has reaped keeps its process
    # number, and its successor refuses to start. (`runuser` would stay as its parent.)
    "${through[@]}" setpriv --reuid=postgres --regid=postgres --init-groups -- env PATH="$PATH" postgres -D "$mount/pg" &
    database=$!
    wait_until sql -c 'SELECT 1'
}
postgresql_end() {
    postgres pg_ctl -D "$mount/pg" -m fast -w stop || return 1
    wait "$database" 2>/dev/null || true
}

# --- Redis: a log of commands, synced after each ---
redis() { redis-cli -s "$work/redis.sock" "$@"; }
# redis_begin OPTION...
redis_begin() {
    mkdir -p "$mount/redis"
    "${through[@]}" redis-server --port 0 --unixsocket "$work/redis.sock" --dir "$mount/redis" --appendonly yes --appendfsync always \
        --save '' --daemonize no "$@" &
    database=$!
    wait_until eval '[ "$(redis PING)" = PONG ]'
}
redis_stop() {
    redis SHUTDOWN
    wait "$database" 2>/dev/null || true
}

# --- MariaDB: InnoDB, its log synced at each commit ---
maria() { mariadb --no-defaults -u root -S "$work/maria.sock" -N "$@"; }
mariadb_make() {
    install -d -o mysql "$mount/maria"
    chown mysql "$work"
    mariadb-install-db --no-defaults --user=mysql --datadir="$mount/maria" --auth-root-authentication-method=normal
}
# mariadb_begin OPTION...
mariadb_begin() {
    "${through[@]}" mariadbd --no-defaults --user=mysql --datadir="$mount/maria" --socket="$work/maria.sock" --pid-file="$work/maria.pid" \
        --skip-networking --innodb-flush-log-at-trx-commit=1 "$@" &
    database=$!
    wait_until maria -e 'SELECT 1'
}
mariadb_stop() {
    mariadb-admin --no-defaults -u root -S "$work/maria.sock" shutdown || return 1
    wait "$database" 2>/dev/null || true
}
