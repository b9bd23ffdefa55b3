//! The protocol Log where the directory fails, lacks files, or is not what the cache has noted.

mod support;

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use fastness_pm_model::{RecordStyle, Recorder};
use fastness_responder::*;
use support::*;

fn world() -> World {
    set_protocol(ProtocolKind::Log);
    World::new(24, 64)
}

fn errno_of<T: std::fmt::Debug>(result: Result<T, Error>) -> i32 {
    result.unwrap_err().errno()
}

/// What a power cut leaves at its worst.
fn lose_power(world: &mut World) -> Recovered {
    world.backing = world.backing.crashed(|| false);
    world.reopen()
}

fn counts(world: &World) -> Counts {
    world.cache().status().unwrap().counts
}

fn fail_syncs(world: &World, fail: bool) {
    world.backing.set_hook(move |call| match call {
        Call::Sync if fail => Verdict::Refuse(5),
        _ => Verdict::Do,
    });
}

#[test]
fn a_sync_that_failed_while_nothing_waited_is_told_once() {
    let mut world = world();
    let a = world.open("a");
    world.write(&a, 0, b"only in the page cache");
    fail_syncs(&world, true);
    assert_eq!(errno_of(world.cache().flush()), 5);
    assert_eq!(world.cache().status().unwrap().failures.len(), 1);
    fail_syncs(&world, false);
    assert_eq!(errno_of(world.cache().sync(&a)), 5);
    world.cache().sync(&a).unwrap();
    lose_power(&mut world);
    assert_eq!(world.content(&world.open("a")), b"only in the page cache");
}

/// What a record has is no program's loss.
#[test]
fn a_sync_that_failed_of_what_the_log_has_is_not_told() {
    let mut world = world();
    let a = world.open("a");
    world.cache().write_synced(&a, 0, b"in the log").unwrap();
    fail_syncs(&world, true);
    assert_eq!(errno_of(world.cache().flush()), 5);
    fail_syncs(&world, false);
    world.cache().sync(&a).unwrap();
    assert_eq!(counts(&world).real_syncs, 1);
    world.cache().flush().unwrap();
    // The log is empty, and the directory has what it had not taken before.
    assert_eq!(lose_power(&mut world).records, 0);
    assert_eq!(world.below("a"), b"in the log");
}

/// A few more: the last ones alone would fit into a record.
#[test]
fn more_ranges_than_are_noted_are_synced_for_real() {
    let mut world = world();
    let a = world.open("a");
    let data: Vec<u8> = (0..820_008_u32).map(|at| at as u8).collect();
    for at in (0..data.len() - 8).step_by(200) {
        world.write(&a, at as u64, &data[at..at + 8]);
    }
    world.cache().sync(&a).unwrap();
    assert_eq!((counts(&world).real_syncs, counts(&world).records), (1, 0));
    // From then on its ranges are noted again.
    world.write(&a, 100, b"x");
    world.cache().sync(&a).unwrap();
    assert_eq!((counts(&world).real_syncs, counts(&world).records), (1, 1));
    lose_power(&mut world);
    let found = world.content(&world.open("a"));
    assert_eq!(found[100], b'x');
    assert!((0..data.len() - 8).step_by(200).all(|at| found[at..at + 8] == data[at..at + 8]));
}

#[test]
fn what_was_written_before_the_cache_knew_the_file_is_synced_for_real() {
    let mut world = world();
    world.backing.put("a", b"");
    let (file, _) = world.backing.open(Path::new("a"), None).unwrap();
    file.write_at(0, b"past the cache").unwrap();
    let a = world.open("a");
    world.write(&a, 0, b"P");
    world.cache().sync(&a).unwrap();
    assert_eq!(counts(&world).real_syncs, 1);
    lose_power(&mut world);
    assert_eq!(world.content(&world.open("a")), b"Past the cache");
}

#[test]
fn records_of_a_file_that_was_moved_away_are_kept_and_carried_out_when_it_is_back() {
    let mut world = world();
    ["a", "b"].into_iter().for_each(|name| world.backing.put(name, b""));
    let (a, b) = (world.open("a"), world.open("b"));
    world.cache().write_synced(&a, 0, b"of the first").unwrap();
    world.cache().write_synced(&a, 0, b"O").unwrap();
    world.cache().write_synced(&b, 0, b"of the second").unwrap();
    world.cache = None;
    world.backing = world.backing.crashed(|| false);
    let whole = world.backing.copied();
    world.backing.remove(Path::new("a")).unwrap();
    world.backing = world.backing.crashed(|| true);
    // Another file gets the same inode.
    world.backing.put("new", b"of another");
    let recovered = world.reopen();
    assert_eq!((recovered.records, recovered.orphaned_chunks), (1, 2));
    assert_eq!((world.below("b"), world.below("new")), (b"of the second".to_vec(), b"of another".to_vec()));
    // They are not in the log, which works on.
    world.cache().flush().unwrap();
    assert_eq!(world.cache().status().unwrap().orphaned_chunks, 2);
    let (cache, error) = *world.cache.take().unwrap().detach().unwrap_err();
    assert!(matches!(error, Error::Orphans { chunks: 2 }), "{error}");
    drop(cache);
    assert_eq!(lose_power(&mut world).orphaned_chunks, 2);

    // It comes back, with the file that has its records.
    let kept = world.below(ORPHANS_FILE);
    world.backing = whole;
    world.backing.put(ORPHANS_FILE, &kept);
    assert_eq!(world.try_reopen_older().unwrap().orphaned_chunks, 0);
    lose_power(&mut world);
    assert_eq!(world.content(&world.open("a")), b"Of the first");
    assert!(!world.backing.contents().contains_key(Path::new(ORPHANS_FILE)));
}

#[test]
fn orphans_of_another_cache_or_damaged_ones_are_refused() {
    let mut world = world();
    world.backing.put("a", b"");
    let a = world.open("a");
    world.cache().write_synced(&a, 0, b"kept").unwrap();
    world.cache = None;
    world.backing.remove(Path::new("a")).unwrap();
    world.backing = world.backing.crashed(|| true);
    assert_eq!(world.reopen().orphaned_chunks, 1);
    let kept = world.below(ORPHANS_FILE);
    for at in 0..kept.len() {
        let mut damaged = kept.clone();
        damaged[at] ^= 0x10;
        world.backing.put(ORPHANS_FILE, &damaged);
        let error = world.try_reopen().unwrap_err();
        assert!(matches!(&error, Error::Log(error) if matches!(**error, LogError::Orphans)), "{at}: {error}");
    }
    for len in 0..kept.len() {
        world.backing.put(ORPHANS_FILE, &kept[..len]);
        // Where a record ends, the file may.
        assert!(world.try_reopen().is_err() || len == 24, "{len}");
    }
}

#[test]
fn a_region_tells_how_many_syncs_it_has() {
    let world = world();
    let (a, b) = (world.open("a"), world.open("b"));
    for round in 0..3 {
        world.cache().write_synced(&a, 0, &[round; 10]).unwrap();
    }
    world.cache().write_synced(&b, 0, b"cut").unwrap();
    world.cache().truncate(&b, 1).unwrap();
    let image = world.recorder.image();
    let copy = Recorder::new(image.clone(), RecordStyle::NonTemporal);
    let found = Inspection::of_whole(Pm::whole(&copy, &Arc::new(Power::default()))).unwrap();
    assert_eq!((found.protocol, found.damaged_tags), (ProtocolKind::Log, 0));
    assert_eq!(
        found.dirty_chunks.iter().map(|(file, count)| (file.inode, *count)).collect::<Vec<_>>(),
        [(2, 3)]
    );
    assert_eq!(copy.image(), image, "nothing was changed");
}

/// A cache that the hook of its directory may ask.
fn shared() -> (Arc<Cache<Pm>>, MemoryBacking, Recorder) {
    set_protocol(ProtocolKind::Log);
    let (recorder, backing) = (recorder(8, 64), MemoryBacking::default());
    let region = Pm::whole(&recorder, &Arc::new(Power::default()));
    let cache = Cache::create(region, Arc::new(backing.clone()), &options(64)).unwrap();
    (Arc::new(cache), backing, recorder)
}

/// A program syncs what the background is about to sync, and that fails.
#[test]
fn bytes_under_a_sync_of_the_directory_are_not_synced_yet() {
    let (cache, backing, recorder) = shared();
    let a = Arc::new(cache.open_file(Path::new("a"), Some(0o600), 0).unwrap());
    cache.write(&a, 0, b"synced beside").unwrap();
    let (asked, handle) = (Mutex::new(Arc::downgrade(&cache)), a.clone());
    backing.set_hook(move |call| match call {
        Call::Sync => {
            let cache = asked.lock().unwrap().upgrade().unwrap();
            cache.sync(&handle).unwrap();
            Verdict::Refuse(5)
        }
        _ => Verdict::Do,
    });
    assert_eq!(errno_of(cache.flush()), 5);
    assert_eq!(cache.status().unwrap().counts.records, 1);
    drop(cache);
    let (image, backing) = (recorder.image(), backing.crashed(|| false));
    let copy = Recorder::new(image, RecordStyle::NonTemporal);
    let region = Pm::whole(&copy, &Arc::new(Power::default()));
    let (cache, recovered) = Cache::open(region, Arc::new(backing), &options(64)).unwrap();
    assert_eq!(recovered.records, 1);
    let a = cache.open_file(Path::new("a"), None, 0).unwrap();
    assert_eq!(content(&cache, &a).unwrap(), b"synced beside");
}

#[test]
fn a_sync_of_the_directory_that_is_under_way_is_in_the_status() {
    let (cache, backing, _) = shared();
    let (seen, asked) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Arc::downgrade(&cache))));
    let a = cache.open_file(Path::new("a"), Some(0o600), 0).unwrap();
    cache.write_synced(&a, 0, b"synced").unwrap();
    let counts = seen.clone();
    backing.set_hook(move |call| {
        if call == Call::Sync {
            let cache = asked.lock().unwrap().upgrade().unwrap();
            counts.fetch_add(cache.status().unwrap().flushing.len(), Ordering::SeqCst);
        }
        Verdict::Do
    });
    cache.flush().unwrap();
    assert_eq!(seen.load(Ordering::SeqCst), 1);
    assert_eq!(cache.status().unwrap().flushing, []);
}

/// A file system that does not overwrite may lack room for bytes that a file has already.
#[test]
fn a_synced_write_that_was_made_in_part_leaves_the_rest_to_be_synced() {
    let mut world = world();
    let a = world.open("a");
    world.cache().sync(&a).unwrap();
    world.write(&a, 0, b"not synced before");
    let calls = AtomicUsize::new(0);
    world.backing.set_hook(move |call| match call {
        Call::Write { .. } => Verdict::DoSome(if calls.fetch_add(1, Ordering::SeqCst) == 0 { 3 } else { 0 }),
        _ => Verdict::Do,
    });
    assert_eq!(world.cache().write_synced(&a, 0, b"NOT SYNCED").unwrap(), 3);
    assert_eq!(counts(&world).records, 1);
    world.backing.set_hook(|_| Verdict::Do);
    world.cache().sync(&a).unwrap();
    lose_power(&mut world);
    assert_eq!(world.content(&world.open("a")), b"NOT synced before");
}
