//! Creating, mounting, unmounting, exporting, importing, crashing.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};

use crate::{bench, mounted};

const BUSY: i32 = 4;
/// What a dead server's mount says: aborted or canceled while it dies, not connected later.
const OF_A_DEAD_SERVER: [Option<i32>; 3] = [Some(103), Some(125), Some(107)];

#[test]
fn a_mount_comes_back_with_each_import_until_it_is_unmounted() {
    let Some(files) = mounted("") else { return };
    let bench = &files.bench;
    fs::write(files.path("a"), "text").unwrap();
    let list = bench.ok("fs list");
    assert!(list.contains("tank/home") && list.contains(files.at.to_str().unwrap()), "{list}");
    assert_eq!(bench.json("fs list")[0]["mounted_at"].as_str(), files.at.to_str());
    for _ in 0..2 {
        bench.ok("pool export tank");
        assert_eq!(fs::read_dir(&files.at).unwrap().count(), 0);
        bench.ok("pool import tank");
        assert_eq!(fs::read_to_string(files.path("a")).unwrap(), "text");
    }
    bench.unmount("tank/home");
    assert_eq!(fs::read_dir(&files.at).unwrap().count(), 0);
    bench.fails("fs unmount tank/home", 3);
    assert!(bench.json("fs list")[0]["mounted_at"].is_null());
    bench.ok("pool export tank");
    bench.ok("pool import tank");
    assert_eq!(fs::read_dir(&files.at).unwrap().count(), 0);

    bench.ok("fs mount tank/home at --once");
    assert_eq!(fs::read_to_string(files.path("a")).unwrap(), "text");
    bench.ok("pool export tank");
    bench.ok("pool import tank");
    assert!(!files.path("a").exists());
    // By its mount point.
    bench.ok("fs mount tank/home at");
    bench.unmount("./at");
    assert!(!files.path("a").exists());
}

#[test]
fn a_mount_that_is_in_use_is_unmounted_only_by_force() {
    let Some(files) = mounted("") else { return };
    let mut open = File::create(files.path("a")).unwrap();
    let said = files.bench.fails("fs unmount tank/home", BUSY);
    assert!(said.contains("in use"), "{said}");
    open.write_all(b"still there").unwrap();
    files.bench.ok("fs unmount tank/home --force");
    assert!(open.write_all(b"too late").is_err());
    drop(open);
    files.bench.ok("fs mount tank/home at");
    assert_eq!(fs::read(files.path("a")).unwrap(), b"still there");
}

#[test]
fn an_export_by_force_detaches_what_is_in_use_and_loses_nothing() {
    let Some(files) = mounted("") else { return };
    let mut open = File::create(files.path("a")).unwrap();
    open.write_all(b"written").unwrap();
    files.bench.ok("pool export tank --force");
    assert!(open.write_all(b"too late").is_err());
    assert_eq!(fs::metadata(files.path("a")).unwrap_err().kind(), ErrorKind::NotFound, "it is detached");
    drop(open);
    files.bench.ok("pool import tank");
    assert_eq!(fs::read(files.path("a")).unwrap(), b"written");
}

#[test]
fn the_mount_of_a_server_that_died_says_so_and_is_replaced() {
    let Some(files) = mounted("log pm --emulate-pm --pm-size 16M") else { return };
    let open = File::create(files.path("a")).unwrap();
    (&open).write_all(b"durable").unwrap();
    open.sync_all().unwrap();
    files.kill();
    let dead = fs::metadata(&files.at).unwrap_err();
    assert!(OF_A_DEAD_SERVER.contains(&dead.raw_os_error()), "{dead}");
    // What is open gets errors, and hangs nobody.
    assert!((&open).write_all(b"x").is_err() && (&open).read(&mut [0]).is_err());
    files.bench.ok("pool import tank");
    assert_eq!(fs::read(files.path("a")).unwrap(), b"durable");
    assert!(files.bench.ok("status tank").contains("had left"), "it is noted");
}

#[test]
fn what_was_unmounted_from_outside_is_not_listed_and_can_be_mounted_again() {
    let Some(files) = mounted("") else { return };
    fs::write(files.path("a"), "text").unwrap();
    files.bench.unmount_by_tool("at");
    let served = &files.bench.json("status tank")[0]["served"];
    assert_eq!(served.as_array().unwrap().len(), 0, "{served}");
    files.bench.ok("fs mount tank/home at");
    assert_eq!(fs::read_to_string(files.path("a")).unwrap(), "text");
}

#[test]
fn a_dataset_that_is_mounted_is_not_destroyed() {
    let Some(files) = mounted("") else { return };
    let said = files.bench.fails("dataset destroy tank/home", BUSY);
    assert!(said.contains("fs unmount tank/home"), "{said}");
    files.bench.unmount("tank/home");
    files.bench.ok("dataset destroy tank/home");
    assert!(!files.bench.ok("fs list").contains("tank/home"));
}

/// `fastness up`, killed and started again, then ended by Ctrl-C while a program is in the mount.
#[test]
fn up_mounts_files_and_recovers_its_mount() {
    let Some(files) = bench() else { return };
    let file = files.bench.path("demo/files/a");
    let up = files.bench.up_with_files("demo --size 64M --emulate-pm --pm-size 16M");
    assert!(up.said.contains("demo/files, mounted)"), "{}", up.said);
    let mut open = File::create(&file).unwrap();
    open.write_all(b"durable").unwrap();
    open.sync_all().unwrap();
    up.kill();
    let dead = fs::read(&file).unwrap_err();
    assert!(OF_A_DEAD_SERVER.contains(&dead.raw_os_error()), "{dead}");
    let up = files.bench.up_with_files("demo");
    assert_eq!(fs::read(&file).unwrap(), b"durable");
    let in_use = File::open(&file).unwrap();
    assert_eq!(up.interrupt(), Some(0));
    assert_eq!(fs::read(&file).unwrap_err().kind(), ErrorKind::NotFound);
    drop(in_use);
    let up = files.bench.up_with_files("demo");
    assert_eq!(fs::read(&file).unwrap(), b"durable");
    assert_eq!(up.interrupt(), Some(0));
}

/// Where nothing can be mounted, the volume is served all the same.
#[test]
fn up_goes_on_without_a_mount() {
    let Some(files) = bench() else { return };
    fs::create_dir(files.bench.path("demo")).unwrap();
    fs::write(files.bench.path("demo/files"), "no folder").unwrap();
    let up = files.bench.up_with_files("demo --size 64M");
    assert!(up.said.contains("not mounted: "), "{}", up.said);
    assert!(files.bench.ok("status demo").contains("demo/volume"));
    assert_eq!(up.interrupt(), Some(0));
}
