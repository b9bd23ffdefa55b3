//! Protection keys, where CPU and kernel have them; the refusal where they do not.
//!
//! The positive cases elsewhere: `cargo test -p fastness-pmem --test protection -- --nocapture`.
#![allow(unsafe_code)]

mod common;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use common::{child_path, disk_dir, pattern, run_child, skipped};
use fastness_pmem::{
    ErrorKind, Kernel, Medium, NoSum, OpenOptions, Protection, Region, RegionError, protection_keys_available,
};

const LEN: usize = 64 * 1024;

/// False, with a word why, where there are no keys.
fn have_keys(test: &str) -> bool {
    match protection_keys_available() {
        Ok(()) => true,
        Err(reason) => {
            skipped(test, &reason);
            false
        }
    }
}

fn keys() -> OpenOptions {
    OpenOptions::new().protection(Protection::Keys)
}

/// Where the file is mapped in this process.
fn mapped_at(path: &Path) -> *mut u8 {
    let name = path.canonicalize().unwrap();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| line.ends_with(name.to_str().unwrap())).unwrap();
    let start = usize::from_str_radix(line.split('-').next().unwrap(), 16).unwrap();
    std::ptr::with_exposed_provenance_mut(start)
}

#[test]
fn without_keys_the_option_is_refused_with_the_reason() {
    let Err(reason) = protection_keys_available() else {
        skipped("refusal of protection keys", &"this machine has them");
        return;
    };
    let dir = disk_dir();
    let path = dir.path().join("region");
    let error = Region::create_file(&path, LEN as u64, &keys()).unwrap_err();
    assert!(matches!(error, RegionError::KeysUnavailable { reason: found } if found == reason), "{error}");
    assert!(error.to_string().contains(&reason.to_string()), "{error}");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(!path.exists(), "nothing is left");
    assert!(Region::anonymous_with(LEN as u64, &keys()).is_err());
}

#[test]
fn a_stray_store_kills() {
    if let Some(dir) = child_path() {
        let path = dir.join("region");
        let mut range = Region::create_file(&path, LEN as u64, &keys()).unwrap().into_range();
        range.copy(0, &[1; 64], 64, &mut NoSum);
        // SAFETY: mapped; that the store is fatal is the point.
        unsafe { mapped_at(&path).write_volatile(9) };
        return;
    }
    if !have_keys("a stray store dies with SIGSEGV") {
        return;
    }
    let dir = disk_dir();
    let status = run_child("a_stray_store_kills", dir.path());
    assert_eq!(status.signal(), Some(libc::SIGSEGV), "{status}");
    assert_eq!(fs::read(dir.path().join("region")).unwrap()[..64], [1; 64]);
}

#[test]
fn without_the_option_the_same_store_goes_through() {
    if let Some(dir) = child_path() {
        let path = dir.join("region");
        let _range = Region::create_file(&path, LEN as u64, &OpenOptions::new()).unwrap().into_range();
        // SAFETY: mapped, and nothing else reads or writes it.
        unsafe { mapped_at(&path).write_volatile(9) };
        return;
    }
    let dir = disk_dir();
    let status = run_child("without_the_option_the_same_store_goes_through", dir.path());
    assert!(status.success(), "otherwise the test above proves nothing: {status}");
    assert_eq!(fs::read(dir.path().join("region")).unwrap()[0], 9);
}

#[test]
fn guarded_copies_and_reads_work_on_every_kernel() {
    if !have_keys("guarded copies") {
        return;
    }
    for kernel in Kernel::available() {
        let options = common::with_kernel(kernel).protection(Protection::Keys);
        let mut range = Region::anonymous_with(LEN as u64, &options).unwrap().into_range();
        range.copy(64, &pattern(5000, 1), 5056, &mut NoSum);
        range.write_back(0, LEN);
        range.fence().unwrap();
        let mut back = vec![0; 5000];
        range.read(64, &mut back).unwrap();
        assert_eq!(back, pattern(5000, 1), "{kernel:?}");
    }
}

#[test]
fn threads_older_than_the_key_can_read_and_copy() {
    if !have_keys("threads older than the key") {
        return;
    }
    let (send, receive) = std::sync::mpsc::channel::<fastness_pmem::PmRange>();
    let old_thread = std::thread::spawn(move || {
        let mut range = receive.recv().unwrap();
        let mut back = [0; 64];
        range.read(0, &mut back).unwrap();
        assert_eq!(back, [3; 64]);
        range.copy(64, &[4; 64], 64, &mut NoSum);
        range.fence().unwrap();
        range.read(64, &mut back).unwrap();
        assert_eq!(back, [4; 64]);
    });
    let mut range = Region::anonymous_with(LEN as u64, &keys()).unwrap().into_range();
    range.copy(0, &[3; 64], 64, &mut NoSum);
    range.fence().unwrap();
    send.send(range).unwrap();
    old_thread.join().unwrap();
}

#[test]
fn keys_are_given_back() {
    if !have_keys("freeing of keys") {
        return;
    }
    for _ in 0..100 {
        Region::anonymous_with(4096, &keys()).unwrap();
    }
}

#[test]
fn a_panicking_summer_closes_the_gate() {
    struct Panics;
    impl fastness_pmem::Summer for Panics {
        fn update(&mut self, _block: &[u8]) {
            panic!("summer");
        }
    }
    if let Some(dir) = child_path() {
        let path = dir.join("region");
        let mut range = Region::create_file(&path, LEN as u64, &keys()).unwrap().into_range();
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            range.copy(0, &[1; 64], 64, &mut Panics);
        }));
        assert!(caught.is_err());
        // SAFETY: mapped; that the store is fatal is the point.
        unsafe { mapped_at(&path).write_volatile(9) };
        return;
    }
    if !have_keys("a panic closes the gate") {
        return;
    }
    let dir = disk_dir();
    let status = run_child("a_panicking_summer_closes_the_gate", dir.path());
    assert_eq!(status.signal(), Some(libc::SIGSEGV), "{status}");
}
