//! Pools that are destroyed and brought back, or get another name: the power fails at every step.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fastness_blkdev::MemImage;
use fastness_pool::{ImportOptions, Pool, PoolError, PoolOptions};

use crate::support::{Rig, compare_synced, host, manual};
use crate::{LEN_BYTES, SEEDS, assert_both, filled, import, mirror, single};

/// Cuts the power at each operation of `act`, which begins with an import; hands each crash image on.
fn cut_everywhere(images: &[MemImage], act: impl Fn(&Arc<Rig>), mut look: impl FnMut(&Arc<Rig>)) {
    let rig = Rig::new(images.to_vec(), 1);
    act(&rig);
    let all = rig.ops.load(Ordering::SeqCst);
    assert!(all > 4, "it does something");
    for cut in 1..=all {
        for seed in 0..SEEDS {
            let rig = Rig::new(images.to_vec(), 1);
            rig.cut_at.store(cut, Ordering::SeqCst);
            act(&rig);
            look(&Rig::new(rig.crash(cut * SEEDS + seed), 2));
        }
    }
}

fn brings_back() -> ImportOptions {
    ImportOptions { allows_destroyed: true, ..host() }
}

#[test]
fn destroy_and_bring_back() {
    let (images, model) = filled(mirror, 2);
    let destroy = |rig: &Arc<Rig>| {
        let _ = import(rig).and_then(|pool| pool.destroy());
    };
    let mut outcomes = (0, 0);
    cut_everywhere(&images, destroy, |rig| {
        let pool = match import(rig) {
            Ok(pool) => {
                outcomes.0 += 1;
                pool
            }
            Err(PoolError::Destroyed { .. }) => {
                outcomes.1 += 1;
                let pool = Pool::import(&rig.all(), &brings_back(), manual()).unwrap();
                assert!(pool.was_exported(), "everything had synced");
                pool
            }
            Err(error) => panic!("{error:?}"),
        };
        compare_synced(&pool, &model);
        pool.sync().unwrap();
        drop(pool);
        // From now on it is a pool like any other.
        drop(import(rig).unwrap());
    });
    assert_both(outcomes);
}

/// A reader that cannot read the newest label must not find a pool in use.
#[test]
fn no_label_of_a_destroyed_pool_says_that_it_exists() {
    let (images, model) = filled(mirror, 2);
    let rig = Rig::new(images, 1);
    let pool = import(&rig).unwrap();
    pool.destroy().unwrap();
    let generation = pool.config().generation;
    drop(pool);
    let mut images: Vec<_> = rig.devices.iter().map(|device| device.inner().image()).collect();
    for image in &mut images {
        for start in [0, LEN_BYTES - (256 << 10)] {
            image.zero(start + (16 << 10) + generation % 2 * (32 << 10), 32 << 10);
        }
    }
    let rig = Rig::new(images, 2);
    assert!(matches!(import(&rig), Err(PoolError::Destroyed { pool }) if pool == "tank"));
    // One side is enough to bring it back, by consent to what the other may know.
    let alone = ImportOptions { allows_degraded: true, ..brings_back() };
    compare_synced(&Pool::import(&[rig.device(1)], &alone, manual()).unwrap(), &model);
}

#[test]
fn what_cannot_be_destroyed_is_as_it_was() {
    let (images, model) = filled(single, 1);
    let rig = Rig::new(images, 1);
    let options = PoolOptions { is_read_only: true, ..manual() };
    let pool = Pool::import(&rig.all(), &host(), options).unwrap();
    assert!(matches!(pool.check_destroyable(), Err(PoolError::ReadOnly(_))));
    assert!(matches!(pool.destroy(), Err(PoolError::ReadOnly(_))));
    compare_synced(&pool, &model);
    drop(pool);
    compare_synced(&import(&rig).unwrap(), &model);
}

#[test]
fn rename_at_import() {
    let (images, model) = filled(single, 1);
    let rename = |rig: &Arc<Rig>, name: &str| {
        let options = ImportOptions { rename: Some(name.to_owned()), ..host() };
        Pool::import(&rig.all(), &options, manual()).and_then(|pool| pool.export())
    };
    let mut outcomes = (0, 0);
    let act = |rig: &Arc<Rig>| drop(rename(rig, "lake"));
    cut_everywhere(&images, act, |rig| {
        let pool = import(rig).unwrap();
        let name = pool.name();
        *(if name == "tank" { &mut outcomes.0 } else { &mut outcomes.1 }) += 1;
        // Whatever the labels say, the datasets follow.
        let names: Vec<String> = pool.datasets().into_iter().map(|info| info.name).collect();
        assert!(names.iter().all(|full| full.split('/').next() == Some(&*name)), "{name}: {names:?}");
        pool.export().unwrap();
        drop(pool);
        rename(rig, "tank").unwrap();
        compare_synced(&import(rig).unwrap(), &model);
    });
    assert_both(outcomes);
    let rig = Rig::new(images, 1);
    assert!(matches!(rename(&rig, "a/b"), Err(PoolError::Invalid { .. })));
    compare_synced(&import(&rig).unwrap(), &model);
}
