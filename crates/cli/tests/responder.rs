//! `fastness responder`: a directory with a cache in front, mounted, killed and recovered.
//!
//! These tests mount as root, and are skipped, with the reason, where that is not possible.

#![allow(unreachable_pub, missing_docs, missing_debug_implementations)]

mod support;

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

use support::Bench;

const WRITERS: usize = 3;
const ROUNDS: u64 = 8;

struct Mounted {
    bench: Bench,
    at: PathBuf,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // What is not mounted is not unmounted; the test has its result.
        let _ = Command::new("umount").arg("-l").arg(&self.at).stderr(Stdio::null()).status();
    }
}

fn folder() -> Option<Mounted> {
    let bench = Bench::for_mounts()?;
    let at = bench.path("at");
    fs::create_dir(&at).unwrap();
    fs::create_dir(bench.path("dir")).unwrap();
    Some(Mounted { bench, at })
}

impl Mounted {
    fn serve(&self, options: &str) -> Child {
        let line = format!("responder mount dir at --pm pm --size 4M {options}");
        let mut child = self.bench.command(&line).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("Ctrl-C")), "{:?}", child.wait());
        child
    }
}

/// What a writer takes for an acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Write,
    SyncedWrite,
    Fsync,
}

/// Writes records, each with its number, to a file of its own; returns the last number of each record that
/// was acknowledged.
fn writer(path: PathBuf, first: u64, by: By) -> JoinHandle<Vec<u64>> {
    spawn(move || {
        let mut acknowledged = vec![0; 64];
        let flags = if by == By::SyncedWrite { rustix::fs::OFlags::DSYNC.bits() as i32 } else { 0 };
        let mut options = OpenOptions::new();
        options.create(true).write(true).truncate(false).custom_flags(flags);
        let Ok(file) = options.open(path) else {
            return acknowledged;
        };
        for number in first.. {
            let place = number * 7 % 64;
            if file.write_all_at(&[number.to_le_bytes(); 125].concat(), place * 1000).is_err() {
                break;
            }
            if by == By::Fsync && file.sync_data().is_err() {
                break;
            }
            acknowledged[place as usize] = number;
        }
        acknowledged
    })
}

#[test]
fn a_killed_mount_loses_nothing_that_was_acknowledged() {
    for (protocol, by) in [
        ("fr", By::Write),
        ("melov", By::Write),
        ("pmal", By::Write),
        ("pmal-o", By::Write),
        ("log", By::SyncedWrite),
        ("log", By::Fsync),
    ] {
        let Some(mounted) = folder() else { return };
        let (mut newest, mut dirty) = (vec![vec![0; 64]; WRITERS], 0);
        for round in 0..ROUNDS {
            let mut server = mounted.serve(&format!("--protocol {protocol} --flush-ms 5000"));
            let first = 1 + (round << 32);
            let start = |at| writer(mounted.at.join(format!("file{at}")), first, by);
            let writers: Vec<_> = (0..WRITERS).map(start).collect();
            std::thread::sleep(Duration::from_millis(50 + round * 13));
            server.kill().unwrap();
            server.wait().unwrap();
            for (newest, writer) in newest.iter_mut().zip(writers) {
                let acknowledged = writer.join().unwrap();
                newest.iter_mut().zip(acknowledged).for_each(|(newest, now)| *newest = now.max(*newest));
            }
            assert!(newest.iter().flatten().any(|&number| number >= first), "something was written");
            let status = mounted.bench.json("responder status pm");
            dirty += status["dirty_chunks"].as_u64().unwrap();
            mounted.bench.ok("responder recover pm");
            for (at, newest) in newest.iter().enumerate() {
                let bytes = fs::read(mounted.bench.path("dir").join(format!("file{at}"))).unwrap();
                for (place, &newest) in newest.iter().enumerate().filter(|(_, newest)| **newest > 0) {
                    // The kernel may make a request of each page that a write touches.
                    let (start, end) = (place * 1000, (place + 1) * 1000);
                    let boundary = end.min((start + 1).next_multiple_of(4096));
                    for part in [&bytes[start..boundary], &bytes[boundary..end]] {
                        for word in part.chunks(8) {
                            assert_eq!(word, &part[..8], "{protocol}: torn in record {place} of file {at}");
                            let number = u64::from_le_bytes(word.try_into().unwrap());
                            assert!(number >= newest, "{protocol}: {number} < {newest} in file {at}");
                        }
                    }
                }
            }
        }
        // Not after each kill: with `log`, the log may just have been emptied.
        assert!(dirty > 0, "{protocol}: the directory had all of it");
    }
}

#[test]
fn regions_are_private_paired_and_taken_apart() {
    let Some(mounted) = folder() else { return };
    let bench = &mounted.bench;
    let mut server = mounted.serve("");
    assert_eq!(fs::metadata(bench.path("pm")).unwrap().permissions().mode() & 0o777, 0o600);
    fs::write(mounted.at.join("a"), "acknowledged").unwrap();
    fs::write(mounted.at.join("b"), "replaced").unwrap();
    fs::rename(mounted.at.join("a"), mounted.at.join("b")).unwrap();
    assert!(fs::metadata(mounted.at.join(".fastness-responder")).is_err());
    let live = bench.json("responder status pm");
    assert_eq!(live["pid"], server.id());
    assert!(bench.fails("responder detach pm", 4).contains("mounted"));
    server.kill().unwrap();
    server.wait().unwrap();

    fs::create_dir(bench.path("other")).unwrap();
    assert!(bench.fails("responder recover pm --dir other", 3).contains("belong"));
    fs::create_dir(bench.path("dir/inside")).unwrap();
    bench.fails("responder mount dir at --pm pm2", 3);
    assert!(!bench.path("pm2").exists());
    bench.ok("responder detach pm");
    assert_eq!(fs::read(bench.path("dir/b")).unwrap(), b"acknowledged");
    assert!(!bench.path("dir/a").exists() && !bench.path("dir/.fastness-responder").exists());
    bench.fails("responder status pm", 3);
}

/// What is synced, and how, is told; programs past the mount see what is not.
#[test]
fn a_mount_with_the_log_says_what_is_durable_when() {
    let Some(mounted) = folder() else { return };
    let bench = &mounted.bench;
    let mut server = mounted.serve("--protocol log --flush-ms 600000");
    let syncs = || bench.json("responder status pm")["records"].as_u64().unwrap();
    let (in_mount, below) = (mounted.at.join("file"), bench.path("dir/file"));
    let file = fs::File::create(&in_mount).unwrap();
    file.write_all_at(b"written", 0).unwrap();
    assert_eq!((syncs(), fs::read(&below).unwrap()), (0, b"written".to_vec()));
    file.sync_all().unwrap();
    assert_eq!(syncs(), 1);
    file.sync_data().unwrap();
    assert_eq!(syncs(), 1, "there was nothing to sync");
    let mut synced = OpenOptions::new();
    let synced = synced.write(true).custom_flags(rustix::fs::OFlags::DSYNC.bits() as i32);
    synced.open(&in_mount).unwrap().write_all_at(b"more", 7).unwrap();
    assert_eq!(syncs(), 2, "the sync that follows a synced write finds nothing");
    // A directory has nothing to sync; files have after that, too.
    fs::File::open(&mounted.at).unwrap().sync_all().unwrap();
    file.write_all_at(b"W", 0).unwrap();
    file.sync_all().unwrap();
    assert_eq!(syncs(), 3);

    let live = bench.json("responder status pm");
    assert!(live["after_process_crash"].as_str().unwrap().contains("synced"), "{live}");
    assert!(live["after_power_cut"].as_str().unwrap().contains("synced"), "{live}");
    server.kill().unwrap();
    server.wait().unwrap();
    let dead = bench.json("responder status pm");
    assert_eq!(
        (&dead["protocol"], &dead["dirty_chunks"], &dead["damaged_tags"]),
        (&"log".into(), &3.into(), &0.into())
    );
    assert!(bench.fails("responder mount dir at --pm pm --protocol fr", 3).contains("another protocol"));
    let recovered = bench.json("responder recover pm");
    assert!(recovered["found"].as_str().unwrap().contains("3 syncs carried out"), "{recovered}");
    bench.ok("responder detach pm");
    assert_eq!(fs::read(&below).unwrap(), b"Writtenmore");
}

#[test]
fn a_region_is_waited_for_while_the_process_that_has_it_dies() {
    let Some(mounted) = folder() else { return };
    let bench = &mounted.bench;
    let mut server = mounted.serve("");
    server.kill().unwrap();
    server.wait().unwrap();
    let dying = fs::File::open(bench.path("pm")).unwrap();
    dying.lock().unwrap();
    assert!(bench.fails("responder recover pm", 4).contains("open"));
    let lets_go = spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        drop(dying);
    });
    bench.ok("responder recover pm");
    lets_go.join().unwrap();
}

/// A region from a backup, and a directory whose file `.fastness-responder` was removed.
#[test]
fn an_older_copy_is_refused_until_somebody_agrees() {
    let Some(mounted) = folder() else { return };
    let bench = &mounted.bench;
    let write = |text: &str| {
        let mut server = mounted.serve("");
        fs::write(mounted.at.join("a"), text).unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
    };
    write("older");
    fs::copy(bench.path("pm"), bench.path("backup")).unwrap();
    write("newer");
    bench.ok("responder flush pm");
    fs::copy(bench.path("pm"), bench.path("kept")).unwrap();
    fs::copy(bench.path("backup"), bench.path("pm")).unwrap();
    for line in ["recover pm", "flush pm", "detach pm", "mount dir at --pm pm"] {
        let said = bench.fails(&format!("responder {line}"), 3);
        assert!(said.contains("older copy") && said.contains("undo") && said.contains("--force"), "{said}");
    }
    assert_eq!(fs::read(bench.path("dir/a")).unwrap(), b"newer");
    fs::copy(bench.path("kept"), bench.path("pm")).unwrap();
    bench.ok("responder recover pm");
    fs::copy(bench.path("backup"), bench.path("pm")).unwrap();
    bench.ok("responder recover pm --force");
    assert_eq!(fs::read(bench.path("dir/a")).unwrap(), b"older");

    write("unflushed");
    fs::remove_file(bench.path("dir/.fastness-responder")).unwrap();
    let said = bench.fails("responder recover pm", 3);
    assert!(said.contains(".fastness-responder is lost") && said.contains("--force"), "{said}");
    bench.ok("responder recover pm --force");
    assert_eq!(fs::read(bench.path("dir/a")).unwrap(), b"unflushed");
    bench.ok("responder detach pm");
}

/// The server is killed, and the file `moved` is not in the directory any more.
fn with_an_orphan(mounted: &Mounted, protocol: &str) {
    let mut server = mounted.serve(&format!("--protocol {protocol} --flush-ms 600000"));
    for name in ["moved", "stays"] {
        fs::write(mounted.at.join(name), "").unwrap();
    }
    mounted.bench.ok("responder flush pm");
    for name in ["moved", "stays"] {
        let mut synced = OpenOptions::new();
        let synced = synced.write(true).custom_flags(rustix::fs::OFlags::DSYNC.bits() as i32);
        let file = synced.open(mounted.at.join(name)).unwrap();
        file.write_all_at(b"acknowledged", 10_000).unwrap();
    }
    server.kill().unwrap();
    server.wait().unwrap();
    fs::rename(mounted.bench.path("dir/moved"), mounted.bench.path("moved")).unwrap();
}

#[test]
fn files_that_were_moved_away_are_saved_or_given_up_before_a_cache_ends() {
    for protocol in ["fr", "log"] {
        for way in ["--orphans saved", "--give-up-orphans"] {
            let Some(mounted) = folder() else { return };
            let bench = &mounted.bench;
            with_an_orphan(&mounted, protocol);
            let inode = fs::metadata(bench.path("moved")).unwrap().ino();
            for _ in 0..2 {
                let said = bench.fails("responder detach pm", 3);
                assert!(said.contains("--orphans DIR") && said.contains("--give-up-orphans"), "{said}");
            }
            if way == "--orphans saved" {
                // What is there is not overwritten, and nothing is given up for it.
                fs::create_dir(bench.path("saved")).unwrap();
                let taken = bench.path("saved").join(format!("inode-{inode}"));
                fs::write(&taken, "of somebody").unwrap();
                bench.fails(&format!("responder detach pm {way}"), 3);
                assert_eq!(fs::read(&taken).unwrap(), b"of somebody");
                fs::remove_file(taken).unwrap();
            }
            let said = bench.ok(&format!("responder detach pm {way}"));
            assert_eq!(fs::read(bench.path("dir/stays")).unwrap()[10_000..], *b"acknowledged");
            assert!(!bench.path("dir/.fastness-responder").exists());
            let saved = bench.path("saved").join(format!("inode-{inode}"));
            assert_eq!(saved.exists(), way == "--orphans saved", "{said}");
            if saved.exists() {
                assert!(said.contains(&format!("inode {inode}")) && said.contains("10012"), "{said}");
                let found = fs::read(&saved).unwrap();
                assert_eq!((found.len(), &found[10_000..]), (10_012, &b"acknowledged"[..]));
                let metadata = fs::metadata(&saved).unwrap();
                assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
                assert!(metadata.blocks() * 512 < 10_012, "it is sparse");
            }
        }
    }
}

#[test]
fn a_log_with_a_damaged_record_is_recovered_up_to_that_with_consent() {
    let Some(mounted) = folder() else { return };
    let bench = &mounted.bench;
    let mut server = mounted.serve("--protocol log --flush-ms 600000");
    let mut options = OpenOptions::new();
    options.create(true).write(true).custom_flags(rustix::fs::OFlags::DSYNC.bits() as i32);
    let file = options.open(mounted.at.join("file")).unwrap();
    for (at, text) in ["the first record", "the second one", "and the third"].into_iter().enumerate() {
        file.write_all_at(text.as_bytes(), 100 * at as u64).unwrap();
    }
    server.kill().unwrap();
    server.wait().unwrap();
    // The page cache has everything: the directory is as after a power cut.
    fs::write(bench.path("dir/file"), "").unwrap();
    let mut region = fs::read(bench.path("pm")).unwrap();
    let at = region.windows(14).position(|bytes| bytes == b"the second one").unwrap();
    region[at] ^= 1;
    fs::write(bench.path("pm"), &region).unwrap();
    let status = bench.run("responder status pm");
    let text = String::from_utf8(status.stdout).unwrap();
    assert_eq!(status.status.code(), Some(1), "{text}");
    assert!(text.contains("damaged") && text.contains("1 of them precede"), "{text}");
    for line in ["recover pm", "detach pm", "mount dir at --pm pm"] {
        let said = bench.fails(&format!("responder {line}"), 6);
        assert!(said.contains("--drop-tail") && said.contains("2 stand after it"), "{said}");
    }
    let recovered = bench.json("responder recover pm --drop-tail");
    let found = recovered["found"].as_str().unwrap();
    assert!(found.contains("1 syncs carried out") && found.contains("given up"), "{found}");
    assert_eq!(fs::read(bench.path("dir/file")).unwrap(), b"the first record");
    bench.ok("responder detach pm");
}

/// A tag that is damaged keeps the chunk of one file from the directory, and with consent nothing else.
#[test]
fn a_damaged_tag_is_given_up_with_consent() {
    let Some(mounted) = folder() else { return };
    let bench = &mounted.bench;
    let mut server = mounted.serve("--flush-ms 600000");
    let files = [("one", "of the first file"), ("two", "of the second file")];
    files.iter().for_each(|(name, _)| fs::write(mounted.at.join(name), "").unwrap());
    bench.ok("responder flush pm");
    files.iter().for_each(|(name, text)| fs::write(mounted.at.join(name), text).unwrap());
    let inode = fs::metadata(bench.path("dir/one")).unwrap().ino();
    server.kill().unwrap();
    server.wait().unwrap();
    let mut region = fs::read(bench.path("pm")).unwrap();
    // A tag has the inode at 16, and the length of the file at 32.
    let is_tag = |line: &[u8]| line[16..24] == inode.to_le_bytes() && line[32..40] == 17_u64.to_le_bytes();
    let tag = region.chunks(64).position(is_tag).unwrap();
    region[64 * tag + 33] ^= 1;
    fs::write(bench.path("pm"), &region).unwrap();
    for line in ["recover pm", "mount dir at --pm pm"] {
        let said = bench.fails(&format!("responder {line}"), 6);
        assert!(said.contains("--drop-tail") && said.contains(&format!("{:#x}", 64 * tag)), "{said}");
    }
    let recovered = bench.json("responder recover pm --drop-tail");
    let found = recovered["found"].as_str().unwrap();
    assert!(found.contains("1 chunks or operations given up"), "{found}");
    assert_eq!(fs::read(bench.path("dir/one")).unwrap(), b"");
    assert_eq!(fs::read(bench.path("dir/two")).unwrap(), b"of the second file");
    bench.ok("responder detach pm");
}

/// What is said of regions that are in use, moved, or made otherwise.
#[test]
fn who_has_a_region_where_its_directory_was_and_how_long_it_is() {
    let Some(mounted) = folder() else { return };
    let bench = &mounted.bench;
    let mut server = mounted.serve("--flush-ms 600000");
    fs::create_dir(mounted.at.join("below")).unwrap();
    fs::write(mounted.at.join("below/file"), "text").unwrap();
    fs::create_dir(bench.path("other")).unwrap();
    fs::create_dir(bench.path("there")).unwrap();
    let said = bench.fails("responder mount other there --pm pm", 4);
    assert!(said.contains(&format!("process {} (fastness)", server.id())), "{said}");
    bench.ok("responder flush pm");
    fs::write(mounted.at.join("below/file"), "TEXT").unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    let status = bench.ok("responder status pm");
    assert!(status.contains("1 of below/file (inode"), "{status}");
    let said = bench.fails("responder mount dir at --pm pm --size 8M", 3);
    assert!(said.contains("--size") && said.contains("4194304 bytes"), "{said}");
    fs::rename(bench.path("dir"), bench.path("moved")).unwrap();
    assert!(bench.fails("responder recover pm", 3).contains("--dir"));
    let status = bench.ok("responder status pm");
    assert!(status.contains("--dir"), "{status}");
    fs::create_dir(bench.path("dir")).unwrap();
    fs::copy(bench.path("moved/.fastness-responder"), bench.path("dir/.fastness-responder")).unwrap();
    let said = bench.fails("responder recover pm", 3);
    assert!(said.contains("--dir") && said.contains("dir"), "{said}");
    bench.ok("responder recover pm --dir moved");
    assert_eq!(fs::read(bench.path("moved/below/file")).unwrap(), b"TEXT");
}
