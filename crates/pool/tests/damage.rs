//! Damage to everything that is stored: healed on a mirror, an error with the place without one, never wrong
//! data.

mod support;

use fastness_blkdev::{BlockDevice, MemDevice, MemImage};
use fastness_pool::{ErrorKind, Pool, PoolError, TableId, VdevSpec};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use support::{Rig, Rng, Shape, compare_rows, compare_synced, degraded, host, manual, new_model, step};

const LEN_BYTES: u64 = 24 << 20;

fn filled(shape: Shape, seed: u64) -> (Arc<Rig>, Pool, support::Model) {
    let mut rng = Rng::new(seed);
    let rig = Rig::fresh(shape.count(), LEN_BYTES, seed);
    let pool = Pool::create("tank", &shape.specs(rig.all()), manual()).unwrap();
    let mut model = new_model();
    for _ in 0..120 {
        let tx = pool.begin_tx().unwrap();
        step(&pool, &tx, &mut model, &mut rng);
    }
    pool.export().unwrap();
    (rig, pool, model)
}

fn images(rig: &Rig) -> Vec<MemImage> {
    rig.devices.iter().map(|device| device.inner().image()).collect()
}

/// Sectors that are not all zeroes.
fn used_sectors(image: &MemImage) -> Vec<u64> {
    let bytes = image.to_vec();
    let used = bytes.chunks(512).enumerate().filter(|(_, sector)| sector.iter().any(|byte| *byte != 0));
    used.map(|(index, _)| index as u64 * 512).collect()
}

fn flip(image: &mut MemImage, offset: u64, rng: &mut Rng) {
    let mut byte = [0];
    image.read(offset, &mut byte);
    byte[0] ^= 1 << rng.below(8);
    image.write(offset, &byte);
}

#[test]
fn a_mirror_heals_a_flipped_bit_in_every_used_sector_of_one_side() {
    let (rig, pool, model) = filled(Shape::Mirror, 1);
    drop(pool);
    let mut rng = Rng::new(5);
    let mut images = images(&rig);
    let sectors = used_sectors(&images[1]);
    // Labels too, but for those of the device: a device whose labels are all damaged is not recognised.
    let data = |offset: &&u64| (256 << 10..LEN_BYTES - (256 << 10) - 4096).contains(*offset);
    let struck: Vec<u64> = sectors.iter().filter(data).copied().collect();
    for offset in &struck {
        flip(&mut images[1], offset + rng.below(512), &mut rng);
    }
    let rig = Rig::new(images, 2);
    let pool = Pool::import(&rig.all(), &host(), manual()).unwrap();
    compare_synced(&pool, &model);
    let report = pool.scrub(|_| true).unwrap();
    assert!(report.lost.is_empty());
    let healed: u64 = pool.status().vdevs[0].2.iter().map(|device| device.errors.healed).sum();
    assert!(healed > 20, "{healed} of {} sectors", struck.len());
    assert_eq!(pool.scrub(|_| true).unwrap().wrong_copies, 0, "everything was healed");
    pool.sync().unwrap();
    drop(pool);
    // Now the other side alone is enough.
    let only = rig.device(1);
    let pool = Pool::import(&[only], &degraded(), manual()).unwrap();
    compare_synced(&pool, &model);
}

#[test]
fn a_single_device_never_returns_wrong_data() {
    let (rig, pool, model) = filled(Shape::Single, 3);
    drop(pool);
    let original = images(&rig).remove(0);
    let mut rng = Rng::new(9);
    let sectors = used_sectors(&original);
    let (mut refused, mut found_data, mut unharmed) = (0, 0, 0);
    for _ in 0..400 {
        let mut image = original.clone();
        let offset = sectors[rng.below(sectors.len() as u64) as usize] + rng.below(512);
        flip(&mut image, offset, &mut rng);
        let rig = Rig::new(vec![image], 4);
        let pool = match Pool::import(&rig.all(), &host(), manual()) {
            Ok(pool) => pool,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
                refused += 1;
                continue;
            }
        };
        let (mut is_hit, mut scan_error) = (false, None);
        for (name, entry) in &model {
            for (id, bytes) in &entry.objects {
                let read = || {
                    let object = pool.dataset(name)?.object(fastness_pool::ObjectId(*id))?;
                    let mut found = vec![0; bytes.len()];
                    object.read(0, &mut found)?;
                    Ok::<_, PoolError>(found)
                };
                match read() {
                    Ok(found) => assert!(found == *bytes, "wrong data after a flip at {offset:#x}"),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
                        is_hit = true;
                    }
                }
            }
        }
        for (name, entry) in &model {
            let dataset = pool.dataset(name).unwrap();
            for ((id, key), value) in &entry.rows {
                let mut found = Vec::new();
                match dataset.table(TableId(*id)).get(key, &mut found) {
                    Ok(is_there) => assert!(is_there && found == *value, "a wrong row, flipped {offset:#x}"),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
                        is_hit = true;
                    }
                }
            }
            if let Err(error) = compare_rows(&pool, name, entry) {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
                scan_error = Some(error);
            }
        }
        // A scan reads the page after its last row as well, which may have rows of another dataset alone.
        assert!(is_hit || scan_error.is_none(), "no row is damaged, but a scan says {scan_error:?}");
        if is_hit { found_data += 1 } else { unharmed += 1 }
    }
    assert!(refused > 0 && found_data > 50 && unharmed > 0, "{refused} {found_data} {unharmed}");
}

#[test]
fn an_import_names_what_is_wrong() {
    let (rig, pool, _) = filled(Shape::Stripe, 7);
    drop(pool);
    let import = |devices: &[_]| Pool::import(devices, &host(), manual()).unwrap_err();
    let error = import(&[rig.device(0)]);
    assert!(matches!(&error, PoolError::MissingDevice { path, vdev: 1, .. } if path == "disk1"), "{error:?}");
    let empty = Rig::fresh(1, LEN_BYTES, 0);
    let error = import(&[rig.device(0), empty.device(0)]);
    assert!(matches!(&error, PoolError::NoLabel { path } if path == "disk0"), "{error:?}");
    let (other, pool, _) = filled(Shape::Single, 8);
    drop(pool);
    let error = import(&[rig.device(0), rig.device(1), other.device(0)]);
    assert!(matches!(error, PoolError::ForeignPool { .. }), "{error:?}");
    let mut images = images(&rig);
    let mut rng = Rng::new(1);
    for offset in used_sectors(&images[0]) {
        if !(256 << 10..LEN_BYTES - (256 << 10) - 4096).contains(&offset) {
            flip(&mut images[0], offset, &mut rng);
        }
    }
    let damaged = Rig::new(images, 0);
    let error = import(&damaged.all());
    assert!(matches!(&error, PoolError::DamagedLabels { path } if path == "disk0"), "{error:?}");
}

#[test]
fn a_pool_in_use_elsewhere_is_refused() {
    let rig = Rig::fresh(1, LEN_BYTES, 0);
    let pool = Pool::create("tank", &Shape::Single.specs(rig.all()), manual()).unwrap();
    drop(pool);
    let mut elsewhere = host();
    elsewhere.host.id ^= 1;
    let error = Pool::import(&rig.all(), &elsewhere, manual()).unwrap_err();
    assert!(matches!(error, PoolError::InUseByHost { .. }), "{error:?}");
    elsewhere.is_forced = true;
    Pool::import(&rig.all(), &elsewhere, manual()).unwrap().export().unwrap();
    Pool::import(&rig.all(), &host(), manual()).unwrap();
}

/// A device whose opening fences whoever had it, as that of an image does; or one that says nothing of that.
fn image(rig: &Arc<Rig>, index: usize, fences_others: bool) -> fastness_pool::Device {
    let device = rig.device(index);
    let image = MemImage::of_device(&*device.device).unwrap();
    let mem =
        MemDevice::from_image(&device.path, image, 512).with_info(|info| info.fences_others = fences_others);
    fastness_pool::Device::new(device.path, Arc::new(mem))
}

#[test]
fn a_pool_in_use_elsewhere_is_taken_over_if_all_its_devices_fence_the_other_host() {
    let rig = Rig::fresh(2, LEN_BYTES, 0);
    let pool = Pool::create("tank", &[VdevSpec::mirror([rig.device(0), rig.device(1)])], manual()).unwrap();
    drop(pool);
    let mut elsewhere = host();
    elsewhere.host.id ^= 1;
    elsewhere.allows_degraded = true;
    for (first, second) in [(true, false), (false, true), (false, false)] {
        let devices = [image(&rig, 0, first), image(&rig, 1, second)];
        let error = Pool::import(&devices, &elsewhere, manual()).unwrap_err();
        assert!(matches!(error, PoolError::InUseByHost { .. }), "{error:?}");
    }
    // The other host may go on with the side that is not here.
    let error = Pool::import(&[image(&rig, 0, true)], &elsewhere, manual()).unwrap_err();
    assert!(matches!(error, PoolError::InUseByHost { .. }), "{error:?}");
    let devices = [image(&rig, 0, true), image(&rig, 1, true)];
    let pool = Pool::import(&devices, &elsewhere, manual()).unwrap();
    assert_eq!(pool.config().host_id, elsewhere.host.id);
}

#[test]
fn a_side_that_vanishes_is_stale_until_it_is_resilvered() {
    let mut rng = Rng::new(11);
    let rig = Rig::fresh(3, LEN_BYTES, 11);
    let pool = Pool::create("tank", &[VdevSpec::mirror([rig.device(0), rig.device(1)])], manual()).unwrap();
    let mut model = new_model();
    let mut work = |pool: &Pool, count| {
        for _ in 0..count {
            let tx = pool.begin_tx().unwrap();
            step(pool, &tx, &mut model, &mut rng);
        }
        pool.sync().unwrap();
        model.clone()
    };
    work(&pool, 60);
    rig.devices[1].vanish();
    let model_now = work(&pool, 60);
    // A flush failed while it was away: it is poisoned until it is opened again.
    rig.devices[1].come_back();
    assert!(pool.resilver(pool.status().vdevs[0].2[1].guid, |_| true).is_err());
    let sides = pool.status().vdevs[0].2.clone();
    assert!(!sides[0].is_stale && sides[1].is_stale);
    drop(pool);
    rig.devices[1].reopen(3).unwrap();
    let pool = Pool::import(&[rig.device(0), rig.device(1)], &host(), manual()).unwrap();
    compare_synced(&pool, &model_now);
    assert!(pool.status().vdevs[0].2[1].is_stale, "the label of the other remembers");
    let model_now = work(&pool, 30);
    pool.resilver(sides[1].guid, |_| true).unwrap();
    assert!(!pool.status().vdevs[0].2[1].is_stale);
    // The third takes the place of the first.
    pool.replace(sides[0].guid, rig.device(2), |_| true).unwrap();
    compare_synced(&pool, &model_now);
    pool.export().unwrap();
    drop(pool);
    for only in [1, 2] {
        let pool = Pool::import(&[rig.device(only)], &degraded(), manual()).unwrap();
        compare_synced(&pool, &model_now);
        pool.export().unwrap();
    }
    let error = Pool::import(&[rig.device(0)], &host(), manual()).unwrap_err();
    assert!(matches!(error, PoolError::NoLabel { .. }), "{error:?}");
}

#[test]
fn a_failed_flush_suspends_a_pool_without_a_mirror() {
    use fastness_blkdev::{Fault, FaultPlan, On, Operation, When};
    let rig = Rig::fresh(1, LEN_BYTES, 0);
    let pool = Pool::create("tank", &Shape::Single.specs(rig.all()), manual()).unwrap();
    pool.sync().unwrap();
    let plan = FaultPlan::new(0).rule(On::Only(Operation::Flush), When::Nth(1), Fault::Errno(5));
    rig.devices[0].set_plan(plan);
    assert!(pool.sync().is_err());
    assert!(matches!(pool.begin_tx().unwrap_err(), PoolError::Suspended { .. }));
    assert!(pool.sync().is_err() && pool.export().is_err());
    assert!(rig.device(0).device.is_poisoned());
}

#[test]
fn a_page_of_metadata_that_cannot_be_read_is_named_until_the_next_import() {
    use fastness_blkdev::{Fault, FaultPlan, On, Operation, When};
    let rig = Rig::fresh(1, LEN_BYTES, 0);
    let options = fastness_pool::PoolOptions { meta_cache_bytes: 0, ..manual() };
    let pool = Pool::create("tank", &Shape::Single.specs(rig.all()), options.clone()).unwrap();
    let root = pool.dataset("tank").unwrap();
    let tx = pool.begin_tx().unwrap();
    let table = root.table(TableId(0));
    (0..500_u32).for_each(|key| table.put(&tx, &key.to_be_bytes(), &[1; 100]).unwrap());
    let ids: Vec<_> = (0..500).map(|_| root.create_object(&tx).unwrap().id()).collect();
    let cached = root.object(ids[0]).unwrap();
    cached.write(&tx, 0, b"cached").unwrap();
    drop(tx);
    pool.sync().unwrap();
    let mut found = [0; 6];
    cached.read(0, &mut found).unwrap();
    let plan = FaultPlan::new(0).rule(On::Only(Operation::Read), When::From(1), Fault::Errno(5));
    rig.devices[0].set_plan(plan);
    let mut first = None;
    for id in &ids[1..] {
        if let Err(error) = root.object(*id) {
            assert!(matches!(error, PoolError::Device(_)), "the place, every time: {error:?}");
            assert_eq!(error.kind(), ErrorKind::MediaFailed);
            first.get_or_insert(error.to_string());
        }
    }
    assert!(first.is_some(), "a page was read");
    let error = table.get(&7_u32.to_be_bytes(), &mut Vec::new()).unwrap_err();
    assert!(matches!(error, PoolError::Device(_)), "{error:?}");
    let error = table.scan((Bound::Unbounded, Bound::Unbounded), |_, _| ControlFlow::Continue(()));
    assert!(matches!(error, Err(PoolError::Device(_))), "{error:?}");
    // An unsynced row needs no page.
    table.put(&pool.begin_tx().unwrap(), b"new", b"1").unwrap();
    assert!(table.get(b"new", &mut Vec::new()).unwrap());
    // The medium is well again, the engine has closed itself. What is in memory can still be read.
    rig.devices[0].set_plan(FaultPlan::new(0));
    cached.read(0, &mut found).unwrap();
    assert_eq!(&found, b"cached");
    let error = root.synced_objects().unwrap_err();
    assert!(matches!(error, PoolError::Device(_)), "{error:?}");
    assert!(matches!(pool.check().unwrap_err(), PoolError::Device(_)));
    let tx = pool.begin_tx().unwrap();
    cached.write(&tx, 0, b"unsafe").unwrap();
    drop(tx);
    assert!(matches!(pool.sync().unwrap_err(), PoolError::Device(_)));
    assert!(matches!(pool.begin_tx().unwrap_err(), PoolError::Suspended { .. }));
    drop((cached, table, root, pool));
    let pool = Pool::import(&rig.all(), &host(), options).unwrap();
    assert_eq!(pool.dataset("tank").unwrap().synced_objects().unwrap(), ids);
    pool.dataset("tank").unwrap().object(ids[0]).unwrap().read(0, &mut found).unwrap();
    assert_eq!(&found, b"cached");
}
