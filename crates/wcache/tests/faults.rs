//! What goes wrong: origins that fail or are others, damaged and unreadable persistent memory, full logs,
//! requests that cannot be.

mod support;

use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fastness_blkdev::MemImage;
use fastness_pmem::{OpenOptions, Region};
use fastness_testkit::Rng;
use fastness_testkit::media::Failing;
use fastness_wcache::*;
use support::*;

const ORIGIN_BYTES: u64 = 1 << 20;

fn media() -> Media {
    let mut media = Media::new(16, 16384, ORIGIN_BYTES, &mut Rng(1));
    media.can_be_marked = true;
    media
}

#[test]
fn requests_outside_of_the_origin_or_of_parts_of_blocks_are_refused() {
    let mut media = media();
    let cache = media.create().unwrap();
    for (offset, len) in
        [(1, 512), (0, 511), (ORIGIN_BYTES, 512), (u64::MAX - 511, 512), (ORIGIN_BYTES - 512, 1024)]
    {
        let mut bytes = vec![0; len as usize];
        for result in [
            cache.read(offset, &mut bytes),
            cache.write(offset, &bytes),
            cache.write_zeroes(offset, len, true),
            cache.write_zeroes(offset, len, false),
        ] {
            let error = result.unwrap_err();
            assert!(
                matches!(error, Error::Range { .. }) && error.kind() == ErrorKind::Invalid,
                "{offset} {len}"
            );
        }
    }
    assert!(cache.write_zeroes(0, u64::MAX - 511, false).is_err());
    cache.write(0, &[]).unwrap();
    cache.read(ORIGIN_BYTES, &mut []).unwrap();
    cache.write_zeroes(0, 0, true).unwrap();
    assert_eq!(cache.status(), Status { synced: 0, ..cache.status() });
    assert!(cache.status().is_clean());
}

/// While the origin fails, what was written is read; afterwards the origin gets it.
#[test]
fn an_origin_that_fails_is_tried_again() {
    for how in [Failing::Writes, Failing::Torn, Failing::Flushes, Failing::Gone] {
        let mut media = media();
        let cache = media.create().unwrap();
        cache.write(4096, &[1; 8192]).unwrap();
        media.disk.fail(how, &mut Rng(0));
        let mut failed = 0;
        for round in 0..40 {
            cache.write(round * 512, &[2; 512]).unwrap();
            failed += u64::from(cache.flush().is_err());
            let mut bytes = [0; 512];
            cache.read(round * 512, &mut bytes).unwrap();
            assert_eq!(bytes, [2; 512]);
        }
        assert!(failed > 0, "{how:?}");
        assert_eq!(cache.status().failed_write_backs, failed);
        media.disk.heal();
        cache.flush().unwrap();
        let status = cache.status();
        assert!(status.is_clean() && status.failure.is_none() && status.blocks == 0, "{how:?}: {status:?}");
        drop(cache);
        let image = media.disk.crashed(1).image().to_vec();
        assert!(image[..20480].iter().all(|byte| *byte == 2) && image[20480] == 0, "{how:?}");
    }
}

/// One that is opened again after a failure is the same one, or gets nothing.
#[test]
fn an_origin_that_is_another_when_it_is_opened_again_gets_nothing() {
    let mut media = media();
    let cache = media.create().unwrap();
    for round in 0..3 {
        let mark = media.mark.lock().unwrap().unwrap();
        cache.write(0, &[1 + round; 4096]).unwrap();
        media.disk.fail(Failing::Flushes, &mut Rng(0));
        assert!(matches!(cache.flush(), Err(Error::Origin(_))));
        media.disk.heal();
        let other = match round {
            0 => None,
            1 => Some(Mark { cache: CacheId([0; 16]), ..mark }),
            _ => Some(Mark { opening: mark.opening ^ 1, ..mark }),
        };
        *media.mark.lock().unwrap() = other;
        let error = cache.flush().unwrap_err();
        match round {
            0 => assert!(matches!(error, Error::OtherOrigin), "{error}"),
            1 => assert!(matches!(error, Error::Foreign { .. }), "{error}"),
            _ => assert!(matches!(error, Error::OldCopy), "{error}"),
        }
        assert!(cache.read(8192, &mut [0; 512]).is_err(), "nor is anything read of it");
        cache.read(0, &mut [0; 4096]).unwrap();
        *media.mark.lock().unwrap() = Some(mark);
        media.number.store(9, Ordering::Relaxed);
        assert!(matches!(cache.flush(), Err(Error::OtherOrigin)), "another disk");
        media.number.store(7, Ordering::Relaxed);
        cache.flush().unwrap();
        assert_eq!(media.disk.image().to_vec()[0], 1 + round);
    }
}

/// The log fills and then has a defined state: writes fail, or wait until the origin takes something.
#[test]
fn a_full_log_fails_or_waits_as_asked() {
    let mut media = media();
    let cache = media.create().unwrap();
    media.disk.fail(Failing::Gone, &mut Rng(0));
    let full =
        |cache: &TestCache| (0..).find_map(|at| cache.write(at % 200 * 4096, &[3; 4096]).err()).unwrap();
    let error = full(&cache);
    assert!(matches!(error, Error::Full) && error.kind() == ErrorKind::NoSpace, "{error}");
    assert!(cache.status().failure.is_some() && cache.status().stops > 0);
    let mut bytes = [0; 4096];
    cache.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [3; 4096]);
    assert!(matches!(full(&cache), Error::Full), "and stays so");
    media.disk.heal();
    cache.write(0, &[4; 4096]).unwrap();
    drop(cache);

    let options = media.options().when_full(WhenFull::Wait);
    let (cache, _) = Cache::open(media.parts(), media.origin(), &options).unwrap();
    let cache = Arc::new(cache);
    let cleaner = Cleaner::start(&cache);
    media.disk.fail(Failing::Gone, &mut Rng(0));
    let done = std::thread::scope(|scope| {
        let writer = scope.spawn(|| (0..400).try_for_each(|at| cache.write(at % 200 * 4096, &[5; 4096])));
        let begun = Instant::now();
        while cache.status().stops < 3 {
            assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", cache.status());
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(!writer.is_finished(), "it waits");
        media.disk.heal();
        writer.join().unwrap()
    });
    done.unwrap();
    cache.flush().unwrap();
    drop(cleaner);
    assert_eq!(media.disk.image().to_vec()[0], 5);
}

/// A bit that flips in the log: the read fails and says where, the write-back does not spread it, and a newer
/// write of the block heals it.
#[test]
fn damage_in_the_log_is_found_and_healed_by_a_write() {
    let folder = tempfile::tempdir().unwrap();
    let (pm, disk) = (folder.path().join("pm"), folder.path().join("disk"));
    fs::write(&disk, vec![0; 1 << 20]).unwrap();
    let cache = file_cache(&pm, &disk, true);
    cache.write(0, &[0x77; 4096]).unwrap();
    cache.write(4096, &[0x78; 4096]).unwrap();
    let bytes = fs::read(&pm).unwrap();
    let at = bytes.windows(64).position(|window| window == [0x77; 64]).unwrap();
    let file = fs::OpenOptions::new().write(true).open(&pm).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[0x76], at as u64 + 100).unwrap();
    let mut read = [0; 4096];
    let error = cache.read(0, &mut read).unwrap_err();
    assert!(
        matches!(error, Error::Damaged { offset: 0, region_offset, .. } if region_offset == at as u64),
        "{error}"
    );
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(matches!(cache.flush(), Err(Error::Damaged { .. })));
    let origin = fs::read(&disk).unwrap();
    assert_eq!((origin[0], origin[4096]), (0, 0x78), "the other block is there");
    assert!(!cache.status().is_clean(), "and the log keeps it");
    cache.write(0, &[0x79; 4096]).unwrap();
    cache.flush().unwrap();
    assert!(cache.status().is_clean());
    assert_eq!(fs::read(&disk).unwrap()[0], 0x79);
}

/// The same while no process has the region: the opening says so, and changes nothing.
#[test]
fn damage_in_the_log_refuses_an_opening() {
    let folder = tempfile::tempdir().unwrap();
    let (pm, disk) = (folder.path().join("pm"), folder.path().join("disk"));
    fs::write(&disk, vec![0; 1 << 20]).unwrap();
    let cache = file_cache(&pm, &disk, true);
    (0..20).for_each(|at| cache.write(at * 4096, &[0x70 + at as u8; 4096]).unwrap());
    drop(cache);
    let good = fs::read(&pm).unwrap();
    let at = |byte: u8| good.windows(64).position(|window| window == [byte; 64]).unwrap();
    for wrong in [at(0x71), at(0x71) - 128, at(0x75) - 300, 4096, 8192] {
        let mut bytes = good.clone();
        bytes[wrong] ^= 4;
        fs::write(&pm, &bytes).unwrap();
        // The other slot's opening makes the copy an old one.
        let opened = open_files(&pm, &disk, &Options::new().force(true));
        if wrong < 16384 {
            // One of two slots, and the other has the same.
            drop(opened.unwrap());
            fs::write(&disk, vec![0; 1 << 20]).unwrap();
        } else {
            assert_eq!(opened.unwrap_err().kind(), ErrorKind::Corrupt, "byte {wrong}");
            assert!(fs::read(&disk).unwrap().iter().all(|byte| *byte == 0), "nothing was written");
        }
    }
    // What does not depend on it can be had.
    let mut bytes = good.clone();
    bytes[at(0x82)] ^= 4;
    fs::write(&pm, &bytes).unwrap();
    let options = Options::new().on_loss(OnLoss::DropTail).force(true);
    let (_, replayed) = open_files(&pm, &disk, &options).unwrap();
    assert!(replayed.dropped > 0 && replayed.entries > 0, "{replayed:?}");
}

fn mapped(pm: &std::path::Path) -> (fastness_pmem::PmRange, fastness_pmem::PmRange) {
    let region = Region::open(pm, &OpenOptions::new()).unwrap();
    let view = Region::join(region.descriptor().unwrap(), &OpenOptions::new()).unwrap();
    (region.into_range(), view.into_range())
}

fn file_cache(pm: &std::path::Path, disk: &std::path::Path, creates: bool) -> Cache<fastness_pmem::PmRange> {
    if creates {
        drop(Region::create_file(pm, 1 << 20, &OpenOptions::new()).unwrap());
    }
    let (range, view) = mapped(pm);
    let parts = Parts::divide(range, view, Geometry::dividing(1 << 20, Some(64 << 10)).unwrap()).unwrap();
    Cache::create(parts, Box::new(FileOrigin::new(disk)), &Options::new()).unwrap()
}

fn open_files(
    pm: &std::path::Path,
    disk: &std::path::Path,
    options: &Options,
) -> Result<(Cache<fastness_pmem::PmRange>, Replayed), Error> {
    let (range, view) = mapped(pm);
    let superblock = Superblock::of(&range)?;
    let parts = Parts::divide(range, view, superblock.geometry)?;
    Cache::open(parts, Box::new(FileOrigin::new(disk)), options)
}

/// Other origins, older copies of the region, other lengths.
#[test]
fn what_does_not_belong_together_is_refused() {
    let mut media = media();
    let cache = media.create().unwrap();
    cache.write(0, &[1; 512]).unwrap();
    drop(cache);
    let copy = media.bank.image();
    assert!(matches!(media.create(), Err(Error::Exists)));
    let disk = media.disk.clone();
    media.disk = disk.with(MemImage::zeroed(ORIGIN_BYTES * 2));
    assert!(matches!(media.open(), Err(Error::Resized { .. })));
    media.disk = disk;
    drop(media.open().unwrap());
    drop(media.open().unwrap());
    // The origin has seen two openings that the copy does not know of.
    media.bank = media.bank.with(copy.clone());
    assert!(matches!(media.open(), Err(Error::OldCopy)));
    let mark = media.mark.lock().unwrap().take();
    assert!(matches!(media.open(), Err(Error::OtherOrigin)), "no mark, and something in the log");
    *media.mark.lock().unwrap() = Some(Mark { cache: CacheId([0; 16]), ..mark.unwrap() });
    assert!(matches!(media.open(), Err(Error::Foreign { .. })));
    let mut bytes = vec![0; media.bank.len_bytes];
    for at in [0, 4095, 12288, 16383] {
        bytes[at] = 1;
        media.bank = media.bank.with(bytes.clone());
        assert!(matches!(media.create(), Err(Error::Occupied)), "byte {at} of something else");
        assert_eq!(media.bank.image(), bytes);
        bytes[at] = 0;
    }
    media.bank = media.bank.with(bytes);
    assert!(matches!(media.create(), Err(Error::Foreign { .. })));
    assert!(matches!(media.open(), Err(Error::NoCache)));
    let options = media.options().force(true);
    drop(Cache::create(media.parts(), media.origin(), &options).unwrap());
    drop(media.open().unwrap());
}

/// A file may be moved to another file system with its mark; what has an image's mark and another number is a
/// clone of it.
#[test]
fn a_moved_file_is_taken_and_a_cloned_image_is_not() {
    for is_device in [false, true] {
        let mut media = media();
        media.is_device = is_device;
        drop(media.create().unwrap());
        drop(media.open().unwrap());
        media.number.store(9, Ordering::Relaxed);
        match media.open() {
            Ok(_) => assert!(!is_device),
            Err(error) => assert!(is_device && matches!(error, Error::OtherOrigin), "{error}"),
        }
        let options = media.options().force(true);
        drop(Cache::open(media.parts(), media.origin(), &options).unwrap());
    }
}

/// A region whose fences fail: nothing is acknowledged any more, and the origin gets what was.
#[test]
fn a_region_that_fails_acknowledges_nothing() {
    let mut media = media();
    let cache = media.create().unwrap();
    cache.write(0, &[1; 4096]).unwrap();
    media.bank.cut_at(16384);
    let error = cache.write(4096, &[2; 4096]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::MediaFailed, "{error}");
    assert!(cache.write(8192, &[2; 4096]).is_err() && cache.sync().is_err());
    assert!(cache.status().is_region_failed);
    assert!(cache.flush().is_err(), "the slot cannot be written");
    assert_eq!(media.disk.image().to_vec()[0], 1, "but the origin has it");
}

#[test]
fn an_ended_cache_takes_nothing() {
    let mut media = media();
    let cache = media.create().unwrap();
    cache.write(0, &[1; 512]).unwrap();
    media.disk.fail(Failing::Gone, &mut Rng(0));
    assert!(cache.detach().is_err(), "the origin lacks something");
    cache.write(512, &[2; 512]).unwrap();
    media.disk.heal();
    cache.detach().unwrap();
    assert!(matches!(cache.write(0, &[3; 512]), Err(Error::Ended)));
    assert_eq!(*media.mark.lock().unwrap(), None);
    assert_eq!(media.disk.image().to_vec()[..1024], [[1; 512], [2; 512]].concat());
}
