//! Everything is removed and made again; numbers of files that were lost come again.

use fastness_zpl::{FileSystem, Ino, RenameHow, WriteHow, XattrHow, mode};

use crate::support::{Log, World, archive, directory, file, names};
use crate::{SYNC, bytes, replays};

const NAMES: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];

/// A tree of directories and files, with names that are used in each directory.
fn make_tree(fs: &FileSystem, at: Ino, depth: u32, byte: u8) {
    for name in NAMES {
        let ino = fs.make(at, name, &file(0o600 | u32::from(byte & 7))).unwrap().ino;
        fs.write(ino, u64::from(depth) * 3000, &[byte; 6000], WriteHow::default()).unwrap();
        fs.set_xattr(ino, b"user.byte", &[byte], XattrHow::Set, false).unwrap();
    }
    if depth > 0 {
        for name in [&b"x"[..], b"y"] {
            let below = fs.make(at, name, &directory(0o755)).unwrap().ino;
            make_tree(fs, below, depth - 1, byte + 1);
        }
    }
}

fn remove_all(fs: &FileSystem, at: Ino) {
    for (name, ino) in names(fs, at) {
        let gone = match fs.attributes(ino).unwrap().mode & mode::TYPE {
            mode::DIRECTORY => {
                remove_all(fs, ino);
                fs.remove_directory(at, &name).unwrap()
            }
            _ => fs.unlink(at, &name).unwrap(),
        };
        if let Some(gone) = gone {
            fs.reap(gone).unwrap();
        }
    }
}

#[test]
fn a_tree_that_was_removed_and_made_again_is_the_new_one() {
    replays(
        |fs| make_tree(fs, Ino::ROOT, 2, 1),
        |fs, ()| {
            for round in 0..3 {
                remove_all(fs, Ino::ROOT);
                fs.sync_all().unwrap();
                make_tree(fs, Ino::ROOT, 2, 10 + round);
                fs.sync_file(Ino::ROOT, false).unwrap();
            }
        },
    );
}

#[test]
fn nothing_is_left_of_a_tree_that_was_made_and_removed() {
    replays(
        |_| (),
        |fs, ()| {
            make_tree(fs, Ino::ROOT, 2, 1);
            fs.sync_all().unwrap();
            remove_all(fs, Ino::ROOT);
        },
    );
}

/// What was not synced is lost, and its numbers with it: the same numbers come again, for other files, which
/// have other generations. Life after life.
#[test]
fn numbers_of_lost_files_come_again_for_others() {
    for log in Log::ALL {
        let mut world = World::logged(log, &[]);
        let (mut seen, mut handles) = (Vec::new(), Vec::new());
        for life in 1..6_u8 {
            let fs = world.fs();
            world.store.pool().freeze();
            let kept = fs.make(Ino::ROOT, &[b'k', life], &file(0o640)).unwrap().ino;
            let empty = fs.make(Ino::ROOT, &[b'e', life], &file(0o640)).unwrap().ino;
            fs.write(kept, 0, &[life; 5000], SYNC).unwrap();
            let wanted = archive(&fs);
            // Lost, with all that happens to them.
            let lost = fs.make(Ino::ROOT, b"lost", &file(0o777)).unwrap();
            handles.push((lost.ino, lost.generation));
            let lost = lost.ino;
            fs.write(lost, 0, &[0xee; 200_000], WriteHow::default()).unwrap();
            fs.set_xattr(lost, b"user.lost", b"x", XattrHow::Set, false).unwrap();
            fs.make(Ino::ROOT, b"lost too", &directory(0o777)).unwrap();
            fs.unlink(Ino::ROOT, &[b'k', life]).unwrap();
            for ino in [kept, empty] {
                assert!(!seen.contains(&ino), "{log:?}: {ino} is another's in life {life}");
                seen.push(ino);
            }
            drop(fs);
            world = world.crash().0;
            let fs = world.fs();
            fs.reap_all(|_| false).unwrap();
            assert_eq!(bytes(&fs, kept), [life; 5000]);
            let found = archive(&fs).0;
            assert_eq!(found.keys().collect::<Vec<_>>(), wanted.0.keys().collect::<Vec<_>>());
            assert_eq!(found[&[b'/', b'k', life][..]].2, [], "{log:?}: attributes of a lost file");
            let probes = [b"probe", b"again"].map(|name| fs.make(Ino::ROOT, name, &file(0)).unwrap());
            let reused = probes[0].ino;
            assert!(reused <= Ino(lost.0 + 1), "{log:?}: {reused} after {lost} was lost");
            for probe in probes {
                let handle = (probe.ino, probe.generation);
                assert!(!handles.contains(&handle), "{log:?}: {handle:?} is the handle of a lost file");
            }
            fs.unlink(Ino::ROOT, b"again").unwrap();
            fs.unlink(Ino::ROOT, b"probe").unwrap();
            drop(fs);
        }
        world.fs().reap_all(|_| false).unwrap();
        world.check();
    }
}

/// An unnamed file that a txg has gets its name later: its number is there when the log creates it.
#[test]
fn a_file_that_a_txg_has_without_a_name_is_replayed_with_one() {
    replays(
        |fs| {
            let unnamed = fs.make_unnamed(Ino::ROOT, &file(0o600), true).unwrap().ino;
            fs.write(unnamed, 0, &[1; 50_000], WriteHow::default()).unwrap();
            fs.set_xattr(unnamed, b"user.old", b"x", XattrHow::Set, false).unwrap();
            unnamed
        },
        |fs, unnamed| {
            fs.remove_xattr(unnamed, b"user.old").unwrap();
            fs.set_xattr(unnamed, b"user.new", b"y", XattrHow::Set, false).unwrap();
            fs.write(unnamed, 60_000, &[2; 100], WriteHow::default()).unwrap();
            fs.link(unnamed, Ino::ROOT, b"named").unwrap();
            fs.rename((Ino::ROOT, b"named"), (Ino::ROOT, b"renamed"), RenameHow::Replace).unwrap();
            fs.write(unnamed, 0, &[3; 100], WriteHow::default()).unwrap();
        },
    );
}

/// A replay that a crash ends at any of its records goes on where it was, and is not made twice: a name that
/// a record removes and another one takes is where that matters.
#[test]
fn a_replay_that_is_interrupted_goes_on() {
    for log in Log::ALL {
        let world = World::logged(log, &[]);
        let fs = world.fs();
        world.store.pool().freeze();
        for round in 0..4 {
            make_tree(&fs, Ino::ROOT, 1, round);
            fs.sync_all().unwrap();
            if round < 3 {
                remove_all(&fs, Ino::ROOT);
            }
        }
        let wanted = archive(&fs);
        drop(fs);
        world.store.pool().freeze();
        let World { media, store } = world;
        drop(store);
        let mut deaths = 0;
        while media.import_and_die(1 + deaths) {
            deaths += 1;
        }
        assert!(deaths > 10, "{log:?}: {deaths} deaths");
        let world = World { store: media.import().0, media };
        world.shows(log, &wanted);
        world.check();
    }
}
