//! Fences that need a system call, and what happens when it fails.

mod common;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use common::{disk_dir, pattern};
use fastness_pmem::{
    Durability, ErrorKind, Medium, Mirror, MsyncMode, NoSum, OpenOptions, PmRange, Region, RegionError,
};

const LEN: usize = 64 * 1024;

/// Notes the spans that were to be synced, and fails on demand.
#[derive(Default)]
struct Disk {
    calls: Mutex<Vec<(u64, u64)>>,
    fails: AtomicBool,
}

impl Disk {
    fn take_calls(&self) -> Vec<(u64, u64)> {
        std::mem::take(&mut *self.calls.lock().unwrap())
    }

    fn options(self: &Arc<Disk>) -> OpenOptions {
        let disk = Arc::clone(self);
        OpenOptions::new().msync(MsyncMode::Always).testing_msync_hook(Arc::new(move |span| {
            disk.calls.lock().unwrap().push((span.start, span.end));
            if disk.fails.load(Ordering::Relaxed) {
                return Err(io::Error::from_raw_os_error(5)); // EIO
            }
            Ok(())
        }))
    }
}

fn setup(dir: &tempfile::TempDir) -> (Arc<Disk>, PmRange) {
    let disk = Arc::new(Disk::default());
    let region = Region::create_file(dir.path().join("region"), LEN as u64, &disk.options()).unwrap();
    assert!(region.info().msync);
    (disk, region.into_range())
}

fn put(range: &mut PmRange, offset: usize, len: usize) {
    range.copy(offset, &pattern(len, 0), len, &mut NoSum);
}

#[test]
fn a_fence_syncs_the_span_copied_since_the_last() {
    let dir = disk_dir();
    let (disk, mut range) = setup(&dir);
    range.fence().unwrap();
    assert_eq!(disk.take_calls(), [], "nothing to sync");
    put(&mut range, 8192, 128);
    put(&mut range, 20480, 64);
    range.fence().unwrap();
    range.fence().unwrap();
    assert_eq!(disk.take_calls(), [(8192, 20544)]);
    range.write_back(100, 10);
    range.fence().unwrap();
    assert_eq!(disk.take_calls(), [], "opening the region has synced what was there before");
}

#[test]
fn splitting_keeps_what_is_not_synced() {
    let dir = disk_dir();
    let (disk, mut range) = setup(&dir);
    put(&mut range, 4096, 8192);
    let (mut low, mut high) = range.split_at(8192).unwrap();
    low.fence().unwrap();
    high.fence().unwrap();
    assert_eq!(disk.take_calls(), [(4096, 8192), (8192, 12288)]);
    put(&mut high, 0, 64);
    let (mut low, mut high) = high.split_at(64).unwrap();
    high.fence().unwrap();
    low.fence().unwrap();
    assert_eq!(disk.take_calls(), [(8192, 8256)]);
}

#[test]
fn a_failed_sync_poisons_the_region_until_it_is_opened_again() {
    let dir = disk_dir();
    let (disk, range) = setup(&dir);
    let (mut low, mut high) = range.split_at(LEN / 2).unwrap();
    put(&mut low, 4096, 64);
    disk.fails.store(true, Ordering::Relaxed);
    let error = low.fence().unwrap_err();
    assert_eq!((error.start, error.end, error.kind()), (4096, 4160, ErrorKind::MediaFailed));
    assert_eq!(error.source.raw_os_error(), Some(5));
    assert!(high.is_poisoned());

    // The disk works again; the region does not.
    disk.fails.store(false, Ordering::Relaxed);
    disk.take_calls();
    let error = low.fence().unwrap_err();
    assert_eq!((error.start, error.end, error.kind()), (4096, 4160, ErrorKind::Closed));
    put(&mut high, 0, 64);
    let error = high.fence().unwrap_err();
    assert_eq!((error.start, error.kind()), (LEN as u64 / 2, ErrorKind::Closed));
    assert_eq!(disk.take_calls(), [], "no further call");
    low.read(0, &mut [0; 64]).unwrap();
    drop((low, high));

    let mut range = Region::open(dir.path().join("region"), &disk.options()).unwrap().into_range();
    assert!(!range.is_poisoned());
    put(&mut range, 0, 64);
    range.fence().unwrap();
}

#[test]
fn a_poisoned_region_refuses_fences_with_nothing_to_sync() {
    let dir = disk_dir();
    let (disk, range) = setup(&dir);
    let (mut low, mut high) = range.split_at(LEN / 2).unwrap();
    put(&mut low, 0, 64);
    disk.fails.store(true, Ordering::Relaxed);
    low.fence().unwrap_err();
    let error = high.fence().unwrap_err();
    assert_eq!((error.start, error.end), (LEN as u64 / 2, LEN as u64), "it vouches for nothing in the range");
}

#[test]
fn no_space_is_told_apart() {
    let dir = disk_dir();
    let options = OpenOptions::new()
        .msync(MsyncMode::Always)
        .testing_msync_hook(Arc::new(|_| Err(io::Error::from_raw_os_error(28)))); // ENOSPC
    let mut range = Region::create_file(dir.path().join("region"), 4096, &options).unwrap().into_range();
    put(&mut range, 0, 64);
    assert_eq!(range.fence().unwrap_err().kind(), ErrorKind::NoSpace);
}

#[test]
fn without_msync_a_file_promises_less() {
    let dir = disk_dir();
    let options = OpenOptions::new().msync(MsyncMode::Never);
    let region = Region::create_file(dir.path().join("region"), 4096, &options).unwrap();
    assert!(!region.info().msync);
    if region.info().kind == fastness_pmem::RegionKind::File {
        assert_eq!(region.info().durability, Durability::ProcessCrash);
        assert!(region.info().to_string().contains("msync is off"));
    }
}

#[test]
fn contents_are_there_when_opened_again() {
    let dir = disk_dir();
    let path = dir.path().join("region");
    for kernel in fastness_pmem::Kernel::available() {
        let _ = std::fs::remove_file(&path);
        let region = match Region::create_file(&path, LEN as u64, &common::with_kernel(kernel)) {
            // A DAX file system below the build directory refuses plain stores.
            Err(error @ RegionError::MethodUnavailable { .. }) => {
                common::skipped(&format!("{kernel:?}"), &error);
                continue;
            }
            region => region.unwrap(),
        };
        let mut range = region.into_range();
        put(&mut range, 64, 10_048);
        range.fence().unwrap();
        drop(range);
        let range = Region::open(&path, &OpenOptions::new()).unwrap().into_range();
        let mut back = vec![0; 10_048];
        range.read(64, &mut back).unwrap();
        assert_eq!(back, pattern(10_048, 0), "{kernel:?}");
    }
}

/// One fence of a mirror is a system call for each side that needs one.
#[test]
fn a_fence_of_a_mirror_syncs_both_sides() {
    let dirs = [disk_dir(), disk_dir()];
    let [(first_disk, first), (second_disk, second)] = [setup(&dirs[0]), setup(&dirs[1])];
    let mut mirror = Mirror::pair(first, second);
    mirror.copy(4096, &[7; 64], 64, &mut NoSum);
    mirror.fence().unwrap();
    assert_eq!([first_disk.take_calls().len(), second_disk.take_calls().len()], [1, 1]);
    let (mut of_first, mut of_second) = ([0; 64], [0; 64]);
    mirror.read_side(0, 4096, &mut of_first).unwrap();
    mirror.read_side(1, 4096, &mut of_second).unwrap();
    assert_eq!([of_first, of_second], [[7; 64]; 2]);
    mirror.copy_side(1, 0, &[8; 64], 64);
    mirror.fence().unwrap();
    assert_eq!([first_disk.take_calls().len(), second_disk.take_calls().len()], [0, 1]);
    second_disk.fails.store(true, Ordering::Relaxed);
    mirror.copy(0, &[9; 64], 64, &mut NoSum);
    mirror.fence().unwrap();
    assert_eq!(mirror.lost_side(), Some(1), "the first goes on");
    assert_eq!([first_disk.take_calls().len(), second_disk.take_calls().len()], [1, 1]);
    mirror.copy(0, &[10; 64], 64, &mut NoSum);
    mirror.fence().unwrap();
    assert_eq!([first_disk.take_calls().len(), second_disk.take_calls().len()], [1, 0]);
    first_disk.fails.store(true, Ordering::Relaxed);
    mirror.copy(0, &[11; 64], 64, &mut NoSum);
    mirror.fence().unwrap_err();
    let (first, second) = mirror.into_sides();
    assert!(first.is_poisoned() && second.unwrap().is_poisoned());
}
