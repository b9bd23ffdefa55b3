//! A txg that is large enough for several threads: it comes back whole, and an error on the way ends it.

mod support;

use std::sync::atomic::Ordering;

use fastness_pool::{DatasetKind, ErrorKind, Object, Pool, PoolOptions, Property};
use support::{Rig, Rng, Shape, host, manual};

const BLOCKS: u64 = 160;
const BLOCK_BYTES: u64 = 128 << 10;

fn threaded() -> PoolOptions {
    PoolOptions {
        has_txg_thread: true,
        txg_timeout: std::time::Duration::from_secs(3600),
        dirty_max_bytes: 1 << 30,
        ..manual()
    }
}

fn object(pool: &Pool, compression: u64) -> Object {
    let tx = pool.begin_tx().unwrap();
    let properties = [(Property::Compression, compression)];
    let name = format!("tank/f{compression}");
    pool.create_dataset(&tx, &name, DatasetKind::Filesystem, &properties).unwrap().create_object(&tx).unwrap()
}

/// Writes all blocks in one txg and returns them.
fn fill(pool: &Pool, object: &Object, rng: &mut Rng) -> Vec<Vec<u8>> {
    let blocks: Vec<_> = (0..BLOCKS).map(|_| rng.bytes(BLOCK_BYTES as usize)).collect();
    for (at, block) in blocks.iter().enumerate() {
        let tx = pool.begin_tx().unwrap();
        object.write(&tx, at as u64 * BLOCK_BYTES, block).unwrap();
    }
    blocks
}

#[test]
fn a_large_txg_comes_back_whole() {
    for shape in [Shape::Single, Shape::Stripe] {
        let rig = Rig::fresh(if shape == Shape::Single { 1 } else { 2 }, 192 << 20, 0);
        let mut rng = Rng::new(5);
        let pool = Pool::create("tank", &shape.specs(rig.all()), threaded()).unwrap();
        let mut written = Vec::new();
        for compression in 0..3 {
            let object = object(&pool, compression);
            for _ in 0..2 {
                let blocks = fill(&pool, &object, &mut rng);
                assert!(pool.status().dirty_bytes >= BLOCKS * BLOCK_BYTES);
                pool.sync().unwrap();
                assert_eq!(pool.status().dirty_bytes, 0, "what a txg leaves is counted no more");
                written.push((compression, blocks));
            }
            written.remove(written.len() - 2);
        }
        assert!(pool.check().unwrap().is_clean());
        drop(pool);
        let pool = Pool::import(&rig.all(), &host(), threaded()).unwrap();
        for (compression, blocks) in written {
            let dataset = pool.dataset(&format!("tank/f{compression}")).unwrap();
            let object = dataset.object(fastness_pool::ObjectId(1)).unwrap();
            let mut buf = vec![0; BLOCK_BYTES as usize];
            for (at, block) in blocks.iter().enumerate() {
                object.read(at as u64 * BLOCK_BYTES, &mut buf).unwrap();
                assert!(buf == *block, "block {at} with compression {compression}");
            }
        }
    }
}

#[test]
fn a_failed_write_of_a_thread_suspends_the_pool() {
    for after in [1, 4, 9, 15] {
        let rig = Rig::fresh(1, 96 << 20, 0);
        let pool = Pool::create("tank", &Shape::Single.specs(rig.all()), threaded()).unwrap();
        let object = object(&pool, 0);
        let synced = pool.sync().unwrap();
        fill(&pool, &object, &mut Rng::new(after));
        rig.cut_at.store(rig.ops.load(Ordering::SeqCst) + after, Ordering::SeqCst);
        pool.sync().unwrap_err();
        assert_eq!(pool.synced_txg(), synced);
        assert_ne!(pool.begin_tx().unwrap_err().kind(), ErrorKind::NoSpace);
        assert!(pool.status().suspended.is_some());
    }
}
