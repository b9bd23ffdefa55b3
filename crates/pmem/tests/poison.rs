//! Poison as the kernel reports it, injected with `madvise(MADV_HWPOISON)`.
//!
//! Takes a page of the machine's memory out of use until it is booted again, hence only on request and only
//! in a virtual machine: `FASTNESS_PMEM_HWPOISON=1 cargo test -p fastness-pmem --test poison -- --nocapture`
//! as root.
#![allow(unsafe_code)]

mod common;

use std::fs::File;
use std::path::Path;

use common::{child_path, pattern, run_child, skipped};
use fastness_pmem::{LossCause, Medium, NoSum, OpenOptions, ReadErrorKind, Region, RegionLost};

const PAGE: usize = 4096;
const POISONED_PAGE: usize = 3;

/// Poisons a page through a mapping of this process' own; may end it with SIGBUS.
fn inject(path: &Path) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    // SAFETY: a new mapping at an address of the kernel's choice; the page is inside of it.
    unsafe {
        let flags = rustix::mm::MapFlags::SHARED;
        let protection = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
        let base = rustix::mm::mmap(std::ptr::null_mut(), 8 * PAGE, protection, flags, &file, 0).unwrap();
        let page = base.cast::<u8>().add(POISONED_PAGE * PAGE);
        page.write_volatile(page.read_volatile());
        let result = libc::madvise(page.cast(), PAGE, libc::MADV_HWPOISON);
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    }
}

#[test]
fn a_poisoned_page_is_an_error_with_its_place() {
    if let Some(path) = child_path() {
        return inject(&path);
    }
    if std::env::var_os("FASTNESS_PMEM_HWPOISON").is_none() {
        return skipped("poison", &"FASTNESS_PMEM_HWPOISON is not set");
    }
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("region");
    let mut range = Region::create_file(&path, 8 * PAGE as u64, &OpenOptions::new()).unwrap().into_range();
    let bytes = pattern(8 * PAGE, 0);
    range.copy(0, &bytes, bytes.len(), &mut NoSum);
    range.fence().unwrap();
    run_child("a_poisoned_page_is_an_error_with_its_place", &path);
    let poisoned = POISONED_PAGE * PAGE;
    for offset in [0, 1, PAGE, poisoned - 1, poisoned, poisoned + 65] {
        let mut back = vec![0; 8 * PAGE - offset];
        let error = range.read(offset, &mut back).unwrap_err();
        let expected = offset.max(poisoned);
        assert_eq!((error.region_offset, error.kind), (expected as u64, ReadErrorKind::Poison));
        assert_eq!(back[..expected - offset], bytes[offset..expected]);
    }
    let mut back = vec![0; PAGE];
    range.read(poisoned + PAGE, &mut back).unwrap();
    assert_eq!(back, bytes[poisoned + PAGE..poisoned + 2 * PAGE]);
    // There is nothing to write back, and nothing is lost by that.
    range.write_back(0, 8 * PAGE);
    range.fence().unwrap();
    // A store needs the page.
    range.copy(poisoned, &[1; 64], 64, &mut NoSum);
    let error = range.fence().unwrap_err();
    let lost = error.source.get_ref().and_then(|inner| inner.downcast_ref::<RegionLost>()).unwrap();
    assert_eq!((lost.region_offset, lost.cause), (poisoned as u64, LossCause::MemoryError));
    range.read(0, &mut back).unwrap();
    assert_eq!(back, bytes[..PAGE], "what is left can be read");
}
