//! Snapshots and clones of volumes: what they show, what they take, and when space is free again.

mod support;

use std::sync::Arc;

use fastness_pool::{
    Dataset, DatasetKind, Feature, Guid, Object, ObjectId, Pool, PoolError, PoolOptions, Property, Tx,
    VdevSpec,
};
use support::{Rig, host, manual};

const BLOCK_BYTES: usize = 4096;
/// Of several rows.
const BLOCKS: usize = 100;
const LEN_BYTES: usize = BLOCKS * BLOCK_BYTES;

struct World {
    rig: Arc<Rig>,
    pool: Pool,
}

impl World {
    /// A pool with a volume that is full of the bytes of salt 1.
    fn new() -> World {
        World::with(manual())
    }

    fn with(options: PoolOptions) -> World {
        let rig = Rig::fresh(1, 64 << 20, 7);
        let pool = Pool::create("tank", &[VdevSpec::single(rig.device(0))], options).unwrap();
        let world = World { rig, pool };
        world.tx(|tx| {
            let properties = [(Property::VolBlockSize, BLOCK_BYTES as u64)];
            let dataset = world.pool.create_dataset(tx, "tank/v", DatasetKind::Volume, &properties).unwrap();
            dataset.create_object(tx).unwrap().write(tx, 0, &bytes(1, LEN_BYTES)).unwrap();
        });
        world.settle();
        world
    }

    fn tx<T>(&self, change: impl FnOnce(&Tx) -> T) -> T {
        change(&self.pool.begin_tx().unwrap())
    }

    /// Syncs until nothing is left to be freed; the check finds nothing wrong. Returns the units in use.
    fn settle(&self) -> u64 {
        self.pool.sync().unwrap();
        while self.pool.is_freeing() {
            self.pool.sync().unwrap();
            self.check();
        }
        self.check()
    }

    fn check(&self) -> u64 {
        let report = self.pool.check().unwrap();
        assert!(report.is_clean(), "{report:?}");
        report.referenced_units
    }

    fn dataset(&self, name: &str) -> Dataset {
        self.pool.dataset(name).unwrap()
    }

    fn open(&self, name: &str) -> Object {
        self.dataset(name).object(ObjectId(1)).unwrap()
    }

    fn read(&self, name: &str) -> Vec<u8> {
        let object = self.open(name);
        let mut buf = vec![0xee; object.size_bytes() as usize];
        object.read(0, &mut buf).unwrap();
        buf
    }

    fn write(&self, name: &str, block: usize, blocks: usize, salt: u8) {
        let data = bytes(salt, blocks * BLOCK_BYTES);
        self.tx(|tx| self.open(name).write(tx, (block * BLOCK_BYTES) as u64, &data).unwrap());
    }

    fn punch(&self, name: &str, block: usize, blocks: usize) {
        let (offset, len) = ((block * BLOCK_BYTES) as u64, (blocks * BLOCK_BYTES) as u64);
        self.tx(|tx| self.open(name).punch(tx, offset, len).unwrap());
    }

    fn snapshot(&self, name: &str) {
        self.tx(|tx| self.pool.snapshot(tx, name).unwrap());
        self.pool.sync().unwrap();
    }

    fn make_clone(&self, snapshot: &str, name: &str) {
        self.tx(|tx| self.pool.clone_snapshot(tx, snapshot, name, &[]).unwrap());
        self.pool.sync().unwrap();
    }

    fn destroy(&self, name: &str) {
        self.tx(|tx| self.pool.destroy_dataset(tx, name).unwrap());
    }

    fn import_again(self) -> World {
        let images = self.rig.crash(3);
        drop(self.pool);
        let rig = Rig::new(images, 8);
        let pool = Pool::import(&rig.all(), &host(), manual()).unwrap();
        World { rig, pool }
    }
}

fn bytes(salt: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 7 % 251) as u8 ^ salt ^ (at / BLOCK_BYTES) as u8).collect()
}

/// The volume after [`World::write`] of these.
fn written(parts: &[(usize, usize, u8)]) -> Vec<u8> {
    let mut all = bytes(1, LEN_BYTES);
    for (block, blocks, salt) in parts {
        let at = block * BLOCK_BYTES;
        all[at..at + blocks * BLOCK_BYTES].copy_from_slice(&bytes(*salt, blocks * BLOCK_BYTES));
    }
    all
}

#[test]
fn a_snapshot_stays_as_it_was_and_takes_only_what_changed() {
    let world = World::new();
    let before = world.check();
    world.snapshot("tank/v@a");
    assert_eq!(world.check(), before, "a snapshot takes no data");
    world.write("tank/v", 10, 50, 2);
    world.write("tank/v", 20, 3, 3);
    assert_eq!(world.settle(), before + 50);
    world.snapshot("tank/v@b");
    world.write("tank/v", 0, 20, 4);
    assert_eq!(world.settle(), before + 70);
    let world = world.import_again();
    assert!(world.pool.is_active(Feature::Snapshots) && !world.pool.is_active(Feature::Clones));
    assert_eq!(world.read("tank/v@a"), bytes(1, LEN_BYTES));
    assert_eq!(world.read("tank/v@b"), written(&[(10, 50, 2), (20, 3, 3)]));
    assert_eq!(world.read("tank/v"), written(&[(10, 50, 2), (20, 3, 3), (0, 20, 4)]));
    let names: Vec<_> = world.pool.snapshots().into_iter().map(|info| info.name).collect();
    assert_eq!(names, ["tank/v@a", "tank/v@b"]);
    assert_eq!(world.dataset("tank/v").snapshots(), names);
    assert_eq!(world.dataset("tank/v@a").name(), "tank/v@a");
}

/// Writes that returned before the command are in it, of whatever txg; those after it returned are not.
#[test]
fn a_snapshot_has_what_was_not_synced_yet() {
    let world = World::new();
    world.write("tank/v", 5, 10, 2);
    world.snapshot("tank/v@a");
    world.write("tank/v", 5, 10, 3);
    world.settle();
    assert_eq!(world.read("tank/v@a"), written(&[(5, 10, 2)]));
    assert_eq!(world.read("tank/v"), written(&[(5, 10, 3)]));
}

/// The txg of the snapshot still syncs when the next one has changes already.
#[test]
fn changes_of_the_next_txg_are_not_in_it() {
    let world = World::new();
    let older = world.pool.begin_tx().unwrap();
    std::thread::scope(|scope| {
        let syncing = scope.spawn(|| world.pool.sync().unwrap());
        while world.pool.open_txg() == older.txg() {
            std::thread::yield_now();
        }
        world.write("tank/v", 0, 40, 2);
        world.pool.snapshot(&older, "tank/v@a").unwrap();
        world.open("tank/v").write(&older, 0, &bytes(3, BLOCK_BYTES)).unwrap();
        drop(older);
        syncing.join().unwrap();
    });
    world.settle();
    assert_eq!(world.read("tank/v@a"), written(&[(0, 1, 3)]));
    let mut now = written(&[(0, 40, 2)]);
    now[..BLOCK_BYTES].copy_from_slice(&bytes(3, BLOCK_BYTES));
    assert_eq!(world.read("tank/v"), now);
}

#[test]
fn space_is_free_when_the_last_that_has_it_is_gone() {
    for first in ["tank/v@a", "tank/v@b", "tank/v@c"] {
        let world = World::new();
        let before = world.check();
        for (name, salt) in [("tank/v@a", 2), ("tank/v@b", 3), ("tank/v@c", 4)] {
            world.snapshot(name);
            world.write("tank/v", 10, 20, salt);
        }
        assert_eq!(world.settle(), before + 60);
        let (bytes_of, _) = world.pool.snapshot_bytes("tank/v", None).unwrap();
        let unit = (20 * BLOCK_BYTES) as u64;
        assert_eq!(bytes_of.values().copied().collect::<Vec<_>>(), [unit; 3]);
        world.destroy(first);
        assert_eq!(world.settle(), before + 40, "{first}");
        for name in ["tank/v@a", "tank/v@b", "tank/v@c"].into_iter().filter(|name| *name != first) {
            world.destroy(name);
        }
        assert_eq!(world.settle(), before);
        assert_eq!(world.read("tank/v"), written(&[(10, 20, 4)]));
        assert_eq!(world.dataset("tank/v").used_bytes(), LEN_BYTES as u64);
    }
}

/// A row that no snapshot in between has seen change serves all of them.
#[test]
fn what_several_snapshots_show_stays_for_the_last_of_them() {
    let world = World::new();
    let before = world.check();
    world.snapshot("tank/v@a");
    world.snapshot("tank/v@b");
    world.write("tank/v", 0, 10, 2);
    world.settle();
    let ids: Vec<_> = world.pool.snapshots().into_iter().map(|info| info.id).collect();
    let (bytes_of, both) = world.pool.snapshot_bytes("tank/v", Some((ids[0], ids[1]))).unwrap();
    assert_eq!(bytes_of.values().copied().collect::<Vec<_>>(), [0, 0], "neither has it alone");
    assert_eq!(both, (10 * BLOCK_BYTES) as u64);
    world.destroy("tank/v@b");
    assert_eq!(world.settle(), before + 10);
    assert_eq!(world.read("tank/v@a"), bytes(1, LEN_BYTES));
    world.destroy("tank/v@a");
    assert_eq!(world.settle(), before);
}

#[test]
fn what_was_cleared_stays_for_snapshots_from_before() {
    for frees_per_txg in [1, 4096] {
        let world = World::with(PoolOptions { frees_per_txg, ..manual() });
        let before = world.check();
        world.snapshot("tank/v@a");
        // At once, and in steps.
        world.punch("tank/v", 3, 5);
        world.punch("tank/v", 20, 75);
        world.pool.sync().unwrap();
        assert_eq!(world.read("tank/v@a"), bytes(1, LEN_BYTES));
        // While the steps go on.
        world.snapshot("tank/v@b");
        let shows = |world: &World, name: &str| {
            let found = world.read(name);
            let mut expected = bytes(1, LEN_BYTES);
            expected[3 * BLOCK_BYTES..8 * BLOCK_BYTES].fill(0);
            expected[20 * BLOCK_BYTES..95 * BLOCK_BYTES].fill(0);
            assert!(found == expected, "{name}");
        };
        shows(&world, "tank/v@b");
        world.write("tank/v", 20, 75, 9);
        world.punch("tank/v", 0, 98);
        world.settle();
        assert_eq!(world.read("tank/v@a"), bytes(1, LEN_BYTES));
        shows(&world, "tank/v@b");
        let world = world.import_again();
        shows(&world, "tank/v@b");
        world.destroy("tank/v@a");
        world.settle();
        shows(&world, "tank/v@b");
        assert_eq!(world.check(), 100 - 80, "what only the first one showed is free");
        world.destroy("tank/v@b");
        assert_eq!(world.settle(), 2);
        assert!(before > 2);
    }
}

/// Cleared before the snapshot, freed after it: no snapshot needs it.
#[test]
fn what_was_cleared_before_a_snapshot_is_freed_all_the_same() {
    let world = World::with(PoolOptions { frees_per_txg: 1, ..manual() });
    world.punch("tank/v", 0, 100);
    world.snapshot("tank/v@a");
    assert!(world.check() > 50, "not freed yet");
    assert_eq!(world.settle(), 0);
    assert_eq!(world.read("tank/v@a"), vec![0; LEN_BYTES]);
}

#[test]
fn a_clone_begins_as_its_snapshot_and_goes_its_own_way() {
    let world = World::new();
    let before = world.check();
    world.snapshot("tank/v@a");
    world.write("tank/v", 40, 10, 2);
    world.make_clone("tank/v@a", "tank/c");
    assert_eq!(world.read("tank/c"), bytes(1, LEN_BYTES));
    world.write("tank/c", 0, 5, 3);
    world.punch("tank/c", 45, 10);
    assert_eq!(world.settle(), before + 15);
    assert_eq!(world.dataset("tank/c").used_bytes(), (5 * BLOCK_BYTES) as u64, "what it has alone");
    assert_eq!(world.dataset("tank/c").shown_bytes().unwrap(), (90 * BLOCK_BYTES) as u64);
    assert_eq!(world.dataset("tank/c").origin().as_deref(), Some("tank/v@a"));
    world.snapshot("tank/c@b");
    world.write("tank/c", 2, 50, 4);
    world.make_clone("tank/c@b", "tank/d");
    world.settle();
    let world = world.import_again();
    let mut at_b = written(&[(0, 5, 3)]);
    at_b[45 * BLOCK_BYTES..55 * BLOCK_BYTES].fill(0);
    assert!(world.read("tank/c@b") == at_b);
    assert!(world.read("tank/d") == at_b);
    assert!(world.read("tank/v") == written(&[(40, 10, 2)]));
    assert!(world.read("tank/v@a") == bytes(1, LEN_BYTES));
    // All of it is cleared, in steps: nothing of its base shows again.
    world.punch("tank/d", 0, 100);
    world.settle();
    assert!(world.read("tank/d") == vec![0; LEN_BYTES]);
    for name in ["tank/d", "tank/c@b", "tank/c", "tank/v@a"] {
        world.destroy(name);
        world.settle();
    }
    assert_eq!(world.check(), before);
    assert!(world.read("tank/v") == written(&[(40, 10, 2)]));
}

#[test]
fn a_volume_goes_back_to_its_newest_snapshot() {
    let world = World::new();
    let before = world.check();
    world.snapshot("tank/v@a");
    world.write("tank/v", 10, 50, 2);
    world.snapshot("tank/v@b");
    world.write("tank/v", 30, 40, 3);
    world.tx(|tx| world.open("tank/v").truncate(tx, 4096 * 50).unwrap());
    world.punch("tank/v", 0, 45);
    // Not synced: that, too, is undone.
    let refused = world.pool.rollback("tank/v@a", false).unwrap_err();
    assert!(matches!(&refused, PoolError::NotNewest { newer, .. } if newer == &["tank/v@b"]), "{refused}");
    world.pool.rollback("tank/v@b", false).unwrap();
    assert!(world.read("tank/v") == written(&[(10, 50, 2)]));
    assert_eq!(world.settle(), before + 50);
    world.write("tank/v", 0, 1, 5);
    world.pool.rollback("tank/v@a", true).unwrap();
    assert!(world.read("tank/v") == bytes(1, LEN_BYTES));
    assert_eq!(world.dataset("tank/v").snapshots(), ["tank/v@a"]);
    assert_eq!(world.settle(), before);
    let world = world.import_again();
    assert!(world.read("tank/v") == bytes(1, LEN_BYTES));
    assert!(world.read("tank/v@a") == bytes(1, LEN_BYTES));
}

#[test]
fn what_is_needed_is_not_destroyed() {
    let world = World::new();
    world.snapshot("tank/v@a");
    let busy = |result: Result<(), PoolError>| matches!(result, Err(PoolError::Busy { .. }));
    assert!(busy(world.tx(|tx| world.pool.destroy_dataset(tx, "tank/v"))));
    world.make_clone("tank/v@a", "tank/c");
    world.snapshot("tank/v@b");
    let refused = world.tx(|tx| world.pool.destroy_dataset(tx, "tank/v@a")).unwrap_err();
    assert!(matches!(&refused, PoolError::HasClones { clones, .. } if clones == &["tank/c"]), "{refused}");
    let open = world.open("tank/v@b");
    assert!(busy(world.tx(|tx| world.pool.destroy_dataset(tx, "tank/v@b"))));
    assert!(matches!(
        world.tx(|tx| open.write(tx, 0, &[1])),
        Err(PoolError::ReadOnly(name)) if name == "tank/v@b"
    ));
    drop(open);
    let open = world.open("tank/v");
    assert!(busy(world.pool.rollback("tank/v@b", false).map(drop)));
    drop(open);
    let set = world.tx(|tx| world.dataset("tank/v@b").set(tx, Property::ReadOnly, Some(0)));
    assert!(matches!(set, Err(PoolError::Invalid { .. })));
    for name in ["tank/v@a/x", "tank/v@", "tank@a", "tank/v@b@c", "tank/none@a"] {
        assert!(world.tx(|tx| world.pool.snapshot(tx, name)).is_err(), "{name}");
        assert!(
            world.tx(|tx| world.pool.create_dataset(tx, name, DatasetKind::Volume, &[])).is_err(),
            "{name}"
        );
    }
    assert!(matches!(world.tx(|tx| world.pool.snapshot(tx, "tank/v@b")).unwrap_err(), PoolError::Exists(_)));
    world.settle();
    world.destroy("tank/c");
    world.destroy("tank/v@a");
    world.destroy("tank/v@b");
    world.destroy("tank/v");
    assert_eq!(world.settle(), 0);
}

/// A copy of a block shares its place; a snapshot of either keeps it.
#[test]
fn shared_blocks_stay_for_snapshots() {
    let world = World::new();
    let before = world.check();
    world.tx(|tx| {
        let properties = [(Property::VolBlockSize, BLOCK_BYTES as u64)];
        let dataset = world.pool.create_dataset(tx, "tank/w", DatasetKind::Volume, &properties).unwrap();
        let copy = dataset.create_object(tx).unwrap();
        let mut buf = vec![0; LEN_BYTES];
        let (_, origin) = world.open("tank/v").read_to_copy(0, &mut buf).unwrap();
        copy.write_copy(tx, 0, &buf, &origin).unwrap();
    });
    assert_eq!(world.settle(), before);
    world.snapshot("tank/w@a");
    world.snapshot("tank/v@a");
    world.write("tank/v", 0, 100, 2);
    world.write("tank/w", 0, 50, 3);
    assert_eq!(world.settle(), before + 150);
    world.destroy("tank/v@a");
    assert_eq!(world.settle(), before + 150);
    world.destroy("tank/w@a");
    assert_eq!(world.settle(), before + 100, "what the copy still has stays");
    assert!(world.read("tank/w") == written(&[(0, 50, 3)]));
}

/// A scrub reads what only a snapshot has, and says whose it is.
#[test]
fn a_scrub_finds_damage_of_a_snapshot() {
    let world = World::new();
    world.snapshot("tank/v@a");
    world.write("tank/v", 0, 100, 2);
    world.settle();
    let done = world.pool.scrub(|_| true).unwrap();
    assert!(done.lost.is_empty());
    assert!(done.done_bytes >= 200 * BLOCK_BYTES as u64, "{done:?}");
    // The block's bytes, wherever they are.
    let needle = &bytes(1, LEN_BYTES)[50 * BLOCK_BYTES..51 * BLOCK_BYTES];
    let device = &world.rig.devices[0];
    let mut all = vec![0; 64 << 20];
    fastness_blkdev::BlockDevice::read_at(&**device, 0, &mut all).unwrap();
    let at = all.windows(BLOCK_BYTES).step_by(4096).position(|window| window == needle).unwrap() * 4096;
    fastness_blkdev::BlockDevice::write_at(&**device, at as u64, &[0x5a; 4096]).unwrap();
    let done = world.pool.scrub(|_| true).unwrap();
    assert_eq!(done.lost.len(), 1);
    let (damaged, _) = world.pool.damaged();
    let owner = damaged[0].owner.unwrap();
    assert_eq!((owner, damaged[0].offset), ((world.dataset("tank/v@a").id(), ObjectId(1)), 50 * 4096));
}

/// A pool with less room than the rows need refuses, and keeps all.
#[test]
fn quotas_count_what_snapshots_keep() {
    let world = World::new();
    world.tx(|tx| world.dataset("tank/v").set(tx, Property::Quota, Some(LEN_BYTES as u64 * 3 / 2)).unwrap());
    world.settle();
    world.snapshot("tank/v@a");
    world.write("tank/v", 0, 50, 2);
    world.settle();
    let refused = world.tx(|tx| world.open("tank/v").write(tx, 60 * 4096, &bytes(3, BLOCK_BYTES)));
    assert!(matches!(refused, Err(PoolError::NoSpace { is_quota: true, .. })), "{refused:?}");
    assert_eq!(world.dataset("tank/v").used_bytes(), LEN_BYTES as u64 * 3 / 2);
    world.destroy("tank/v@a");
    world.settle();
    world.write("tank/v", 60, 1, 3);
    world.settle();
    assert_eq!(world.dataset("tank/v").used_bytes(), LEN_BYTES as u64);
}

/// What was cleared and not freed yet when the snapshot was made is so again.
#[test]
fn a_volume_goes_back_to_what_was_being_freed() {
    let world = World::with(PoolOptions { frees_per_txg: 1, ..manual() });
    world.snapshot("tank/v@whole");
    world.punch("tank/v", 0, 90);
    world.snapshot("tank/v@a");
    // Rows go to the past with what the older snapshot needs, and the newer one does not show.
    world.write("tank/v", 0, 96, 2);
    world.settle();
    world.pool.rollback("tank/v@a", false).unwrap();
    let mut then = bytes(1, LEN_BYTES);
    then[..90 * BLOCK_BYTES].fill(0);
    assert!(world.read("tank/v") == then);
    world.settle();
    assert!(world.read("tank/v") == then && world.read("tank/v@a") == then);
    assert!(world.read("tank/v@whole") == bytes(1, LEN_BYTES));
    world.tx(|tx| {
        world.pool.destroy_dataset(tx, "tank/v@a").unwrap();
        world.pool.destroy_dataset(tx, "tank/v@whole").unwrap();
    });
    assert_eq!(world.settle(), 10);
    assert!(world.read("tank/v") == then);
}

/// While a clone is being freed, its base may be gone already: nothing of that is taken for the clone's.
#[test]
fn a_clone_is_freed_after_its_base() {
    // Each txg frees a row of what was cleared, and one of what was destroyed.
    let world = World::with(PoolOptions { frees_per_txg: 2, ..manual() });
    let before = world.check();
    world.snapshot("tank/v@a");
    world.make_clone("tank/v@a", "tank/c");
    world.write("tank/v", 0, 100, 2);
    world.pool.sync().unwrap();
    // Later than what the volume has now.
    world.punch("tank/c", 0, 100);
    world.pool.sync().unwrap();
    world.tx(|tx| {
        world.pool.destroy_dataset(tx, "tank/c").unwrap();
        world.pool.destroy_dataset(tx, "tank/v@a").unwrap();
    });
    assert_eq!(world.settle(), before);
    assert!(world.read("tank/v") == bytes(2, LEN_BYTES));
}

/// Of a volume that is suspended with its pool, snapshots that are not durable are not taken over.
#[test]
fn a_snapshot_that_never_became_durable_is_gone() {
    let world = World::new();
    world.snapshot("tank/v@a");
    world.write("tank/v", 0, 40, 2);
    world.tx(|tx| world.pool.snapshot(tx, "tank/v@b").unwrap());
    let world = world.import_again();
    assert_eq!(world.dataset("tank/v").snapshots(), ["tank/v@a"]);
    assert!(world.read("tank/v") == bytes(1, LEN_BYTES));
    world.check();
}

/// A volume with small blocks, in pieces and compressed: all of that is kept and freed as it is.
#[test]
fn compressed_blocks_are_kept() {
    let world = World::new();
    world.tx(|tx| {
        let own = [(Property::VolBlockSize, 128 << 10), (Property::Compression, 2)];
        let dataset = world.pool.create_dataset(tx, "tank/z", DatasetKind::Volume, &own).unwrap();
        dataset.create_object(tx).unwrap().write(tx, 0, &bytes(7, 4 << 20)).unwrap();
    });
    let before = world.settle();
    world.snapshot("tank/z@a");
    world.write("tank/z", 3, 700, 8);
    world.settle();
    assert!(world.read("tank/z@a") == bytes(7, 4 << 20));
    world.pool.rollback("tank/z@a", false).unwrap();
    assert_eq!(world.settle(), before);
    assert!(world.read("tank/z") == bytes(7, 4 << 20));
}

/// Whoever still has it would write to the volume that it becomes.
#[test]
fn what_is_received_is_whole_when_nobody_has_it_open() {
    let world = World::new();
    world.tx(|tx| {
        let dataset = world.pool.create_dataset(tx, "tank/r", DatasetKind::Receiving, &[]).unwrap();
        dataset.create_object(tx).unwrap().truncate(tx, 4096).unwrap();
    });
    world.pool.sync().unwrap();
    let dataset = world.dataset("tank/r");
    let busy = |result: Result<(), PoolError>| matches!(result, Err(PoolError::Busy { .. }));
    let complete = || world.tx(|tx| world.pool.complete(tx, "tank/r@a", Guid(7), &[]));
    let held = dataset.hold_alone().unwrap();
    assert!(busy(complete()));
    assert!(busy(dataset.hold_alone().map(drop)));
    drop(held);
    let object = world.open("tank/r");
    assert!(busy(complete()));
    drop(object);
    complete().unwrap();
    world.settle();
    assert_eq!(dataset.kind(), DatasetKind::Volume);
}
