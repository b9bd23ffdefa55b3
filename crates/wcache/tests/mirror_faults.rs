//! What goes wrong with a cache on two sides: a side that fails in use, is missing, damaged, old or
//! another's, comes back, is replaced or leaves.

mod support;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering;

use fastness_pmem::{OpenOptions, PmRange, Region};
use fastness_testkit::Rng;
use fastness_testkit::media::Bank;
use fastness_wcache::*;
use support::*;

const ORIGIN_BYTES: u64 = 1 << 20;

fn media(can_be_marked: bool) -> Media {
    let mut media = Media::mirrored(16, 16384, ORIGIN_BYTES, &mut Rng(1));
    media.can_be_marked = can_be_marked;
    media
}

fn outs(cache: &TestCache) -> [bool; 2] {
    let sides = cache.status().sides;
    [sides[0].out.is_some(), sides[1].out.is_some()]
}

fn first_byte(cache: &TestCache, offset: u64) -> u8 {
    let mut bytes = [0; 512];
    cache.read(offset, &mut bytes).unwrap();
    bytes[0]
}

/// The cache goes on with the other one, and the lost one is used no more, alone or not.
#[test]
fn a_side_that_fails_in_use_is_out_for_good() {
    for (lost, can_be_marked) in [(0, true), (1, true), (0, false), (1, false)] {
        let mut media = media(can_be_marked);
        let cache = media.create().unwrap();
        cache.write(0, &[1; 512]).unwrap();
        let before = *media.mark.lock().unwrap();
        media.side(lost).cut_at(16384);
        cache.write(512, &[2; 512]).unwrap();
        assert_eq!(outs(&cache), [lost == 0, lost == 1]);
        assert!(cache.status().sides[lost].out.as_ref().unwrap().contains("failed while it was in use"));
        assert!(!cache.status().is_region_failed && cache.sync().is_ok());
        assert_eq!(*media.mark.lock().unwrap() != before, can_be_marked, "the origin knows of it");
        cache.write(1024, &[3; 512]).unwrap();
        assert_eq!([0, 512, 1024].map(|at| first_byte(&cache, at)), [1, 2, 3]);
        drop(cache);
        // It comes back, without what was written since.
        media.side_mut(lost).mend();
        let error = media.open_from(lost, false, false).unwrap_err();
        match can_be_marked {
            true => assert!(matches!(error, Error::OldCopy), "{error}"),
            false => assert!(matches!(error, Error::SideMissing { .. }), "{error}"),
        }
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(media.disk.image().to_vec().iter().all(|byte| *byte == 0), "nothing was touched");
        for first in [lost, 1 - lost] {
            let (cache, _) = media.open_from(first, true, false).unwrap();
            assert_eq!(outs(&cache), [lost == 0, lost == 1]);
            assert_eq!([0, 512, 1024].map(|at| first_byte(&cache, at)), [1, 2, 3]);
        }
        // The one that is left knows that it is alone.
        assert_eq!(outs(&media.open_from(1 - lost, false, false).unwrap().0), [lost == 0, lost == 1]);
    }
}

/// The cleaner notices it as well.
#[test]
fn a_side_that_fails_in_a_write_back_is_out() {
    for end in [0, 4096, 8192] {
        let mut media = media(true);
        let cache = media.create().unwrap();
        cache.write(0, &[1; 512]).unwrap();
        media.side(1).cut_at(end);
        cache.flush().unwrap();
        assert_eq!(outs(&cache), [false, true]);
        drop(cache);
        media.side_mut(1).mend();
        assert!(matches!(media.open_from(1, false, false), Err(Error::OldCopy)));
    }
}

/// Nothing is acknowledged before the origin knows of the loss: the side could come back alone.
#[test]
fn a_loss_that_the_origin_cannot_be_told_of_stops_the_acknowledgements() {
    let mut media = media(true);
    let cache = media.create().unwrap();
    cache.write(0, &[1; 512]).unwrap();
    media.side(0).cut_at(16384);
    media.refuses_marks.store(true, Ordering::Relaxed);
    for _ in 0..3 {
        assert!(matches!(cache.write(512, &[2; 512]), Err(Error::MarkOrigin(_))));
    }
    assert!(matches!(cache.flush(), Err(Error::MarkOrigin(_))));
    media.refuses_marks.store(false, Ordering::Relaxed);
    cache.write(512, &[3; 512]).unwrap();
    assert_eq!((first_byte(&cache, 512), outs(&cache)), (3, [true, false]));
    cache.flush().unwrap();
    assert!(cache.status().is_clean());
    drop(cache);
    media.side_mut(0).mend();
    assert!(matches!(media.open_from(0, false, false), Err(Error::OldCopy)));
}

#[test]
fn the_loss_of_both_sides_ends_the_acknowledgements() {
    let mut media = media(true);
    let cache = media.create().unwrap();
    cache.write(0, &[1; 512]).unwrap();
    (0..2).for_each(|side| media.side(side).cut_at(16384));
    assert_eq!(cache.write(0, &[2; 512]).unwrap_err().kind(), ErrorKind::MediaFailed);
    assert!(cache.status().is_region_failed && cache.sync().is_err());
}

/// Without a mark nobody knows whether the other side is newer; with one, the origin does.
#[test]
fn a_missing_side_is_done_without_where_it_cannot_be_newer() {
    for can_be_marked in [true, false] {
        let mut media = media(can_be_marked);
        let cache = media.create().unwrap();
        cache.write(0, &[1; 512]).unwrap();
        drop(cache);
        if !can_be_marked {
            let error = media.open_from(0, false, false).unwrap_err();
            assert!(matches!(&error, Error::SideMissing { why, .. } if why == "it is gone"), "{error}");
        }
        let (cache, _) = media.open_from(0, false, !can_be_marked).unwrap();
        assert_eq!((outs(&cache), first_byte(&cache, 0)), ([false, true], 1));
        cache.write(0, &[2; 512]).unwrap();
        drop(cache);
        // From now on that is known.
        drop(media.open_from(0, false, false).unwrap());
        let (cache, _) = media.open_from(1, true, false).unwrap();
        assert_eq!((outs(&cache), first_byte(&cache, 0)), ([false, true], 2));
    }
}

/// Somebody has used each side without the other. Where there is no mark, he has to say which one counts.
#[test]
fn sides_that_have_both_gone_on_alone_are_not_mixed() {
    let mut media = media(false);
    drop(media.create().unwrap());
    for side in 0..2 {
        let (cache, _) = media.open_from(side, false, true).unwrap();
        cache.write(0, &[1 + side as u8; 512]).unwrap();
    }
    assert!(matches!(media.open_from(0, true, false), Err(Error::SidesApart)));
    for _ in 0..2 {
        let (cache, _) = media.open_from(1, true, true).unwrap();
        assert_eq!((outs(&cache), first_byte(&cache, 0)), ([true, false], 2));
    }
    assert!(matches!(media.open_from(0, true, false), Err(Error::SidesApart)), "that was for once");
}

fn copy_of(bank: &Bank) -> Bank {
    bank.with(bank.image())
}

/// An older copy beside the current side, the same side twice, another cache's side.
#[test]
fn a_region_that_is_not_the_other_side_is_not_read() {
    let mut media = media(true);
    let cache = media.create().unwrap();
    cache.write(0, &[1; 512]).unwrap();
    let old = copy_of(media.side(1));
    (0..3).for_each(|at| {
        cache.write(0, &[2 + at; 512]).unwrap();
        cache.flush().unwrap();
    });
    drop(cache);
    let whole = [copy_of(media.side(0)), copy_of(media.side(1))];
    let restore = |media: &mut Media| {
        (0..2).for_each(|side| *media.side_mut(side) = copy_of(&whole[side]));
    };
    *media.side_mut(1) = old.clone();
    let why = |media: &mut Media| {
        let mark = *media.mark.lock().unwrap();
        let (cache, _) = media.open_from(0, true, false).unwrap();
        assert_eq!((outs(&cache), first_byte(&cache, 0)), ([false, true], 4));
        *media.mark.lock().unwrap() = mark;
        cache.status().sides[1].out.clone().unwrap()
    };
    assert!(why(&mut media).contains("older copy"));
    restore(&mut media);
    *media.side_mut(1) = copy_of(&whole[0]);
    assert!(why(&mut media).contains("a copy of the same side"));
    restore(&mut media);
    let mut other = Media::mirrored(16, 16384, ORIGIN_BYTES, &mut Rng(2));
    drop((other.options(), other.options(), other.create().unwrap()));
    *media.side_mut(1) = media.side(1).with(other.side(1).image());
    assert!(why(&mut media).contains("another cache is there"));
    // The one that was named is the one that is damaged.
    restore(&mut media);
    let mut image = media.side(0).image();
    image[..16384].fill(0x11);
    *media.side_mut(0) = media.side(0).with(image);
    let (cache, _) = media.open_from(0, true, false).unwrap();
    assert_eq!((outs(&cache), first_byte(&cache, 0)), ([true, false], 4));
    assert!(cache.detach_side().is_err(), "the one that was named cannot stay");
}

#[test]
fn a_cache_in_one_region_has_no_other_side() {
    let mut single = Media::new(16, 16384, ORIGIN_BYTES, &mut Rng(1));
    drop(single.create().unwrap());
    let beside = Media::mirrored(16, 16384, ORIGIN_BYTES, &mut Rng(3));
    let sides = Sides::pair(single.parts(), Ok(beside.parts_of(1)));
    let options = single.options();
    assert!(matches!(Cache::open(sides, single.origin(), &options), Err(Error::Refused(_))));
    assert!(matches!(single.open().unwrap().0.detach_side(), Err(Error::NotMirrored)));
    assert!(single.open().unwrap().0.status().sides.is_empty());
}

/// Either region of a creation must be empty.
#[test]
fn a_creation_takes_no_second_region_that_holds_something() {
    let mut media = media(true);
    let mut image = media.side(1).image();
    image[12288] = 1;
    *media.side_mut(1) = media.side(1).with(image);
    assert!(matches!(media.create(), Err(Error::Occupied)));
    let options = media.options().force(true);
    drop(Cache::create(media.sides(), media.origin(), &options).unwrap());
    assert!(matches!(media.create(), Err(Error::Exists)));
    assert_eq!(outs(&media.open().unwrap().0), [false; 2]);
}

/// A cache in one region gets a second one, loses the first, and gets that back.
#[test]
fn sides_are_attached_and_detached() {
    let mut media = Media::new(16, 16384, ORIGIN_BYTES, &mut Rng(1));
    media.can_be_marked = true;
    let cache = media.create().unwrap();
    cache.write(0, &[1; 512]).unwrap();
    let beside = Media::mirrored(16, 16384, ORIGIN_BYTES, &mut Rng(3));
    media.second = Some(copy_of(beside.side(1)));
    let occupied = |media: &mut Media, byte: u8| {
        let mut image = media.side(1).image();
        image[0] = byte;
        *media.side_mut(1) = media.side(1).with(image);
    };
    occupied(&mut media, 1);
    assert!(matches!(cache.attach(media.parts_of(1), "a".into()), Err(Error::Occupied)));
    cache.write(0, &[2; 512]).unwrap();
    occupied(&mut media, 0);
    cache.attach(media.parts_of(1), "a".into()).unwrap();
    assert_eq!(media.disk.image().to_vec()[0], 2, "the origin has everything");
    assert!(matches!(cache.write(0, &[3; 512]), Err(Error::Ended)));
    drop(cache);
    let (cache, _) = media.open().unwrap();
    assert_eq!(outs(&cache), [false; 2]);
    assert!(matches!(cache.attach(beside.parts_of(0), "a".into()), Err(Error::Mirrored)));
    cache.write(0, &[4; 512]).unwrap();
    drop(cache);
    // The first region is lost, and what was that takes its place again.
    let (cache, _) = media.open_from(1, false, false).unwrap();
    assert_eq!((outs(&cache), first_byte(&cache, 0)), ([true, false], 4));
    let old = copy_of(media.side(0));
    cache.attach(media.parts_of(0), "b".into()).unwrap();
    drop(cache);
    let new = copy_of(media.side(0));
    // As it was before, it is a side of another mirror.
    *media.side_mut(0) = old;
    assert!(matches!(media.open_from(0, true, false), Err(Error::SideReplaced)));
    *media.side_mut(0) = new;
    let (cache, _) = media.open_from(0, true, false).unwrap();
    assert_eq!((outs(&cache), first_byte(&cache, 0)), ([false; 2], 4));
    cache.write(0, &[5; 512]).unwrap();
    cache.detach_side().unwrap();
    drop(cache);
    assert!(Superblock::of(&media.parts_of(0).front).unwrap().side.is_none());
    assert!(matches!(Superblock::of(&media.parts_of(1).front), Err(Error::NoCache)));
    media.second = None;
    assert_eq!(first_byte(&media.open().unwrap().0, 0), 5);
}

/// Where the other side is now is noted in each.
#[test]
fn sides_that_have_moved_are_found_at_their_new_places() {
    let mut media = media(true);
    drop(media.create().unwrap());
    let others = |media: &Media| {
        [0, 1].map(|side| {
            let found = Superblock::of(&media.parts_of(side).front).unwrap().side.unwrap();
            String::from_utf8(found.other_path).unwrap()
        })
    };
    assert_eq!(others(&media), ["b", "a"]);
    let moved = |side: usize| media.parts_of(side).at(Path::new(["c", "d"][side]));
    let sides = Sides::pair(moved(1), Ok(moved(0)));
    let options = Options::new();
    drop(Cache::open(sides, media.origin(), &options).unwrap());
    assert_eq!(others(&media), ["d", "c"]);
    let sides = Sides::pair(media.parts_of(0), Ok(media.parts_of(1).at(Path::new(&"x".repeat(4000)))));
    drop(Cache::open(sides, media.origin(), &options).unwrap());
    assert_eq!(others(&media), ["d", "a"], "one that has no room is not noted");
}

fn mapped(pm: &Path) -> Parts<PmRange> {
    let region = Region::open(pm, &OpenOptions::new()).unwrap();
    let view = Region::join(region.descriptor().unwrap(), &OpenOptions::new()).unwrap();
    let geometry = Geometry::dividing(1 << 20, Some(64 << 10)).unwrap();
    Parts::divide(region.into_range(), view.into_range(), geometry).unwrap().at(pm)
}

/// Bits that flip in one side: reads and the write-back take the other one, and the status says so; in both
/// sides they are reported. An opening heals what one side lacks.
#[test]
fn damage_of_one_side_costs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("disk"), vec![0; 1 << 20]).unwrap();
    for name in ["a", "b"] {
        drop(Region::create_file(path(name), 1 << 20, &OpenOptions::new()).unwrap());
    }
    let origin = || Box::new(FileOrigin::new(&path("disk")));
    let sides = || Sides::pair(mapped(&path("a")), Ok(mapped(&path("b"))));
    let damage = |name: &str, byte: u8| {
        let bytes = fs::read(path(name)).unwrap();
        let at = bytes.windows(64).position(|window| window == [byte; 64]).unwrap();
        let file = fs::OpenOptions::new().write(true).open(path(name)).unwrap();
        file.write_all_at(&[byte ^ 1], at as u64 + 100).unwrap();
    };
    let cache = Cache::create(sides(), origin(), &Options::new()).unwrap();
    let read = |offset: u64| {
        let mut bytes = [0; 4096];
        cache.read(offset, &mut bytes).map(|()| bytes)
    };
    for (at, byte) in [(0, 0x77), (1, 0x78), (2, 0x79)] {
        cache.write(at * 4096, &[byte; 4096]).unwrap();
    }
    damage("a", 0x77);
    damage("b", 0x78);
    assert_eq!((read(0).unwrap(), read(4096).unwrap()), ([0x77; 4096], [0x78; 4096]));
    let faults = || cache.status().sides.iter().map(|side| side.faults).collect::<Vec<_>>();
    assert_eq!(faults(), [1, 0], "what the first side has is not looked for in the second");
    damage("a", 0x79);
    damage("b", 0x79);
    assert!(matches!(read(8192), Err(Error::Damaged { offset: 8192, .. })));
    assert!(matches!(cache.flush(), Err(Error::Damaged { .. })));
    assert_eq!(fs::read(path("disk")).unwrap()[..8192], [[0x77; 4096], [0x78; 4096]].concat());
    cache.write(8192, &[0x7a; 4096]).unwrap();
    cache.flush().unwrap();
    assert!(cache.status().is_clean());
    cache.write(0, &[0x7b; 4096]).unwrap();
    cache.write(4096, &[0x7c; 4096]).unwrap();
    drop(cache);
    damage("a", 0x7b);
    damage("b", 0x7c);
    let found = Inspection::of(sides(), &Options::new()).unwrap();
    assert_eq!((found.entries, found.sides.len()), (2, 2));
    let (cache, replayed) = Cache::open(sides(), origin(), &Options::new()).unwrap();
    assert_eq!(replayed.entries, 2);
    assert_eq!(cache.status().sides.iter().map(|side| side.faults).collect::<Vec<_>>(), [1, 1]);
    assert_eq!(fs::read(path("disk")).unwrap()[..8192], [[0x7b; 4096], [0x7c; 4096]].concat());
}
