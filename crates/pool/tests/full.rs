//! A pool that is full to the last byte: what it accepted it can sync, and it can always be emptied.

mod support;

use std::sync::Arc;

use fastness_pool::{Dataset, DatasetKind, ErrorKind, Object, ObjectId, Pool, PoolError, Property, Tx};
use support::{Rig, Rng, Shape, host, manual};

const BLOCKS: [u64; 6] = [512, 1024, 2048, 4096, 16 << 10, 128 << 10];
const LEN_BYTES: u64 = 24 << 20;

/// A pool with one object, and what the object should hold.
struct Full {
    rig: Arc<Rig>,
    pool: Pool,
    object: Object,
    bytes: Vec<u8>,
    block: u64,
    rng: Rng,
}

fn incompressible(rng: &mut Rng, len: usize) -> Vec<u8> {
    (0..len).map(|_| rng.next() as u8 | 1).collect()
}

fn is_no_space<T>(result: Result<T, PoolError>) -> bool {
    match result {
        Ok(_) => false,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{error:?}");
            true
        }
    }
}

fn dataset(pool: &Pool, block: u64, compression: u64) -> Dataset {
    let properties = [(Property::VolBlockSize, block), (Property::Compression, compression)];
    let tx = pool.begin_tx().unwrap();
    pool.create_dataset(&tx, "tank/full", DatasetKind::Volume, &properties).unwrap()
}

impl Full {
    fn empty(block: u64, compression: u64) -> Full {
        let rig = Rig::fresh(1, LEN_BYTES, block);
        let pool = Pool::create("tank", &Shape::Single.specs(rig.all()), manual()).unwrap();
        let dataset = dataset(&pool, block, compression);
        let object = dataset.create_object(&pool.begin_tx().unwrap()).unwrap();
        pool.sync().unwrap();
        Full { rig, pool, object, bytes: Vec::new(), block, rng: Rng::new(block) }
    }

    /// Appends until nothing fits, syncs, and again until nothing fits into an idle pool.
    fn fill(&mut self, mut next: impl FnMut(&mut Rng, usize) -> Vec<u8>) {
        loop {
            let before = self.bytes.len();
            let tx = self.pool.begin_tx().unwrap();
            loop {
                let data = next(&mut self.rng, self.block as usize);
                if is_no_space(self.object.write(&tx, self.bytes.len() as u64, &data)) {
                    break;
                }
                self.bytes.extend(data);
            }
            drop(tx);
            self.sync();
            if self.bytes.len() == before {
                return;
            }
        }
    }

    fn sync(&self) {
        self.pool.sync().unwrap_or_else(|error| panic!("blocks of {}: {error:?}", self.block));
    }

    /// Runs a change; if there is no room, once more after a sync.
    fn change(&self, change: impl Fn(&Tx) -> Result<(), PoolError>) -> bool {
        let once = || is_no_space(change(&self.pool.begin_tx().unwrap()));
        !once() || {
            self.sync();
            !once()
        }
    }

    fn punch(&mut self, offset: u64, len: u64) -> bool {
        let is_done = self.change(|tx| self.object.punch(tx, offset, len));
        if is_done {
            let end = (offset + len).min(self.bytes.len() as u64);
            self.bytes[offset as usize..end as usize].fill(0);
        }
        is_done
    }

    fn truncate(&mut self, size: u64) -> bool {
        let is_done = self.change(|tx| self.object.truncate(tx, size));
        if is_done {
            self.bytes.resize(size as usize, 0);
        }
        is_done
    }

    fn compare(&self) {
        let mut found = vec![0xee; self.bytes.len() + 1];
        assert_eq!(self.object.read(0, &mut found).unwrap(), self.bytes.len());
        let differs = found.iter().zip(&self.bytes).position(|(a, b)| a != b);
        assert_eq!(differs, None, "blocks of {}", self.block);
    }

    /// After a crash: what was synced last, and a pool that works.
    fn import(&mut self) {
        self.sync();
        let rig = Rig::new(self.rig.crash(1), 1);
        let pool = Pool::import(&rig.all(), &host(), manual()).unwrap();
        self.object = pool.dataset("tank/full").unwrap().object(ObjectId(1)).unwrap();
        (self.rig, self.pool) = (rig, pool);
        self.compare();
        let report = self.pool.check().unwrap();
        assert!(report.is_clean(), "{report:?}");
    }

    /// Everything can be cleared, and then as much fits as at first.
    fn empty_again(&mut self) {
        let held = self.bytes.len() as u64;
        let part = held.div_ceil(7).next_multiple_of(self.block);
        for offset in (0..held).step_by(part as usize) {
            assert!(self.punch(offset, part), "blocks of {}: whole blocks are freed always", self.block);
        }
        self.compare();
        for _ in 0..40 {
            self.sync();
        }
        self.import();
        let used = self.pool.dataset("tank/full").unwrap().used_bytes();
        assert_eq!(used, 0, "blocks of {}", self.block);
    }
}

#[test]
fn blocks_of_every_size_fill_a_pool_and_sync() {
    for block in BLOCKS {
        let mut full = Full::empty(block, 0);
        full.fill(incompressible);
        // A block below 4 KiB takes as much room as one of 4 KiB.
        assert!(full.bytes.len() as u64 / block * block.max(4096) > LEN_BYTES / 2, "blocks of {block}");
        full.compare();
        full.import();
        full.empty_again();
        let first = full.bytes.len();
        full.bytes.clear();
        assert!(full.truncate(0));
        full.fill(incompressible);
        assert!(full.bytes.len() * 10 > first * 9, "blocks of {block}: {} of {first}", full.bytes.len());
    }
}

#[test]
fn odd_ranges_are_punched_in_a_full_pool() {
    for block in BLOCKS {
        let mut full = Full::empty(block, 0);
        full.fill(incompressible);
        // In one txg, as many as are taken. Each leaves a part of a block, or of two.
        let mut taken = 0;
        for _ in 0..5000 {
            let offset = full.rng.below(full.bytes.len() as u64 - 3 * block) | 1;
            let len = full.rng.below(block / 2) | 1;
            let tx = full.pool.begin_tx().unwrap();
            if !is_no_space(full.object.punch(&tx, offset, len)) {
                full.bytes[offset as usize..(offset + len) as usize].fill(0);
                taken += 1;
            }
        }
        assert!(taken > 1, "blocks of {block}");
        full.compare();
        full.import();
        // And over many.
        for round in 0..60 {
            let offset = full.rng.below(full.bytes.len() as u64 - 3 * block) | 1;
            let len = full.rng.below(2 * block) | 1;
            assert!(full.punch(offset, len), "blocks of {block}, round {round}");
            if full.rng.below(4) == 0 {
                full.sync();
            }
        }
        full.compare();
        full.import();
        full.empty_again();
    }
}

#[test]
fn a_full_pool_is_cut_to_odd_sizes() {
    for block in BLOCKS {
        let mut full = Full::empty(block, 0);
        full.fill(incompressible);
        let mut size = full.bytes.len() as u64;
        for _ in 0..60 {
            size -= full.rng.below(2 * block) | 1;
            assert!(full.truncate(size), "blocks of {block}");
        }
        full.compare();
        full.import();
        full.empty_again();
    }
}

/// What was stored in one unit each takes many when a byte of it changes.
#[test]
fn blocks_that_do_not_compress_any_more_are_cleared_in_part() {
    for block in [16 << 10, 128 << 10] {
        let mut full = Full::empty(block, 1);
        full.fill(|rng, len| {
            let mut data = vec![rng.next() as u8 | 1; len];
            data[..3900].copy_from_slice(&incompressible(rng, 3900));
            data
        });
        assert!(full.bytes.len() as u64 > LEN_BYTES, "they were compressed");
        let tx = full.pool.begin_tx().unwrap();
        let dataset = full.pool.dataset("tank/full").unwrap();
        dataset.set(&tx, Property::Compression, Some(0)).unwrap();
        drop(tx);
        let count = full.bytes.len() as u64 / block;
        let mut refused = 0;
        for at in 0..count {
            refused += u64::from(!full.punch(at * block + 7, 1));
        }
        assert!(refused > 0, "a pool has an end");
        full.compare();
        full.import();
        full.empty_again();
    }
}
