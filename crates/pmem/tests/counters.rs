//! What a process writes to its regions is counted to the byte, and others can read it.

// `fork` is unsafe.
#![allow(unsafe_code)]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::mpsc::channel;
use std::thread;

use common::{child_path, pattern, run_child};
use fastness_pmem::counters::{
    Count, ProcessCounters, RegionCounters, publish_with, read_all, start_time_of,
};
use fastness_pmem::gate::{Gate, Policy};
use fastness_pmem::{Medium, Mirror, MsyncMode, NoSum, OpenOptions, PmRange, Region};
use proptest::prelude::*;

/// Where this process publishes: the child's folder, or one for all tests.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    fn published() -> Option<PathBuf> {
        FOLDER.get().cloned()
    }
    let path = FOLDER.get_or_init(|| match child_path() {
        Some(path) => path,
        None => tempfile::tempdir().unwrap().keep(),
    });
    publish_with(published);
    path
}

fn region(name: &str) -> (PathBuf, PmRange) {
    let path = folder().join(name);
    let options = OpenOptions::new().msync(MsyncMode::Never);
    let range = Region::create_file(&path, 1 << 20, &options).unwrap().into_range();
    (path, range)
}

fn own() -> ProcessCounters {
    let found = read_all(folder()).unwrap().processes;
    found.into_iter().find(|process| process.pid == std::process::id()).expect("this process")
}

fn of(path: &Path) -> RegionCounters {
    own().regions.into_iter().find(|region| region.path.as_deref() == Some(path)).expect("the region")
}

fn count(bytes: u64, writes: u64) -> Count {
    Count { bytes, writes }
}

#[test]
fn writes_are_counted_by_region_and_thread_while_it_lives_and_after_it() {
    let (first, range) = region("first");
    let (second, mut other) = region("second");
    let (low, high) = range.split_at(1 << 19).unwrap();
    let (go_on, wait) = channel::<()>();
    let (says, hears) = channel();
    let writer = |mut range: PmRange, times: usize, until: Option<std::sync::mpsc::Receiver<()>>| {
        let says = says.clone();
        move || {
            for _ in 0..times {
                range.copy(0, &[1; 100], 4096, &mut NoSum);
            }
            says.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).unwrap();
            let _ = until.map(|until| until.recv());
        }
    };
    let short = thread::spawn(writer(low, 10, None));
    short.join().unwrap();
    hears.recv().unwrap();
    let long = thread::spawn(writer(high, 1000, Some(wait)));
    let living = hears.recv().unwrap();
    other.write_pm(64, &[2; 65]).unwrap();

    let found = of(&first);
    assert_eq!(found.ended, count(10 * 4096, 10), "of the thread that has ended");
    assert_eq!(found.threads.len(), 1);
    assert_eq!((found.threads[0].thread, found.threads[0].count), (living, count(1000 * 4096, 1000)));
    assert_eq!(found.total(), count(1010 * 4096, 1010));
    assert_eq!(of(&second).total(), count(128, 1), "whole lines");
    let file = fs::metadata(&first).unwrap();
    use std::os::unix::fs::MetadataExt;
    assert_eq!((found.device, found.inode, found.len_bytes), (file.dev(), file.ino(), 1 << 20));

    go_on.send(()).unwrap();
    long.join().unwrap();
    assert_eq!(of(&first).ended, count(1010 * 4096, 1010));
    assert!(of(&first).threads.is_empty(), "its cell is free");
}

/// Ten threads end and begin all the time, while the sums are read: none ever goes back.
#[test]
fn a_thread_that_ends_is_counted_once() {
    let (path, range) = region("ends");
    let mut ranges = vec![range];
    for _ in 0..3 {
        let last = ranges.pop().unwrap();
        let middle = last.len_bytes() / 2;
        let (low, high) = last.split_at(middle).unwrap();
        ranges.extend([low, high]);
    }
    let (mut written, mut seen) = (0, 0);
    for _ in 0..200 {
        thread::scope(|scope| {
            for range in &mut ranges {
                scope.spawn(move || range.copy(0, &[1; 64], 64, &mut NoSum));
            }
            let now = own().regions.into_iter().find(|region| region.path.as_ref() == Some(&path));
            let now = now.map_or(0, |region| region.total().bytes);
            assert!(now >= seen && now <= written + 64 * 4, "{now} after {seen}, {written} before this turn");
            seen = now;
        });
        written += 64 * 4;
    }
    // A scope ends before the destructors of its threads' own data.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while of(&path).ended != count(written, written / 64) {
        assert!(std::time::Instant::now() < deadline, "{:?}, {written}", of(&path));
        thread::yield_now();
    }
}

#[test]
fn both_sides_of_a_mirror_count_and_so_does_a_worker() {
    let ((first, one), (second, other)) = (region("side-one"), region("side-two"));
    let mut mirror = Mirror::pair(one, other);
    (0..100).for_each(|_| mirror.copy(0, &[1; 64], 64, &mut NoSum));
    assert_eq!((of(&first).total(), of(&second).total()), (count(6400, 100), count(6400, 100)));

    // A thread finds the cells of a few regions at once; it has more.
    let mut many: Vec<_> = (0..9).map(|at| region(&format!("one-of-many-{at}"))).collect();
    for turn in 1..=3 {
        many.iter_mut().for_each(|(_, range)| range.copy(0, &[1; 64], 64, &mut NoSum));
        let all_have = |total| many.iter().all(|(path, _)| of(path).total() == total);
        assert!(all_have(count(64 * turn, turn)), "{turn}");
    }

    let (path, mut range) = region("worker");
    let gate = Gate::new(Policy::Workers { writers_max: 1, is_adaptive: false, cpus: vec![] }).unwrap();
    gate.write_pm(&mut range, 0, &[1; 8192]).unwrap();
    let found = of(&path);
    assert_eq!(found.total(), count(8192, 1));
    let me = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    assert!(found.threads.iter().all(|thread| thread.thread != me), "the worker's, not the caller's");
}

#[test]
fn the_child_of_a_fork_counts_for_itself() {
    if child_path().is_none() {
        let dir = tempfile::tempdir().unwrap();
        assert!(run_child("the_child_of_a_fork_counts_for_itself", dir.path()).success());
        return;
    }
    let (path, mut range) = region("forked");
    range.copy(0, &[1; 64], 64, &mut NoSum);
    // SAFETY: the child runs on in this thread alone; the C library's allocator works in it.
    let child = unsafe { libc::fork() };
    if child == 0 {
        range.copy(0, &pattern(640, 1), 640, &mut NoSum);
        let is_right = of(&path).total() == count(640, 1);
        // SAFETY: ends the child without anything that is the parent's.
        unsafe { libc::_exit(i32::from(!is_right)) };
    }
    let mut status = 0;
    // SAFETY: a child of this process, and an integer of ours.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status:#x}");
    assert_eq!(of(&path).total(), count(64, 1), "the parent's are as they were");
}

const HEADER_START_TIME: usize = 3 * 8;

/// A copy of this process's file, for another number, with changes.
fn forged(into: &Path, pid: u32, change: impl FnOnce(&mut Vec<u8>)) -> PathBuf {
    static TEMPLATE: OnceLock<Vec<u8>> = OnceLock::new();
    let template = TEMPLATE.get_or_init(|| {
        let (_, mut range) = region("template");
        range.copy(0, &[1; 64], 64, &mut NoSum);
        fs::read(folder().join(format!("pm-counters.{}", std::process::id()))).unwrap()
    });
    let mut bytes = template.clone();
    bytes[16..24].copy_from_slice(&u64::from(pid).to_ne_bytes());
    let start = start_time_of(pid).unwrap_or(1);
    bytes[HEADER_START_TIME..][..8].copy_from_slice(&start.to_ne_bytes());
    change(&mut bytes);
    let path = into.join(format!("pm-counters.{pid}"));
    fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn files_of_processes_that_ended_are_not_shown_and_are_removed_by_the_next() {
    if child_path().is_some() {
        region("makes-a-table");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let parent = std::os::unix::process::parent_id();
    let living = forged(dir.path(), parent, |_| {});
    let reused = forged(dir.path(), std::process::id(), |bytes| bytes[HEADER_START_TIME] ^= 1);
    let elsewhere = forged(dir.path(), 1, |bytes| bytes[32] ^= 1);
    let gone = forged(dir.path(), u32::MAX - 7, |_| {});
    let shown: Vec<u32> = read_all(dir.path()).unwrap().processes.iter().map(|process| process.pid).collect();
    assert_eq!(shown, [parent], "and neither the number alone nor another namespace");
    assert!(
        run_child("files_of_processes_that_ended_are_not_shown_and_are_removed_by_the_next", dir.path())
            .success()
    );
    assert!(living.exists() && elsewhere.exists() && !reused.exists() && !gone.exists());
}

#[test]
fn what_is_no_counters_is_said_to_be_unreadable() {
    let dir = tempfile::tempdir().unwrap();
    let me = std::process::id();
    let short = forged(dir.path(), me, |bytes| bytes.truncate(bytes.len() - 8));
    assert_eq!(read_all(dir.path()).unwrap().unreadable, [short]);
    let other = forged(dir.path(), me, |bytes| bytes[8] ^= 2);
    assert_eq!(read_all(dir.path()).unwrap().unreadable, [other], "another version");
    fs::write(dir.path().join("pm-counters.x"), "").unwrap();
    fs::write(dir.path().join("tank.control"), "").unwrap();
    assert_eq!(read_all(dir.path()).unwrap().unreadable.len(), 1, "other files are not ours");
    assert!(read_all(&dir.path().join("nothing")).unwrap().processes.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever stands in a file, reading it ends, and says nothing that is not there.
    #[test]
    fn any_bytes_are_read(changes in prop::collection::vec((64_usize..98_816, any::<u8>()), 0..200)) {
        let dir = tempfile::tempdir().unwrap();
        forged(dir.path(), std::process::id(), |bytes| {
            changes.iter().for_each(|(at, byte)| bytes[*at] = *byte);
        });
        let found = read_all(dir.path()).unwrap();
        prop_assert_eq!(found.processes.len(), 1);
        prop_assert!(found.processes[0].regions.len() <= 64);
    }
}
