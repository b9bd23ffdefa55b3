# Suites of others, run against a folder: for scripts/test-files and scripts/test-responder, which set `work` (a folder), `tools`
# (what is built there), `mount` (the folder under test) and `through` (words that start a program; there may be none).
# shellcheck shell=bash disable=SC2034,SC2154

# build_suites: pjdfstest and fsx, which are crates.
build_suites() {
    local crate
    for crate in pjdfstest@0.2 fsx@0.3; do
        [ -x "$tools/bin/${crate%@*}" ] ||
            cargo install --quiet --locked --root "$tools" "${crate%@*}" --version "^${crate#*@}" || true
    done
}

# In pjdfstest_fails: cases that must fail, each in quotes.
pjdfstest_fails=
pjdfstest() {
    # Excluded: the cases that remount the file system read-only (the suite would have to know our mount command), and LINK_MAX,
    # which Linux does not tell for FUSE. Both are skipped by the suite itself.
    cat >"$work/pjdfstest.toml" <<END
[features]
posix_fallocate = {}
rename_ctime = {}
stat_st_birthtime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.01
allow_remount = false
expected_failures = [$pjdfstest_fails]
[dummy_auth]
entries = [["nobody", "nogroup"], ["games", "games"], ["daemon", "daemon"]]
END
    mkdir -p "$mount/pjdfstest"
    "${through[@]}" "$tools/bin/pjdfstest" -c "$work/pjdfstest.toml" -p "$mount/pjdfstest" || return 1
}

# fsx OPERATIONS SEED
fsx() {
    cat >"$work/fsx.toml" <<'END'
flen = 1000000
[opsize]
max = 200000
[weights]
close_open = 1
invalidate = 1
mapread = 10
mapwrite = 10
read = 20
write = 20
truncate = 5
fsync = 2
fdatasync = 2
posix_fallocate = 3
punch_hole = 5
sendfile = 2
copy_file_range = 5
END
    "${through[@]}" "$tools/bin/fsx" -f "$work/fsx.toml" -N "$(($1 / 4))" -S "$2" -P "$work" "$mount/fsx-$2"
}

fio_verifies() {
    "${through[@]}" fio --aux-path="$work" --name=verify --directory="$mount" --rw=randwrite --bs=512-64k --size=64M --numjobs=2 \
        --verify=crc32c --verify_fatal=1 --fsync=50 --ioengine=psync --group_reporting
}
fio_maps() {
    "${through[@]}" fio --aux-path="$work" --name=mapped --directory="$mount" --rw=randwrite --bs=4k --size=32M --verify=crc32c \
        --verify_fatal=1 --ioengine=mmap
}
fio_is_direct() {
    "${through[@]}" fio --aux-path="$work" --name=direct --directory="$mount" --rw=randwrite --bs=4k --size=32M --verify=crc32c \
        --verify_fatal=1 --ioengine=psync --direct=1
}
