//! A region that goes away while it is in use: stores survive it, and no fence vouches for them.
//!
//! The file below the mapping is cut short, which is what an unplugged device, a full file system below a
//! hole and consumed poison come to: `SIGBUS` at a store.
#![allow(unsafe_code)]

mod common;

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use common::{child_path, disk_dir, pattern, run_child_under, skipped, with_kernel};
use fastness_pmem::{
    ErrorKind, Kernel, LossCause, Medium, Mirror, MsyncMode, NoSum, OpenOptions, PersistError, PmRange,
    Protection, Region, RegionError, RegionLost, protection_keys_available,
};

const PAGE: usize = 4096;
const LEN: usize = 8 * PAGE;
/// Of a file that was cut.
const CUT: usize = 3 * PAGE;

fn create(path: &Path, options: &OpenOptions) -> PmRange {
    let mut range = Region::create_file(path, LEN as u64, options).unwrap().into_range();
    range.copy(0, &pattern(LEN, 0), LEN, &mut NoSum);
    range.fence().unwrap();
    range
}

fn cut(path: &Path, len: usize) {
    File::options().write(true).open(path).unwrap().set_len(len as u64).unwrap();
}

fn loss(error: &PersistError) -> RegionLost {
    assert_eq!(error.kind(), ErrorKind::MediaFailed, "{error}");
    *error.source.get_ref().and_then(|inner| inner.downcast_ref::<RegionLost>()).expect("the region was lost")
}

/// A region that lost everything after [`CUT`], by a store there.
fn lost(path: &Path, options: &OpenOptions) -> PmRange {
    let mut range = create(path, options);
    cut(path, CUT);
    range.copy(CUT, &[1; 64], 64, &mut NoSum);
    range.fence().unwrap_err();
    range
}

/// Kernels that files of this build directory can be written with.
fn kernels(path: &Path) -> Vec<Kernel> {
    let usable = Kernel::available().filter(|kernel| {
        let made = Region::create_file(path, LEN as u64, &with_kernel(*kernel));
        let _ = std::fs::remove_file(path);
        !matches!(made, Err(RegionError::MethodUnavailable { .. }))
    });
    usable.collect()
}

#[test]
fn a_store_of_any_kernel_survives_and_its_fence_fails() {
    let dir = disk_dir();
    let path = dir.path().join("region");
    let kernels = kernels(&path);
    assert!(!kernels.is_empty());
    for kernel in kernels {
        // Whole lines, a part of one, zeroes alone, from pages that are there into those that are not.
        for (offset, src, extent) in [
            (CUT, 64, 64),
            (CUT, 3 * PAGE, 3 * PAGE),
            (CUT + 64, 100, 128),
            (CUT, 10, 1024),
            (5 * PAGE, 0, 256),
            (0, LEN, LEN),
            (CUT - 128, 256, 256),
        ] {
            let mut range = create(&path, &with_kernel(kernel));
            cut(&path, CUT);
            range.fence().unwrap();
            let mut summed = common::Collector::default();
            range.copy(offset, &pattern(src, 9), extent, &mut summed);
            assert_eq!(summed.blocks.concat(), pattern(src, 9), "{kernel:?}: the sum is of the source");
            let found = loss(&range.fence().unwrap_err());
            let first = offset.max(CUT) as u64;
            if matches!(kernel, Kernel::Plain | Kernel::PlainAvx2) {
                // The compiler may put these stores into another order.
                let gone = first..(offset + extent) as u64;
                assert!(gone.contains(&found.region_offset), "{kernel:?} {offset}: {found}");
                assert_eq!(found.region_offset % 64, 0, "a line");
            } else {
                assert_eq!(found.region_offset, first, "{kernel:?} {offset}");
            }
            assert_eq!(found.cause, LossCause::NoPage);
            assert!(range.is_poisoned());
            drop(range);
            std::fs::remove_file(&path).unwrap();
        }
    }
}

#[test]
fn a_lost_region_vouches_for_nothing_until_it_is_opened_again() {
    let dir = disk_dir();
    let path = dir.path().join("region");
    let (mut low, mut high) = create(&path, &OpenOptions::new()).split_at(CUT).unwrap();
    cut(&path, CUT);
    low.copy(0, &[5; 64], 64, &mut NoSum);
    low.fence().unwrap();
    high.copy(0, &[1; 64], 64, &mut NoSum);
    assert_eq!(loss(&high.fence().unwrap_err()).region_offset, CUT as u64);
    // Of what is there, too: it is not the medium any more that stores go to.
    low.copy(64, &[6; 64], 64, &mut NoSum);
    let error = low.fence().unwrap_err();
    assert_eq!((error.start, error.end), (0, CUT as u64));
    assert!(error.to_string().contains("0x0..0x3000"), "{error}");
    let text = loss(&error).to_string();
    assert!(text.contains("0x3000") && text.contains("cut short"), "{text}");
    // The fence of nothing fails as well.
    loss(&low.fence().unwrap_err());
    cut(&path, LEN);
    loss(&low.fence().unwrap_err());
    drop((low, high));
    let mut range = Region::open(&path, &OpenOptions::new()).unwrap().into_range();
    let mut back = [0; 128];
    range.read(0, &mut back).unwrap();
    assert_eq!(back[..64], [5; 64], "what was fenced before");
    assert_eq!(back[64..], pattern(128, 0)[64..], "what came after did not reach the file");
    range.copy(CUT, &[1; 64], 64, &mut NoSum);
    range.fence().unwrap();
}

#[test]
fn what_is_left_of_a_lost_region_can_be_read() {
    let dir = disk_dir();
    let path = dir.path().join("region");
    let mut range = lost(&path, &OpenOptions::new());
    let mut back = vec![0; CUT];
    range.read(0, &mut back).unwrap();
    assert_eq!(back, pattern(LEN, 0)[..CUT]);
    let error = range.read(CUT - 100, &mut [0; 200]).unwrap_err();
    assert_eq!(error.region_offset, CUT as u64);
    // Not what was stored since: that is nowhere.
    range.copy(0, &[0xee; 64], 64, &mut NoSum);
    range.read(0, &mut back).unwrap();
    assert_eq!(back, pattern(LEN, 0)[..CUT]);
    range.read(CUT, &mut [0; 64]).unwrap_err();
}

/// A page that cannot be read needs no write-back: reading it is an error.
#[test]
fn writing_back_what_is_not_there_costs_nothing() {
    let dir = disk_dir();
    let path = dir.path().join("region");
    for kernel in kernels(&path) {
        let mut range = create(&path, &with_kernel(kernel).msync(MsyncMode::Never));
        cut(&path, CUT);
        range.write_back(0, LEN);
        range.write_back(CUT + 100, 1000);
        range.write_back(CUT - 100, 200);
        range.fence().unwrap();
        assert_eq!(range.read(0, &mut [0; LEN]).unwrap_err().region_offset, CUT as u64);
        drop(range);
        std::fs::remove_file(&path).unwrap();
    }
}

/// Without a look at what became of the region, `msync` of what stands in for it would succeed.
#[test]
fn msync_does_not_vouch_for_a_lost_region() {
    let dir = disk_dir();
    let path = dir.path().join("region");
    let cuts = path.clone();
    // Cut between a fence's first look and its end, by another thread's store.
    let (mut low, mut high) =
        create(&path, &OpenOptions::new().msync(MsyncMode::Always)).split_at(CUT).unwrap();
    low.copy(0, &[1; 64], 64, &mut NoSum);
    cut(&cuts, CUT);
    high.copy(64, &[1; 64], 64, &mut NoSum);
    loss(&low.fence().unwrap_err());
    loss(&high.fence().unwrap_err());
    drop((low, high));

    let late = std::sync::Arc::new(std::sync::Mutex::new(None::<PmRange>));
    let hooked = late.clone();
    let hook = move |_: std::ops::Range<u64>| {
        if let Some(high) = &mut *hooked.lock().unwrap() {
            high.copy(0, &[1; 64], 64, &mut NoSum);
        }
        Ok(())
    };
    std::fs::remove_file(&path).unwrap();
    let options = OpenOptions::new().msync(MsyncMode::Always).testing_msync_hook(std::sync::Arc::new(hook));
    let (mut low, high) = create(&path, &options).split_at(CUT).unwrap();
    *late.lock().unwrap() = Some(high);
    cut(&path, CUT);
    low.copy(0, &[1; 64], 64, &mut NoSum);
    loss(&low.fence().unwrap_err());
    late.lock().unwrap().take();
}

#[test]
fn other_regions_go_on() {
    let dir = disk_dir();
    let mut other = create(&dir.path().join("other"), &OpenOptions::new());
    for round in 0..50 {
        let path = dir.path().join("region");
        // At the address of the one before, as like as not.
        let mut range = create(&path, &OpenOptions::new());
        range.fence().unwrap();
        cut(&path, round % 4 * PAGE);
        range.copy(7 * PAGE, &[1; 64], 64, &mut NoSum);
        loss(&range.fence().unwrap_err());
        other.copy(0, &[round as u8; 64], 64, &mut NoSum);
        other.fence().unwrap();
        std::fs::remove_file(&path).unwrap();
    }
    let mut back = [0; 64];
    other.read(0, &mut back).unwrap();
    assert_eq!(back, [49; 64]);
}

/// An address that a region had is anybody's: a fault there is fatal, as it would be without us.
#[test]
fn a_mapping_that_is_gone_is_none_of_ours() {
    const TEST: &str = "a_mapping_that_is_gone_is_none_of_ours";
    if let Some(dir) = child_path() {
        let path = dir.join("region");
        let range = lost(&path, &OpenOptions::new());
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        drop(range);
        let after = std::fs::read_to_string("/proc/self/maps").unwrap();
        let gone = maps.lines().find(|line| !after.contains(*line)).unwrap();
        let start = usize::from_str_radix(gone.split('-').next().unwrap(), 16).unwrap();
        let file = File::options().read(true).write(true).create_new(true).open(dir.join("other")).unwrap();
        let protection = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
        let flags = rustix::mm::MapFlags::SHARED | rustix::mm::MapFlags::FIXED_NOREPLACE;
        let address = std::ptr::with_exposed_provenance_mut(start);
        // SAFETY: a new mapping where there is none; that storing there is fatal is the point.
        unsafe {
            let base = rustix::mm::mmap(address, PAGE, protection, flags, &file, 0).unwrap();
            base.cast::<u8>().write_volatile(1);
        }
        return;
    }
    let dir = disk_dir();
    let status = run_child_under(&[], TEST, dir.path()).unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGBUS), "{status}");
}

/// Threads that write and read while the file is cut: each is told, and each read gives what was fenced or an
/// error.
#[test]
fn threads_lose_the_region_together() {
    const PART: usize = 16 * PAGE;
    let dir = disk_dir();
    let path = dir.path().join("region");
    for round in 0..20 {
        let range = Region::create_file(&path, 4 * PART as u64, &OpenOptions::new().msync(MsyncMode::Never));
        let mut rest = range.unwrap().into_range();
        let mut parts = Vec::new();
        for _ in 0..3 {
            let (part, after) = rest.split_at(PART).unwrap();
            parts.push(part);
            rest = after;
        }
        parts.push(rest);
        let running = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for mut part in parts {
                let running = &running;
                scope.spawn(move || {
                    for turn in 0_usize.. {
                        let (offset, byte) = (turn % 16 * PAGE, turn as u8 | 1);
                        part.copy(offset, &[byte; PAGE], PAGE, &mut NoSum);
                        let fenced = part.fence();
                        let mut back = [0; PAGE];
                        let read = part.read(offset, &mut back);
                        match fenced {
                            Ok(()) => assert!(read.is_err() || back == [byte; PAGE], "turn {turn}"),
                            Err(error) => {
                                loss(&error);
                                break;
                            }
                        }
                        if turn == 20 {
                            running.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
            while running.load(Ordering::Relaxed) < 4 {
                std::thread::yield_now();
            }
            cut(&path, round * PAGE * 3);
        });
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_mirror_loses_a_side_and_tells_which() {
    let dir = disk_dir();
    for side in [0, 1] {
        let paths = [dir.path().join("first"), dir.path().join("second")];
        let [first, second] = paths.each_ref().map(|path| create(path, &OpenOptions::new()));
        let mut mirror = Mirror::pair(first, second);
        mirror.copy(0, &[1; 64], 64, &mut NoSum);
        mirror.fence().unwrap();
        assert_eq!(mirror.lost_side(), None);
        cut(&paths[side], CUT);
        mirror.copy(CUT, &[7; 4096], 4096, &mut NoSum);
        mirror.fence().unwrap();
        assert_eq!(mirror.lost_side(), Some(side));
        mirror.copy(0, &[8; 64], 64, &mut NoSum);
        mirror.fence().unwrap();
        let mut back = [0; 64];
        mirror.read_side(1 - side, CUT, &mut back).unwrap();
        assert_eq!(back, [7; 64]);
        mirror.read(CUT + 64, &mut back).unwrap();
        assert_eq!(back, [7; 64]);
        // It is out of date: its contents may not be taken for what was written.
        mirror.read_side(side, 0, &mut back).unwrap_err();
        assert_eq!(mirror.sides(), 2);
        cut(&paths[1 - side], CUT);
        mirror.copy(CUT, &[9; 64], 64, &mut NoSum);
        loss(&mirror.fence().unwrap_err());
        let (first, second) = mirror.into_sides();
        assert!(first.is_poisoned() && second.unwrap().is_poisoned());
        paths.iter().for_each(|path| std::fs::remove_file(path).unwrap());
    }
}

#[test]
fn both_sides_lost_at_once_are_an_error() {
    let dir = disk_dir();
    let paths = [dir.path().join("first"), dir.path().join("second")];
    let [first, second] = paths.each_ref().map(|path| create(path, &OpenOptions::new()));
    let mut mirror = Mirror::pair(first, second);
    paths.iter().for_each(|path| cut(path, CUT));
    mirror.copy(CUT, &[9; 64], 64, &mut NoSum);
    loss(&mirror.fence().unwrap_err());
    loss(&mirror.fence().unwrap_err());
}

/// The handler interrupts another one that writes, and one that writes is interrupted.
#[test]
fn a_store_inside_of_a_signal_handler_survives() {
    static RANGE: std::sync::Mutex<Option<PmRange>> = std::sync::Mutex::new(None);
    static WAS_LOST: AtomicBool = AtomicBool::new(false);
    extern "C" fn write(_: libc::c_int) {
        // No other thread takes the lock while the signal can come.
        let mut range = RANGE.try_lock().unwrap();
        let range = range.as_mut().unwrap();
        range.copy(4 * PAGE, &[1; 64], 64, &mut NoSum);
        WAS_LOST.store(range.fence().is_err(), Ordering::Relaxed);
    }
    let dir = disk_dir();
    let (inner, outer) = (dir.path().join("inner"), dir.path().join("outer"));
    *RANGE.lock().unwrap() = Some(create(&inner, &OpenOptions::new().msync(MsyncMode::Never)));
    let mut range = create(&outer, &OpenOptions::new());
    cut(&inner, CUT);
    cut(&outer, CUT);
    // SAFETY: all-zero is a valid start; the handler has the signature that the flags say.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = write as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()), 0);
        libc::raise(libc::SIGUSR1);
    }
    assert!(WAS_LOST.load(Ordering::Relaxed));
    range.copy(CUT, &[1; 64], 64, &mut NoSum);
    loss(&range.fence().unwrap_err());
    RANGE.lock().unwrap().take();
}

#[test]
fn a_region_under_a_key_is_lost_like_any_other() {
    if let Err(reason) = protection_keys_available() {
        return skipped("a lost region under a key", &reason);
    }
    let dir = disk_dir();
    let mut range = lost(&dir.path().join("region"), &OpenOptions::new().protection(Protection::Keys));
    range.copy(0, &[1; 64], 64, &mut NoSum);
    loss(&range.fence().unwrap_err());
    range.read(0, &mut [0; 64]).unwrap();
}

/// A hole in a file on a file system that is full; and files that are to be made or opened there.
#[test]
fn a_full_file_system_is_told_when_opening_and_survived_later() {
    const TEST: &str = "a_full_file_system_is_told_when_opening_and_survived_later";
    if let Some(dir) = child_path() {
        return on_a_full_file_system(&dir);
    }
    let dir = disk_dir();
    // A mount of one's own needs no root where user namespaces are allowed.
    let script = "mount -t tmpfs -o size=256k,huge=never none \"$1\" || exit 99; shift; exec \"$@\"";
    let path = dir.path().to_str().unwrap();
    let unshare = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", path];
    match run_child_under(&unshare, TEST, dir.path()) {
        Ok(status) if status.success() => {}
        Ok(status) if !matches!(status.code(), Some(1 | 99)) => panic!("{status}"),
        refused => skipped("a full file system", &format!("no tmpfs of our own: {refused:?}")),
    }
}

fn on_a_full_file_system(dir: &Path) {
    let path = dir.join("region");
    let mut range = create(&path, &OpenOptions::new());
    let file = File::options().write(true).open(&path).unwrap();
    let hole = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, hole, CUT as u64, PAGE as u64).unwrap();
    let sparse = dir.join("sparse");
    File::create(&sparse).unwrap().set_len(64 << 10).unwrap();
    let mut filler = File::create(dir.join("filler")).unwrap();
    while std::io::Write::write_all(&mut filler, &[1; PAGE]).is_ok() {}
    let error = Region::create_file(dir.join("new"), LEN as u64, &OpenOptions::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    let error = Region::open(&sparse, &OpenOptions::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    range.copy(0, &[1; 64], 64, &mut NoSum);
    range.fence().unwrap();
    range.copy(CUT, &[1; 64], 64, &mut NoSum);
    assert_eq!(loss(&range.fence().unwrap_err()).region_offset, CUT as u64);
}
