//! Devices that fail while others are added, or take their place: the pool goes on, and the next import finds
//! it.

mod support;

use fastness_blkdev::{Fault, FaultPlan, On, Operation, When};
use fastness_pool::{DeviceStatus, ErrorKind, Pool, VdevClass, VdevSpec};
use support::{Rig, Rng, compare_synced, host, manual, new_model, step};

const LEN_BYTES: u64 = 9 << 20;

fn side(pool: &Pool, path: &str) -> Option<DeviceStatus> {
    let vdevs = pool.status().vdevs;
    vdevs.into_iter().flat_map(|(.., sides)| sides).find(|side| side.path == path)
}

/// A label names a vdev that the pool does without: then that vdev has none of the next txgs.
#[test]
fn a_vdev_that_could_not_be_added_is_named_by_no_label_after_the_next_txg() {
    for (class, nth) in
        [VdevClass::Normal, VdevClass::Log].into_iter().flat_map(|c| (1..9).map(move |n| (c, n)))
    {
        let rig = Rig::fresh(2, LEN_BYTES, 1);
        let pool = Pool::create("tank", &[VdevSpec::single(rig.device(0))], manual()).unwrap();
        // All writes until the addition has failed and was taken back, as far as that goes.
        rig.devices[0].set_plan(FaultPlan::new(1).rule(On::Writes, When::From(nth), Fault::Errno(5)));
        let spec = VdevSpec::single(rig.device(1));
        let added = pool.add(&if class == VdevClass::Log { spec.log() } else { spec });
        rig.devices[0].set_plan(FaultPlan::new(1));
        for _ in 0..3 {
            pool.sync().unwrap();
        }
        let rig = Rig::new(rig.crash(1), 1);
        let devices = if added.is_ok() { rig.all() } else { vec![rig.device(0)] };
        let next = Pool::import(&devices, &host(), manual());
        let next = next.unwrap_or_else(|error| panic!("{class:?}, write {nth}: {error}"));
        assert_eq!(side(&next, "disk1").is_some(), added.is_ok());
        if added.is_ok() {
            break;
        }
    }
}

#[test]
fn a_device_that_cannot_be_read_is_not_replaced_before_all_of_it_was() {
    let mut met = [0, 0];
    for nth in 1..60 {
        let mut rng = Rng::new(nth);
        let rig = Rig::fresh(2, LEN_BYTES, nth);
        let pool = Pool::create("tank", &[VdevSpec::single(rig.device(0))], manual()).unwrap();
        let mut model = new_model();
        for _ in 0..40 {
            let tx = pool.begin_tx().unwrap();
            step(&pool, &tx, &mut model, &mut rng);
        }
        pool.sync().unwrap();
        let old = side(&pool, "disk0").unwrap().guid;
        let fails = FaultPlan::new(1).rule(On::Only(Operation::Read), When::Nth(nth), Fault::Errno(5));
        rig.devices[0].set_plan(fails);
        let Ok(report) = pool.replace(old, rig.device(1), |_| true) else { continue };
        met[usize::from(report.lost.is_empty())] += 1;
        assert_eq!(side(&pool, "disk0").is_some(), !report.lost.is_empty(), "read {nth}");
        let new = side(&pool, "disk1").unwrap();
        assert_eq!(new.is_stale, !report.lost.is_empty(), "read {nth}");
        if new.is_stale {
            assert_eq!(pool.detach(old).unwrap_err().kind(), ErrorKind::Retry);
            assert!(pool.resilver(new.guid, |_| true).unwrap().lost.is_empty());
            pool.detach(old).unwrap();
        }
        drop(pool);
        let rig = Rig::new(rig.crash(nth), 1);
        compare_synced(&Pool::import(&[rig.device(1)], &host(), manual()).unwrap(), &model);
    }
    assert!(met.iter().all(|met| *met > 0), "{met:?}");
}
