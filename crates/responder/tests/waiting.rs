//! What need not go to the directory at once: small files that are new, and what nobody will see.

mod support;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use fastness_responder::*;
use support::*;

fn dirty_chunks(world: &World) -> u64 {
    world.cache().status().unwrap().dirty_chunks
}

#[test]
fn small_new_files_stay_in_pm_until_their_names_are_due() {
    for protocol in [ProtocolKind::Fr, ProtocolKind::Melo] {
        set_protocol(protocol);
        let world = World::new(64, 64);
        let old = world.open("old");
        world.cache().flush().unwrap();
        let new = world.open("new");
        world.write(&old, 0, &[1; 100]);
        world.write(&new, 0, &[2; 100]);
        world.cache().tend().unwrap();
        assert_eq!((world.below("old"), world.below("new")), (vec![1; 100], vec![]));
        assert_eq!(dirty_chunks(&world), 2);
        // Half of the log of names is used.
        for number in 0..24 {
            world.cache().close(world.open(&number.to_string())).unwrap();
        }
        world.cache().tend().unwrap();
        assert_eq!((world.below("new"), dirty_chunks(&world)), (vec![2; 100], 0));
    }
}

/// Of 64 slots, eight chunks.
#[test]
fn new_files_that_wait_take_little_room() {
    set_protocol(ProtocolKind::Fr);
    let world = World::new(64, 64);
    for name in ["a", "b", "c", "d", "e", "f"] {
        world.write(&world.open(name), 0, &[3; 128]);
    }
    assert_eq!(dirty_chunks(&world), 12);
    world.cache().tend().unwrap();
    assert_eq!(dirty_chunks(&world), 8);
}

#[test]
fn a_new_file_that_is_not_small_does_not_wait() {
    set_protocol(ProtocolKind::Fr);
    let world = World::new(512, 4096);
    let (small, long) = (world.open("small"), world.open("long"));
    world.write(&small, 0, &[1; 64 << 10]);
    world.write(&long, 0, &[2; (64 << 10) + 1]);
    world.cache().tend().unwrap();
    assert_eq!((world.below("small").len(), world.below("long").len()), (0, (64 << 10) + 1));
}

/// A directory that loses its region has one or the other, not an empty file in its place.
#[test]
fn what_replaces_another_file_does_not_wait() {
    set_protocol(ProtocolKind::Fr);
    for (is_there, below) in [(true, b"new".as_slice()), (false, b"")] {
        let world = World::new(64, 64);
        let file = world.open("new");
        world.write(&file, 0, b"new");
        if is_there {
            world.cache().close(world.open("name")).unwrap();
        }
        world.cache().rename(Path::new("new"), Path::new("name")).unwrap();
        world.cache().tend().unwrap();
        assert_eq!(world.below("name"), below, "{is_there}");
    }
}

/// Under a journal, a write to a dirty chunk waits for its flush.
#[test]
fn with_a_journal_nothing_waits() {
    set_protocol(ProtocolKind::Pmal);
    let world = World::new(64, 64);
    world.write(&world.open("new"), 0, &[2; 100]);
    world.cache().tend().unwrap();
    assert_eq!(dirty_chunks(&world), 0);
}

/// More files than stay open below: no call waits for a sync of one, and the flusher gives them up.
#[test]
fn many_new_files_are_given_up_by_the_flusher() {
    set_protocol(ProtocolKind::Fr);
    let world = World::new(4096, 64);
    let syncs = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&syncs);
    world.backing.set_hook(move |call| {
        count.fetch_add(u64::from(call == Call::Sync), Ordering::SeqCst);
        Verdict::Do
    });
    let names: Vec<String> = (0..1200).map(|number| number.to_string()).collect();
    for name in &names {
        let file = world.open(name);
        world.write(&file, 0, name.as_bytes());
        world.cache().close(file).unwrap();
    }
    let during = syncs.swap(0, Ordering::SeqCst);
    world.cache().flush().unwrap();
    world.cache().tend().unwrap();
    let missed = || world.cache().status().unwrap().counts.read_misses;
    let before = missed();
    for name in &names {
        let file = world.open(name);
        assert_eq!(world.content(&file), name.as_bytes());
    }
    assert!(during < 100, "{during} files were synced by who closed them");
    assert!((170..=176).contains(&(missed() - before)), "{} were given up", missed() - before);
}

/// Who closes a file that is not new gives it up, if there are many.
#[test]
fn what_is_given_up_is_in_the_directory() {
    set_protocol(ProtocolKind::Fr);
    let world = World::new(8192, 64);
    for number in 0..1100 {
        let file = world.open(&number.to_string());
        world.write(&file, 0, &[5; 100]);
        world.cache().close(file).unwrap();
    }
    world.cache().flush().unwrap();
    let again = world.open("7");
    world.write(&again, 90, &[6; 20]);
    world.cache().close(again).unwrap();
    let expected = [vec![5; 90], vec![6; 20]].concat();
    assert_eq!((world.below("7"), dirty_chunks(&world)), (expected, 0));
}

#[test]
fn several_files_are_written_before_the_first_is_synced() {
    set_protocol(ProtocolKind::Fr);
    let world = World::new(64, 64);
    ["a", "b", "c"].into_iter().for_each(|name| world.backing.put(name, b""));
    for name in ["a", "b", "c"] {
        world.write(&world.open(name), 0, name.as_bytes());
    }
    let calls = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&calls);
    world.backing.set_hook(move |call| {
        seen.lock().unwrap().push(call);
        Verdict::Do
    });
    world.cache().tend().unwrap();
    assert_eq!(*calls.lock().unwrap(), [[Call::Write { len: 1, grows: 1 }; 3], [Call::Sync; 3]].concat());
}
