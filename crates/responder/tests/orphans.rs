//! Data of files that are not in the directory any more: they wait, are shown, and are given up.

mod support;

use std::path::Path;
use std::sync::Arc;

use fastness_responder::*;
use support::*;

const PROTOCOLS: [ProtocolKind; 4] =
    [ProtocolKind::Fr, ProtocolKind::Melo, ProtocolKind::Pmal, ProtocolKind::Log];

/// A cache with data of `a`, which was moved away, and of `b`.
fn with_an_orphan() -> World {
    let mut world = World::new(32, 64);
    ["a", "b"].into_iter().for_each(|name| world.backing.put(name, b""));
    let (a, b) = (world.open("a"), world.open("b"));
    let write = |file: &Handle, at: u64, data: &[u8]| {
        assert_eq!(world.cache().write_synced(file, at, data).unwrap(), data.len());
    };
    write(&a, 0, &[1; 70]);
    write(&a, 200, &[2; 10]);
    write(&a, 30, &[3; 5]);
    write(&b, 0, b"there");
    world.cache = None;
    // What PMAL and Log have given to the directory is not durable there.
    world.backing = world.backing.crashed(|| false);
    world.backing.remove(Path::new("a")).unwrap();
    world.backing = world.backing.crashed(|| true);
    world.reopen();
    world
}

fn copied(world: &World, file: FileId) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut copy = |offset: u64, data: &[u8]| {
        let end = offset as usize + data.len();
        bytes.resize(bytes.len().max(end), 0);
        bytes[offset as usize..end].copy_from_slice(data);
        Ok(())
    };
    world.cache().copy_orphan(file, &mut copy).unwrap();
    bytes
}

fn content_of_a() -> Vec<u8> {
    let mut expected = [vec![1; 70], vec![0; 130], vec![2; 10]].concat();
    expected[30..35].fill(3);
    expected
}

#[test]
fn orphans_are_shown_and_given_up_and_nothing_else_is() {
    for protocol in PROTOCOLS {
        set_protocol(protocol);
        let mut world = with_an_orphan();
        let found = world.cache().orphans().unwrap();
        let [orphan] = found[..] else { panic!("{protocol:?}: {found:?}") };
        assert_eq!((orphan.size, orphan.file.inode), (210, 2), "{protocol:?}");
        assert!(
            orphan.modified_ns > 0 || protocol == ProtocolKind::Log,
            "the directory in memory has no time"
        );
        assert_eq!(copied(&world, orphan.file), content_of_a(), "{protocol:?}");
        let (cache, error) = *world.cache.take().unwrap().detach().unwrap_err();
        assert!(
            matches!(error, Error::Orphans { chunks } if chunks == orphan.chunks),
            "{protocol:?}: {error}"
        );
        cache.give_up_orphans().unwrap();
        assert_eq!(cache.orphans().unwrap(), []);
        drop(cache);
        // For good.
        assert_eq!(world.reopen().orphaned_chunks, 0, "{protocol:?}");
        world.cache.take().unwrap().detach().unwrap();
        assert_eq!(world.below("b"), b"there", "{protocol:?}");
        assert!(!world.backing.contents().contains_key(Path::new(ORPHANS_FILE)), "{protocol:?}");
    }
}

/// A truncation that waits for the file counts for what is copied, and has no intent any more after that.
#[test]
fn an_orphan_ends_where_it_was_cut() {
    for protocol in PROTOCOLS {
        set_protocol(protocol);
        let mut world = World::new(32, 64);
        world.backing.put("a", b"");
        let a = world.open("a");
        assert_eq!(world.cache().write_synced(&a, 0, &[1; 200]).unwrap(), 200);
        world.backing.set_hook(|call| if call == Call::Sync { Verdict::Refuse(5) } else { Verdict::Do });
        world.cache().truncate(&a, 100).unwrap_err();
        world.cache = None;
        world.backing = world.backing.crashed(|| false);
        world.backing.remove(Path::new("a")).unwrap();
        world.backing = world.backing.crashed(|| true);
        world.reopen();
        let orphan = world.cache().orphans().unwrap()[0];
        assert_eq!((orphan.size, copied(&world, orphan.file)), (100, vec![1; 100]), "{protocol:?}");
        world.cache().give_up_orphans().unwrap();
        // All 64 are free.
        let files: Vec<Handle> = (0..64).map(|at| world.open(&format!("{at}"))).collect();
        for (at, _) in files.iter().enumerate() {
            world.cache().unlink(Path::new(&format!("{at}"))).unwrap();
        }
    }
}

/// A crash while they are given up leaves each of them, or not.
#[test]
fn giving_up_survives_every_crash() {
    for protocol in [ProtocolKind::Fr, ProtocolKind::Log] {
        set_protocol(protocol);
        for cut in 1.. {
            let mut world = with_an_orphan();
            world.cache = None;
            let power = Arc::new(Power::default());
            let region = Pm::whole(&world.recorder, &power);
            let (cache, _) =
                Cache::open(region, Arc::new(world.backing.clone()), &options(world.chunk_bytes)).unwrap();
            power.cut_in(cut);
            let done = cache.give_up_orphans();
            let was_cut = power.is_off();
            drop(cache);
            power.turn_on();
            world.reopen();
            let found = world.cache().orphans().unwrap();
            let contents: Vec<_> = found.iter().map(|orphan| copied(&world, orphan.file)).collect();
            // Of the chunks of one file any may be gone.
            let is_part = contents.iter().all(|content| content.len() <= content_of_a().len());
            assert!(is_part && (done.is_err() || found.is_empty()), "{protocol:?}: {cut}: {contents:?}");
            assert_eq!(world.content(&world.open("b")), b"there");
            if !was_cut {
                break;
            }
        }
    }
}
