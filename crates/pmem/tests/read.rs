//! Reads survive SIGBUS, and only theirs.
#![allow(unsafe_code)]

mod common;

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use common::{child_path, disk_dir, pattern, run_child};
use fastness_pmem::{ErrorKind, Medium, NoSum, OpenOptions, PmRange, ReadErrorKind, Region};

const PAGE: usize = 4096;

fn filled(path: &Path, pages: usize) -> PmRange {
    let len = pages * PAGE;
    let mut range = Region::create_file(path, len as u64, &OpenOptions::new()).unwrap().into_range();
    range.copy(0, &pattern(len, 0), len, &mut NoSum);
    range.fence().unwrap();
    range
}

fn truncate(path: &Path, len: usize) {
    fs::OpenOptions::new().write(true).open(path).unwrap().set_len(len as u64).unwrap();
}

#[test]
fn truncation_is_an_error_at_the_first_missing_byte() {
    let dir = disk_dir();
    let path = dir.path().join("region");
    let range = filled(&path, 8);
    let expected = pattern(8 * PAGE, 0);
    truncate(&path, 3 * PAGE);
    for (offset, len) in
        [(0, 8 * PAGE), (1, 8 * PAGE - 1), (3 * PAGE - 1, 2), (2 * PAGE + 13, PAGE), (77, 5 * PAGE)]
    {
        let mut dst = vec![0; len];
        let error = range.read(offset, &mut dst).unwrap_err();
        assert_eq!(
            (error.region_offset, error.kind),
            (3 * PAGE as u64, ReadErrorKind::Poison),
            "{offset} {len}"
        );
        assert_eq!(error.error_kind(), ErrorKind::MediaFailed);
        assert_eq!(dst[..3 * PAGE - offset], expected[offset..3 * PAGE], "bytes before it are there");
    }
    for offset in [3 * PAGE, 3 * PAGE + 1, 5 * PAGE + 63, 8 * PAGE - 1] {
        for len in [1, 7, 8, 64, 100] {
            let len = len.min(8 * PAGE - offset);
            let error = range.read(offset, &mut vec![0; len]).unwrap_err();
            assert_eq!(error.region_offset, offset as u64);
        }
    }
    let mut dst = vec![0; 3 * PAGE];
    range.read(0, &mut dst).unwrap();
    assert_eq!(dst, expected[..3 * PAGE]);
}

#[test]
fn offsets_are_the_regions_not_the_ranges() {
    let dir = disk_dir();
    let path = dir.path().join("region");
    let (low, high) = filled(&path, 4).split_at(PAGE).unwrap();
    truncate(&path, 2 * PAGE);
    low.read(0, &mut [0; PAGE]).unwrap();
    let error = high.read(10, &mut [0; 2 * PAGE]).unwrap_err();
    assert_eq!(error.region_offset, 2 * PAGE as u64);
}

#[test]
fn threads_fault_independently() {
    let dir = disk_dir();
    let path = dir.path().join("region");
    let range = filled(&path, 4);
    truncate(&path, PAGE);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let range = &range;
            scope.spawn(move || {
                for round in 0..500 {
                    let error = range.read(PAGE - 1 - thread, &mut [0; 2 * PAGE]).unwrap_err();
                    assert_eq!(error.region_offset, PAGE as u64, "{round}");
                }
            });
        }
    });
}

/// A mapping of a file's first page whose file is empty: touching it is SIGBUS.
fn unreadable_page(path: &Path) -> *mut u8 {
    let file = File::options().read(true).write(true).create(true).truncate(true).open(path).unwrap();
    // SAFETY: a new mapping at an address of the kernel's choice.
    let base = unsafe {
        rustix::mm::mmap(
            std::ptr::null_mut(),
            PAGE,
            rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE,
            rustix::mm::MapFlags::SHARED,
            &file,
            0,
        )
    };
    base.unwrap().cast()
}

fn recovering_range(dir: &Path) -> PmRange {
    let path = dir.join("region");
    let range = filled(&path, 2);
    truncate(&path, PAGE);
    assert!(range.read(0, &mut [0; 2 * PAGE]).is_err(), "our own fault is survived");
    range
}

#[test]
fn a_foreign_fault_still_kills() {
    if let Some(dir) = child_path() {
        let _range = recovering_range(&dir);
        // SAFETY: mapped; that it is fatal is the point.
        unsafe { unreadable_page(&dir.join("other")).read_volatile() };
        unreachable!();
    }
    let dir = disk_dir();
    let status = run_child("a_foreign_fault_still_kills", dir.path());
    assert_eq!(status.signal(), Some(libc::SIGBUS), "{status}");
}

#[test]
fn a_fault_of_the_destination_still_kills() {
    if let Some(dir) = child_path() {
        let range = recovering_range(&dir);
        // SAFETY: mapped, and nothing else uses it; that storing there is fatal is the point.
        let dst = unsafe { std::slice::from_raw_parts_mut(unreadable_page(&dir.join("other")), 64) };
        let _ = range.read(0, dst);
        unreachable!();
    }
    let dir = disk_dir();
    let status = run_child("a_fault_of_the_destination_still_kills", dir.path());
    assert_eq!(status.signal(), Some(libc::SIGBUS), "{status}");
}

#[test]
fn a_sent_signal_still_kills() {
    if let Some(dir) = child_path() {
        // The handler of Rust's runtime would let the first one pass.
        install(libc::SIG_DFL, 0);
        let _range = recovering_range(&dir);
        // SAFETY: raising a signal touches no memory.
        unsafe { libc::raise(libc::SIGBUS) };
        unreachable!();
    }
    let dir = disk_dir();
    let status = run_child("a_sent_signal_still_kills", dir.path());
    assert_eq!(status.signal(), Some(libc::SIGBUS), "{status}");
}

const CHAINED_EXIT: i32 = 42;

extern "C" fn exit_handler(_signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid pointer; `_exit` is async-signal-safe.
    unsafe { libc::_exit(if (*info).si_signo == libc::SIGBUS { CHAINED_EXIT } else { 1 }) }
}

extern "C" fn plain_exit_handler(signal: libc::c_int) {
    // SAFETY: `_exit` is async-signal-safe.
    unsafe { libc::_exit(if signal == libc::SIGBUS { CHAINED_EXIT } else { 1 }) }
}

fn install(handler: usize, flags: libc::c_int) {
    // SAFETY: all-zero is a valid start; the handler fits the flags.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        assert_eq!(libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut()), 0);
    }
}

#[test]
fn an_earlier_handler_gets_foreign_faults() {
    if let Some(dir) = child_path() {
        install(exit_handler as *const () as usize, libc::SA_SIGINFO);
        let _range = recovering_range(&dir);
        // SAFETY: mapped; the handler ends the process.
        unsafe { unreadable_page(&dir.join("other")).read_volatile() };
        unreachable!();
    }
    let dir = disk_dir();
    let status = run_child("an_earlier_handler_gets_foreign_faults", dir.path());
    assert_eq!(status.code(), Some(CHAINED_EXIT), "{status}");
}

#[test]
fn an_earlier_handler_without_siginfo_gets_sent_signals() {
    if let Some(dir) = child_path() {
        install(plain_exit_handler as *const () as usize, 0);
        let _range = recovering_range(&dir);
        // SAFETY: raising a signal touches no memory.
        unsafe { libc::raise(libc::SIGBUS) };
        unreachable!();
    }
    let dir = disk_dir();
    let status = run_child("an_earlier_handler_without_siginfo_gets_sent_signals", dir.path());
    assert_eq!(status.code(), Some(CHAINED_EXIT), "{status}");
}

#[test]
fn an_ignored_signal_stays_ignored_when_sent() {
    if let Some(dir) = child_path() {
        install(libc::SIG_IGN, 0);
        let range = recovering_range(&dir);
        // SAFETY: raising a signal touches no memory.
        unsafe { libc::raise(libc::SIGBUS) };
        assert!(range.read(0, &mut [0; 2 * PAGE]).is_err(), "and ours is survived again");
        return;
    }
    let dir = disk_dir();
    assert!(run_child("an_ignored_signal_stays_ignored_when_sent", dir.path()).success());
}
