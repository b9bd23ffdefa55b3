//! What need not go to the directory at once: small files that are new.

mod support;

use std::path::Path;

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
