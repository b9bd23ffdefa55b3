//! Volumes of a pool with `logdata=pm`: what the log alone has is read from it, and what it has lost is never
//! taken for something else.

#![allow(unreachable_pub, missing_debug_implementations)]

#[path = "lost_region/bench.rs"]
#[allow(dead_code)]
mod bench;
mod support;

use std::time::Duration;

use bench::*;
use fastness_pool::{LogData, PoolError, Property};
use fastness_store::{Consent, PoolLog, Store};
use fastness_zpl::{Errno, FileSystem, FileSystemOptions, Ino, NewFile, WriteHow, mode};
use fastness_zvol::{Volume, VolumeError};

const BLOCKS: u64 = MIB / BLOCK;
const HOUR: Duration = Duration::from_secs(3600);

fn new(regions: &[&str]) -> (Bench, std::sync::Arc<Store>, Volume) {
    let (bench, store) = Bench::new(regions, HOUR);
    let pool = store.pool();
    let ((), txg) = pool.transact(|tx| pool.set_log_data(tx, LogData::Pm)).unwrap();
    pool.wait_synced(txg).unwrap();
    let volume = volume(&store);
    (bench, store, volume)
}

/// Writes every block, with FUA, in writes of so many blocks.
fn fill(volume: &Volume, salt: u8, blocks: u64) {
    for first in (0..BLOCKS).step_by(blocks as usize) {
        let data: Vec<u8> =
            (first..first + blocks).flat_map(|block| vec![block as u8 ^ salt; BLOCK as usize]).collect();
        volume.write(first * BLOCK, &data, true).unwrap();
    }
}

fn block(volume: &Volume, block: u64) -> Result<u8, VolumeError> {
    let mut data = vec![0xee; BLOCK as usize];
    volume.read(block * BLOCK, &mut data)?;
    assert!(data.iter().all(|byte| *byte == data[0]), "block {block} is torn");
    Ok(data[0])
}

fn check(volume: &Volume, salt: u8) {
    (0..BLOCKS).for_each(|at| assert_eq!(block(volume, at).unwrap(), at as u8 ^ salt, "block {at}"));
}

fn read_bytes(store: &Store) -> u64 {
    log(store).medium_stats().map_or(0, |stats| stats.read_bytes)
}

#[test]
fn reads_and_the_sync_come_from_the_log_and_a_crash_finds_it_there() {
    for blocks in [1, 4, 16] {
        let (bench, store, volume) = new(&["a"]);
        fill(&volume, 3, blocks);
        assert_eq!(read_bytes(&store), 0);
        check(&volume, 3);
        let read = read_bytes(&store);
        assert!(read >= BLOCKS * BLOCK, "{read} bytes");
        store.pool().sync().unwrap();
        assert!(read_bytes(&store) >= read + BLOCKS * BLOCK, "the sync has read it, too");
        check(&volume, 3);
        fill(&volume, 9, blocks);
        drop((volume, store));
        let (store, report) = bench.import(Consent::default()).unwrap();
        assert_eq!(report.records, BLOCKS / blocks);
        check(&open(&store), 9);
    }
}

#[test]
fn what_is_in_memory_reads_nothing_of_the_log() {
    let (_bench, store) = Bench::new(&["a"], HOUR);
    let volume = volume(&store);
    fill(&volume, 3, 1);
    check(&volume, 3);
    store.pool().sync().unwrap();
    assert_eq!(read_bytes(&store), 0);
}

#[test]
fn the_other_side_of_a_mirror_gives_what_one_has_lost() {
    for (lost, bytes) in [("a", 0), ("b", 0), ("a", 2 * MIB), ("b", 2 * MIB)] {
        let (bench, store, volume) = new(&["a", "b"]);
        fill(&volume, 3, 1);
        bench.cut(lost, bytes);
        check(&volume, 3);
        fill(&volume, 5, 4);
        check(&volume, 5);
        store.pool().sync().unwrap();
        check(&volume, 5);
        assert!(store.pool().damaged().0.is_empty());
    }
}

#[test]
fn what_the_only_region_has_lost_is_an_error_with_its_place() {
    let (bench, store, volume) = new(&["a"]);
    fill(&volume, 3, 1);
    store.pool().sync().unwrap();
    fill(&volume, 7, 1);
    bench.cut("a", 2 * MIB);
    let mut lost = Vec::new();
    for at in 0..BLOCKS {
        match block(&volume, at) {
            Ok(byte) => assert_eq!(byte, at as u8 ^ 7, "block {at}: never what was there before"),
            Err(VolumeError::Pool(PoolError::LostInLog(error))) => {
                assert_eq!(error.offset, at * BLOCK);
                lost.push(at);
            }
            Err(error) => panic!("block {at}: {error}"),
        }
    }
    assert!(!lost.is_empty());
    // What is written from now on waits for its txg, as there is no log.
    volume.write(lost[0] * BLOCK, &[1; BLOCK as usize], true).unwrap();
    assert_eq!(block(&volume, lost[0]).unwrap(), 1);
    for at in &lost[1..] {
        let error = block(&volume, *at).unwrap_err();
        assert!(matches!(error, VolumeError::Pool(PoolError::DamagedBlock { .. })), "block {at}: {error}");
    }
    let (listed, unlisted) = store.pool().damaged();
    assert_eq!((listed.len() + 1, unlisted), (lost.len(), 0), "each is listed");
    for at in (0..BLOCKS).filter(|at| !lost.contains(at)) {
        assert_eq!(block(&volume, at).unwrap(), at as u8 ^ 7);
    }
    fill(&volume, 9, 16);
    check(&volume, 9);
    assert!(store.pool().damaged().0.is_empty(), "what was written again is not damaged");
}

#[test]
fn bytes_of_a_file_that_the_only_region_has_lost_are_an_error() {
    let (bench, store, _volume) = new(&["a"]);
    let options =
        FileSystemOptions { properties: vec![(Property::RecordSize, BLOCK)], ..FileSystemOptions::default() };
    let fs = FileSystem::create(&store, "tank/f", &options).unwrap();
    let new = NewFile { mode: mode::FILE | 0o644, ..NewFile::default() };
    let ino = fs.make(Ino::ROOT, b"f", &new).unwrap().ino;
    let sync = WriteHow { is_sync: true, ..WriteHow::default() };
    // The first write of a file is in memory, too.
    for at in (0..BLOCKS).chain(0..BLOCKS) {
        fs.write(ino, at * BLOCK, &[at as u8; BLOCK as usize], sync).unwrap();
    }
    bench.cut("a", 2 * MIB);
    let mut lost = 0;
    for at in 0..BLOCKS {
        let mut data = [0xee; BLOCK as usize];
        match fs.read(ino, at * BLOCK, &mut data) {
            Ok(_) => assert_eq!(data, [at as u8; BLOCK as usize], "block {at}"),
            Err(error) => {
                assert_eq!(error.errno(), Errno::IO, "{error}");
                lost += 1;
            }
        }
    }
    assert!(lost > 0);
    fs.write(ino, 0, &[7; (BLOCKS * BLOCK) as usize], sync).unwrap();
    let mut data = vec![0; (BLOCKS * BLOCK) as usize];
    fs.read(ino, 0, &mut data).unwrap();
    assert!(data.iter().all(|byte| *byte == 7), "what was written again is whole");
}

#[test]
fn a_log_that_is_changed_or_removed_is_read_until_its_txgs_have_synced() {
    let (bench, store, volume) = new(&["a"]);
    fill(&volume, 3, 1);
    log(&store).attach_region(bench.region("b")).unwrap();
    check(&volume, 3);
    fill(&volume, 4, 4);
    log(&store).remove_region().unwrap();
    check(&volume, 4);
    for name in ["a", "b"] {
        PoolLog::open_region(&bench.path(name), true).expect("nobody has it any more");
    }
    fill(&volume, 5, 1);
    check(&volume, 5);
    log(&store).add_regions(|| Ok(vec![bench.region("c")])).unwrap();
    fill(&volume, 6, 16);
    check(&volume, 6);
    drop((volume, store));
    let (store, _) = bench.import(Consent::default()).unwrap();
    check(&open(&store), 6);
}
