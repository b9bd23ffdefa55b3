//! A region, or a directory, that is put back from an older copy; and a directory that has lost its mark.

mod support;

use std::sync::Arc;

use fastness_pm_model::{RecordStyle, Recorder};
use fastness_responder::*;
use support::history::{Step, Variant, run};
use support::{Pm, Power, World, content, options};

fn open(image: &[u8], backing: &MemoryBacking, pairs_anew: bool) -> Result<Cache<Pm>, Error> {
    let recorder = Recorder::new(image.to_vec(), RecordStyle::NonTemporal);
    let region = Pm::whole(&recorder, &Arc::new(Power::default()));
    let opened = Cache::open(region, Arc::new(backing.clone()), &options(64).pair_anew(pairs_anew));
    opened.map(|(cache, _)| cache)
}

/// What is refused, and that it touches nothing.
fn refused(image: &[u8], backing: &MemoryBacking) -> Error {
    let recorder = Recorder::new(image.to_vec(), RecordStyle::NonTemporal);
    let region = Pm::whole(&recorder, &Arc::new(Power::default()));
    let (mark, contents) = (backing.mark().unwrap(), backing.contents());
    let error = Cache::open(region, Arc::new(backing.clone()), &options(64)).unwrap_err();
    assert_eq!(recorder.image(), image, "{error}");
    assert_eq!((backing.mark().unwrap(), backing.contents()), (mark, contents), "{error}");
    error
}

fn first(cache: &Cache<Pm>) -> u8 {
    let handle = cache.open_file("a".as_ref(), None, 0).unwrap();
    content(cache, &handle).unwrap()[0]
}

/// A file that was written as 1 when the copies were made, and as 2, and flushed, after that.
fn used_after_copies() -> (World, Vec<u8>, MemoryBacking) {
    let mut world = World::new(2, 64);
    let file = world.open("a");
    world.write(&file, 0, &[1; 8]);
    drop(file);
    world.cache = None;
    let (image, below) = (world.recorder.image(), world.backing.copied());
    world.reopen();
    let file = world.open("a");
    world.write(&file, 0, &[2; 8]);
    world.cache().flush().unwrap();
    drop(file);
    world.cache = None;
    (world, image, below)
}

#[test]
fn an_older_region_is_refused_and_taken_with_consent() {
    let (world, older, _) = used_after_copies();
    let error = refused(&older, &world.backing);
    assert!(matches!(error, Error::Copy(Copied::Region)) && error.to_string().contains("undo"), "{error}");
    let cache = open(&older, &world.backing, true).unwrap();
    assert_eq!(first(&cache), 1, "the consent was to that");
    // From now on they belong together, and what was newer is older.
    let again = world.recorder.image();
    assert!(matches!(refused(&again, &world.backing), Error::Copy(Copied::Region)));
}

#[test]
fn an_older_directory_is_refused_and_taken_with_consent() {
    let (world, _, older) = used_after_copies();
    let error = refused(&world.recorder.image(), &older);
    assert!(
        matches!(error, Error::Copy(Copied::Directory)) && error.to_string().contains("missing"),
        "{error}"
    );
    open(&world.recorder.image(), &older, true).unwrap();
}

#[test]
fn two_that_went_on_without_each_other_are_refused() {
    let (world, region, below) = used_after_copies();
    drop(open(&region, &below, false).unwrap());
    assert!(matches!(refused(&world.recorder.image(), &below), Error::Copy(Copied::Both)));
}

/// Also in the middle of an opening.
#[test]
fn copies_of_both_belong_together() {
    let (_, region, below) = used_after_copies();
    assert_eq!(first(&open(&region, &below, false).unwrap()), 1);
}

#[test]
fn a_directory_that_has_lost_its_mark_is_paired_with_consent() {
    let (world, _, _) = used_after_copies();
    let image = world.recorder.image();
    let mark = world.backing.mark().unwrap();
    world.backing.set_mark(None).unwrap();
    assert!(matches!(refused(&image, &world.backing), Error::Unmarked));
    assert_eq!(first(&open(&image, &world.backing, true).unwrap()), 2);
    assert_ne!(world.backing.mark().unwrap(), mark);
    // That of another region is never taken.
    world.backing.set_mark(World::new(2, 64).backing.mark().unwrap()).unwrap();
    assert!(matches!(open(&image, &world.backing, true), Err(Error::WrongDirectory(_))));
}

/// Without its lines a region cannot say what it is.
#[test]
fn a_region_with_damaged_openings_is_refused_and_taken_with_consent() {
    let (world, _, _) = used_after_copies();
    let mut image = world.recorder.image();
    for line in [12288, 12352] {
        image[line] ^= 1;
    }
    assert!(matches!(refused(&image, &world.backing), Error::Copy(Copied::Unknown)));
    assert_eq!(first(&open(&image, &world.backing, true).unwrap()), 2);
}

/// A directory without room has no other mark: its data must be got at all the same, time after time.
#[test]
fn a_directory_that_takes_no_mark_is_opened() {
    let (world, older, _) = used_after_copies();
    let recorder = Recorder::new(world.recorder.image(), RecordStyle::NonTemporal);
    let try_open = || {
        let region = Pm::whole(&recorder, &Arc::new(Power::default()));
        Cache::open(region, Arc::new(world.backing.clone()), &options(64)).map(drop)
    };
    for errno in [28, 122, 30] {
        let refuse = move |call| if call == Call::Names { Verdict::Refuse(errno) } else { Verdict::Do };
        world.backing.set_hook(refuse);
        for _ in 0..3 {
            try_open().unwrap();
        }
    }
    // It has said so, and the error came after that.
    let refuse = |call| if call == Call::Names { Verdict::DoAndRefuse(28) } else { Verdict::Do };
    world.backing.set_hook(refuse);
    for _ in 0..3 {
        try_open().unwrap();
    }
    world.backing.set_hook(|call| if call == Call::Names { Verdict::Refuse(5) } else { Verdict::Do });
    assert_eq!(try_open().unwrap_err().errno(), 5);
    world.backing.set_hook(|_| Verdict::Do);
    try_open().unwrap();
    assert!(matches!(refused(&older, &world.backing), Error::Copy(Copied::Region)));
}

/// Every crash of openings, with what is in the directory before and after it says that it belongs to them.
#[test]
fn openings_survive_every_crash() {
    use fastness_pm_model::{FlushKind, RecordStyle};
    let variants = [
        Variant { style: RecordStyle::NonTemporal, store_bytes: 8, strict_nt: false },
        Variant { style: RecordStyle::NonTemporal, store_bytes: 8, strict_nt: true },
        Variant { style: RecordStyle::StoreFlush(FlushKind::Clwb), store_bytes: 8, strict_nt: false },
    ];
    for variant in variants {
        let steps =
            [Step::write("a", 0, 1, 8), Step::Reopen, Step::Reopen, Step::write("a", 4, 2, 8), Step::Reopen];
        let history = run(2, &["a"], &steps, variant);
        let (violation, summary) = history.first_violation(variant);
        assert_eq!(violation, None, "{variant:?}");
        assert!(summary.images > 100, "{summary:?}");
    }
}
