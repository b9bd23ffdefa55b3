//! Devices that are older copies of themselves: refused by name, or, as one side of a mirror, stale. Never
//! taken for what they were.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use fastness_blkdev::{Fault, FaultPlan, MemImage, On, When};
use fastness_pool::{
    Device, ErrorKind, ImportOptions, LogExtent, MissingLog, Pool, PoolError, Txg, VdevClass, VdevSpec,
};
use support::{Model, Rig, Rng, Shape, compare_synced, host, manual, new_model, step};

const LEN_BYTES: u64 = 12 << 20;
const SEEDS: u64 = 300;

/// What devices held at one time, and the txg that was durable then.
struct Copy {
    images: Vec<MemImage>,
    synced: Txg,
}

/// A pool that runs, crashes and is exported, and what its devices held on the way.
struct World {
    rig: Arc<Rig>,
    pool: Pool,
    rng: Rng,
    model: Model,
    history: BTreeMap<Txg, Model>,
    copies: Vec<Copy>,
}

impl World {
    fn new(shape: Shape, seed: u64) -> World {
        let rig = Rig::fresh(shape.count(), LEN_BYTES, seed);
        let pool = Pool::create("tank", &shape.specs(rig.all()), manual()).unwrap();
        let history = BTreeMap::from([(pool.synced_txg(), new_model())]);
        World { rig, pool, rng: Rng::new(seed), model: new_model(), history, copies: Vec::new() }
    }

    fn sync(&mut self) {
        let tx = self.pool.begin_tx().unwrap();
        for _ in 0..self.rng.below(6) {
            step(&self.pool, &tx, &mut self.model, &mut self.rng);
        }
        drop(tx);
        let txg = self.pool.open_txg();
        self.history.insert(txg, self.model.clone());
        assert_eq!(self.pool.sync().unwrap(), txg);
    }

    /// Remembers what a power cut would leave now.
    fn copy(&mut self) {
        let images = self.rig.crash(self.rng.next());
        self.copies.push(Copy { images, synced: self.pool.synced_txg() });
    }

    /// Work, and the end of it: an export, or a crash, perhaps in the middle of a sync.
    fn live(&mut self) -> Vec<MemImage> {
        self.copy();
        for _ in 0..1 + self.rng.below(5) {
            self.sync();
            if self.rng.below(2) == 0 {
                self.copy();
            }
        }
        match self.rng.below(3) {
            0 => {
                self.history.insert(self.pool.open_txg(), self.model.clone());
                self.pool.export().unwrap();
            }
            1 => {
                let tx = self.pool.begin_tx().unwrap();
                step(&self.pool, &tx, &mut self.model, &mut self.rng);
                drop(tx);
                let txg = self.pool.open_txg();
                self.history.insert(txg, self.model.clone());
                let now = self.rig.ops.load(std::sync::atomic::Ordering::SeqCst);
                let cut_at = now + 1 + self.rng.below(60);
                self.rig.cut_at.store(cut_at, std::sync::atomic::Ordering::SeqCst);
                let _ = self.pool.sync();
            }
            _ => {}
        }
        self.rig.crash(self.rng.next())
    }

    /// The next import, of these images.
    fn import(&mut self, images: Vec<MemImage>) -> Result<(), PoolError> {
        self.rig = Rig::new(images, self.rng.next());
        self.pool = Pool::import(&self.rig.all(), &host(), manual())?;
        self.model = self.history.get(&self.pool.synced_txg()).expect("a txg that was synced").clone();
        compare_synced(&self.pool, &self.model);
        Ok(())
    }
}

fn newest_txg(image: &MemImage) -> Txg {
    let rig = Rig::new(vec![image.clone()], 1);
    rig.device(0).probe().unwrap().txg.expect("an uberblock")
}

/// What came of copies that were put back.
#[derive(Debug, Default)]
struct Met {
    refused: u64,
    stale: u64,
    /// It lacked nothing.
    harmless: u64,
}

fn run(shape: Shape, seed: u64, met: &mut Met) {
    let mut world = World::new(shape, seed);
    for _ in 0..3 {
        let images = world.live();
        // What is there without any copy put back.
        world.import(images.clone()).unwrap();
        let index = world.rng.below(shape.count() as u64) as usize;
        let copy = &world.copies[world.rng.below(world.copies.len() as u64) as usize];
        let mut mixed = images.clone();
        mixed[index] = copy.images[index].clone();
        // A crash inside of a sync may have left the newest uberblock on one device only: on that one,
        // perhaps.
        let others = mixed.iter().enumerate().filter(|(other, _)| *other != index);
        let newest =
            others.map(|(_, image)| newest_txg(image)).max().unwrap_or_else(|| newest_txg(&mixed[0]));
        let lacks = copy.synced < newest;
        match world.import(mixed) {
            Err(PoolError::OldCopy { path, expected, found, .. }) => {
                assert!(
                    !shape.is_mirrored() && shape.count() > 1,
                    "{seed}: {path} has a mirror, or is alone"
                );
                assert_eq!((path, expected), (format!("disk{index}"), newest));
                // It may have the mark of a txg that a power cut ended: the next import made another one.
                assert!(
                    lacks && found <= Some(newest),
                    "{seed}: refused although it has {newest}: {found:?}"
                );
                met.refused += 1;
            }
            Err(error) => panic!("{seed}: {error:?}"),
            Ok(()) if shape.count() == 1 => {
                // All that there is of the pool is a copy: as of then, it is whole.
                assert!(world.pool.synced_txg() <= newest);
                met.harmless += 1;
            }
            Ok(()) => {
                assert_eq!(world.pool.synced_txg(), newest, "{seed}");
                let report = world.pool.scrub(|_| true).unwrap();
                assert!(report.lost.is_empty() && report.wrong_copies == 0, "{seed}: {report:?}");
                let sides = world.pool.status().vdevs.into_iter().flat_map(|(.., sides)| sides);
                let stale: Vec<_> = sides.filter(|side| side.is_stale).collect();
                assert!(stale.iter().all(|side| side.path == format!("disk{index}")), "{seed}");
                assert_eq!(
                    lacks,
                    !stale.is_empty(),
                    "{seed}: of {newest}, and the copy of {:?}",
                    world.rig.ops
                );
                for side in &stale {
                    world.pool.resilver(side.guid, |_| true).unwrap();
                }
                *(if lacks { &mut met.stale } else { &mut met.harmless }) += 1;
            }
        }
        // It goes on with what it was.
        world.import(images).unwrap();
        world.copies.truncate(8);
    }
}

#[test]
fn an_older_copy_is_refused_by_name_or_is_a_stale_side() {
    for shape in Shape::ALL {
        let mut met = Met::default();
        (0..SEEDS / 4).for_each(|seed| run(shape, seed, &mut met));
        assert!(met.harmless > 5, "{shape:?}: {met:?}");
        assert_eq!(shape == Shape::Stripe, met.refused > 20, "{shape:?}: {met:?}");
        assert_eq!(shape.is_mirrored(), met.stale > 20, "{shape:?}: {met:?}");
    }
}

#[test]
fn a_copy_from_another_history_is_refused_although_the_txgs_agree() {
    let mut world = World::new(Shape::Stripe, 1);
    world.sync();
    let images = world.live();
    world.import(images.clone()).unwrap();
    // One history ...
    (0..3).for_each(|_| world.sync());
    let (one, txg) = (world.rig.crash(1), world.pool.synced_txg());
    // ... and another, from the same beginning.
    world.import(images).unwrap();
    (0..3).for_each(|_| world.sync());
    assert_eq!(world.pool.synced_txg(), txg);
    let mut mixed = world.rig.crash(2);
    mixed[1] = one[1].clone();
    let error = Pool::import(&Rig::new(mixed, 1).all(), &host(), manual()).unwrap_err();
    // Which of the two is the copy, nobody can know.
    assert!(error.to_string().contains("from another import"), "{error}");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
}

#[test]
fn a_mirror_of_nothing_but_copies_is_refused() {
    let mut world = World::new(Shape::Mirrors, 3);
    world.sync();
    let old = world.rig.crash(1);
    (0..3).for_each(|_| world.sync());
    let mut mixed = world.rig.crash(1);
    mixed[2..].clone_from_slice(&old[2..]);
    let error = Pool::import(&Rig::new(mixed, 1).all(), &host(), manual()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("disk2") && text.contains("3 before that of the others"), "{text}");
}

/// A pool on one device with another for logs.
fn with_log(images: Vec<MemImage>, import: Option<&ImportOptions>) -> Result<(Arc<Rig>, Pool), PoolError> {
    let rig = Rig::new(images, 1);
    let pool = match import {
        Some(import) => Pool::import(&rig.all(), import, manual())?,
        None => {
            let [data, log]: [Device; 2] = rig.all().try_into().expect("two devices");
            Pool::create("tank", &[VdevSpec::single(data), VdevSpec::single(log).log()], manual())?
        }
    };
    Ok((rig, pool))
}

fn log_side(pool: &Pool) -> fastness_pool::DeviceStatus {
    let (_, class, mut sides) = pool.status().vdevs.remove(1);
    assert_eq!(class, VdevClass::Log);
    sides.remove(0)
}

#[test]
fn an_older_copy_of_a_device_for_logs_is_refused_unless_the_log_may_go() {
    let (rig, pool) = with_log(vec![MemImage::zeroed(LEN_BYTES); 2], None).unwrap();
    pool.sync().unwrap();
    let old = rig.crash(1);
    for lag in 1..6 {
        pool.sync().unwrap();
        let mut mixed = rig.crash(1);
        mixed[1] = old[1].clone();
        let refused = with_log(mixed.clone(), Some(&host()));
        let Err(PoolError::OldCopy { path, vdev: 1, .. }) = refused else {
            panic!("imported, {lag} txgs old")
        };
        assert_eq!(path, "disk1");
        let without = ImportOptions { missing_log: MissingLog::Drop, ..host() };
        let (rig, pool) = with_log(mixed, Some(&without)).unwrap();
        assert!(log_side(&pool).is_stale);
        drop(pool);
        // From now on nobody is asked.
        with_log(rig.crash(1), Some(&host())).unwrap();
    }
}

/// A device that fails a txg and still counts may be as it is, and not as it was before.
#[test]
fn an_older_copy_of_a_device_for_logs_that_lacks_a_txg_is_refused() {
    let (rig, pool) = with_log(vec![MemImage::zeroed(LEN_BYTES); 2], None).unwrap();
    pool.sync().unwrap();
    let old = rig.crash(1);
    pool.sync().unwrap();
    rig.devices[1].set_plan(FaultPlan::new(1).rule(On::Changes, When::Every(1), Fault::Errno(5)));
    pool.sync().unwrap();
    assert!(!log_side(&pool).is_stale);
    let mut mixed = rig.crash(1);
    with_log(mixed.clone(), Some(&host())).unwrap();
    mixed[1] = old[1].clone();
    let refused = with_log(mixed, Some(&host())).map(|_| "imported");
    assert!(matches!(&refused, Err(PoolError::OldCopy { vdev: 1, .. })), "{refused:?}");
}

/// It failed before an import, and after it.
#[test]
fn a_device_for_logs_that_lacks_txgs_of_two_imports_is_what_it_was() {
    let (rig, pool) = with_log(vec![MemImage::zeroed(LEN_BYTES); 2], None).unwrap();
    let fails = || FaultPlan::new(1).rule(On::Changes, When::Every(1), Fault::Errno(5));
    rig.devices[1].set_plan(fails());
    pool.sync().unwrap();
    let (rig, pool) = with_log(rig.crash(1), Some(&host())).unwrap();
    rig.devices[1].set_plan(fails());
    pool.sync().unwrap();
    assert!(!log_side(&pool).is_stale);
    with_log(rig.crash(1), Some(&host())).unwrap();
}

/// The next import crashes when its first txg has marks, in the places of those that the device took last.
#[test]
fn a_device_for_logs_that_lacks_a_txg_is_what_it_was_after_another_crash() {
    let (rig, pool) = with_log(vec![MemImage::zeroed(LEN_BYTES); 2], None).unwrap();
    pool.sync().unwrap();
    rig.devices[1].set_plan(FaultPlan::new(1).rule(On::Changes, When::Every(1), Fault::Errno(5)));
    pool.sync().unwrap();
    let images = rig.crash(1);
    for cut_after in 1.. {
        let (rig, pool) = with_log(images.clone(), Some(&host())).unwrap();
        let now = rig.ops.load(std::sync::atomic::Ordering::SeqCst);
        rig.cut_at.store(now + cut_after, std::sync::atomic::Ordering::SeqCst);
        let is_done = pool.sync().is_ok();
        drop(pool);
        for seed in 0..4 {
            let imported = with_log(rig.crash(seed), Some(&host()));
            imported.unwrap_or_else(|error| panic!("cut after {cut_after}: {error}"));
        }
        if is_done {
            break;
        }
    }
}

#[test]
fn a_device_for_logs_that_fails_is_stale_once_nothing_on_it_counts() {
    let (rig, pool) = with_log(vec![MemImage::zeroed(LEN_BYTES); 2], None).unwrap();
    pool.sync().unwrap();
    let space = pool.log_space();
    space.flush(&[1]).unwrap();
    let block_there = LogExtent { place: space.allocate(4096).unwrap(), len_bytes: 4096 };
    space.write(block_there.place, &[1; 4096]).unwrap();
    rig.devices[1].set_plan(FaultPlan::new(1).rule(On::Changes, When::Every(1), Fault::Errno(5)));
    let open = pool.open_txg();
    pool.sync().unwrap();
    // What is acknowledged from here on must not rely on it.
    assert!(space.flush(&[1]).is_err() && space.allocate(4096).unwrap().vdev == 0);
    assert!(!log_side(&pool).is_stale, "what was acknowledged in {} counts", open.next());
    let (_, before) = with_log(rig.crash(1), Some(&host())).unwrap();
    assert!(!log_side(&before).is_stale);
    pool.sync().unwrap();
    assert!(log_side(&pool).is_stale);
    for _ in 0..4 {
        pool.sync().unwrap();
        let (_, after) = with_log(rig.crash(1), Some(&host())).unwrap();
        assert!(log_side(&after).is_stale);
        let (space, mut block, mut seen) = (after.log_space(), [0xaa; 4096], 0);
        assert!(!space.read_checked(block_there.place, &mut block, &mut |_| false).unwrap());
        let mut look = |block: &[u8]| {
            seen += 1;
            assert!(block.iter().all(|byte| *byte == 0), "nothing there counts");
        };
        space.read_current(block_there.place, &mut block, &mut look).unwrap();
        assert_eq!(seen, 1);
    }
}

#[test]
fn a_device_for_logs_that_fails_once_is_used_again() {
    let (rig, pool) = with_log(vec![MemImage::zeroed(LEN_BYTES); 2], None).unwrap();
    let space = pool.log_space();
    rig.devices[1].set_plan(FaultPlan::new(1).rule(On::Writes, When::Nth(1), Fault::Errno(5)));
    pool.sync().unwrap();
    assert!(space.flush(&[1]).is_err());
    pool.sync().unwrap();
    space.flush(&[1]).unwrap();
    assert!(!log_side(&pool).is_stale && space.allocate(4096).unwrap().vdev == 1);
}

/// What is acknowledged on a new vdev is not lost with a copy of the others from before it was added,
/// although no txg has ended since.
#[test]
fn a_new_vdev_knows_that_the_others_are_older_copies() {
    for is_log in [false, true] {
        let rig = Rig::fresh(2, LEN_BYTES, 1);
        let pool = Pool::create("tank", &[VdevSpec::single(rig.device(0))], manual()).unwrap();
        let old = rig.crash(1);
        pool.sync().unwrap();
        let spec = VdevSpec::single(rig.device(1));
        pool.add(&if is_log { spec.log() } else { spec }).unwrap();
        for seed in 0..20 {
            let mut images = rig.crash(seed);
            with_log(images.clone(), Some(&host())).unwrap();
            images[0] = old[0].clone();
            match with_log(images, Some(&host())) {
                Err(PoolError::OldCopy { path, vdev: 0, .. }) => assert_eq!(path, "disk0"),
                other => panic!("{:?}", other.map(|(_, pool)| pool)),
            }
        }
    }
}

/// Power goes at each moment of a resilver; then the side that everything came from is an older copy of
/// itself.
#[test]
fn a_side_that_was_resilvered_knows_that_the_other_is_an_older_copy() {
    let mut refused = 0;
    for cut_after in 1.. {
        let rig = Rig::fresh(2, LEN_BYTES, 1);
        let pool = Pool::create("tank", &[VdevSpec::mirror(rig.all())], manual()).unwrap();
        let guid = pool.status().vdevs[0].2[0].guid;
        pool.offline(guid).unwrap();
        let old = rig.crash(1);
        pool.sync().unwrap();
        let txg = pool.sync().unwrap();
        let now = rig.ops.load(std::sync::atomic::Ordering::SeqCst);
        rig.cut_at.store(now + cut_after, std::sync::atomic::Ordering::SeqCst);
        let is_done = pool.online(guid, rig.device(0)).and_then(|()| pool.resilver(guid, |_| true)).is_ok();
        drop(pool);
        let mut images = rig.crash(1);
        let rig = Rig::new(images.clone(), 1);
        let has_all = rig.device(0).probe().unwrap().txg == Some(txg);
        assert!(has_all || !is_done);
        Pool::import(&rig.all(), &host(), manual()).unwrap();
        images[1] = old[1].clone();
        let mixed = Rig::new(images, 1);
        match Pool::import(&mixed.all(), &host(), manual()) {
            Err(PoolError::OldCopy { path, .. }) if has_all => {
                assert_eq!(path, "disk1");
                refused += 1;
            }
            Ok(pool) if has_all => assert_eq!(pool.synced_txg(), txg, "cut after {cut_after}"),
            other => assert!(!has_all, "cut after {cut_after}: {other:?}"),
        }
        if is_done {
            break;
        }
    }
    assert!(refused > 0);
}

/// A device for logs that was given up takes txgs all the same, and so it can tell.
#[test]
fn a_device_for_logs_that_was_given_up_knows_that_the_others_are_older_copies() {
    let (rig, pool) = with_log(vec![MemImage::zeroed(LEN_BYTES); 2], None).unwrap();
    rig.devices[1].set_plan(FaultPlan::new(1).rule(On::Changes, When::Every(1), Fault::Errno(5)));
    for _ in 0..3 {
        pool.sync().unwrap();
    }
    let (rig, pool) = with_log(rig.crash(1), Some(&host())).unwrap();
    assert!(log_side(&pool).is_stale);
    let old = rig.crash(1);
    for lag in 1..5 {
        pool.sync().unwrap();
        let mut mixed = rig.crash(1);
        with_log(mixed.clone(), Some(&host())).unwrap();
        mixed[0] = old[0].clone();
        match with_log(mixed, Some(&host())) {
            Err(PoolError::OldCopy { path, vdev: 0, .. }) => {
                assert_eq!((path.as_str(), lag > 1), ("disk0", true));
            }
            // So much a crash may leave.
            other => assert!(lag == 1, "{lag} txgs old: {:?}", other.map(|_| "imported")),
        }
    }
}
