//! Random log blocks, data, txgs, sides that fail, crashes and imports: what is allocated is what is
//! reachable, no two owners have a unit, and every log block holds what was written to it.
//!
//! `FASTNESS_POOL_SEEDS=FROM..TO` runs others than the default 0..60; one seed is one schedule.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fastness_blkdev::{Fault, FaultPlan, On, Operation, When};
use fastness_pool::{LogExtent, LogSpace, Pool, PoolError, UNIT_BYTES, VdevSpec};
use support::{Model, Rig, Rng, Shape, compare_synced, host, manual, new_model, step_in};

fn seeds() -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("FASTNESS_POOL_SEEDS") else { return 0..60 };
    let (from, to) = text.split_once("..").expect("FROM..TO");
    from.parse().unwrap()..to.parse().unwrap()
}

/// What happened, so that it cannot pass without.
#[derive(Debug, Default)]
struct Met {
    on_log_vdevs: AtomicU64,
    among_data: AtomicU64,
    no_space: AtomicU64,
    claimed: AtomicU64,
    stale_sides: AtomicU64,
    resilvers: AtomicU64,
    removed: AtomicU64,
    in_use: AtomicU64,
}

fn note(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Log blocks, with what was written to them and flushed.
type Blocks = BTreeMap<LogExtent, Option<Vec<u8>>>;

fn proof(extent: &LogExtent, number: u64) -> Vec<u8> {
    let mut rng = Rng::new(number ^ extent.place.unit << 20);
    (0..extent.len_bytes).map(|_| rng.next() as u8).collect()
}

fn check_blocks(pool: &Pool, space: &LogSpace, blocks: &Blocks) {
    assert!(space.extents().iter().eq(blocks.keys()));
    let units = blocks.keys().map(|extent| u64::from(extent.len_bytes) / UNIT_BYTES).sum::<u64>();
    let report = pool.check().unwrap();
    assert!(report.is_clean() && report.log_units == units, "{units} units: {report:?}");
    for (extent, data) in blocks {
        let Some(data) = data else { continue };
        let mut buf = vec![0; data.len()];
        let found = space.read_checked(extent.place, &mut buf, &mut |buf| *buf == data[..]);
        assert!(found.unwrap(), "{extent:?} was written over");
    }
}

fn specs(shape: Shape, rig: &Arc<Rig>, log_sides: usize) -> Vec<VdevSpec> {
    let mut devices = rig.all();
    let log = devices.split_off(shape.count());
    let mut specs = shape.specs(devices);
    match log_sides {
        0 => {}
        _ => specs.push(VdevSpec::mirror(log).log()),
    }
    specs
}

fn log_step(met: &Met, space: &LogSpace, blocks: &mut Blocks, rng: &mut Rng, may_fail: bool) {
    match rng.below(10) {
        0..5 => {
            let len_bytes = 4096 * (1 + rng.below(32) as u32);
            match space.allocate(len_bytes) {
                Ok(place) => {
                    let extent = LogExtent { place, len_bytes };
                    assert!(blocks.insert(extent, None).is_none());
                    let is_log = space.usage().iter().any(|usage| {
                        usage.vdev == place.vdev && usage.class == fastness_pool::VdevClass::Log
                    });
                    note(if is_log { &met.on_log_vdevs } else { &met.among_data });
                    let data = proof(&extent, rng.next());
                    let written = space.write(place, &data).and_then(|()| space.flush(&[place.vdev]));
                    assert!(written.is_ok() || may_fail, "{written:?}");
                    if written.is_ok() {
                        blocks.insert(extent, Some(data));
                    }
                }
                Err(PoolError::NoSpace { .. }) => note(&met.no_space),
                Err(error) => panic!("{error}"),
            }
        }
        5..9 if !blocks.is_empty() => {
            let extent = *blocks.keys().nth(rng.below(blocks.len() as u64) as usize).unwrap();
            blocks.remove(&extent);
            space.free(extent);
        }
        _ => {}
    }
}

/// Syncs, and forgets models that a crash cannot leave any more.
fn sync(pool: &Pool, model: &Model, history: &mut BTreeMap<fastness_pool::Txg, Model>) {
    history.insert(pool.open_txg(), model.clone());
    let synced = pool.sync().unwrap();
    history.retain(|txg, _| *txg >= synced);
}

fn run(seed: u64, met: &Met) {
    let mut rng = Rng::new(seed);
    let shape = Shape::ALL[rng.below(4) as usize];
    let log_sides = rng.below(3) as usize;
    let mut rig = Rig::fresh(shape.count() + log_sides, 9 << 20, seed);
    let mut pool = Pool::create("tank", &specs(shape, &rig, log_sides), manual()).unwrap();
    let (mut model, mut history) = (new_model(), BTreeMap::new());
    let mut blocks = Blocks::new();
    for round in 0..4 {
        let space = pool.log_space();
        // A side of the data, if there are two, and neither has missed anything in an earlier round.
        let is_whole = pool.status().vdevs[0].2.iter().all(|side| !side.is_stale);
        let may_fail = shape.is_mirrored() && rng.below(2) == 0 && is_whole;
        if may_fail {
            let on = [On::Writes, On::Only(Operation::Flush)][rng.below(2) as usize];
            let plan = FaultPlan::new(seed).rule(on, When::Nth(1 + rng.below(60)), Fault::Errno(5));
            rig.devices[rng.below(2) as usize].set_plan(plan);
        }
        for _ in 0..rng.below(8) + 1 {
            for _ in 0..rng.below(20) {
                log_step(met, &space, &mut blocks, &mut rng, false);
                if rng.below(3) == 0 {
                    let tx = pool.begin_tx().unwrap();
                    step_in(&pool, &tx, &mut model, None, &mut rng).unwrap();
                }
            }
            sync(&pool, &model, &mut history);
            check_blocks(&pool, &space, &blocks);
            for side in pool.status().vdevs.into_iter().flat_map(|vdev| vdev.2).filter(|side| side.is_stale) {
                note(&met.stale_sides);
                if !side.is_poisoned && rng.below(2) == 0 {
                    // The fault may be still to come.
                    let resilvered = pool.resilver(side.guid, |_| true);
                    assert!(resilvered.is_ok() || may_fail, "{resilvered:?}");
                    note(&met.resilvers);
                }
            }
            if log_sides > 0 && rng.below(8) == 0 {
                let id = pool.config().vdevs.last().unwrap().id;
                if pool.config().vdevs.last().unwrap().class == fastness_pool::VdevClass::Log {
                    if rng.below(2) == 0 {
                        let gone = blocks.extract_if(.., |extent, _| extent.place.vdev == id);
                        gone.for_each(|(extent, _)| space.free(extent));
                    }
                    match pool.remove(id) {
                        Ok(()) => note(&met.removed),
                        Err(PoolError::LogInUse { .. }) => {
                            note(&met.in_use);
                            space.restore(id).unwrap();
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
            }
        }
        if rng.below(4) == 0 {
            while let Ok(place) = space.allocate(128 << 10) {
                blocks.insert(LogExtent { place, len_bytes: 128 << 10 }, None);
            }
            note(&met.no_space);
            let tx = pool.begin_tx().unwrap();
            step_in(&pool, &tx, &mut model, None, &mut rng).unwrap();
            drop(tx);
            sync(&pool, &model, &mut history);
        }
        // The power fails; some of what was flushed is claimed, the rest is free.
        drop((space, pool));
        rig = Rig::new(rig.crash(rng.next()), seed + round);
        let has_log = Pool::import_paused(&rig.all(), &host(), manual()).is_ok();
        let count = if has_log { rig.devices.len() } else { shape.count() };
        let devices = (0..count).map(|index| rig.device(index)).collect::<Vec<_>>();
        pool = Pool::import_paused(&devices, &host(), manual()).unwrap_or_else(|error| panic!("{error:?}"));
        let synced = pool.synced_txg();
        if let Some(found) = history.remove(&synced) {
            model = found;
        }
        history = [(synced, model.clone())].into();
        let space = pool.log_space();
        blocks.retain(|extent, data| data.is_some() && space.contains(*extent) && rng.below(2) == 0);
        for extent in blocks.keys() {
            space.claim(*extent).unwrap();
            note(&met.claimed);
        }
        check_blocks(&pool, &space, &blocks);
        pool.start_txgs().unwrap();
        compare_synced(&pool, &model);
        // Otherwise what was dirty when the power failed is what the next txg changes again.
        sync(&pool, &model, &mut history);
    }
}

#[test]
fn allocated_is_what_is_reachable_and_nobody_shares() {
    let met = Met::default();
    let seeds = seeds();
    for seed in seeds.clone() {
        if let Err(panic) = std::panic::catch_unwind(|| run(seed, &met)) {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            panic!("seed {seed}: {}", text.or(panic.downcast_ref::<&str>().copied()).unwrap_or_default());
        }
    }
    if seeds.end - seeds.start >= 60 {
        let Met { on_log_vdevs, among_data, no_space, claimed, stale_sides, resilvers, removed, in_use } =
            &met;
        for counter in [on_log_vdevs, among_data, no_space, claimed, stale_sides, resilvers, removed, in_use]
        {
            assert!(counter.load(Ordering::Relaxed) > 0, "something never happened: {met:?}");
        }
    }
}
