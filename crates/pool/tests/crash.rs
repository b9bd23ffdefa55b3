//! Seeded crashes: random operations and syncs, the power fails at a random write or flush, import, compare with
//! what the last synced txg should be. Again and again on the same images.
//!
//! `FASTNESS_POOL_SEEDS=FROM..TO` runs others; the default is 0..200.

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fastness_pool::{Pool, Txg};
use support::{History, Model, Rig, Rng, Shape, compare_synced, host, manual, new_model, step};

const ROUNDS: u64 = 4;
const LEN_BYTES: u64 = 24 << 20;

fn seeds() -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("FASTNESS_POOL_SEEDS") else { return 0..200 };
    let (from, to) = text.split_once("..").expect("FROM..TO");
    from.parse().unwrap()..to.parse().unwrap()
}

/// Runs until the power fails or the steps are done; returns the model of each txg that may be found.
fn work(pool: &Pool, model: &mut Model, rng: &mut Rng, acknowledged: &mut Txg) -> History {
    let mut history: History = [(*acknowledged, model.clone())].into();
    for _ in 0..rng.below(8) + 1 {
        for _ in 0..rng.below(25) {
            let tx = pool.begin_tx().unwrap();
            step(pool, &tx, model, rng);
        }
        let txg = pool.open_txg();
        history.insert(txg, model.clone());
        match pool.sync() {
            Ok(synced) => {
                assert_eq!(synced, txg);
                *acknowledged = txg;
                history.retain(|other, _| *other >= txg);
            }
            Err(_) => {
                assert!(pool.begin_tx().is_err() && pool.sync().is_err(), "a pool that failed is suspended");
                break;
            }
        }
    }
    history
}

fn run(seed: u64) {
    let mut rng = Rng::new(seed);
    let shape = [Shape::Single, Shape::Stripe, Shape::Mirror][rng.below(3) as usize];
    let mut rig = Rig::fresh(shape.count(), LEN_BYTES, seed);
    let mut pool = Pool::create("tank", &shape.specs(rig.all()), manual()).unwrap();
    let mut model = new_model();
    let mut acknowledged = pool.synced_txg();
    for round in 0..ROUNDS {
        let now = rig.ops.load(Ordering::SeqCst);
        rig.cut_at.store(now + 1 + rng.below(150), Ordering::SeqCst);
        let history = work(&pool, &mut model, &mut rng, &mut acknowledged);
        drop(pool);
        let images = rig.crash(seed ^ (round << 32));
        // An import that dies changes nothing that the next one needs.
        if rng.below(2) == 0 {
            let dying = Rig::new(images.clone(), seed + round);
            dying.cut_at.store(1 + rng.below(12), Ordering::SeqCst);
            let _ = Pool::import(&dying.all(), &host(), manual());
            rig = Rig::new(dying.crash(rng.next()), seed + round + 1);
        } else {
            rig = Rig::new(images, seed + round + 1);
        }
        pool = Pool::import(&rig.all(), &host(), manual())
            .unwrap_or_else(|error| panic!("seed {seed} round {round} {shape:?}: {error:?}"));
        let synced = pool.synced_txg();
        assert!(synced >= acknowledged, "seed {seed}: {acknowledged} was acknowledged, {synced} found");
        let found = history.get(&synced).unwrap_or_else(|| panic!("seed {seed}: {synced} never was"));
        model = found.clone();
        acknowledged = synced;
        compare_synced(&pool, &model);
    }
}

#[test]
fn a_crash_leaves_exactly_the_last_synced_txg() {
    let seeds = seeds();
    let next = Arc::new(std::sync::atomic::AtomicU64::new(seeds.start));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let result = std::panic::catch_unwind(|| run(seed));
                    if let Err(panic) = result {
                        let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
                        panic!("seed {seed}: {text}");
                    }
                }
            });
        }
    });
}
