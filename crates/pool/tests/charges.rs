//! What a txg takes is what was reserved for it, but for a few pages that all changes share: found out with
//! pools that have room enough, so that no estimate is right only because something else was too high.

mod support;

use std::cell::Cell;

use fastness_pool::{DatasetKind, Object, ObjectId, Pool, PoolOptions, Property, TableId};
use support::{Rig, Rng, Shape, manual};

/// Roots of tables, the page map, bitmaps of free space.
const SHARED_BYTES: u64 = 160 << 10;
const SPAN: u64 = 1 << 40;

struct World {
    pool: Pool,
    rng: Rng,
    /// Most datasets that there were.
    datasets: Cell<u64>,
}

impl World {
    fn new(len_bytes: u64, frees_per_txg: usize) -> World {
        let rig = Rig::fresh(1, len_bytes, 1);
        let options = PoolOptions { frees_per_txg, ..manual() };
        let pool = Pool::create("tank", &Shape::Single.specs(rig.all()), options).unwrap();
        World { pool, rng: Rng::new(1), datasets: Cell::new(0) }
    }

    fn volume(&self, name: &str, block: u64) -> Object {
        let tx = self.pool.begin_tx().unwrap();
        let properties = [(Property::VolBlockSize, block)];
        let dataset = self.pool.create_dataset(&tx, name, DatasetKind::Volume, &properties).unwrap();
        dataset.create_object(&tx).unwrap()
    }

    fn data(&mut self, len: u64) -> Vec<u8> {
        (0..len / 8).flat_map(|_| self.rng.next().to_le_bytes()).collect()
    }

    fn write(&mut self, object: &Object, at: u64, len: u64) {
        let data = self.data(len);
        object.write(&self.pool.begin_tx().unwrap(), at, &data).unwrap();
    }

    fn sync(&self, what: &str) {
        self.pool.sync().unwrap();
        let taken = self.pool.status().unreserved_bytes_max;
        // A page is kept for each dataset; rows take an eighth of it.
        self.datasets.set(self.datasets.get().max(self.pool.datasets().len() as u64));
        let kept = SHARED_BYTES + self.datasets.get() * 512;
        assert!(taken <= kept, "{what}: {taken} bytes that nobody had reserved");
    }
}

/// Each block in a row of its own, in tables that grow to several levels; then rows grow, and split pages.
#[test]
fn rows_that_are_far_apart() {
    let mut world = World::new(512 << 20, 4096);
    let object = world.volume("tank/v", 4096);
    let mut written = Vec::new();
    for count in [1, 10, 100, 1000, 3000, 100, 1] {
        for _ in 0..3 {
            for _ in 0..count {
                let at = world.rng.below(SPAN / 4096) * 4096;
                world.write(&object, at, 4096);
                written.push(at);
            }
            world.sync("new rows");
        }
    }
    for count in [1, 10, 1000, 3000] {
        for _ in 0..count {
            let row = written[world.rng.below(written.len() as u64) as usize] / 131_072;
            let at = row * 131_072 + world.rng.below(32) * 4096;
            world.write(&object, at, 4096);
        }
        world.sync("rows that grow");
    }
    for (count, len) in [(1, 4096), (100, 4096), (3000, 4096), (10, 1 << 28), (300, 1 << 30)] {
        for _ in 0..count {
            let at = written[world.rng.below(written.len() as u64) as usize];
            object.punch(&world.pool.begin_tx().unwrap(), at, len).unwrap();
        }
        world.sync("rows that go");
    }
}

/// Leaves a pool whose free space is in single units.
fn in_holes(len_bytes: u64) -> World {
    let mut world = World::new(len_bytes, 20);
    let small = world.volume("tank/small", 4096);
    let blocks = world.pool.status().free_bytes / 4096 - 1000;
    for at in 0..blocks {
        world.write(&small, at * 4096, 4096);
        if at % 4000 == 0 {
            world.sync("small blocks");
        }
    }
    world.sync("small blocks");
    for at in (0..blocks).step_by(2) {
        small.punch(&world.pool.begin_tx().unwrap(), at * 4096, 4096).unwrap();
        if at % 4000 == 0 {
            world.sync("holes");
        }
    }
    world.sync("holes");
    world
}

/// Rows of pieces are in the order of places, those of extents in that of blocks: where both differ, a row of
/// extents that is written again has its rows of pieces in as many pages as it has blocks.
#[test]
fn rows_of_pieces_that_are_far_apart() {
    let mut world = in_holes(128 << 20);
    let volume = world.volume("tank/v", 8192);
    for part in 0..80 {
        for at in (part..6400).step_by(80) {
            world.write(&volume, at * 37 % 6400 * 8192, 8192);
        }
        world.sync("in pieces");
    }
    for round in 0..4 {
        world.write(&volume, round * 320 * 8192, 320 * 8192);
        world.sync("in other pieces");
    }
}

/// Large blocks written in single units, overwritten and freed.
#[test]
fn blocks_in_pieces() {
    let mut world = in_holes(96 << 20);
    let mut volumes = Vec::new();
    for (index, block) in [8192, 64 << 10, 1 << 20].into_iter().enumerate() {
        let volume = world.volume(&format!("tank/v{index}"), block);
        for _ in 0..3 {
            for at in 0..(3 << 20) / block {
                world.write(&volume, at * block, block);
            }
            world.sync("in pieces");
        }
        volumes.push(volume);
    }
    for volume in volumes {
        volume.punch(&world.pool.begin_tx().unwrap(), 0, 1 << 20).unwrap();
        world.sync("pieces that go");
        volume.truncate(&world.pool.begin_tx().unwrap(), 0).unwrap();
        (0..20).for_each(|_| world.sync("pieces that go"));
    }
}

/// Rows of tables, with short and long keys and values, all over a table of several levels: new ones, then
/// such that are replaced by ones of the same length, by longer and by shorter ones, and removed.
#[test]
fn rows_of_tables_that_are_far_apart() {
    let (short, long) = (TableId(0), TableId::FIRST_LONG);
    let tables = [(short, 16, 64), (short, 256, 20), (short, 1024, 20), (short, 16, 1000)];
    let long = [(long, 16, 64), (long, 16, 5000), (long, 200, 5000), (long, 900, 5000), (long, 16, 65_536)];
    for (id, key_bytes, value_bytes) in tables.into_iter().chain(long) {
        let mut world = World::new(1 << 30, 4096);
        let table = world.pool.dataset("tank").unwrap().table(id);
        let mut keys: Vec<Vec<u8>> = Vec::new();
        let longer = if id == short { (1279 - key_bytes).min(1023) } else { 65_536.min(3 * value_bytes) };
        let value = vec![7; longer];
        let most = (30_000_000 / (key_bytes * (1 + value_bytes / 1000) + value_bytes)).min(10_000);
        for count in [1, 10, 100, most, 200, 1] {
            let tx = world.pool.begin_tx().unwrap();
            for _ in 0..count {
                let key: Vec<u8> = (0..key_bytes).map(|_| world.rng.next() as u8).collect();
                table.put(&tx, &key, &value[..value_bytes]).unwrap();
                keys.push(key);
            }
            drop(tx);
            world.sync("new rows");
        }
        for len in [value_bytes, 1, longer, 1, value_bytes] {
            let tx = world.pool.begin_tx().unwrap();
            for _ in 0..200 {
                let key = &keys[world.rng.below(keys.len() as u64) as usize];
                table.put(&tx, key, &value[..len]).unwrap();
            }
            drop(tx);
            world.sync(&format!("{id:?} {key_bytes} {value_bytes} to {len}"));
        }
        while keys.len() > 1 {
            let tx = world.pool.begin_tx().unwrap();
            for _ in 0..200.min(keys.len()) {
                let at = world.rng.below(keys.len() as u64) as usize;
                table.remove(&tx, &keys.swap_remove(at)).unwrap();
            }
            drop(tx);
            world.sync(&format!("{id:?} {key_bytes} {value_bytes} removed"));
        }
        assert!(world.pool.check().unwrap().is_clean());
    }
}

#[test]
fn many_objects_and_datasets() {
    let world = World::new(256 << 20, 50);
    for part in 0..5 {
        for number in 0..100 {
            let name = format!("tank/a-rather-long-name-of-a-volume-{part}-{number}");
            let object = world.volume(&name, 512);
            object.write(&world.pool.begin_tx().unwrap(), 0, &[1]).unwrap();
        }
        world.sync("datasets");
    }
    // A header for each, as logs store them.
    let key = [7; 200];
    for round in 1..4 {
        let tx = world.pool.begin_tx().unwrap();
        for info in world.pool.datasets() {
            world.pool.put_aux(&tx, info.id, b"log", Some(&key[..50 * round]));
        }
        drop(tx);
        world.sync("headers");
    }
    let tx = world.pool.begin_tx().unwrap();
    let root = world.pool.dataset("tank").unwrap();
    (0..3000).for_each(|_| drop(root.create_object(&tx).unwrap()));
    drop(tx);
    world.sync("objects");
    let tx = world.pool.begin_tx().unwrap();
    (1..=3000).for_each(|id| root.destroy_object(&tx, ObjectId(id)).unwrap());
    drop(tx);
    let names: Vec<_> = world.pool.datasets().into_iter().map(|info| info.name).collect();
    for name in names.iter().filter(|name| *name != "tank") {
        world.pool.destroy_dataset(&world.pool.begin_tx().unwrap(), name).unwrap();
    }
    for _ in 0..200 {
        world.sync("destroyed");
    }
    assert!(!world.pool.is_freeing() && world.pool.check().unwrap().is_clean());
}
