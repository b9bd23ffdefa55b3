//! Blocks without a right copy stay known until they are rewritten, freed, or found right by a scrub.

mod support;

use std::sync::Arc;

use fastness_blkdev::MemImage;
use fastness_pool::{DamagedBlock, Object, ObjectId, Pool, PoolOptions};
use support::{Rig, Shape, host, manual};

const LEN_BYTES: u64 = 64 << 20;
const BLOCK: u64 = 4096;

/// A pool whose only object has so many blocks, each with contents of its own, and is closed.
fn closed(blocks: u64) -> Vec<MemImage> {
    let rig = Rig::fresh(1, LEN_BYTES, 1);
    let pool = Pool::create("tank", &Shape::Single.specs(rig.all()), manual()).unwrap();
    let create = |tx: &_| pool.dataset("tank").unwrap().create_object_with(tx, ObjectId(1), BLOCK as u32);
    let (object, _) = pool.transact(create).unwrap();
    for block in 0..blocks {
        write(&pool, &object, block);
    }
    drop(object);
    pool.export().unwrap();
    drop(pool);
    images(&rig)
}

fn images(rig: &Rig) -> Vec<MemImage> {
    rig.devices.iter().map(|device| device.inner().image()).collect()
}

/// Does not compress.
fn contents(block: u64) -> Vec<u8> {
    let mut rng = support::Rng::new(block + 1);
    (0..BLOCK).map(|_| rng.next() as u8).collect()
}

fn write(pool: &Pool, object: &Object, block: u64) {
    pool.transact(|tx| object.write(tx, block * BLOCK, &contents(block))).unwrap();
}

/// Where the blocks are on the device.
fn places(image: &MemImage, blocks: impl Iterator<Item = u64>) -> Vec<u64> {
    let bytes = image.to_vec();
    let at: std::collections::HashMap<&[u8], usize> =
        bytes.chunks(BLOCK as usize).enumerate().map(|(unit, chunk)| (chunk, unit)).collect();
    blocks.map(|block| at[&contents(block)[..]] as u64 * BLOCK).collect()
}

fn open(images: &[MemImage]) -> (Arc<Rig>, Pool) {
    let rig = Rig::new(images.to_vec(), 7);
    // Without a cache the engine reads its file while the list is stored, too.
    let options = PoolOptions { meta_cache_bytes: 0, ..manual() };
    let pool = Pool::import(&rig.all(), &host(), options).unwrap();
    (rig, pool)
}

/// As after a kill: what has not synced is gone.
fn reopen((rig, pool): (Arc<Rig>, Pool)) -> (Arc<Rig>, Pool) {
    drop(pool);
    open(&images(&rig))
}

fn offsets(pool: &Pool) -> Vec<u64> {
    let (blocks, unlisted) = pool.damaged();
    assert_eq!(unlisted, 0);
    let root = pool.dataset("tank").unwrap().id();
    let of_object =
        |block: &DamagedBlock| block.owner == Some((root, ObjectId(1))) && block.len_bytes == BLOCK;
    assert!(blocks.iter().all(of_object), "{blocks:?}");
    blocks.iter().map(|block| block.offset / BLOCK).collect()
}

fn object(pool: &Pool) -> Object {
    pool.dataset("tank").unwrap().object(ObjectId(1)).unwrap()
}

#[test]
fn what_a_scrub_found_is_known_until_it_is_mended() {
    let mut images = closed(40);
    let whole = images[0].clone();
    for at in places(&whole, [3, 7, 20, 31].into_iter()) {
        images[0].write(at + 100, &[0x5a; 8]);
    }
    let (rig, pool) = open(&images);
    assert_eq!(offsets(&pool), [0; 0], "nobody has looked");
    assert_eq!(pool.scrub(|_| true).unwrap().lost.len(), 4);
    assert_eq!(offsets(&pool), [3, 7, 20, 31]);
    pool.sync().unwrap();
    let (rig, pool) = reopen((rig, pool));
    assert_eq!(offsets(&pool), [3, 7, 20, 31], "another import");
    // Rewritten; in the same contents, and as zeroes.
    write(&pool, &object(&pool), 3);
    assert_eq!(offsets(&pool), [3, 7, 20, 31], "it is not durable yet");
    pool.sync().unwrap();
    assert_eq!(offsets(&pool), [7, 20, 31]);
    pool.sync().unwrap();
    let (rig, pool) = reopen((rig, pool));
    assert_eq!(offsets(&pool), [7, 20, 31]);
    // Cut off.
    pool.transact(|tx| object(&pool).truncate(tx, 31 * BLOCK)).unwrap();
    pool.sync().unwrap();
    assert_eq!(offsets(&pool), [7, 20]);
    // A scrub that ends early has not seen that anything is right.
    pool.scrub(|_| false).unwrap();
    assert_eq!(offsets(&pool), [7, 20]);
    pool.sync().unwrap();
    // The device is there again with what it had.
    let (rig, pool) = {
        drop(pool);
        let mut images = self::images(&rig);
        let at = places(&whole, [7].into_iter())[0];
        images[0].write(at, &contents(7));
        open(&images)
    };
    assert_eq!(offsets(&pool), [7, 20], "nobody has looked again");
    assert_eq!(pool.scrub(|_| true).unwrap().lost.len(), 1);
    assert_eq!(offsets(&pool), [20]);
    pool.sync().unwrap();
    let (rig, pool) = reopen((rig, pool));
    assert_eq!(offsets(&pool), [20]);
    pool.transact(|tx| pool.dataset("tank").unwrap().destroy_object(tx, ObjectId(1))).unwrap();
    while pool.is_freeing() || !offsets(&pool).is_empty() {
        pool.sync().unwrap();
    }
    pool.sync().unwrap();
    let (_rig, pool) = reopen((rig, pool));
    assert_eq!(offsets(&pool), [0; 0]);
    assert!(pool.check().unwrap().is_clean());
}

#[test]
fn the_list_is_bounded_and_the_rest_is_counted() {
    let mut images = closed(1500);
    for at in places(&images[0].clone(), 0..1500) {
        images[0].write(at, &[0; 16]);
    }
    let (rig, pool) = open(&images);
    pool.scrub(|_| true).unwrap();
    pool.sync().unwrap();
    let count = |pool: &Pool| {
        let (listed, unlisted) = pool.damaged();
        (listed.len(), unlisted)
    };
    assert_eq!(count(&pool), (1000, 500));
    let (_rig, pool) = reopen((rig, pool));
    assert_eq!(count(&pool), (1000, 500));
    for block in 0..1500 {
        write(&pool, &object(&pool), block);
    }
    pool.sync().unwrap();
    assert_eq!(count(&pool), (0, 500), "of those only a scrub knows");
    pool.scrub(|_| true).unwrap();
    assert_eq!(count(&pool), (0, 0));
}
