//! Damage to every structure, one unit or one write at a time: flipped bits, lost writes, misdirected writes.
//!
//! Without a mirror: an error with the place, or right data; never wrong data. On a mirror: right data,
//! healed and counted, and afterwards every copy is right.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use fastness_blkdev::{BlockDevice, Fault, FaultPlan, MemImage, On, Operation, When};
use fastness_pool::{
    DATA_START_BYTES, DatasetKind, ErrorKind, LABEL_BYTES, ObjectId, Place, Pool, PoolError, Property,
    Result, UNIT_BYTES,
};
use support::{Model, Rig, Rng, Shape, compare_synced, degraded, host, manual, new_model, step, step_in};

const LEN_BYTES: u64 = 9 << 20;

/// A pool with blocks of all kinds, those in pieces too, and what should be in it.
fn filled(shape: Shape) -> (Vec<MemImage>, Model) {
    let mut rng = Rng::new(21);
    let rig = Rig::fresh(shape.count(), LEN_BYTES, 0);
    let pool = Pool::create("tank", &shape.specs(rig.all()), manual()).unwrap();
    let mut model = new_model();
    for _ in 0..120 {
        let tx = pool.begin_tx().unwrap();
        step(&pool, &tx, &mut model, &mut rng);
    }
    pool.sync().unwrap();
    fragment(&pool, &mut model);
    pool.export().unwrap();
    compare_exported(&rig, &model);
    (rig.devices.iter().map(|device| device.inner().image()).collect(), model)
}

fn compare_exported(rig: &Arc<Rig>, model: &Model) {
    let pool = Pool::import(&rig.all(), &host(), manual()).unwrap();
    compare_synced(&pool, model);
    pool.export().unwrap();
}

/// Fills the pool with small blocks, frees every other one, and writes large ones: they are stored in pieces.
fn fragment(pool: &Pool, model: &mut Model) {
    let tx = pool.begin_tx().unwrap();
    let own = [(Property::VolBlockSize, 4096)];
    let small = pool.create_dataset(&tx, "tank/small", DatasetKind::Volume, &own).unwrap();
    let mut entry = support::ModelDataset::new(small.id());
    entry.properties.extend(own);
    let object = small.create_object(&tx).unwrap();
    drop(tx);
    let mut blocks = 0;
    while blocks < 4000 {
        let tx = pool.begin_tx().unwrap();
        if object.write(&tx, blocks * 4096, &[blocks as u8 | 1; 4096]).is_err() {
            break;
        }
        blocks += 1;
        drop(tx);
        if blocks % 100 == 0 {
            pool.sync().unwrap();
        }
    }
    pool.sync().unwrap();
    let tx = pool.begin_tx().unwrap();
    (0..blocks).step_by(2).for_each(|block| object.punch(&tx, block * 4096, 4096).unwrap());
    drop(tx);
    pool.sync().unwrap();
    let bytes = (0..blocks).flat_map(|block| [if block % 2 == 0 { 0 } else { block as u8 | 1 }; 4096]);
    entry.objects.insert(1, bytes.collect());
    entry.next = 2;
    model.insert("tank/small".to_owned(), entry);
    let tx = pool.begin_tx().unwrap();
    let large = pool.dataset("tank").unwrap().create_object(&tx).unwrap();
    let data: Vec<u8> = (0..6 * 131_072u32).map(|at| (at / 999) as u8).collect();
    large.write(&tx, 0, &data).unwrap();
    drop(tx);
    pool.sync().unwrap();
    let root = model.get_mut("tank").unwrap();
    root.objects.insert(large.id().0, data);
    root.next = large.id().0 + 1;
}

/// Reads everything; panics at wrong data. The errors that were met.
fn read_all(pool: &Pool, model: &Model) -> Vec<PoolError> {
    let mut errors = Vec::new();
    for (name, entry) in model {
        for (id, bytes) in &entry.objects {
            let read = || -> Result<Vec<u8>> {
                let object = pool.dataset(name)?.object(ObjectId(*id))?;
                let mut found = vec![0; bytes.len()];
                assert_eq!(object.size_bytes(), bytes.len() as u64);
                object.read(0, &mut found)?;
                Ok(found)
            };
            match read() {
                Ok(found) => assert!(found == *bytes, "wrong data in {name} object {id}"),
                Err(error) => errors.push(error),
            }
        }
    }
    errors
}

fn place_of(error: &PoolError) -> (&'static str, Place) {
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    match error {
        PoolError::Damaged { what, place } => (what, *place),
        PoolError::DamagedBlock { place, .. } => ("data", *place),
        other => panic!("an error without a place: {other:?}"),
    }
}

fn flip(image: &mut MemImage, offset: u64, rng: &mut Rng) {
    let mut byte = [0];
    image.read(offset, &mut byte);
    byte[0] ^= 1 << rng.below(8);
    image.write(offset, &byte);
}

/// Units that are not all zeroes, by their offset.
fn used_units(image: &MemImage) -> Vec<u64> {
    let bytes = image.to_vec();
    let units = bytes.chunks(UNIT_BYTES as usize).enumerate();
    units
        .filter(|(_, unit)| unit.iter().any(|byte| *byte != 0))
        .map(|(at, _)| at as u64 * UNIT_BYTES)
        .collect()
}

/// Damages one unit of an image; returns what was found to be damaged.
fn damage_unit(image: &MemImage, offset: u64, model: &Model, rng: &mut Rng) -> &'static str {
    let mut image = image.clone();
    // The first bytes of a unit are in use; the last may be filler that no checksum covers.
    flip(&mut image, offset + rng.below(48), rng);
    let rig = Rig::new(vec![image], 4);
    let data = DATA_START_BYTES..LEN_BYTES - LABEL_BYTES - UNIT_BYTES;
    let unit = data.contains(&offset).then(|| (offset - DATA_START_BYTES) / UNIT_BYTES);
    let is_here = |place: Place, units: u64| {
        unit.is_some_and(|unit| place.vdev == 0 && (place.unit..place.unit + units).contains(&unit))
    };
    let pool = match Pool::import(&rig.all(), &host(), manual()) {
        Ok(pool) => pool,
        Err(error) => {
            let (what, place) = place_of(&error);
            assert!(is_here(place, 1), "damage at {offset:#x}: {error}");
            return what;
        }
    };
    let errors = read_all(&pool, model);
    let Some(first) = errors.first() else { return if unit.is_some() { "no reader" } else { "labels" } };
    let (what, place) = place_of(first);
    assert!(is_here(place, if what == "data" { 32 } else { 1 }), "damage at {offset:#x}: {first}");
    match pool.scrub(|_| true) {
        Ok(report) => {
            assert!(what == "data" && report.lost.len() == 1 && is_here(report.lost[0], 32), "{report:?}");
        }
        Err(error) => assert_eq!(place_of(&error), (what, place)),
    }
    what
}

#[test]
fn without_a_mirror_every_damaged_unit_is_an_error_with_its_place() {
    let (images, model) = filled(Shape::Single);
    let units = used_units(&images[0]);
    let met = std::sync::Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for part in units.chunks(units.len().div_ceil(2)) {
            let (image, model, met) = (images[0].clone(), &model, &met);
            scope.spawn(move || {
                let mut rng = Rng::new(part[0]);
                for offset in part {
                    let what = damage_unit(&image, *offset, model, &mut rng);
                    *met.lock().unwrap().entry(what).or_insert(0) += 1;
                }
            });
        }
    });
    let met = met.into_inner().unwrap();
    let least = [("data", 300), ("metadata", 20), ("page map", 2), ("labels", 20)];
    assert!(least.iter().all(|(what, least)| met.get(what).is_some_and(|met| met >= least)), "{met:?}");
}

#[test]
fn a_mirror_heals_what_it_reads() {
    let (mut images, model) = filled(Shape::Mirror);
    let mut rng = Rng::new(3);
    // Every unit of one side, labels and uberblocks too: but for one slot of each, so that the device is
    // known.
    let units = used_units(&images[1]);
    for offset in &units {
        let is_label = *offset < DATA_START_BYTES;
        if !is_label {
            flip(&mut images[1], offset + rng.below(48), &mut rng);
        }
    }
    let rig = Rig::new(images, 5);
    let pool = Pool::import(&rig.all(), &host(), manual()).unwrap();
    assert!(read_all(&pool, &model).is_empty());
    let by_reading = pool.status().vdevs[0].2[1].errors;
    assert!(by_reading.healed > 100 && by_reading.checksum >= by_reading.healed, "{by_reading:?}");
    let report = pool.scrub(|_| true).unwrap();
    assert!(report.lost.is_empty() && report.wrong_copies > 100, "{report:?}");
    let healed = pool.status().vdevs[0].2[1].errors.healed;
    assert_eq!(healed, by_reading.healed + report.wrong_copies, "each is counted once");
    assert_eq!(pool.status().vdevs[0].2[0].errors.healed, 0);
    assert_eq!(pool.scrub(|_| true).unwrap().wrong_copies, 0);
    pool.export().unwrap();
    drop(pool);
    let pool = Pool::import(&[rig.device(1)], &degraded(), manual()).unwrap();
    compare_synced(&pool, &model);
}

#[test]
fn either_label_is_enough() {
    let (images, model) = filled(Shape::Single);
    for start in [0, LEN_BYTES - LABEL_BYTES] {
        let mut image = images[0].clone();
        image.write(start, &vec![0x5a; LABEL_BYTES as usize]);
        let pool = Pool::import(&Rig::new(vec![image], 0).all(), &host(), manual()).unwrap();
        compare_synced(&pool, &model);
        pool.export().unwrap();
    }
}

/// What became of a pool with a fault.
struct Struck {
    rig: Arc<Rig>,
    model: Model,
    has_failed: bool,
    healed: u64,
}

/// A pool whose device `index` has a fault at its `nth` write in `range`, after it was created.
fn with_fault(shape: Shape, index: usize, (nth, range, fault): Strike) -> Struck {
    let mut rng = Rng::new(24);
    let rig = Rig::fresh(shape.count(), LEN_BYTES, nth);
    let pool = Pool::create("tank", &shape.specs(rig.all()), manual()).unwrap();
    let before = rig.devices[index].stats().of(Operation::Write).ops;
    rig.devices[index].set_plan(FaultPlan::new(nth).rule_in(range, On::Writes, When::Nth(nth), fault));
    let mut model = new_model();
    let mut work = || {
        for _ in 0..8 {
            for _ in 0..12 {
                let tx = pool.begin_tx()?;
                step_in(&pool, &tx, &mut model, None, &mut rng)?;
            }
            pool.sync()?;
        }
        pool.export()
    };
    // The damage may be met at once, also by the engine among its own pages.
    let result = work();
    let has_failed = result.is_err();
    if let Err(error) = result {
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
    }
    let healed = pool.status().vdevs[0].2.iter().map(|side| side.errors.healed).sum();
    let writes = rig.devices[index].stats().of(Operation::Write).ops - before;
    rig.devices.iter().for_each(|device| device.set_plan(FaultPlan::new(0)));
    assert!(has_failed || writes > 40, "{writes} writes");
    Struck { rig, model, has_failed, healed }
}

type Strike = (u64, std::ops::Range<u64>, Fault);

/// Lost and misdirected writes: of data and metadata, of uberblocks, of configurations; into each of them.
fn strikes() -> Vec<Strike> {
    let mut all = Vec::new();
    let (labels, ring) = (0..128 << 10, 128 << 10..256 << 10);
    let data = DATA_START_BYTES..LEN_BYTES - LABEL_BYTES - UNIT_BYTES;
    for (range, count) in [(data, 16), (ring, 8), (labels, 1)] {
        for nth in 1..=count {
            let faults = [
                Fault::Dropped,
                Fault::Misdirected { to: DATA_START_BYTES + nth * 7 % 100 * UNIT_BYTES },
                Fault::Misdirected { to: (128 << 10) + nth % 32 * UNIT_BYTES },
                Fault::Misdirected { to: 16 << 10 },
            ];
            all.extend(faults.map(|fault| (nth, range.clone(), fault)));
        }
    }
    all
}

#[test]
fn without_a_mirror_a_lost_or_misdirected_write_is_found_or_harmless() {
    let mut met = [0; 3];
    for strike in strikes() {
        let Struck { rig, model, has_failed, .. } = with_fault(Shape::Single, 0, strike.clone());
        if has_failed {
            met[0] += 1;
            continue;
        }
        match Pool::import(&rig.all(), &host(), manual()) {
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{strike:?}: {error:?}");
                met[0] += 1;
            }
            Ok(pool) => {
                let errors = read_all(&pool, &model);
                for error in &errors {
                    place_of(error);
                }
                met[if errors.is_empty() { 2 } else { 1 }] += 1;
            }
        }
    }
    assert!(met.iter().all(|count| *count > 2), "refused, errors, harmless: {met:?}");
}

#[test]
fn a_mirror_heals_lost_and_misdirected_writes() {
    let mut wrong = 0;
    for strike in strikes() {
        let Struck { rig, model, has_failed, healed } = with_fault(Shape::Mirror, 1, strike.clone());
        assert!(!has_failed, "{strike:?}");
        let pool = Pool::import(&rig.all(), &host(), manual()).unwrap();
        compare_synced(&pool, &model);
        let report = pool.scrub(|_| true).unwrap();
        assert!(report.lost.is_empty());
        let errors = pool.status().vdevs[0].2[1].errors;
        assert_eq!(errors.healed, errors.checksum, "{strike:?}");
        wrong += u64::from(errors.healed + healed > 0);
        assert_eq!(pool.scrub(|_| true).unwrap().wrong_copies, 0);
        pool.export().unwrap();
        drop(pool);
        let pool = Pool::import(&[rig.device(1)], &degraded(), manual()).unwrap();
        compare_synced(&pool, &model);
    }
    assert!(wrong > 14, "{wrong} faults did harm");
}
