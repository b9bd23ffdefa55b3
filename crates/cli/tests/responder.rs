//! `fastness responder`: a directory with a cache in front, mounted, killed and recovered.
//!
//! These tests mount as root, and are skipped, with the reason, where that is not possible.

#![allow(unreachable_pub, missing_docs, missing_debug_implementations)]

mod support;

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, PermissionsExt};
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

/// Writes records, each with its number, to a file of its own; returns the last number of each record that
/// was acknowledged.
fn writer(path: PathBuf, first: u64) -> JoinHandle<Vec<u64>> {
    spawn(move || {
        let mut acknowledged = vec![0; 64];
        let Ok(file) = OpenOptions::new().create(true).write(true).truncate(false).open(path) else {
            return acknowledged;
        };
        for number in first.. {
            let place = number * 7 % 64;
            if file.write_all_at(&[number.to_le_bytes(); 125].concat(), place * 1000).is_err() {
                break;
            }
            acknowledged[place as usize] = number;
        }
        acknowledged
    })
}

#[test]
fn a_killed_mount_loses_nothing_that_was_acknowledged() {
    for protocol in ["fr", "melov", "pmal", "pmal-o"] {
        let Some(mounted) = folder() else { return };
        let mut newest = vec![vec![0; 64]; WRITERS];
        for round in 0..ROUNDS {
            let mut server = mounted.serve(&format!("--protocol {protocol} --flush-ms 5000"));
            let first = 1 + (round << 32);
            let start = |at| writer(mounted.at.join(format!("file{at}")), first);
            let writers: Vec<_> = (0..WRITERS).map(start).collect();
            std::thread::sleep(Duration::from_millis(50 + round * 13));
            server.kill().unwrap();
            server.wait().unwrap();
            for (newest, writer) in newest.iter_mut().zip(writers) {
                let acknowledged = writer.join().unwrap();
                newest.iter_mut().zip(acknowledged).for_each(|(newest, now)| *newest = now.max(*newest));
            }
            assert!(newest.iter().flatten().any(|&number| number >= first), "something was written");
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
