//! Ranges of files: what is reserved, zeroed, copied; what a file takes; what the file system has left.

mod support;

use fastness_pool::Property;
use fastness_zpl::{
    Allocate, Errno, FileSystem, FileSystemOptions, FsError, Ino, Seek, SetAttributes, WriteHow,
};
use support::{World, file};

fn bytes(fs: &FileSystem, ino: Ino) -> Vec<u8> {
    let mut bytes = vec![0; fs.attributes(ino).unwrap().size_bytes as usize];
    assert_eq!(fs.read(ino, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}

fn made(fs: &FileSystem, name: &str, data: &[u8]) -> Ino {
    let ino = fs.make(Ino::ROOT, name.as_bytes(), &file(0o644)).unwrap().ino;
    fs.write(ino, 0, data, WriteHow::default()).unwrap();
    ino
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 ^ seed).collect()
}

#[test]
fn ranges_are_zeroed_and_reserved_with_and_without_the_size() {
    let world = World::new(64 << 20);
    let fs = world.fs();
    let data = pattern(300_000, 1);
    let ino = made(&fs, "a", &data);
    fs.allocate(ino, 1000, 200_000, Allocate::Zero { keeps_size: true }).unwrap();
    let mut expected = data.clone();
    expected[1000..201_000].fill(0);
    assert_eq!(bytes(&fs, ino), expected);
    fs.allocate(ino, 299_000, 2000, Allocate::Zero { keeps_size: true }).unwrap();
    expected[299_000..].fill(0);
    assert_eq!(bytes(&fs, ino), expected);
    fs.allocate(ino, 299_000, 2000, Allocate::Zero { keeps_size: false }).unwrap();
    expected.resize(301_000, 0);
    assert_eq!(bytes(&fs, ino), expected);
    fs.allocate(ino, 0, 400_000, Allocate::Reserve { keeps_size: true }).unwrap();
    assert_eq!(fs.attributes(ino).unwrap().size_bytes, 301_000);
    fs.allocate(ino, 0, 400_000, Allocate::Reserve { keeps_size: false }).unwrap();
    expected.resize(400_000, 0);
    assert_eq!(bytes(&fs, ino), expected);
    let errno = |error: FsError| error.errno();
    assert_eq!(fs.allocate(ino, 0, 0, Allocate::Punch).map_err(errno), Err(Errno::INVAL));
    assert_eq!(fs.allocate(ino, u64::MAX - 5, 10, Allocate::Punch).map_err(errno), Err(Errno::FBIG));
    assert_eq!(fs.seek(ino, 400_000, Seek::Data).map_err(errno), Err(Errno::NXIO));
    assert_eq!(fs.seek(ino, 399_999, Seek::Hole).map_err(errno), Ok(399_999));
    world.check();
}

/// A hole is found where whole blocks are free, and what a file takes goes down.
#[test]
fn what_a_file_takes_is_what_it_stores() {
    let world = World::new(64 << 20);
    let fs = world.fs();
    let ino = made(&fs, "a", &[]);
    let set = SetAttributes { size_bytes: Some(8 << 20), ..SetAttributes::default() };
    assert_eq!(fs.set_attributes(ino, &set).unwrap().blocks, 0, "a hole takes nothing");
    let noise: Vec<u8> = {
        let mut state = 7_u64;
        let mut next = || {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (state >> 33) as u8
        };
        (0..1 << 20).map(|_| next()).collect()
    };
    fs.write(ino, 4 << 20, &noise, WriteHow::default()).unwrap();
    world.store.pool().sync().unwrap();
    let blocks = fs.attributes(ino).unwrap().blocks;
    assert!((2048..2200).contains(&blocks), "{blocks}");
    assert_eq!(fs.seek(ino, 0, Seek::Data).unwrap(), 4 << 20);
    assert_eq!(fs.seek(ino, 4 << 20, Seek::Hole).unwrap(), 5 << 20);
    fs.allocate(ino, 4 << 20, 1 << 20, Allocate::Punch).unwrap();
    world.store.pool().sync().unwrap();
    world.store.pool().sync().unwrap();
    assert_eq!(fs.attributes(ino).unwrap().blocks, 0);
    world.check();
}

#[test]
fn copies_have_the_bytes_and_the_holes_and_come_back_after_a_crash() {
    let world = World::new(64 << 20);
    let fs = world.fs();
    let mut data = pattern(1 << 20, 5);
    let from = made(&fs, "from", &data);
    fs.allocate(from, 256 << 10, 512 << 10, Allocate::Punch).unwrap();
    data[256 << 10..768 << 10].fill(0);
    let to = made(&fs, "to", &pattern(600_000, 9));
    // What was there in the place of the hole is gone; what comes before and after stays.
    assert_eq!(fs.copy_range(from, 100, to, 1000, 2 << 20).unwrap(), (1 << 20) - 100);
    let mut expected = pattern(600_000, 9);
    expected.truncate(1000);
    expected.extend_from_slice(&data[100..]);
    assert_eq!(bytes(&fs, to), expected);
    let whole = made(&fs, "whole", &[]);
    assert_eq!(fs.copy_range(from, 0, whole, 0, 1 << 20).unwrap(), 1 << 20);
    assert_eq!(bytes(&fs, whole), data);
    assert_eq!(fs.seek(whole, 0, Seek::Hole).unwrap(), 256 << 10);
    // Within a file, without overlap.
    assert_eq!(fs.copy_range(from, 0, from, 1 << 20, 5000).unwrap(), 5000);
    let errno = |error: FsError| error.errno();
    assert_eq!(fs.copy_range(from, 0, from, 100, 5000).map_err(errno), Err(Errno::INVAL));
    assert_eq!(fs.copy_range(from, 9 << 20, to, 0, 100).map_err(errno), Ok(0));
    assert_eq!(fs.copy_range(Ino::ROOT, 0, to, 0, 100).map_err(errno), Err(Errno::ISDIR));
    fs.sync_all().unwrap();
    let copies = [bytes(&fs, from), bytes(&fs, to), bytes(&fs, whole)];
    drop(fs);
    let (world, report) = world.crash();
    assert!(report.records > 10, "{report:?}");
    let fs = world.fs();
    for (name, copy) in ["from", "to", "whole"].iter().zip(copies) {
        assert_eq!(bytes(&fs, fs.find(Ino::ROOT, name.as_bytes()).unwrap()), copy, "{name}");
    }
    drop(fs);
    world.check();
}

/// A reservation of one file system is no room for another, and is room for its own.
#[test]
fn the_space_left_is_without_what_others_have_reserved() {
    let world = World::with_txgs(128 << 20);
    let fs = world.fs();
    let other = FileSystem::create(&world.store, "tank/other", &FileSystemOptions::default()).unwrap();
    let pool = world.store.pool();
    let before = fs.space().free_bytes;
    pool.transact(|tx| other.dataset().set(tx, Property::Reservation, Some(64 << 20))).unwrap();
    pool.sync().unwrap();
    let (mine, others) = (fs.space().free_bytes, other.space().free_bytes);
    assert!(mine + (60 << 20) < before && others > mine + (60 << 20), "{before} {mine} {others}");
    let ino = fs.make(Ino::ROOT, b"a", &file(0o644)).unwrap().ino;
    let reserve = Allocate::Reserve { keeps_size: true };
    let refused = fs.allocate(ino, 0, mine + (8 << 20), reserve).map_err(|error| error.errno());
    assert_eq!(refused, Err(Errno::NOSPC));
    let ino = other.make(Ino::ROOT, b"a", &file(0o644)).unwrap().ino;
    other.allocate(ino, 0, mine + (8 << 20), reserve).unwrap();
}
