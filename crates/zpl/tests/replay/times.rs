//! Times of writes: what `fsync` and `O_SYNC` promise of them, and what that costs.

use std::sync::Arc;

use fastness_store::record::Time;
use fastness_store::{Attached, Store};
use fastness_testkit::Rng;
use fastness_testkit::media::Failing;
use fastness_zpl::{FileSystem, Ino, WriteHow, now};

use crate::SYNC;
use crate::support::{FS, Log, World, file};

/// As to a file that was opened with `O_SYNC`.
const WITH_TIMES: WriteHow = WriteHow { keeps_times: true, ..SYNC };

/// Records that were kept for the log, or went to it at once.
fn records(world: &World) -> u64 {
    let stats = world.store.log().expect("the pool has one").stats();
    stats.iter().map(|(_, stats)| stats.assigned.iter().sum::<u64>() + stats.bypass_records).sum()
}

fn times(fs: &FileSystem, ino: Ino) -> [Time; 3] {
    let attributes = fs.attributes(ino).unwrap();
    [attributes.atime, attributes.mtime, attributes.ctime]
}

/// The times that a crash leaves to a file.
fn after_crash(world: World, ino: Ino) -> [Time; 3] {
    let (world, _) = world.crash();
    let found = times(&world.fs(), ino);
    world.check();
    found
}

/// The kernel sends a WRITE and an FSYNC for each write to a file that was opened with `O_SYNC`.
#[test]
fn an_fsync_after_a_write_with_its_times_logs_nothing() {
    for (log, clears_set_id) in Log::ALL.into_iter().flat_map(|log| [(log, false), (log, true)]) {
        let how = WriteHow { clears_set_id, ..WITH_TIMES };
        let world = World::logged(log, &[]);
        let fs = world.fs();
        let a = fs.make(Ino::ROOT, b"a", &file(0o644)).unwrap().ino;
        fs.sync_all().unwrap();
        for round in 0..10 {
            fs.write(a, round * 100, &[round as u8; 999], how).unwrap();
            let before = records(&world);
            fs.sync_file(a, false).unwrap();
            assert_eq!(records(&world), before, "{log:?}, round {round}");
            if round == 5 {
                world.store.pool().sync().unwrap();
            }
        }
        world.store.pool().freeze();
        fs.write(a, 0, &[1], how).unwrap();
        let wanted = times(&fs, a);
        drop(fs);
        assert_eq!(after_crash(world, a), wanted, "{log:?}: replayed");
    }
}

/// Once their txg has synced, the log does not have them any more.
#[test]
fn times_of_a_synchronous_write_are_in_its_txg() {
    for log in Log::ALL {
        let world = World::logged(log, &[]);
        let fs = world.fs();
        let a = fs.make(Ino::ROOT, b"a", &file(0o644)).unwrap().ino;
        fs.write(a, 0, &[7; 100], WITH_TIMES).unwrap();
        let before = now();
        fs.write(a, 0, &[7; 100], WITH_TIMES).unwrap();
        let wanted = times(&fs, a);
        assert!(wanted[1] >= before && wanted[2] >= before, "{log:?}: times of the last write");
        world.store.pool().sync().unwrap();
        drop(fs);
        assert_eq!(after_crash(world, a), wanted, "{log:?}");
    }
}

/// A write says nothing of the time of access.
#[test]
fn a_time_of_access_is_logged_after_a_synchronous_write() {
    for log in Log::ALL {
        let world = World::logged(log, &[]);
        let fs = world.fs();
        let a = fs.make(Ino::ROOT, b"a", &file(0o644)).unwrap().ino;
        fs.sync_all().unwrap();
        world.store.pool().freeze();
        fs.write(a, 0, &[7; 100], WITH_TIMES).unwrap();
        fs.touch(a).unwrap();
        fs.write(a, 0, &[7; 100], WITH_TIMES).unwrap();
        fs.sync_file(a, false).unwrap();
        let wanted = times(&fs, a);
        assert!(wanted[0] > fs.attributes(a).unwrap().btime);
        drop(fs);
        assert_eq!(after_crash(world, a), wanted, "{log:?}");
    }
}

/// `O_DSYNC`: the record has the time of the write, and an `fsync` logs times that the rows do not have.
#[test]
fn an_fsync_after_a_write_without_its_times_logs_them() {
    for log in Log::ALL {
        let world = World::logged(log, &[]);
        let fs = world.fs();
        let a = fs.make(Ino::ROOT, b"a", &file(0o644)).unwrap().ino;
        fs.sync_all().unwrap();
        for _ in 0..3 {
            fs.write(a, 0, &[7; 100], SYNC).unwrap();
        }
        fs.sync_file(a, false).unwrap();
        let wanted = times(&fs, a);
        world.store.pool().sync().unwrap();
        drop(fs);
        assert_eq!(after_crash(world, a), wanted, "{log:?}");
    }
}

/// A suspended pool goes on, and so do times that only memory has.
#[test]
fn times_that_no_row_has_survive_a_clear() {
    for log in Log::ALL {
        let world = World::logged(log, &[]);
        let World { media, store } = &world;
        let attached: Arc<Attached<FileSystem>> = Store::attach(store, FS).unwrap();
        let fs = attached.get().unwrap();
        let files = [b"a", b"b"].map(|name| fs.make(Ino::ROOT, name, &file(0o644)).unwrap().ino);
        for ino in files {
            for _ in 0..3 {
                fs.write(ino, 0, &[7; 100], WriteHow::default()).unwrap();
            }
            fs.touch(ino).unwrap();
        }
        let wanted = files.map(|ino| times(&fs, ino));
        drop(fs);
        media.disk.fail(Failing::Writes, &mut Rng(1));
        assert!(store.pool().sync().is_err());
        media.disk.heal();
        media.disk.reopen(0);
        store.clear(&mut &*media, false, &mut Vec::new()).unwrap();
        let fs = attached.get().unwrap();
        assert_eq!(files.map(|ino| times(&fs, ino)), wanted, "{log:?}: after the clear");
        // And they are what an `fsync` makes durable.
        fs.sync_file(files[0], false).unwrap();
        drop((fs, attached));
        assert_eq!(after_crash(world, files[0]), wanted[0], "{log:?}: after a crash");
    }
}

/// Times of more files than are known of otherwise.
#[test]
fn times_of_any_number_of_files_are_kept() {
    let world = World::with_txgs(256 << 20);
    let fs = world.fs();
    let name = |number: u32| number.to_string().into_bytes();
    let files: Vec<_> =
        (0..70_000).map(|number| fs.make(Ino::ROOT, &name(number), &file(0o644)).unwrap().ino).collect();
    files.iter().for_each(|ino| fs.touch(*ino).unwrap());
    let is_read = |ino: &Ino| {
        let attributes = fs.attributes(*ino).unwrap();
        attributes.atime > attributes.btime
    };
    assert!(files.iter().all(is_read), "a time of access is lost");
}
