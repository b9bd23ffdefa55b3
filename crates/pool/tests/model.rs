//! Random operations without crashes, against the model; with an export and import now and then.

mod support;

use support::{Rig, Rng, Shape, compare, compare_synced, host, manual, new_model, step};

use fastness_pool::{Pool, PoolOptions};

fn run(seed: u64, has_txg_thread: bool) {
    let mut rng = Rng::new(seed ^ 0x00de1);
    let shape = [Shape::Single, Shape::Stripe, Shape::Mirror][rng.below(3) as usize];
    let options =
        PoolOptions { has_txg_thread, txg_timeout: std::time::Duration::from_millis(3), ..manual() };
    let rig = Rig::fresh(shape.count(), 48 << 20, seed);
    let mut pool = Pool::create("tank", &shape.specs(rig.all()), options.clone()).unwrap();
    let mut model = new_model();
    for _ in 0..6 {
        for _ in 0..rng.below(60) {
            let tx = pool.begin_tx().unwrap();
            step(&pool, &tx, &mut model, &mut rng);
            drop(tx);
            if rng.below(10) == 0 {
                pool.sync().unwrap();
            }
        }
        compare(&pool, &model);
        if rng.below(2) == 0 {
            pool.export().unwrap();
            drop(pool);
            pool = Pool::import(&rig.all(), &host(), options.clone()).unwrap();
            compare_synced(&pool, &model);
        }
    }
}

#[test]
fn a_pool_behaves_like_the_model() {
    (0..40).for_each(|seed| run(seed, false));
}

#[test]
fn a_pool_with_its_thread_behaves_like_the_model() {
    (100..130).for_each(|seed| run(seed, true));
}
