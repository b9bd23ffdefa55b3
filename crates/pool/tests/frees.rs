//! What is cleared or destroyed is freed in bounded steps, and reads as zeroes from the first on.

mod support;

use std::sync::Arc;

use fastness_pool::{DatasetKind, Object, ObjectId, Pool, PoolOptions, Property, Segment};
use support::{Rig, Rng, Shape, host, manual};

const ROWS: usize = 3;
const BLOCKS: u64 = 1000;
/// Bytes of the blocks of a row.
const ROW_BLOCKS: u64 = 32;

struct World {
    rig: Arc<Rig>,
    pool: Pool,
    object: Object,
    block: u64,
    bytes: Vec<u8>,
}

fn options() -> PoolOptions {
    PoolOptions { frees_per_txg: ROWS, ..manual() }
}

impl World {
    fn new(block: u64) -> World {
        let rig = Rig::fresh(1, 48 << 20, block);
        let pool = Pool::create("tank", &Shape::Single.specs(rig.all()), options()).unwrap();
        let tx = pool.begin_tx().unwrap();
        let properties = [(Property::VolBlockSize, block)];
        let dataset = pool.create_dataset(&tx, "tank/v", DatasetKind::Volume, &properties).unwrap();
        let object = dataset.create_object(&tx).unwrap();
        let mut rng = Rng::new(block);
        let bytes: Vec<u8> = (0..BLOCKS * block).map(|_| rng.next() as u8 | 1).collect();
        object.write(&tx, 0, &bytes).unwrap();
        drop((tx, dataset));
        let mut world = World { rig, pool, object, block, bytes };
        world.sync();
        world
    }

    fn used(&self) -> u64 {
        self.pool.dataset("tank/v").unwrap().used_bytes()
    }

    fn compare(&self) {
        let mut found = vec![0xee; self.bytes.len() + 1];
        assert_eq!(self.object.read(0, &mut found).unwrap(), self.bytes.len());
        assert!(found[..self.bytes.len()] == self.bytes);
    }

    fn sync(&mut self) {
        self.pool.sync().unwrap();
        self.compare();
        let report = self.pool.check().unwrap();
        assert!(report.is_clean(), "{report:?}");
    }

    /// The power fails: as of the last txg.
    fn crash(&mut self) {
        let rig = Rig::new(self.rig.crash(1), 1);
        let pool = Pool::import(&rig.all(), &host(), options()).unwrap();
        self.object = pool.dataset("tank/v").unwrap().object(ObjectId(1)).unwrap();
        (self.rig, self.pool) = (rig, pool);
        self.compare();
    }

    fn punch(&mut self, blocks: std::ops::Range<u64>) {
        let (start, end) = (blocks.start * self.block, blocks.end * self.block);
        self.object.punch(&self.pool.begin_tx().unwrap(), start, end - start).unwrap();
        self.bytes[start as usize..end as usize].fill(0);
        self.compare();
    }

    fn write(&mut self, block: u64, byte: u8) {
        let data = vec![byte; self.block as usize];
        let at = (block * self.block) as usize;
        self.object.write(&self.pool.begin_tx().unwrap(), at as u64, &data).unwrap();
        self.bytes[at..at + data.len()].copy_from_slice(&data);
    }

    fn resize(&mut self, blocks: u64) {
        let size = blocks * self.block;
        self.object.truncate(&self.pool.begin_tx().unwrap(), size).unwrap();
        self.bytes.resize(size as usize, 0);
    }

    /// Txgs until everything that is to be freed is free; each frees so many rows and no more.
    fn free_all(&mut self, crashes: bool) -> u64 {
        let mut txgs = 0;
        loop {
            let before = self.used();
            self.sync();
            let freed = before.saturating_sub(self.used());
            let row_bytes = ROW_BLOCKS * self.block.max(4096);
            assert!(freed <= ROWS as u64 * row_bytes, "one txg has freed {freed} bytes");
            txgs += 1;
            if crashes {
                self.crash();
            }
            if !self.pool.is_freeing() {
                return txgs;
            }
        }
    }
}

#[test]
fn a_large_discard_takes_several_txgs_and_reads_as_zeroes_at_once() {
    for block in [512, 4096, 16 << 10] {
        for crashes in [false, true] {
            let mut world = World::new(block);
            world.punch(5..BLOCKS - 5);
            let txgs = world.free_all(crashes);
            assert!(txgs > BLOCKS / ROW_BLOCKS / ROWS as u64, "{txgs} txgs");
            assert_eq!(world.used(), 10 * block.max(4096));
            // Holes are told from the first txg on, see below; and at the end all is as if it had been one
            // txg.
            let mut found = Vec::new();
            world.object.segments(0, u64::MAX, 9, &mut found).unwrap();
            let segment = |blocks, is_hole| Segment { len_bytes: blocks * block, is_hole };
            assert_eq!(found, [segment(5, false), segment(BLOCKS - 10, true), segment(5, false)]);
        }
    }
}

#[test]
fn what_is_written_into_a_range_that_is_being_freed_stays() {
    for crashes in [false, true] {
        let mut world = World::new(4096);
        world.punch(0..BLOCKS);
        let mut rng = Rng::new(7);
        for round in 0..60 {
            for _ in 0..rng.below(4) {
                world.write(rng.below(BLOCKS), round | 1);
            }
            if rng.below(4) == 0 {
                let at = rng.below(BLOCKS - 200);
                world.punch(at..at + rng.below(200));
                // In the txg that cleared it.
                world.write(at + rng.below(100), round | 1);
            }
            if rng.below(8) == 0 {
                world.resize(rng.below(BLOCKS) + 1);
                world.resize(BLOCKS);
            }
            world.sync();
            let mut found = Vec::new();
            world.object.segments(0, u64::MAX, usize::MAX, &mut found).unwrap();
            let mut at = 0;
            for Segment { len_bytes, is_hole } in found {
                let part = &world.bytes[at..at + len_bytes as usize];
                assert!(is_hole == part.iter().all(|byte| *byte == 0), "{len_bytes} bytes at {at}");
                at += len_bytes as usize;
            }
            if crashes {
                world.crash();
            }
        }
        world.free_all(crashes);
        let alive = world.bytes.chunks(4096).filter(|block| block.iter().any(|byte| *byte != 0)).count();
        assert_eq!(world.used(), alive as u64 * 4096);
    }
}

#[test]
fn a_volume_that_was_cut_and_grows_again_shows_nothing_old() {
    let mut world = World::new(4096);
    world.resize(10);
    world.sync();
    assert!(world.used() > 500 * 4096, "it is not freed yet");
    world.resize(BLOCKS);
    world.compare();
    world.sync();
    world.crash();
    world.resize(100);
    world.sync();
    world.crash();
    world.resize(BLOCKS);
    world.free_all(true);
    assert_eq!(world.used(), 10 * 4096);
}

#[test]
fn what_is_destroyed_while_it_is_freed_is_freed_once() {
    let mut world = World::new(4096);
    world.punch(100..900);
    world.sync();
    let id = world.object.id();
    let dataset = world.pool.dataset("tank/v").unwrap();
    dataset.destroy_object(&world.pool.begin_tx().unwrap(), id).unwrap();
    let mut txgs = 0;
    loop {
        world.pool.sync().unwrap();
        let report = world.pool.check().unwrap();
        assert!(report.is_clean(), "{report:?}");
        txgs += 1;
        if !world.pool.is_freeing() {
            break;
        }
    }
    assert!(txgs > 5, "{txgs}");
    assert_eq!(dataset.used_bytes(), 0);
    let after = Pool::import(&Rig::new(world.rig.crash(1), 1).all(), &host(), options()).unwrap();
    assert!(after.check().unwrap().is_clean() && !after.is_freeing());
}

/// A client that discards faster than txgs free waits for them: memory does not grow.
#[test]
fn ranges_that_are_not_freed_yet_count_as_dirty() {
    let mut world = World::new(4096);
    world.punch(0..BLOCKS);
    world.sync();
    assert!(world.pool.status().dirty_bytes > 0, "the range is in memory");
    world.crash();
    assert!(world.pool.status().dirty_bytes > 0, "and after an import");
    world.free_all(false);
    assert_eq!(world.pool.status().dirty_bytes, 0);
}

/// As when the first write to a file fails because its file system has just become read-only: an object
/// without a file would be left, and refuse every later first write.
#[test]
fn what_a_transaction_has_created_it_can_take_back() {
    let rig = Rig::fresh(1, 48 << 20, 7);
    let pool = Pool::create("tank", &Shape::Single.specs(rig.all()), options()).unwrap();
    let root = pool.dataset("tank").unwrap();
    let tx = pool.begin_tx().unwrap();
    let old = root.create_object(&tx).unwrap().id();
    drop(tx);
    pool.sync().unwrap();
    let tx = pool.begin_tx().unwrap();
    let new = root.create_object(&tx).unwrap().id();
    root.set(&tx, Property::ReadOnly, Some(1)).unwrap();
    assert!(root.destroy_object(&tx, old).is_err());
    root.destroy_object(&tx, new).unwrap();
    root.set(&tx, Property::ReadOnly, Some(0)).unwrap();
    drop(tx);
    let tx = pool.begin_tx().unwrap();
    root.create_object_with(&tx, new, 4096).unwrap();
    drop(tx);
    pool.sync().unwrap();
    assert!(pool.check().unwrap().is_clean());
}
