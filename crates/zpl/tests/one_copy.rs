//! Files of a pool with `logdata=pm`: the log alone has the whole blocks of a synchronous write, until its
//! txg has synced.

mod support;

use std::time::Duration;

use fastness_store::{LogData, Property};
use fastness_testkit::Rng;
use fastness_zpl::{FileSystem, FileSystemOptions, Ino, SetAttributes, WriteHow};
use support::{FS, Log, Media, World, file, options};

const BLOCK: usize = 4096;
const SYNC: WriteHow = WriteHow { is_sync: true, keeps_times: false, clears_set_id: false };

fn world(log_data: LogData) -> World {
    with(log_data, &[])
}

fn with(log_data: LogData, properties: &[(Property, u64)]) -> World {
    let own = [&[(Property::RecordSize, BLOCK as u64)], properties].concat();
    let world = World::logged(Log::Pmem, &own);
    let pool = world.store.pool();
    let ((), txg) = pool.transact(|tx| pool.set_log_data(tx, log_data)).unwrap();
    pool.wait_synced(txg).unwrap();
    world
}

/// A file with a name and a block, whose inode is known: from now on nothing has to be stored for a write.
fn known(fs: &FileSystem, name: &[u8]) -> Ino {
    let ino = fs.make(Ino::ROOT, name, &file(0o644)).unwrap().ino;
    fs.write(ino, 0, &[1; BLOCK], SYNC).unwrap();
    ino
}

fn bytes(fs: &FileSystem, ino: Ino) -> Vec<u8> {
    let mut bytes = vec![0xee; fs.attributes(ino).unwrap().size_bytes as usize];
    assert_eq!(fs.read(ino, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}

/// Bytes that were read from the log.
fn read_bytes(world: &World) -> u64 {
    world.store.log().and_then(|log| log.medium_stats()).map_or(0, |stats| stats.read_bytes)
}

fn entries(world: &World) -> u64 {
    world.store.log().and_then(|log| log.medium_stats()).map_or(0, |stats| stats.entries)
}

/// Such a write is in memory: what the log has of it is not in one piece.
#[test]
fn a_write_of_several_records_reads_as_it_was_written() {
    let (media, store) = Media::with(Log::Pmem, 64 << 20, (64, 32 << 10), options(Duration::from_secs(3600)));
    store.pool().transact(|tx| store.pool().set_log_data(tx, LogData::Pm)).unwrap();
    let own = FileSystemOptions {
        properties: vec![(Property::RecordSize, BLOCK as u64)],
        ..FileSystemOptions::default()
    };
    let fs = FileSystem::create(&store, FS, &own).unwrap();
    let world = World { media, store };
    let ino = known(&fs, b"f");
    let before = entries(&world);
    let data = Rng(7).bytes(16 * BLOCK);
    fs.write(ino, 0, &data, SYNC).unwrap();
    assert!(entries(&world) > before + 1, "several");
    assert!(bytes(&fs, ino) == data);
    drop(fs);
    let (world, _) = world.crash();
    assert!(bytes(&world.fs(), ino) == data);
}

#[test]
fn the_log_alone_has_what_a_synchronous_write_wrote() {
    for (at, blocks) in [(0, 1), (1, 1), (0, 3), (2, 32), (40, 1)] {
        let world = world(LogData::Pm);
        let fs = world.fs();
        let ino = known(&fs, b"f");
        let data = Rng(at as u64).bytes(blocks * BLOCK);
        let before = entries(&world);
        fs.write(ino, (at * BLOCK) as u64, &data, SYNC).unwrap();
        assert_eq!(entries(&world), before + 1, "one record, and no commit");
        let mut model = vec![1; BLOCK];
        model.resize(model.len().max(at * BLOCK + data.len()), 0);
        model[at * BLOCK..at * BLOCK + data.len()].copy_from_slice(&data);
        assert_eq!(read_bytes(&world), 0, "it is in the log, and was not read yet");
        assert!(bytes(&fs, ino) == model);
        let read = read_bytes(&world);
        assert!(read >= data.len() as u64, "{read} bytes");
        drop(fs);
        // A crash finds it in the log, and so does the sync.
        let (world, report) = world.crash();
        assert!(report.records > 0);
        let fs = world.fs();
        assert!(bytes(&fs, ino) == model, "after a crash");
        fs.write(ino, 0, &[9; BLOCK], SYNC).unwrap();
        fs.write(ino, 0, &[8; BLOCK], SYNC).unwrap();
        model[..BLOCK].fill(8);
        world.store.pool().sync().unwrap();
        assert!(read_bytes(&world) > 0, "the sync has read it");
        assert!(bytes(&fs, ino) == model, "after a sync");
        drop(fs);
        world.check();
    }
}

#[test]
fn others_are_in_memory() {
    // Where `logdata` says so; parts of blocks; what is not synchronous; the first write of a file.
    let both = world(LogData::Both);
    let fs = both.fs();
    let ino = known(&fs, b"f");
    fs.write(ino, 0, &[2; BLOCK], SYNC).unwrap();
    bytes(&fs, ino);
    assert_eq!(read_bytes(&both), 0);
    let world = world(LogData::Pm);
    let fs = world.fs();
    let ino = known(&fs, b"f");
    fs.write(ino, 0, &[2; BLOCK - 1], SYNC).unwrap();
    fs.write(ino, 8, &[2; BLOCK], SYNC).unwrap();
    fs.write(ino, 0, &[2; 2 * BLOCK], WriteHow::default()).unwrap();
    assert_eq!(bytes(&fs, ino), [2; 2 * BLOCK]);
    assert_eq!(read_bytes(&world), 0);
}

#[test]
fn a_block_in_the_log_is_changed_in_part_cut_and_copied() {
    let world = world(LogData::Pm);
    let fs = world.fs();
    let (ino, other) = (known(&fs, b"f"), known(&fs, b"g"));
    fs.write(ino, 0, &[2; 4 * BLOCK], SYNC).unwrap();
    // Copied, and then other bytes: the copy keeps what it was.
    fs.copy_range(ino, 0, other, 0, 4 * BLOCK as u64).unwrap();
    fs.write(ino, 0, &[3; BLOCK], SYNC).unwrap();
    fs.write(ino, BLOCK as u64 + 5, &[4; 7], WriteHow::default()).unwrap();
    let cut = SetAttributes { size_bytes: Some(2 * BLOCK as u64 + 100), ..SetAttributes::default() };
    fs.set_attributes(ino, &cut).unwrap();
    let grown = SetAttributes { size_bytes: Some(4 * BLOCK as u64), ..SetAttributes::default() };
    fs.set_attributes(ino, &grown).unwrap();
    let mut model = vec![2; 4 * BLOCK];
    model[..BLOCK].fill(3);
    model[BLOCK + 5..BLOCK + 12].fill(4);
    model[2 * BLOCK + 100..].fill(0);
    for synced in [false, true] {
        assert!(bytes(&fs, ino) == model, "{synced}");
        assert_eq!(bytes(&fs, other), [2; 4 * BLOCK], "{synced}");
        world.store.pool().sync().unwrap();
    }
    fs.sync_all().unwrap();
    drop(fs);
    let (world, _) = world.crash();
    assert!(bytes(&world.fs(), ino) == model);
    world.check();
}

#[test]
fn a_file_that_is_gone_leaves_its_blocks_to_nobody() {
    let world = world(LogData::Pm);
    let fs = world.fs();
    let ino = known(&fs, b"f");
    fs.write(ino, 0, &[2; 8 * BLOCK], SYNC).unwrap();
    // Its commit needs no bytes of it any more.
    fs.unlink(Ino::ROOT, b"f").unwrap();
    assert_eq!(bytes(&fs, ino), [2; 8 * BLOCK], "it is still open");
    fs.sync_all().unwrap();
    let before = entries(&world);
    fs.write(ino, 0, &[3; BLOCK], SYNC).unwrap();
    assert_eq!(entries(&world), before, "what has no name is in no log");
    assert_eq!(bytes(&fs, ino)[..BLOCK], [3; BLOCK]);
    fs.reap(ino).unwrap();
    fs.sync_all().unwrap();
    drop(fs);
    let (world, _) = world.crash();
    assert!(world.fs().find(Ino::ROOT, b"f").is_err());
    world.check();
}

#[test]
fn what_finds_no_room_is_in_no_log() {
    let world = with(LogData::Pm, &[(Property::Quota, 8 << 20)]);
    let fs = world.fs();
    let (ino, filler) = (known(&fs, b"f"), known(&fs, b"filler"));
    let data = Rng(1).bytes(BLOCK);
    let mut at = 0;
    while fs.write(filler, at, &data, WriteHow::default()).is_ok() {
        at += BLOCK as u64;
    }
    let before = entries(&world);
    assert!(fs.write(ino, BLOCK as u64, &Rng(2).bytes(16 * BLOCK), SYNC).is_err());
    assert_eq!((entries(&world), bytes(&fs, ino).len()), (before, BLOCK));
    drop(fs);
    let (world, _) = world.crash();
    assert_eq!(bytes(&FileSystem::open(&world.store, FS).unwrap(), ino), [1; BLOCK]);
    world.check();
}
