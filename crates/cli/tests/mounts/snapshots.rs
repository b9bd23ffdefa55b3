//! Snapshots of a file system that is mounted, and mounts of snapshots.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::Path;

use fastness_testkit::Rng;

use crate::{LOGS, Mounted, mounted};

fn files_in(at: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(at).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_dir() {
            let below = files_in(&entry.path());
            files.extend(below.into_iter().map(|(below, bytes)| (format!("{name}/{below}"), bytes)));
        } else {
            files.insert(name, fs::read(entry.path()).unwrap());
        }
    }
    files
}

fn mount_snapshot(files: &Mounted, name: &str) -> std::path::PathBuf {
    let at = files.bench.path(name);
    fs::create_dir_all(&at).unwrap();
    files.bench.ok(&format!("fs mount tank/home@{name} {}", at.display()));
    at
}

#[test]
fn a_snapshot_is_mounted_read_only_and_again_after_an_import() {
    let Some(files) = mounted("") else { return };
    fs::create_dir(files.path("d")).unwrap();
    fs::write(files.path("d/a"), "one").unwrap();
    fs::write(files.path("b"), vec![1; 300_000]).unwrap();
    // Open, written, and not synced.
    let mut open = fs::File::create(files.path("open")).unwrap();
    open.write_all(b"begun").unwrap();
    let then = files_in(&files.at);
    files.bench.ok("fs snapshot tank/home@s");
    open.write_all(b" and ended").unwrap();
    fs::write(files.path("d/a"), "two").unwrap();
    fs::remove_file(files.path("b")).unwrap();
    fs::rename(files.path("d"), files.path("e")).unwrap();
    let at = mount_snapshot(&files, "s");
    assert_eq!(files_in(&at), then);
    let refused = [
        fs::write(at.join("new"), "x"),
        fs::write(at.join("b"), "x"),
        fs::remove_file(at.join("b")),
        fs::create_dir(at.join("dir")),
        fs::rename(at.join("b"), at.join("c")),
        fs::set_permissions(at.join("b"), fs::metadata(at.join("b")).unwrap().permissions()),
    ];
    for (number, refused) in refused.into_iter().enumerate() {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem, "{number}");
    }
    let listed = files.bench.ok("fs list -t snapshot -H -o name,mounted");
    assert_eq!(listed, format!("tank/home@s\t{}\n", at.display()));
    assert_eq!(files.bench.ok("fs list -H -o name"), "tank/home\n");
    assert_eq!(files.bench.ok("volume list -t snapshot -H -o name"), "");
    assert!(files.bench.ok("fs check tank/home@s").contains("nothing is wrong"));
    assert!(files.bench.fails("dataset destroy tank/home@s", 4).contains("fs unmount tank/home@s"));
    assert!(files.bench.fails("volume serve tank/home@s", 3).contains("tank/home@s"));
    assert!(
        files.bench.fails("volume clone tank/home@s tank/copy", 3).contains("file systems have no clones")
    );
    drop(open);
    files.kill();
    files.bench.ok("pool import tank");
    assert_eq!(files_in(&at), then);
    assert_eq!(fs::read(files.path("open")).unwrap(), b"begun and ended");
    files.bench.unmount("tank/home@s");
    assert!(files.bench.fails("dataset destroy tank/home", 3).contains("snapshots"));
    assert_eq!(files.bench.ok("dataset destroy tank/home@s -n").lines().count(), 2);
    files.bench.ok("dataset destroy tank/home@s");
    assert_eq!(files.bench.ok("fs list -t snapshot -H -o name"), "");
    files.check();
    files.bench.ok("pool check tank");
}

#[test]
fn a_file_system_goes_back_when_it_is_not_mounted() {
    let Some(files) = mounted("log pm --emulate-pm --pm-size 16M") else { return };
    fs::create_dir(files.path("d")).unwrap();
    fs::write(files.path("d/a"), "one").unwrap();
    fs::write(files.path("b"), vec![1; 300_000]).unwrap();
    let then = files_in(&files.at);
    files.bench.ok("fs snapshot tank/home@s");
    fs::write(files.path("d/a"), "two").unwrap();
    files.bench.ok("fs snapshot tank/home@t");
    fs::remove_file(files.path("b")).unwrap();
    fs::write(files.path("new"), vec![2; 300_000]).unwrap();
    assert!(files.bench.fails("fs rollback tank/home@s -r", 4).contains("fs unmount tank/home"));
    files.bench.unmount("tank/home");
    let newer = files.bench.fails("fs rollback tank/home@s", 3);
    assert!(newer.contains("--recursive") && newer.contains("tank/home@t"), "{newer}");
    files.bench.ok("fs rollback tank/home@s -r");
    files.kill();
    files.bench.ok("pool import tank");
    files.bench.ok(&format!("fs mount tank/home {}", files.at.display()));
    assert_eq!(files_in(&files.at), then);
    fs::write(files.path("new"), "goes on").unwrap();
    files.check();
    files.bench.ok("pool check tank");
}

/// The server is killed while snapshots are made and files are written: each snapshot that was acknowledged
/// has what was there before the command, and no one half of a later change.
#[test]
fn snapshots_survive_kills_as_they_were() {
    for log in LOGS {
        let Some(files) = mounted(log) else { return };
        let mut rng = Rng(7);
        let mut known: BTreeMap<String, BTreeMap<String, Vec<u8>>> = BTreeMap::new();
        for round in 0..4 {
            for _ in 0..3 {
                for _ in 0..10 {
                    let path = files.path(&format!("f{}", rng.below(8)));
                    match rng.below(5) {
                        0 => drop(fs::remove_file(path)),
                        1 => {
                            let file = fs::File::create(path).unwrap();
                            file.set_len(rng.below(400_000)).unwrap();
                        }
                        _ => fs::write(path, vec![rng.below(256) as u8; 1 + rng.index(200_000)]).unwrap(),
                    }
                }
                let name = format!("s{round}{}", known.len());
                known.insert(name.clone(), files_in(&files.at));
                files.bench.ok(&format!("fs snapshot tank/home@{name}"));
            }
            if round == 2 {
                let first = known.keys().next().unwrap().clone();
                let last = known.keys().nth(3).unwrap().clone();
                files.bench.ok(&format!("dataset destroy tank/home@{first}%{last}"));
                known.retain(|name, _| *name > last);
            }
            fs::write(files.path("later"), vec![round as u8; 100_000]).unwrap();
            files.kill();
            files.bench.ok("pool import tank");
            for (name, then) in &known {
                let at = mount_snapshot(&files, name);
                assert!(files_in(&at) == *then, "{name} in round {round}");
                files.bench.unmount(&format!("tank/home@{name}"));
            }
            files.check();
        }
        files.bench.ok("pool check tank");
    }
}
