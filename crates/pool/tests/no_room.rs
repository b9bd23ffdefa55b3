//! Devices that have less room than they say (a sparse file on a full file system): what is new goes
//! elsewhere.

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fastness_blkdev::{Fault, FaultPlan, MemDevice, On, When};
use fastness_pool::{
    DatasetKind, Device, DeviceStatus, ErrorKind, ImportOptions, Object, ObjectId, Pool, PoolOptions,
    Property, StoreRequest, VdevSpec,
};
use support::{Rig, Rng, Shape, host, manual};

const LEN_BYTES: u64 = 24 << 20;
const LABEL_BYTES: u64 = 256 << 10;
const ENOSPC: i32 = 28;
const EIO: i32 = 5;

/// No write to the data of a device from the nth on finds room; labels are where they were.
fn full_from(nth: u64) -> FaultPlan {
    refusing_from(nth, ENOSPC)
}

fn refusing_from(nth: u64, errno: i32) -> FaultPlan {
    let data = LABEL_BYTES..LEN_BYTES - LABEL_BYTES - 4096;
    FaultPlan::new(1).rule_in(data, On::Writes, When::From(nth), Fault::Errno(errno))
}

struct World {
    rig: Arc<Rig>,
    pool: Pool,
    object: Object,
    bytes: Vec<u8>,
}

impl World {
    fn new(shape: Shape, options: PoolOptions) -> World {
        let rig = Rig::fresh(shape.count(), LEN_BYTES, 1);
        let pool = Pool::create("tank", &shape.specs(rig.all()), options).unwrap();
        let object = {
            let tx = pool.begin_tx().unwrap();
            let small = [(Property::VolBlockSize, 4096)];
            let dataset = pool.create_dataset(&tx, "tank/v", DatasetKind::Volume, &small).unwrap();
            dataset.create_object(&tx).unwrap()
        };
        pool.sync().unwrap();
        World { rig, pool, object, bytes: vec![0; 4 << 20] }
    }

    /// Some blocks here and there, and a long row of them.
    fn write(&mut self, rng: &mut Rng) {
        let tx = self.pool.begin_tx().unwrap();
        for len in [4096, 12288, 4096, 300 << 10, 8192] {
            let at = rng.below((self.bytes.len() - len) as u64 / 4096) as usize * 4096;
            let data = (0..len).map(|_| rng.next() as u8).collect::<Vec<_>>();
            self.object.write(&tx, at as u64, &data).unwrap();
            self.bytes[at..at + len].copy_from_slice(&data);
        }
    }

    fn compare(&self) {
        let mut found = vec![0; self.bytes.len()];
        let len = self.object.read(0, &mut found).unwrap();
        assert!(found == self.bytes && len <= found.len());
        let report = self.pool.check().unwrap();
        assert!(report.is_clean(), "{report:?}");
    }

    /// After a crash: everything that had synced. The device has as little room as before.
    fn crash(&mut self, seed: u64) {
        let rig = Rig::new(self.rig.crash(seed), seed);
        self.pool = Pool::import(&rig.all(), &host(), manual()).unwrap();
        self.object = self.pool.dataset("tank/v").unwrap().object(ObjectId(1)).unwrap();
        self.rig = rig;
    }

    fn without_room(&self) -> Vec<bool> {
        let vdevs = self.pool.status().vdevs;
        let refuses = |side: &DeviceStatus| side.has_no_room || side.has_failed_writes;
        vdevs.iter().flat_map(|(.., sides)| sides).map(refuses).collect()
    }
}

/// Whichever write of a txg it is that finds no room: of data, of tables, of the page map.
#[test]
fn a_txg_that_finds_no_room_on_one_device_is_written_on_the_other() {
    whatever_write_is_refused(ENOSPC);
}

/// A loop device on a full file system says EIO.
#[test]
fn so_is_a_txg_that_one_device_fails_to_write() {
    whatever_write_is_refused(EIO);
}

fn whatever_write_is_refused(errno: i32) {
    let mut struck = 0;
    for nth in 1..32 {
        let (mut world, mut rng) = (World::new(Shape::Stripe, manual()), Rng::new(nth));
        world.write(&mut rng);
        world.pool.sync().unwrap();
        let free = world.pool.status().free_bytes;
        world.rig.devices[(nth % 2) as usize].set_plan(refusing_from(nth / 2 + 1, errno));
        for _ in 0..10 {
            world.write(&mut rng);
            world.pool.sync().unwrap();
            world.compare();
        }
        let expected = [nth % 2 == 0, nth % 2 == 1];
        if world.without_room() == expected {
            struck += 1;
            assert!(world.pool.status().free_bytes < free * 2 / 3, "what is there is not free");
        }
        world.crash(nth);
        world.compare();
        world.rig.devices[(nth % 2) as usize].set_plan(refusing_from(1, errno));
        world.write(&mut rng);
        world.pool.sync().unwrap();
        world.compare();
        assert_eq!(world.without_room(), expected);
    }
    assert!(struck > 25, "{struck} of 31 met a device without room");
}

/// A device that fails more than new places is needed all the same; and so is one that is alone.
#[test]
fn a_device_that_fails_every_write_suspends_the_pool() {
    for shape in [Shape::Stripe, Shape::Single] {
        let (mut world, mut rng) = (World::new(shape, manual()), Rng::new(1));
        world.write(&mut rng);
        world.pool.sync().unwrap();
        let all = FaultPlan::new(1).rule(On::Writes, When::From(1), Fault::Errno(EIO));
        world.rig.devices[0].set_plan(all);
        world.write(&mut rng);
        assert_eq!(world.pool.sync().unwrap_err().kind(), ErrorKind::MediaFailed);
        assert!(world.pool.is_suspended());
    }
    let (mut world, mut rng) = (World::new(Shape::Single, manual()), Rng::new(2));
    world.rig.devices[0].set_plan(refusing_from(1, EIO));
    world.write(&mut rng);
    assert_eq!(world.pool.sync().unwrap_err().kind(), ErrorKind::MediaFailed);
}

/// The power fails at any moment of a txg that is written elsewhere.
#[test]
fn a_crash_beside_it_leaves_the_txg_or_the_one_before() {
    let mut outcomes = [0, 0];
    for cut in 1..45 {
        let (mut world, mut rng) = (World::new(Shape::Stripe, manual()), Rng::new(3));
        world.write(&mut rng);
        world.pool.sync().unwrap();
        let before = world.bytes.clone();
        world.rig.devices[0].set_plan(full_from(cut % 4 + 1));
        world.write(&mut rng);
        let now = world.rig.ops.load(Ordering::SeqCst);
        world.rig.cut_at.store(now + cut, Ordering::SeqCst);
        let is_synced = world.pool.sync().is_ok();
        world.crash(cut);
        let mut found = vec![0; before.len()];
        world.object.read(0, &mut found).unwrap();
        let is_new = found == world.bytes;
        assert!(is_new || !is_synced && found == before, "cut at {cut}");
        outcomes[usize::from(is_new)] += 1;
        world.bytes = found;
        world.compare();
    }
    assert!(outcomes.iter().all(|count| *count > 5), "{outcomes:?}");
}

/// Blocks that are in their places already stay there, and are data once.
#[test]
fn what_was_stored_ahead_of_its_txg_is_taken_over_once() {
    for nth in 1..6 {
        let (mut world, mut rng) = (World::new(Shape::Stripe, manual()), Rng::new(nth));
        world.write(&mut rng);
        world.pool.sync().unwrap();
        world.write(&mut rng);
        let all = StoreRequest { object: &world.object, offset: 0, len_bytes: 2 << 20 };
        assert!(!world.pool.store(&[all], 0).unwrap().remove(0).is_empty());
        world.rig.devices[1].set_plan(full_from(nth));
        for _ in 0..10 {
            world.pool.sync().unwrap();
            world.compare();
            world.write(&mut rng);
        }
        world.pool.sync().unwrap();
        assert_eq!(world.without_room(), [false, true]);
        world.crash(nth);
        world.compare();
    }
}

/// The same with threads that write at a time.
#[test]
fn large_txgs_go_elsewhere_as_a_whole() {
    for nth in [1, 2, 3, 5, 8] {
        let options =
            PoolOptions { txg_timeout: std::time::Duration::from_secs(3600), ..PoolOptions::default() };
        let mut world = World::new(Shape::Stripe, options);
        let mut rng = Rng::new(nth);
        world.rig.devices[1].set_plan(full_from(nth));
        let data: Vec<u8> = (0..8 << 20).map(|_| rng.next() as u8).collect();
        world.object.write(&world.pool.begin_tx().unwrap(), 0, &data).unwrap();
        world.bytes = data;
        world.pool.sync().unwrap();
        world.compare();
        assert_eq!(world.without_room(), [false, true]);
        world.crash(nth);
        world.compare();
    }
}

/// A pool whose only device has no room is suspended, as ever, and goes on with another, in the next import.
#[test]
fn a_pool_without_room_goes_on_with_a_device_that_is_added() {
    let (mut world, mut rng) = (World::new(Shape::Single, manual()), Rng::new(7));
    world.write(&mut rng);
    world.pool.sync().unwrap();
    world.rig.devices[0].set_plan(full_from(1));
    world.write(&mut rng);
    let error = world.pool.sync().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error:?}");
    assert!(world.pool.is_suspended());
    let mut unsynced = world.pool.abandon().unwrap();
    let paused = ImportOptions { is_forced: true, ..host() };
    let pool = Pool::import_paused(&world.rig.all(), &paused, manual()).unwrap();
    let more = Arc::new(MemDevice::new("more", LEN_BYTES));
    pool.add(&VdevSpec::single(Device::new("more", more))).unwrap();
    let tx = pool.begin_replay_tx().unwrap();
    unsynced.apply(&pool, &tx).unwrap();
    drop(tx);
    pool.start_txgs().unwrap();
    world.pool = pool;
    world.pool.sync().unwrap();
    world.object = world.pool.dataset("tank/v").unwrap().object(ObjectId(1)).unwrap();
    world.compare();
    assert_eq!(world.without_room(), [true, false]);
    for _ in 0..3 {
        world.write(&mut rng);
        world.pool.sync().unwrap();
    }
    world.compare();
}
