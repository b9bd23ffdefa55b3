//! Programs that every machine has; those that this one lacks are skipped, with the reason.

use std::process::Command;

use crate::mounted;

const TOOLS: &[(&str, &str)] = &[
    ("cp", "cp -a $TREE/. at/include && diff -r $TREE at/include"),
    (
        "tar",
        "mkdir at/tar && tar -C at -cf at/archive.tar include && tar -C at/tar --xattrs -xf at/archive.tar \
         && diff -r at/include at/tar/include",
    ),
    (
        "git",
        "git init -q at/git && cp -r at/include at/git && cd at/git && git add . \
         && git -c user.name=a -c user.email=a@b commit -qm all && git fsck --strict && git status --short | wc -l | grep -qx 0",
    ),
    (
        "sqlite3",
        "sqlite3 at/db 'pragma journal_mode=wal; create table t(a); begin; insert into t \
         with recursive c(x) as (select 1 union all select x+1 from c where x<20000) select x from c; commit; \
         pragma integrity_check; select sum(a) from t' | tail -2 | tr '\\n' ' ' | grep -q 'ok 200010000'",
    ),
    ("find", "test $(find at/include -type f | wc -l) = $(find $TREE -type f | wc -l)"),
    ("rm", "rm -rf at/include at/tar at/git && ! test -e at/include"),
];

#[test]
fn usual_programs_work() {
    let Some(files) = mounted("log pm --emulate-pm --pm-size 64M") else { return };
    let tree = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    for (tool, line) in TOOLS {
        let found = Command::new("sh").args(["-c", &format!("command -v {tool}")]).output().unwrap();
        if !found.status.success() {
            println!("SKIPPED: there is no {tool}");
            continue;
        }
        let line = format!("set -e; {line}");
        let mut command = Command::new("sh");
        command.args(["-c", &line]).env("TREE", tree).current_dir(files.bench.dir.path());
        let done = command.output().unwrap();
        assert!(done.status.success(), "{tool}: {done:?}");
    }
    assert_eq!(files.check(), 0);
    files.bench.ok("pool check tank");
}
