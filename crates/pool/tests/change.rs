//! Changing the devices of a pool: the power fails at every write and flush inside of each change. The pool
//! is there afterwards, with the change or without, and with all data.

#[path = "change/ends.rs"]
mod ends;
#[path = "change/grows.rs"]
mod grows;
mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fastness_blkdev::MemImage;
use fastness_pool::{Device, Pool, PoolError, VdevSpec};
use support::{Model, Rig, Rng, compare_synced, degraded, host, manual, new_model, step};

const LEN_BYTES: u64 = 9 << 20;
/// Crash states that are looked at for each point.
const SEEDS: u64 = 5;

/// A pool on the first devices; the last is not part of it.
fn filled(specs: impl Fn(&Arc<Rig>) -> Vec<VdevSpec>, count: usize) -> (Vec<MemImage>, Model) {
    let mut rng = Rng::new(4);
    let rig = Rig::fresh(count, LEN_BYTES, 4);
    let pool = Pool::create("tank", &specs(&rig), manual()).unwrap();
    let mut model = new_model();
    for _ in 0..60 {
        let tx = pool.begin_tx().unwrap();
        step(&pool, &tx, &mut model, &mut rng);
    }
    pool.sync().unwrap();
    drop(pool);
    (rig.devices.iter().map(|device| device.inner().image()).collect(), model)
}

/// Imports with what belongs to the pool: a device that no label names (yet, or any more) is left out.
fn import(rig: &Arc<Rig>) -> Result<Pool, PoolError> {
    let mut devices: Vec<Device> = rig.all();
    loop {
        match Pool::import(&devices, &host(), manual()) {
            Err(
                PoolError::NoLabel { path }
                | PoolError::Removed { path, .. }
                | PoolError::DamagedLabels { path },
            ) => devices.retain(|device| device.path != path),
            other => return other,
        }
    }
}

/// Runs `change` with the power failing at each of its operations; returns how often it had not taken place,
/// and had.
fn crash_everywhere(
    images: &[MemImage],
    model: &Model,
    change: impl Fn(&Arc<Rig>, &Pool) -> Result<(), PoolError>,
    has_changed: impl Fn(&Pool) -> bool,
) -> (u64, u64) {
    let rig = Rig::new(images.to_vec(), 1);
    let pool = import(&rig).unwrap();
    let (before, generation) = (rig.ops.load(Ordering::SeqCst), pool.config().generation);
    change(&rig, &pool).unwrap();
    assert!(pool.config().generation > generation, "a change is newer than what was before");
    let after = rig.ops.load(Ordering::SeqCst);
    assert!(after > before + 4, "the change does something");
    assert!(has_changed(&pool));
    compare_synced(&pool, model);
    drop(pool);
    let mut outcomes = (0, 0);
    for cut in before + 1..=after {
        for seed in 0..SEEDS {
            let rig = Rig::new(images.to_vec(), 1);
            rig.cut_at.store(cut, Ordering::SeqCst);
            let pool = import(&rig).unwrap();
            // An old label that was not erased is found out by the import.
            let _ = change(&rig, &pool);
            assert!(rig.devices[0].is_power_cut());
            drop(pool);
            let rig = Rig::new(rig.crash(cut * SEEDS + seed), 2);
            let pool = import(&rig).unwrap_or_else(|error| panic!("cut at {cut}, seed {seed}: {error:?}"));
            compare_synced(&pool, model);
            let report = pool.scrub(|_| true).unwrap();
            assert!(report.wrong_copies == 0 && report.lost.is_empty(), "cut at {cut}: {report:?}");
            *(if has_changed(&pool) { &mut outcomes.1 } else { &mut outcomes.0 }) += 1;
            pool.sync().unwrap();
        }
    }
    outcomes
}

fn assert_both((without, with): (u64, u64)) {
    assert!(without > 0 && with > 0, "{without} crashes before the change, {with} after it");
}

fn mirror(rig: &Arc<Rig>) -> Vec<VdevSpec> {
    vec![VdevSpec::mirror([rig.device(0), rig.device(1)])]
}

fn single(rig: &Arc<Rig>) -> Vec<VdevSpec> {
    vec![VdevSpec::single(rig.device(0))]
}

fn guid(pool: &Pool, path: &str) -> Option<fastness_pool::Guid> {
    let status = pool.status();
    let mut sides = status.vdevs.iter().flat_map(|(_, _, sides)| sides);
    sides.find(|side| side.path == path && !side.is_stale).map(|side| side.guid)
}

#[test]
fn add() {
    let (images, model) = filled(single, 3);
    let change =
        |rig: &Arc<Rig>, pool: &Pool| pool.add(&VdevSpec::mirror([rig.device(1), rig.device(2)])).map(drop);
    assert_both(crash_everywhere(&images, &model, change, |pool| pool.status().vdevs.len() == 2));
}

#[test]
fn remove_a_log() {
    let specs = |rig: &Arc<Rig>| vec![VdevSpec::single(rig.device(0)), VdevSpec::single(rig.device(1)).log()];
    let (images, model) = filled(specs, 2);
    let change = |_: &Arc<Rig>, pool: &Pool| pool.remove(1);
    assert_both(crash_everywhere(&images, &model, change, |pool| pool.status().vdevs.len() == 1));
}

#[test]
fn attach_with_its_resilver() {
    let (images, model) = filled(single, 2);
    let change = |rig: &Arc<Rig>, pool: &Pool| {
        let to = guid(pool, "disk0").unwrap();
        pool.attach(to, rig.device(1), |_| true).map(drop)
    };
    assert_both(crash_everywhere(&images, &model, change, |pool| guid(pool, "disk1").is_some()));
}

#[test]
fn a_side_that_was_just_attached_is_enough() {
    let (images, model) = filled(single, 2);
    let rig = Rig::new(images, 1);
    let pool = import(&rig).unwrap();
    let to = guid(&pool, "disk0").unwrap();
    pool.attach(to, rig.device(1), |_| true).unwrap();
    drop(pool);
    // No txg has ended since, and the first side is gone.
    let pool = Pool::import(&[rig.device(1)], &degraded(), manual()).unwrap();
    compare_synced(&pool, &model);
}

#[test]
fn detach() {
    let (images, model) = filled(mirror, 2);
    let change = |_: &Arc<Rig>, pool: &Pool| pool.detach(guid(pool, "disk1").unwrap());
    assert_both(crash_everywhere(&images, &model, change, |pool| guid(pool, "disk1").is_none()));
}

#[test]
fn replace() {
    let (images, model) = filled(mirror, 3);
    let change = |rig: &Arc<Rig>, pool: &Pool| {
        pool.replace(guid(pool, "disk1").unwrap(), rig.device(2), |_| true).map(drop)
    };
    assert_both(crash_everywhere(&images, &model, change, |pool| guid(pool, "disk1").is_none()));
}

#[test]
fn resilver_of_a_side_that_was_away() {
    let (images, mut model) = filled(mirror, 2);
    let rig = Rig::new(images, 1);
    let pool = import(&rig).unwrap();
    rig.devices[1].vanish();
    let mut rng = Rng::new(9);
    for _ in 0..40 {
        let tx = pool.begin_tx().unwrap();
        step(&pool, &tx, &mut model, &mut rng);
    }
    pool.sync().unwrap();
    drop(pool);
    rig.devices[1].reopen(3).unwrap();
    let images: Vec<_> = rig.devices.iter().map(|device| device.inner().image()).collect();
    let change = |_: &Arc<Rig>, pool: &Pool| {
        let status = pool.status();
        let side = status.vdevs[0].2.iter().find(|side| side.is_stale).unwrap();
        pool.resilver(side.guid, |_| true).map(drop)
    };
    assert_both(crash_everywhere(&images, &model, change, |pool| guid(pool, "disk1").is_some()));
}

#[test]
fn a_side_left_behind_is_not_taken_for_the_pool() {
    let (images, model) = filled(mirror, 2);
    let rig = Rig::new(images, 1);
    let pool = import(&rig).unwrap();
    let guids = [guid(&pool, "disk0").unwrap(), guid(&pool, "disk1").unwrap()];
    rig.devices[1].vanish();
    let tx = pool.begin_tx().unwrap();
    pool.dataset("tank").unwrap().create_object(&tx).unwrap();
    drop(tx);
    let synced = pool.sync().unwrap();
    drop(pool);
    rig.devices[1].reopen(3).unwrap();
    // Its own label knows nothing of that txg: it names the device that may.
    let error = Pool::import(&[rig.device(1)], &host(), manual()).unwrap_err();
    assert!(
        matches!(&error, PoolError::MissingSide { guid, path, .. } if *guid == guids[0] && path == "disk0"),
        "{error:?}"
    );
    // The other knows that this one is stale, and needs nobody's leave.
    let pool = Pool::import(&[rig.device(0)], &host(), manual()).unwrap();
    assert_eq!(pool.synced_txg(), synced);
    assert!(!pool.status().vdevs[0].2[1].is_present && pool.status().vdevs[0].2[1].is_stale);
    drop(pool);
    // By consent the old txg comes back; the status says what is missing.
    let pool = Pool::import(&[rig.device(1)], &degraded(), manual()).unwrap();
    assert!(pool.synced_txg() < synced);
    compare_synced(&pool, &model);
    assert!(pool.status().vdevs[0].2[0].is_stale);
    drop(pool);
    // Now each has gone its own way, and both together are refused until one is left out.
    let error = Pool::import(&rig.all(), &host(), manual()).unwrap_err();
    assert!(matches!(error, PoolError::Split { .. }), "{error:?}");
    Pool::import(&[rig.device(0)], &host(), manual()).unwrap();
}

#[test]
fn what_no_pool_is_made_of_is_refused_with_the_reason() {
    let rig = Rig::fresh(2, LEN_BYTES, 9);
    let create = |vdevs: &[VdevSpec]| Pool::create("tank", vdevs, manual()).map(drop).unwrap_err();
    assert!(matches!(create(&[VdevSpec::single(rig.device(0)).log()]), PoolError::OnlyLogVdevs));
    assert!(matches!(create(&[VdevSpec::mirror([])]), PoolError::EmptyVdev));
    drop(Pool::create("tank", &[VdevSpec::single(rig.device(0))], manual()).unwrap());
    let import = |devices: &[Device], name: &str| {
        let options = fastness_pool::ImportOptions { name: Some(name.to_owned()), ..host() };
        Pool::import(devices, &options, manual()).map(drop)
    };
    assert!(matches!(import(&[], "tank"), Err(PoolError::NoDevice)));
    let other = import(&[rig.device(0)], "lake").unwrap_err();
    assert!(matches!(&other, PoolError::OtherName(found) if found == "tank"), "{other}");
    import(&[rig.device(0)], "tank").unwrap();
}
