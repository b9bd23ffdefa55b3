//! What the pulse of a pool says while its thread rests, works, and is stuck.

mod support;

use std::sync::Arc;
use std::time::Duration;

use fastness_blkdev::{Fault, FaultPlan, On, When};
use fastness_pool::{DatasetKind, Pool, PoolOptions, Pulse};
use support::{Rig, Shape, manual};

/// A pool with a thread whose txgs end when they are asked to.
fn pool() -> (Arc<Rig>, Pool) {
    pool_with(Duration::from_secs(600))
}

fn pool_with(txg_timeout: Duration) -> (Arc<Rig>, Pool) {
    let rig = Rig::fresh(1, 16 << 20, 0);
    let options = PoolOptions { txg_timeout, ..PoolOptions::default() };
    let pool = Pool::create("tank", &Shape::Single.specs(rig.all()), options).unwrap();
    (rig, pool)
}

fn until(pool: &Pool, is_it: impl Fn(Pulse) -> bool) -> Pulse {
    loop {
        let pulse = pool.pulse();
        if is_it(pulse) {
            return pulse;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_thread_without_work_is_at_rest_and_one_that_works_beats() {
    let (_rig, pool) = pool();
    let before = until(&pool, |pulse| pulse.is_at_rest);
    let tx = pool.begin_tx().unwrap();
    pool.create_dataset(&tx, "tank/a", DatasetKind::Filesystem, &[]).unwrap();
    drop(tx);
    // The txg is open, and nobody waits for it.
    assert!(pool.pulse().is_at_rest);
    pool.sync().unwrap();
    let after = until(&pool, |pulse| pulse.is_at_rest);
    // A beat for each step of the sync, and two for each rest.
    assert!(after.beats >= before.beats + 6, "{before:?} {after:?}");
}

#[test]
fn a_thread_that_waits_for_a_transaction_neither_rests_nor_beats() {
    let (_rig, pool) = pool();
    until(&pool, |pulse| pulse.is_at_rest);
    let stuck = pool.begin_tx().unwrap();
    std::thread::scope(|scope| {
        let sync = scope.spawn(|| pool.sync().unwrap());
        while pool.open_txg() == stuck.txg() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let first = pool.pulse();
        for _ in 0..100 {
            assert_eq!(pool.pulse(), Pulse { is_at_rest: false, ..first });
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(stuck);
        sync.join().unwrap();
        assert!(until(&pool, |pulse| pulse.is_at_rest).beats > first.beats);
    });
}

/// The time of its txg is over, and nobody waits for it.
#[test]
fn a_thread_that_is_stuck_on_its_own_account_is_not_at_rest() {
    let (_rig, pool) = pool_with(Duration::from_millis(20));
    let stuck = pool.begin_tx().unwrap();
    pool.create_dataset(&stuck, "tank/a", DatasetKind::Filesystem, &[]).unwrap();
    while pool.open_txg() == stuck.txg() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let first = pool.pulse();
    for _ in 0..50 {
        assert_eq!(pool.pulse(), Pulse { is_at_rest: false, ..first });
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(stuck);
    assert!(until(&pool, |pulse| pulse.is_at_rest).beats > first.beats);
}

#[test]
fn a_pool_that_cannot_do_anything_owes_no_beat() {
    let (rig, pool) = pool();
    rig.devices[0].set_plan(FaultPlan::new(1).rule(On::Writes, When::From(1), Fault::Errno(5)));
    let tx = pool.begin_tx().unwrap();
    pool.create_dataset(&tx, "tank/a", DatasetKind::Filesystem, &[]).unwrap();
    drop(tx);
    pool.sync().unwrap_err();
    assert!(pool.is_suspended() && pool.pulse().is_at_rest);
    // Without a thread of its own, its callers do the work.
    let rig = Rig::fresh(1, 16 << 20, 0);
    let pool = Pool::create("tank", &Shape::Single.specs(rig.all()), manual()).unwrap();
    assert!(pool.pulse().is_at_rest);
}
