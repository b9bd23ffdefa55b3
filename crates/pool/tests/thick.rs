//! Thick volumes: whatever others store and whichever snapshots there are, each block finds room.

mod support;

use std::sync::Arc;

use fastness_pool::{
    Dataset, DatasetKind, Feature, Object, ObjectId, Pool, PoolError, Property, Tx, VdevSpec, thick_bytes,
};
use support::{Rig, Rng, host, manual};

const MIB: u64 = 1 << 20;
const BLOCK_BYTES: u64 = 4096;

struct World {
    rig: Arc<Rig>,
    pool: Pool,
    rng: Rng,
}

impl World {
    fn new(pool_bytes: u64, seed: u64) -> World {
        let rig = Rig::fresh(1, pool_bytes, seed);
        let pool = Pool::create("tank", &[VdevSpec::single(rig.device(0))], manual()).unwrap();
        World { rig, pool, rng: Rng::new(seed) }
    }

    fn tx<T>(&self, change: impl FnOnce(&Tx) -> T) -> T {
        change(&self.pool.begin_tx().unwrap())
    }

    /// A volume that is thick, if it has a size.
    fn volume(&self, name: &str, thick: u64) -> Result<(), PoolError> {
        self.tx(|tx| {
            let properties = [(Property::VolBlockSize, BLOCK_BYTES), (Property::RefReservation, thick)];
            let count = if thick > 0 { 2 } else { 1 };
            self.pool
                .create_dataset(tx, name, DatasetKind::Volume, &properties[..count])?
                .create_object(tx)?;
            Ok::<(), PoolError>(())
        })?;
        self.pool.sync().map(drop)
    }

    fn dataset(&self, name: &str) -> Dataset {
        self.pool.dataset(name).unwrap()
    }

    fn data(&self, name: &str) -> Object {
        self.dataset(name).object(ObjectId(1)).unwrap()
    }

    /// Bytes that do not compress.
    fn noise(&mut self, len: u64) -> Vec<u8> {
        (0..len / 8).flat_map(|_| self.rng.next().to_le_bytes()).collect()
    }

    /// Writes; if there is no room, once more after what is unsynced has synced.
    fn write(&mut self, name: &str, block: u64, blocks: u64) -> Result<(), PoolError> {
        let data = self.noise(blocks * BLOCK_BYTES);
        let object = self.data(name);
        let write = |tx: &Tx| object.write(tx, block * BLOCK_BYTES, &data);
        match self.tx(write) {
            Err(PoolError::NoSpace { .. }) => {
                self.settle();
                self.tx(write)
            }
            result => result,
        }
    }

    fn settle(&self) {
        self.pool.sync().unwrap();
        while self.pool.is_freeing() {
            self.pool.sync().unwrap();
        }
    }

    /// Another volume takes all that it gets.
    fn fill(&mut self, name: &str) -> u64 {
        let mut block = self.data(name).size_bytes() / BLOCK_BYTES;
        while self.write(name, block, 16).is_ok() {
            block += 16;
        }
        while self.write(name, block, 1).is_ok() {
            block += 1;
        }
        block * BLOCK_BYTES
    }

    fn check(&self) {
        self.settle();
        let report = self.pool.check().unwrap();
        assert!(report.is_clean(), "{report:?}");
    }

    fn snapshot(&self, name: &str) -> Result<(), PoolError> {
        self.tx(|tx| self.pool.snapshot(tx, name).map(drop))?;
        self.pool.sync().map(drop)
    }

    fn again(self) -> World {
        let World { rig, pool, rng } = self;
        pool.export().unwrap();
        drop(pool);
        let pool = Pool::import(&rig.all(), &host(), manual()).unwrap();
        World { rig, pool, rng }
    }
}

/// Blocks of a volume in an order in which no two are neighbours.
fn scattered(blocks: u64) -> impl Iterator<Item = u64> {
    (0..blocks).map(move |at| at * 997 % blocks)
}

#[test]
fn a_full_pool_takes_each_block_of_a_thick_volume_and_takes_it_again() {
    let mut world = World::new(64 * MIB, 1);
    let thick = thick_bytes(16 * MIB, BLOCK_BYTES);
    world.volume("tank/thick", thick).unwrap();
    world.volume("tank/other", 0).unwrap();
    let taken = world.fill("tank/other");
    assert!(taken < 64 * MIB - thick, "{taken} bytes were not kept");
    assert!(taken > 36 * MIB, "no more was kept than needed: {taken} bytes were left");
    for block in scattered(thick / BLOCK_BYTES) {
        world.write("tank/thick", block, 1).unwrap();
    }
    // What was kept for rows of tables, and not needed, others can have; and no more.
    let more = world.fill("tank/other") - taken;
    assert!(more < MIB, "{more}");
    let mut world = world.again();
    for block in scattered(thick / BLOCK_BYTES) {
        world.write("tank/thick", block, 1).unwrap();
    }
    world.check();
    assert!(world.pool.is_active(Feature::ThickVolumes));
}

/// The slop is for those whose blocks are all sure to find room.
#[test]
fn a_volume_longer_than_what_is_kept_for_it_leaves_the_others_theirs() {
    let mut world = World::new(64 * MIB, 5);
    let thick = thick_bytes(16 * MIB, BLOCK_BYTES);
    world.volume("tank/thick", thick).unwrap();
    for block in scattered(thick / BLOCK_BYTES) {
        world.write("tank/thick", block, 1).unwrap();
    }
    world.settle();
    for name in ["tank/long", "tank/longer"] {
        world.volume(name, MIB).unwrap();
        world.tx(|tx| world.data(name).truncate(tx, 1 << 30)).unwrap();
    }
    for name in ["tank/long", "tank/longer"] {
        world.fill(name);
    }
    for block in scattered(thick / BLOCK_BYTES) {
        world.write("tank/thick", block, 1).unwrap();
    }
    world.check();
}

#[test]
fn a_snapshot_needs_the_room_once_more() {
    let mut world = World::new(64 * MIB, 2);
    let thick = 16 * MIB;
    world.volume("tank/thick", thick).unwrap();
    world.volume("tank/other", 0).unwrap();
    for at in 0..64 {
        world.write("tank/thick", at * 64, 64).unwrap();
    }
    world.settle();
    let before = world.dataset("tank/other").available_bytes().0;
    world.snapshot("tank/thick@one").unwrap();
    let after = world.dataset("tank/other").available_bytes().0;
    assert!(before - after >= thick, "{before} {after}");
    let refused = world.snapshot("tank/thick@two");
    refused.unwrap_or_else(|error| panic!("nothing was written since the first one: {error}"));
    // As much is kept after an import, but for a page or two.
    let kept = world.dataset("tank/other").available_bytes().0;
    let mut world = world.again();
    assert!(world.dataset("tank/other").available_bytes().0.abs_diff(kept) < MIB);
    world.fill("tank/other");
    let mut world = world.again();
    for at in 0..64 {
        world.write("tank/thick", at * 64, 64).unwrap();
    }
    world.settle();
    let refused = world.snapshot("tank/thick@three").unwrap_err();
    assert!(matches!(&refused, PoolError::NoRoomForSnapshot { volume, .. } if volume == "tank/thick"));
    assert!(refused.to_string().contains("refreservation=none"), "{refused}");
    // What goes with snapshots is room again, for others, too.
    for name in ["tank/thick@one", "tank/thick@two"] {
        world.tx(|tx| world.pool.destroy_dataset(tx, name)).unwrap();
    }
    world.settle();
    let free = world.dataset("tank/other").available_bytes().0;
    assert!(free > 15 * MIB, "{free}");
    world.check();
}

#[test]
fn what_the_pool_cannot_keep_is_refused() {
    let world = World::new(64 * MIB, 3);
    assert!(matches!(world.volume("tank/v", 1 << 40), Err(PoolError::Reservation { .. })));
    world.volume("tank/v", 32 * MIB).unwrap();
    assert!(matches!(world.volume("tank/w", 32 * MIB), Err(PoolError::Reservation { .. })));
    let set = |name: &str, bytes| world.tx(|tx| world.dataset(name).set(tx, Property::RefReservation, bytes));
    set("tank/v", Some(8 * MIB)).unwrap();
    world.volume("tank/w", 32 * MIB).unwrap();
    assert!(matches!(set("tank/v", Some(32 * MIB)), Err(PoolError::Reservation { .. })));
    set("tank/w", None).unwrap();
    set("tank/v", Some(32 * MIB)).unwrap();
    assert!(matches!(set("tank", Some(MIB)), Err(PoolError::Invalid { .. })), "volumes have it");
    // What a dataset above has reserved is the same room.
    let before = world.dataset("tank/w").available_bytes().0;
    world.tx(|tx| world.pool.create_dataset(tx, "tank/d", DatasetKind::Folder, &[]).map(drop)).unwrap();
    let reserve = [(Property::Reservation, Some(4 * MIB))];
    world.tx(|tx| world.dataset("tank/d").set_all(tx, &reserve, &[])).unwrap();
    world.volume("tank/d/v", 3 * MIB).unwrap();
    let after = world.dataset("tank/w").available_bytes().0;
    assert!((4 * MIB..5 * MIB).contains(&(before - after)), "{before} {after}");
    world.check();
}

/// Whatever happens: a write to the thick volume finds room, and what is counted for snapshots is right.
#[test]
fn no_order_of_snapshots_and_writes_takes_the_room() {
    let seeds = std::env::var("FASTNESS_THICK_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(12);
    for seed in 0..seeds {
        let mut world = World::new(48 * MIB, 100 + seed);
        let thick = 8 * MIB;
        let blocks = thick / BLOCK_BYTES;
        world.volume("tank/thick", thick).unwrap();
        world.volume("tank/other", 0).unwrap();
        let (mut names, mut count, mut refused) = (Vec::new(), 0, 0);
        for step in 0..120 {
            let what = world.rng.below(16);
            match what {
                0..=6 => {
                    let len = 1 + world.rng.below(64);
                    let at = world.rng.below(blocks - len);
                    let result = world.write("tank/thick", at, len);
                    result.unwrap_or_else(|error| panic!("seed {seed}, step {step}: {error}"));
                }
                7..=9 => {
                    let at = world.rng.below(12 * MIB / BLOCK_BYTES);
                    let _ = world.write("tank/other", at, 64);
                }
                10 => {
                    let at = world.rng.below(blocks);
                    let object = world.data("tank/thick");
                    world.tx(|tx| object.punch(tx, at * BLOCK_BYTES, 100 * BLOCK_BYTES)).unwrap();
                }
                11 | 12 => {
                    count += 1;
                    let name = format!("tank/thick@{count}");
                    match world.snapshot(&name) {
                        Ok(()) => names.push(name),
                        Err(PoolError::NoRoomForSnapshot { .. }) => refused += 1,
                        Err(error) => panic!("seed {seed}, step {step}: {error}"),
                    }
                }
                13 if !names.is_empty() => {
                    let name = names.remove(world.rng.below(names.len() as u64) as usize);
                    world.tx(|tx| world.pool.destroy_dataset(tx, &name)).unwrap();
                }
                14 if !names.is_empty() => {
                    world.pool.rollback(names.last().unwrap(), false).unwrap();
                }
                15 => world = world.again(),
                _ => drop(world.pool.sync().unwrap()),
            }
            if step % 20 == 19 {
                world.check();
            }
        }
        world.fill("tank/other");
        for at in 0..blocks / 64 {
            world.write("tank/thick", at * 64, 64).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
        world.check();
        assert!(count > refused, "seed {seed} made a snapshot");
    }
}
