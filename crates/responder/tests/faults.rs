//! Directories that fail, are full, are slow or have changed, and PM that fails: nothing acknowledged is
//! lost.

mod support;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use fastness_pm_model::{RecordStyle, Recorder};
use fastness_responder::*;
use support::*;

fn refuse(world: &World, wanted: impl Fn(Call) -> bool + Send + Sync + 'static, errno: i32) {
    world.backing.set_hook(move |call| if wanted(call) { Verdict::Refuse(errno) } else { Verdict::Do });
}

fn errno_of<T: std::fmt::Debug>(result: Result<T, Error>) -> i32 {
    result.unwrap_err().errno()
}

#[test]
fn a_full_directory_keeps_data_in_pm_and_says_so() {
    let mut world = World::new(1, 64);
    let (a, b, c) = (world.open("a"), world.open("b"), world.open("c"));
    world.write(&a, 0, &[1; 64]);
    refuse(&world, |call| matches!(call, Call::Write { grows, .. } if grows > 0), 28);
    assert_eq!(errno_of(world.cache().flush()), 28);
    assert_eq!(world.cache().flush().unwrap_err().kind(), ErrorKind::NoSpace);
    let status = world.cache().status().unwrap();
    assert_eq!((status.dirty_chunks, status.failures.len(), status.failures[0].1), (1, 1, 28));
    // Writes go on as long as there is room, also over what could not be flushed.
    world.write(&a, 10, &[2; 4]);
    world.write(&b, 0, &[3; 5]);
    assert_eq!(errno_of(world.cache().write(&c, 0, &[4; 5])), 28, "there is no room for it");
    assert_eq!(world.content(&c), b"", "and nothing of it is there");
    let mut of_a = vec![1; 64];
    of_a[10..14].fill(2);
    assert_eq!((world.content(&a), world.content(&b)), (of_a.clone(), vec![3; 5]));
    // A file can be removed to make room; it needs no flush.
    world.cache().close(b).unwrap();
    world.cache().unlink(Path::new("b")).unwrap();
    world.write(&c, 0, &[5; 5]);
    assert_eq!(world.reopen().dirty_chunks, 2);
    world.backing.set_hook(|_| Verdict::Do);
    world.cache().flush().unwrap();
    let status = world.cache().status().unwrap();
    assert_eq!((status.dirty_chunks, status.failures.len()), (0, 0));
    assert_eq!((world.below("a"), world.below("c")), (of_a, vec![5; 5]));
}

/// A sync that fails may have lost what was written before, and the next one promises nothing of it.
#[test]
fn after_a_failed_sync_everything_is_written_again() {
    let world = World::new(4, 64);
    let a = world.open("a");
    world.write(&a, 0, &[1; 200]);
    refuse(&world, |call| call == Call::Sync, 5);
    assert_eq!(errno_of(world.cache().flush()), 5);
    assert_eq!(world.cache().status().unwrap().dirty_chunks, 4);
    // The system drops what it could not write.
    let lost = world.backing.crashed(|| false);
    assert_eq!(lost.contents()[Path::new("a")], b"");
    let written = Arc::new(AtomicBool::new(false));
    let seen = written.clone();
    world.backing.set_hook(move |call| {
        seen.fetch_or(matches!(call, Call::Write { .. }), Ordering::SeqCst);
        Verdict::Do
    });
    world.cache().flush().unwrap();
    assert!(written.load(Ordering::SeqCst));
    assert_eq!(world.cache().status().unwrap().dirty_chunks, 0);
    assert_eq!(world.backing.crashed(|| false).contents()[Path::new("a")], [1; 200]);
}

#[test]
fn one_file_that_fails_keeps_no_other_from_the_directory() {
    let world = World::new(8, 64);
    let (a, b) = (world.open("a"), world.open("b"));
    world.write(&a, 0, &[1; 10]);
    world.write(&b, 0, &[2; 10]);
    refuse(&world, |call| matches!(call, Call::Write { grows: 10, .. }), 5);
    world.backing.put("unrelated", b"");
    let first = Arc::new(AtomicBool::new(true));
    world.backing.set_hook(move |call| match call {
        Call::Write { .. } if first.swap(false, Ordering::SeqCst) => Verdict::Refuse(5),
        _ => Verdict::Do,
    });
    assert_eq!(errno_of(world.cache().flush()), 5);
    assert_eq!(world.cache().status().unwrap().dirty_chunks, 1);
    let (of_a, of_b) = (world.below("a").len(), world.below("b").len());
    assert_eq!(of_a + of_b, 10, "one of them is there");
}

#[test]
fn data_of_a_file_that_was_moved_away_stay_in_pm() {
    let mut world = World::new(1, 64);
    let (a, b) = (world.open("a"), world.open("b"));
    // What the directory has not confirmed is made again.
    world.cache().flush().unwrap();
    world.write(&a, 0, &[1; 10]);
    world.write(&b, 0, &[2; 10]);
    let whole = world.backing.copied();
    world.cache = None;
    world.backing.remove(Path::new("a")).unwrap();
    world.backing = world.backing.crashed(|| true);
    // Another file gets the same inode.
    world.backing.put("new", b"of another");
    let recovered = world.reopen();
    assert_eq!((recovered.dirty_chunks, recovered.orphaned_chunks), (2, 1));
    world.cache().flush().unwrap();
    let status = world.cache().status().unwrap();
    assert_eq!((status.dirty_chunks, status.orphaned_chunks), (1, 1));
    assert_eq!(world.below("new"), b"of another");
    // It holds its slot, but does not keep others from the room beside it.
    let (b, new) = (world.open("b"), world.open("new"));
    world.write(&b, 0, &[3; 10]);
    assert_eq!(world.content(&new), b"of another");
    let cache = world.cache.take().unwrap();
    let (cache, error) = *cache.detach().unwrap_err();
    assert!(matches!(error, Error::Orphans { chunks: 1 }), "{error}");
    drop(cache);
    // It comes back, and everything is there.
    world.backing = whole;
    assert_eq!(world.try_reopen_older().unwrap().orphaned_chunks, 0);
    assert_eq!(world.content(&world.open("a")), [1; 10]);
}

#[test]
fn a_recovery_that_cannot_look_through_the_directory_changes_nothing() {
    let mut world = World::new(2, 64);
    let a = world.open("a");
    world.write(&a, 0, b"kept");
    // Its removal is under way.
    world.backing.set_hook(|call| if call == Call::Names { Verdict::Refuse(30) } else { Verdict::Do });
    assert_eq!(errno_of(world.cache().unlink(Path::new("a"))), 30);
    world.cache = None;
    let calls = Arc::new(std::sync::atomic::AtomicU64::new(0));
    world.backing.set_hook(move |call| match call {
        // The first asks which cache it has.
        Call::Read if calls.fetch_add(1, Ordering::SeqCst) > 0 => Verdict::Refuse(30),
        _ => Verdict::Do,
    });
    assert_eq!(errno_of(world.try_reopen()), 30);
    world.backing.set_hook(|_| Verdict::Do);
    assert_eq!(world.reopen().dirty_chunks, 1);
    assert_eq!(world.content(&world.open("a")), b"kept");
}

#[test]
fn damaged_tags_are_refused_with_their_place() {
    let mut world = World::new(2, 64);
    let a = world.open("a");
    world.write(&a, 0, b"data");
    let image = world.recorder.image();
    for byte in 0..64 {
        let mut image = image.clone();
        image[16384 + byte] ^= 0x10;
        world.recorder = Recorder::new(image, RecordStyle::NonTemporal);
        match world.try_reopen_older() {
            Err(Error::Tag { region_offset }) => assert_eq!(region_offset, 16384),
            other => panic!("byte {byte}: {other:?}"),
        }
    }
    world.recorder = Recorder::new(image, RecordStyle::NonTemporal);
    assert_eq!(world.try_reopen_older().unwrap().dirty_chunks, 1);
}

/// A record that is damaged in front of others, and a log whose beginning nobody knows.
#[test]
fn a_damaged_log_of_names_is_refused_with_its_place() {
    let mut world = World::new(2, 64);
    for name in ["a", "b", "c"] {
        drop(world.open(name));
    }
    let image = world.recorder.image();
    let heads = image.len() - NAMES_BYTES;
    let mut with = |bytes: &[usize]| {
        let mut image = image.clone();
        bytes.iter().for_each(|at| image[*at] ^= 0x10);
        world.recorder = Recorder::new(image, RecordStyle::NonTemporal);
        let below = world.backing.copied();
        let whole = std::mem::replace(&mut world.backing, below);
        let inspected = Inspection::of(&Pm::whole(&world.recorder, &Arc::default())).unwrap();
        let result = world.try_reopen();
        world.backing = whole;
        assert_eq!(inspected.unsynced_names, result.as_ref().ok().map(|recovered| recovered.names));
        result
    };
    for byte in 0..80 {
        match with(&[heads + 128 + byte]) {
            Err(Error::Names { region_offset }) => assert_eq!(region_offset, heads as u64 + 128),
            other => panic!("byte {byte}: {other:?}"),
        }
    }
    match with(&[heads, heads + 64]) {
        Err(Error::Names { region_offset }) => assert_eq!(region_offset, heads as u64),
        other => panic!("{other:?}"),
    }
    assert_eq!(with(&[heads]).unwrap().names, 3, "the other line is enough");
    assert_eq!(with(&[]).unwrap().names, 3);
}

/// It was announced, and a crash that loses a removal leaves its new name where it would be.
#[test]
fn a_refused_renaming_does_not_count_after_a_crash() {
    let mut world = World::new(2, 64);
    let (old, new) = (Path::new("old"), Path::new("new"));
    world.cache().close(world.open("old")).unwrap();
    world.cache().link(old, new).unwrap();
    world.cache().flush().unwrap();
    world.cache().unlink(new).unwrap();
    refuse(&world, |call| call == Call::Names, 5);
    assert_eq!(errno_of(world.cache().rename(old, new)), 5);
    world.backing = world.backing.crashed(|| false);
    world.reopen();
    let names: Vec<_> = world.backing.contents().into_keys().collect();
    assert_eq!(names, [old]);
}

/// Any bytes at all: an error or a cache, and no panic.
#[test]
fn no_bytes_of_a_region_are_trusted() {
    let mut rng = fastness_testkit::Rng(7);
    let mut world = World::new(3, 64);
    let (a, b) = (world.open("a"), world.open("b"));
    world.write(&a, 0, &[1; 150]);
    world.write(&b, 0, &[2; 150]);
    world.cache().unlink(Path::new("b")).unwrap();
    let image = world.recorder.image();
    let (mut refused, mut taken) = (0, 0);
    for _ in 0..3000 {
        let mut image = image.clone();
        for _ in 0..1 + rng.index(3) {
            // In the blocks and lines that mean something.
            let names = image.len() - NAMES_BYTES;
            let at = [
                rng.index(80),
                4096 + rng.index(80),
                8192 + rng.index(128),
                12288 + rng.index(128),
                16384 + rng.index(384),
                names + rng.index(640),
            ];
            image[at[rng.index(6)]] = rng.next() as u8;
        }
        world.recorder = Recorder::new(image, RecordStyle::NonTemporal);
        let below = world.backing.copied();
        let whole = std::mem::replace(&mut world.backing, below);
        match world.try_reopen() {
            Ok(_) => {
                taken += 1;
                // It can be used.
                world.cache().flush().unwrap();
            }
            Err(_) => refused += 1,
        }
        world.backing = whole;
    }
    assert!(refused > 100 && taken > 100, "{refused} {taken}");
}

#[test]
fn a_failed_fence_is_the_end_until_the_region_is_opened_again() {
    let power = Arc::new(Power::default());
    let recorder = recorder(2, 64);
    let backing = MemoryBacking::default();
    let cache = Cache::create(Pm::whole(&recorder, &power), Arc::new(backing.clone()), &options(64)).unwrap();
    let a = cache.open_file(Path::new("a"), Some(0o600), 0).unwrap();
    cache.write(&a, 0, b"acknowledged").unwrap();
    power.cut_in(3);
    let error = cache.write(&a, 0, b"not").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    assert!(cache.write(&a, 100, b"not").is_err());
    drop(cache);
    power.turn_on();
    let (cache, _) = Cache::open(Pm::whole(&recorder, &power), Arc::new(backing), &options(64)).unwrap();
    let a = cache.open_file(Path::new("a"), None, 0).unwrap();
    assert_eq!(content(&cache, &a).unwrap(), b"acknowledged");
}

/// A flush that is slow below holds up no write: they go to the other chunk of their slots.
#[test]
fn writes_do_not_wait_for_a_slow_flush() {
    let world = World::new(4, 64);
    let a = world.open("a");
    world.write(&a, 0, &[1; 100]);
    let (entered, is_in) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let gate = std::sync::Mutex::new((entered, released));
    world.backing.set_hook(move |call| {
        if call == Call::Sync {
            let gate = gate.lock().unwrap();
            gate.0.send(()).unwrap();
            // Once released, for good.
            let _ = gate.1.recv();
        }
        Verdict::Do
    });
    std::thread::scope(|scope| {
        let flush = scope.spawn(|| world.cache().flush());
        is_in.recv().unwrap();
        // Twice, so that the second is where the first flush has read from.
        world.write(&a, 50, &[9; 100]);
        world.write(&a, 50, &[2; 100]);
        assert_eq!(world.content(&a)[50..], [2; 100]);
        drop(release);
        flush.join().unwrap().unwrap();
    });
    assert!(world.cache().status().unwrap().dirty_chunks > 0, "what was written meanwhile is not clean");
    world.cache().flush().unwrap();
    assert_eq!(world.below("a"), [vec![1; 50], vec![2; 100]].concat());
}

/// An older write to the directory never arrives after a newer one: the flush that makes room waits for the
/// one under way.
#[test]
fn a_forced_flush_waits_for_the_one_under_way() {
    let world = World::new(1, 64);
    let (a, b, c) = (world.open("a"), world.open("b"), world.open("c"));
    world.write(&a, 0, b"old");
    let (entered, is_in) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(Some((entered, released)));
    world.backing.set_hook(move |call| {
        let first = matches!(call, Call::Write { .. }).then(|| gate.lock().unwrap().take()).flatten();
        if let Some((entered, released)) = first {
            entered.send(()).unwrap();
            released.recv().unwrap();
        }
        Verdict::Do
    });
    std::thread::scope(|scope| {
        let flush = scope.spawn(|| world.cache().flush());
        is_in.recv().unwrap();
        world.write(&a, 0, b"new");
        world.write(&b, 0, b"b");
        // It needs the room of "new", the older one.
        let (wrote, has_written) = mpsc::channel();
        let (cache, c) = (world.cache(), &c);
        let third = scope.spawn(move || wrote.send(cache.write(c, 0, b"c")).unwrap());
        let early = has_written.recv_timeout(std::time::Duration::from_millis(300));
        release.send(()).unwrap();
        assert!(early.is_err(), "the older write was still under way");
        flush.join().unwrap().unwrap();
        has_written.recv().unwrap().unwrap();
        third.join().unwrap();
    });
    world.cache().flush().unwrap();
    assert_eq!(world.below("a"), b"new");
}

/// A truncation whose sync failed, and the file is elsewhere at the next start: nothing is given up.
#[test]
fn a_truncation_waits_for_a_file_that_is_elsewhere() {
    let mut world = World::new(4, 64);
    let a = world.open("a");
    world.cache().flush().unwrap();
    world.write(&a, 0, &[1; 200]);
    refuse(&world, |call| call == Call::Sync, 5);
    assert_eq!(errno_of(world.cache().truncate(&a, 100)), 5);
    let with = world.backing.crashed(|| false);
    let without = with.copied();
    without.remove(Path::new("a")).unwrap();
    world.backing = without.crashed(|| true);
    let recovered = world.reopen();
    assert_eq!((recovered.orphaned_chunks, recovered.removals, recovered.truncations), (4, 0, 0));
    assert_eq!(world.reopen().orphaned_chunks, 4, "and it stays so");
    world.backing = with;
    let recovered = world.try_reopen_older().unwrap();
    assert_eq!((recovered.orphaned_chunks, recovered.truncations), (0, 1));
    assert_eq!(world.content(&world.open("a")), [1; 100]);
}

/// Of what is not synced a crash may leave a part: a lengthening writes nothing of the file's last chunk.
#[test]
fn a_lengthening_leaves_one_length_or_the_other() {
    let mut world = World::new(4, 128);
    let a = world.open("a");
    world.write(&a, 0, &[1; 20]);
    refuse(&world, |call| matches!(call, Call::Sync | Call::Truncate), 5);
    assert_eq!(errno_of(world.cache().truncate(&a, 100)), 5);
    assert_eq!(world.content(&a), [1; 20]);
    refuse(&world, |call| call == Call::Sync, 5);
    assert_eq!(errno_of(world.cache().truncate(&a, 100)), 5);
    assert_eq!(world.content(&a).len(), 100);
    let mut pieces = 0;
    let first_pieces = world.backing.crashed(|| {
        pieces += 1;
        pieces == 2
    });
    world.backing = first_pieces;
    world.reopen();
    let len = world.content(&world.open("a")).len();
    assert!(len == 20 || len == 100, "{len}");
}

/// PMAL gives a write to the directory at once, and its time; PMAL-O gives the bytes alone.
#[test]
fn journalled_writes_reach_the_directory_at_once() {
    for (protocol, gives_times) in [(ProtocolKind::Pmal, true), (ProtocolKind::PmalOrdered, false)] {
        set_protocol(protocol);
        let world = World::new(4, 64);
        world.backing.put("a", b"");
        let a = world.open("a");
        world.write(&a, 3, b"at once");
        assert_eq!(world.below("a"), b"\0\0\0at once");
        let time = world.backing.stat(Path::new("a")).unwrap().modified_ns;
        assert_eq!(time != 0, gives_times, "{protocol:?}");
        // It is not durable there.
        assert_eq!(world.backing.crashed(|| false).contents()[Path::new("a")], b"");
        assert_eq!(world.cache().status().unwrap().dirty_chunks, 1);
    }
}

/// What is changed in place must have another copy: the sync of the directory.
#[test]
fn a_chunk_is_synced_before_a_journalled_write_changes_it_again() {
    set_protocol(ProtocolKind::Pmal);
    let world = World::new(4, 64);
    let a = world.open("a");
    world.write(&a, 0, b"first");
    refuse(&world, |call| call == Call::Sync, 5);
    assert_eq!(errno_of(world.cache().write(&a, 2, b"second")), 5);
    assert_eq!(world.content(&a), b"first");
    // Other chunks need no sync, and a directory that takes nothing is no reason to refuse them.
    refuse(&world, |call| matches!(call, Call::Write { .. } | Call::Sync), 28);
    world.write(&a, 64, b"third");
    assert_eq!(errno_of(world.cache().flush()), 28);
    world.backing.set_hook(|_| Verdict::Do);
    world.write(&a, 2, b"second");
    world.cache().flush().unwrap();
    let below = world.below("a");
    assert_eq!((&below[..8], &below[64..]), (b"fisecond".as_slice(), b"third".as_slice()));
}

/// A line that cannot be read ends a write in place: nothing of it is there, and the directory has the rest.
#[test]
fn a_journalled_write_that_pm_fails_is_given_up() {
    set_protocol(ProtocolKind::Pmal);
    let (recorder, backing, power) = (recorder(4, 256), MemoryBacking::default(), Arc::new(Power::default()));
    let region = Pm::whole(&recorder, &power);
    let cache = Cache::create(region, Arc::new(backing.clone()), &options(256)).unwrap();
    let a = cache.open_file(Path::new("a"), Some(0o600), 0).unwrap();
    let before: Vec<u8> = (0..=255).collect();
    cache.write(&a, 0, &before).unwrap();
    cache.flush().unwrap();
    let image = recorder.image();
    let chunk = image.windows(256).position(|bytes| bytes == before).unwrap();
    power.poison(chunk as u64 + 70);
    // All of the first line and a part of the second.
    cache.write(&a, 0, &[9; 100]).unwrap_err();
    let content = |cache: &Cache<Pm>| {
        let mut found = vec![0; 256];
        cache.read(&a, 0, &mut found).unwrap();
        found
    };
    assert_eq!(content(&cache), before);
    // Storing to the whole line cures it.
    power.poison(0);
    cache.write(&a, 0, &[9; 100]).unwrap();
    assert_eq!(content(&cache), [vec![9; 100], before[100..].to_vec()].concat());
}

/// A write that finds no room on the way says how much of it there is.
#[test]
fn a_write_that_is_made_in_part_says_so() {
    for protocol in [ProtocolKind::Fr, ProtocolKind::Melo, ProtocolKind::Pmal] {
        set_protocol(protocol);
        // Two slots: two chunks are a part, and the third part needs room.
        let world = World::new(2, 64);
        let a = world.open("a");
        refuse(&world, |call| matches!(call, Call::Write { .. }), 28);
        let (data, end) = ([7; 1000], 256);
        assert_eq!(world.cache().write(&a, 0, &data).unwrap(), end, "{protocol:?}");
        assert_eq!(world.content(&a), data[..end], "{protocol:?}");
        assert_eq!(errno_of(world.cache().write(&a, end as u64, &data)), 28, "{protocol:?}");
        assert_eq!(errno_of(world.cache().append(&a, &data)), 28, "{protocol:?}");
        assert_eq!(world.content(&a), data[..end], "{protocol:?}: nothing has changed");
        world.backing.set_hook(|_| Verdict::Do);
        assert_eq!(world.cache().append(&a, &data).unwrap(), (end as u64, 1000), "{protocol:?}");
    }
}
