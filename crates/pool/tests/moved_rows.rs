//! Rows that move while a side is brought up to date: from the past to now in a rollback, from one volume to
//! another in a promotion and at the end of an increment, and copies of blocks whose source then goes. What
//! they refer to is on the new side, wherever the walk over all blocks was at that moment.

mod support;

use std::sync::Arc;

use fastness_pool::{DatasetKind, Guid, Object, ObjectId, Pool, Property, RECEIVED, Tx, VdevSpec};
use support::{Rig, host, manual};

const BLOCK_BYTES: usize = 4096;
/// Rows have 32 blocks each, and a step of the walk has 64 rows.
const BLOCKS: usize = 150 * 32;
/// Steps of the walk before which something is done.
const CALLS: u64 = 7;

struct World {
    rig: Arc<Rig>,
    pool: Pool,
}

impl World {
    /// A pool on the first of two devices.
    fn new(seed: u64) -> World {
        let rig = Rig::fresh(2, 256 << 20, seed);
        let pool = Pool::create("tank", &[VdevSpec::single(rig.device(0))], manual()).unwrap();
        World { rig, pool }
    }

    fn tx<T>(&self, change: impl FnOnce(&Tx) -> T) -> T {
        let done = change(&self.pool.begin_tx().unwrap());
        self.pool.sync().unwrap();
        done
    }

    fn volume(&self, name: &str) {
        let properties = [(Property::VolBlockSize, BLOCK_BYTES as u64)];
        self.tx(|tx| {
            let volume = self.pool.create_dataset(tx, name, DatasetKind::Volume, &properties).unwrap();
            volume.create_object(tx).unwrap();
        });
    }

    fn data(&self, name: &str) -> Object {
        self.pool.dataset(name).unwrap().object(ObjectId(1)).unwrap()
    }

    fn write(&self, name: &str, salt: u64) {
        self.tx(|tx| self.data(name).write(tx, 0, &bytes(salt)).unwrap());
    }

    fn guid(&self, side: usize) -> Guid {
        self.pool.status().vdevs[0].2[side].guid
    }

    /// Replaces the device, does something before a step of that, and goes on with the new device alone.
    fn replace(self, call: u64, meanwhile: impl FnOnce(&Pool)) -> World {
        let (mut calls, mut meanwhile) = (0, Some(meanwhile));
        let report = self.pool.replace(self.guid(0), self.rig.device(1), |_| {
            if calls == call {
                meanwhile.take().unwrap()(&self.pool);
            }
            calls += 1;
            true
        });
        assert!(report.unwrap().lost.is_empty());
        assert!(meanwhile.is_none(), "{calls} calls are too few");
        self.pool.export().unwrap();
        drop(self.pool);
        let pool = Pool::import(&[self.rig.device(1)], &host(), manual()).unwrap();
        let report = pool.scrub(|_| true).unwrap();
        assert!(report.lost.is_empty(), "before call {call}: {} places are lost", report.lost.len());
        World { rig: self.rig, pool }
    }

    fn assert_has(&self, name: &str, salt: u64) {
        let mut found = vec![0; BLOCKS * BLOCK_BYTES];
        self.data(name).read(0, &mut found).unwrap();
        assert!(found == bytes(salt), "{name}");
    }
}

/// Bytes that do not compress, and tell what they are of.
fn bytes(salt: u64) -> Vec<u8> {
    let words =
        (0..BLOCKS * BLOCK_BYTES / 8).map(|at| (at as u64 ^ salt << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    words.flat_map(u64::to_le_bytes).collect()
}

#[test]
fn a_rollback_beside_a_resilver_loses_nothing() {
    for call in 0..CALLS {
        let world = World::new(call);
        world.volume("tank/v");
        world.write("tank/v", 1);
        world.tx(|tx| world.pool.snapshot(tx, "tank/v@a").map(drop)).unwrap();
        world.write("tank/v", 2);
        let world = world.replace(call, |pool| assert!(pool.rollback("tank/v@a", false).is_ok()));
        world.assert_has("tank/v", 1);
        world.assert_has("tank/v@a", 1);
    }
}

#[test]
fn a_promotion_beside_a_resilver_loses_nothing() {
    // Also while it walks what only snapshots of the clone have.
    for call in 0..CALLS + 5 {
        let world = World::new(call);
        world.volume("tank/v");
        world.write("tank/v", 1);
        world.tx(|tx| world.pool.snapshot(tx, "tank/v@a").map(drop)).unwrap();
        world.tx(|tx| world.pool.clone_snapshot(tx, "tank/v@a", "tank/c", &[]).map(drop)).unwrap();
        world.write("tank/v", 2);
        world.write("tank/c", 3);
        world.tx(|tx| world.pool.snapshot(tx, "tank/c@b").map(drop)).unwrap();
        world.write("tank/c", 4);
        let world = world.replace(call, |pool| assert!(pool.promote("tank/c", |_| false).is_ok()));
        world.assert_has("tank/v", 2);
        world.assert_has("tank/c", 4);
        world.assert_has("tank/c@a", 1);
        world.assert_has("tank/c@b", 3);
    }
}

#[test]
fn an_increment_that_ends_beside_a_resilver_loses_nothing() {
    for call in 0..CALLS {
        let world = World::new(call);
        world.volume("tank/v");
        world.write("tank/v", 1);
        world.tx(|tx| world.pool.snapshot(tx, "tank/v@a").map(drop)).unwrap();
        let received = format!("tank/v/{RECEIVED}");
        world.tx(|tx| world.pool.receive_onto(tx, "tank/v@a").map(drop)).unwrap();
        world.write(&received, 2);
        let world = world.replace(call, |pool| {
            assert!(pool.absorb("tank/v@b", Guid(7), false).is_ok());
        });
        world.assert_has("tank/v", 2);
        world.assert_has("tank/v@a", 1);
        world.assert_has("tank/v@b", 2);
    }
}

/// The copy has a lower number than its source, which goes in the next txg.
#[test]
fn a_copy_beside_a_resilver_loses_nothing() {
    for call in 0..CALLS {
        let world = World::new(call);
        world.volume("tank/copy");
        world.volume("tank/source");
        world.write("tank/copy", 1);
        world.write("tank/source", 2);
        let world = world.replace(call, |pool| {
            let data = |name: &str| pool.dataset(name).unwrap().object(ObjectId(1)).unwrap();
            let mut copied = vec![0; BLOCKS * BLOCK_BYTES];
            let (_, origin) = data("tank/source").read_to_copy(0, &mut copied).unwrap();
            pool.transact(|tx| data("tank/copy").write_copy(tx, 0, &copied, &origin)).unwrap();
            pool.sync().unwrap();
            pool.transact(|tx| data("tank/source").write(tx, 0, &bytes(3))).unwrap();
            pool.sync().unwrap();
        });
        world.assert_has("tank/copy", 2);
        world.assert_has("tank/source", 3);
    }
}
