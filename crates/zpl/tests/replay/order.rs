//! What a commit covers, and in which order.

use fastness_zpl::{FsError, Ino, RenameHow, SetAttributes, WriteHow, mode};

use crate::support::{Log, World, directory, file};
use crate::{SYNC, bytes, replays};

/// In a frozen pool of each kind, a scenario that syncs what it wants; then a crash, and a look at what is
/// left.
fn crashes(act: impl Fn(&fastness_zpl::FileSystem), look: impl Fn(&fastness_zpl::FileSystem)) {
    for log in Log::ALL {
        let world = World::logged(log, &[]);
        let fs = world.fs();
        world.store.pool().freeze();
        act(&fs);
        drop(fs);
        let (world, _) = world.crash();
        let fs = world.fs();
        fs.reap_all(|_| false).unwrap();
        look(&fs);
        drop(fs);
        world.check();
    }
}

/// A record of a file that was removed finds no file, and does nothing.
#[test]
fn records_of_a_file_that_was_removed_are_dropped() {
    replays(
        |fs| {
            let ino = fs.make(Ino::ROOT, b"a", &file(0o644)).unwrap().ino;
            fs.write(ino, 0, &[1; 10_000], WriteHow::default()).unwrap();
            ino
        },
        |fs, ino| {
            fs.write(ino, 5000, &[2; 10_000], SYNC).unwrap();
            fs.write(ino, 0, &[3; 10], WriteHow::default()).unwrap();
            assert_eq!(fs.unlink(Ino::ROOT, b"a").unwrap(), Some(ino));
            fs.write(ino, 100, &[4; 10], SYNC).unwrap();
            fs.sync_file(ino, false).unwrap();
        },
    );
}

/// A file that has a name left keeps what was written before the other one went.
#[test]
fn a_file_with_a_link_left_keeps_its_records() {
    replays(
        |fs| fs.make(Ino::ROOT, b"a", &file(0o644)).unwrap().ino,
        |fs, ino| {
            fs.link(ino, Ino::ROOT, b"b").unwrap();
            fs.write(ino, 0, &[1; 10_000], WriteHow::default()).unwrap();
            assert_eq!(fs.unlink(Ino::ROOT, b"a").unwrap(), None);
            fs.write(ino, 20_000, &[2; 100], WriteHow::default()).unwrap();
            fs.sync_file(ino, false).unwrap();
            assert_eq!(bytes(fs, ino).len(), 20_100);
        },
    );
}

/// Written, renamed, and another file synced: a name in the log has its bytes before it. Of an exchange both
/// files have new names.
#[test]
fn bytes_come_before_names() {
    for (how, is_both) in [
        (RenameHow::Replace, false),
        (RenameHow::NoReplace, false),
        (RenameHow::Exchange, true),
        (RenameHow::Whiteout { uid: 0, gid: 0 }, false),
    ] {
        crashes(
            |fs| {
                let d = fs.make(Ino::ROOT, b"d", &directory(0o755)).unwrap().ino;
                let source = fs.make(Ino::ROOT, b"source", &file(0o644)).unwrap().ino;
                fs.write(source, 0, b"of the source", WriteHow::default()).unwrap();
                if how != RenameHow::NoReplace {
                    let target = fs.make(d, b"target", &file(0o644)).unwrap().ino;
                    fs.write(target, 0, b"of the target", WriteHow::default()).unwrap();
                }
                fs.rename((Ino::ROOT, b"source"), (d, b"target"), how).unwrap();
                fs.sync_file(d, true).unwrap();
            },
            |fs| {
                let d = fs.find(Ino::ROOT, b"d").unwrap();
                let moved = fs.find(d, b"target").unwrap();
                assert_eq!(bytes(fs, moved), b"of the source", "{how:?}");
                if is_both {
                    let back = fs.find(Ino::ROOT, b"source").unwrap();
                    assert_eq!(bytes(fs, back), b"of the target", "{how:?}: the other one");
                }
            },
        );
    }
}

#[test]
fn bytes_come_before_a_second_name() {
    crashes(
        |fs| {
            let a = fs.make(Ino::ROOT, b"a", &file(0o644)).unwrap().ino;
            fs.write(a, 0, b"bytes", WriteHow::default()).unwrap();
            fs.link(a, Ino::ROOT, b"b").unwrap();
            fs.sync_file(Ino::ROOT, true).unwrap();
        },
        |fs| assert_eq!(bytes(fs, fs.find(Ino::ROOT, b"b").unwrap()), b"bytes"),
    );
}

/// Unsynced, synced, unsynced and synced writes to one place: the last one counts.
#[test]
fn a_file_that_is_synced_now_and_then_keeps_its_order() {
    replays(
        |_| (),
        |fs, ()| {
            let a = fs.make(Ino::ROOT, b"a", &file(0o644)).unwrap().ino;
            for round in 0..40_u8 {
                let how = WriteHow { is_sync: round % 3 == 1, ..WriteHow::default() };
                fs.write(a, u64::from(round) * 100, &vec![round; 5000 - usize::from(round) * 60], how)
                    .unwrap();
                let set = SetAttributes { size_bytes: Some(6000), ..SetAttributes::default() };
                if round % 7 == 3 {
                    fs.set_attributes(a, &set).unwrap();
                }
            }
        },
    );
}

/// A write whose bytes were cut off before they were read back for the log.
#[test]
fn a_write_that_was_cut_off_is_not_read_back() {
    replays(
        |_| (),
        |fs, ()| {
            let a = fs.make(Ino::ROOT, b"a", &file(0o644)).unwrap().ino;
            let cut = |size_bytes| SetAttributes { size_bytes: Some(size_bytes), ..SetAttributes::default() };
            fs.write(a, 0, &[1; 120_000], WriteHow::default()).unwrap();
            fs.set_attributes(a, &cut(1000)).unwrap();
            fs.write(a, 300_000, &[2; 1000], WriteHow::default()).unwrap();
            fs.set_attributes(a, &cut(2000)).unwrap();
            fs.set_attributes(a, &cut(500_000)).unwrap();
        },
    );
}

/// Holes and zeroes in bytes that a txg has.
#[test]
fn ranges_that_were_zeroed_are_zeroed_again() {
    use fastness_zpl::Allocate;

    replays(
        |fs| {
            let a = fs.make(Ino::ROOT, b"a", &file(0o644)).unwrap().ino;
            fs.write(a, 0, &[1; 100_000], WriteHow::default()).unwrap();
            a
        },
        |fs, a| {
            fs.allocate(a, 8192, 20_000, Allocate::Punch).unwrap();
            fs.allocate(a, 40_000, 100, Allocate::Zero { keeps_size: true }).unwrap();
            fs.allocate(a, 90_000, 20_000, Allocate::Zero { keeps_size: false }).unwrap();
        },
    );
}

/// Directories are made, filled, moved under each other and removed; only their parents' names say where they
/// are.
#[test]
fn directories_that_moved_are_where_they_were() {
    replays(
        |fs| fs.make(Ino::ROOT, b"a", &directory(0o755)).unwrap().ino,
        |fs, a| {
            let b = fs.make(a, b"b", &directory(0o755)).unwrap().ino;
            let c = fs.make(b, b"c", &directory(0o755)).unwrap().ino;
            fs.make(c, b"leaf", &file(0o644)).unwrap();
            fs.rename((b, b"c"), (Ino::ROOT, b"c"), RenameHow::Replace).unwrap();
            fs.rename((Ino::ROOT, b"a"), (c, b"a"), RenameHow::Replace).unwrap();
            fs.rename((c, b"a"), (c, b"leaf"), RenameHow::Exchange).unwrap();
            fs.remove_directory(a, b"b").unwrap();
            fs.rename((c, b"leaf"), (Ino::ROOT, b"top"), RenameHow::Replace).unwrap();
        },
    );
}

/// An unlinked file in use takes nothing after a crash.
#[test]
fn a_file_in_use_without_a_name_is_gone() {
    crashes(
        |fs| {
            let a = fs.make(Ino::ROOT, b"a", &file(0o644)).unwrap().ino;
            fs.write(a, 0, &[1; 100_000], SYNC).unwrap();
            fs.unlink(Ino::ROOT, b"a").unwrap();
            fs.write(a, 100_000, &[1; 100_000], SYNC).unwrap();
            let b = fs.make_unnamed(Ino::ROOT, &file(0o644), true).unwrap().ino;
            fs.write(b, 0, &[1; 100_000], SYNC).unwrap();
        },
        |fs| {
            assert!(matches!(fs.lookup(Ino::ROOT, b"a"), Err(FsError::NotFound)));
            assert_eq!(fs.attributes(Ino::ROOT).unwrap().size_bytes, 0);
        },
    );
}

/// `O_TMPFILE`, write, link, and another file synced: the whole file is there.
#[test]
fn a_file_that_got_its_first_name_is_whole() {
    crashes(
        |fs| {
            let a = fs.make_unnamed(Ino::ROOT, &file(0o4711), true).unwrap().ino;
            fs.write(a, 0, &[1; 10_000], WriteHow::default()).unwrap();
            fs.write(a, 1 << 40, b"far", WriteHow::default()).unwrap();
            fs.link(a, Ino::ROOT, b"a").unwrap();
            fs.sync_file(Ino::ROOT, true).unwrap();
        },
        |fs| {
            let a = fs.lookup(Ino::ROOT, b"a").unwrap();
            assert_eq!((a.mode, a.size_bytes), (mode::FILE | 0o4711, (1 << 40) + 3));
            let mut found = vec![0; 10_001];
            assert_eq!(fs.read(a.ino, 0, &mut found).unwrap(), 10_001);
            assert!(found[..10_000] == [1; 10_000] && found[10_000] == 0);
            assert_eq!(fs.read(a.ino, 1 << 40, &mut found).unwrap(), 3);
            assert_eq!(&found[..3], b"far");
        },
    );
}
