//! A full pool refuses writes and stays alive; quotas hold; destroyed space comes back.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fastness_pool::{
    DatasetKind, ErrorKind, HookChanges, Object, ObjectId, Pool, PoolError, Property, Txg, TxgHook, VdevSpec,
};
use support::{Rig, Rng, Shape, host, manual};

#[test]
fn a_full_pool_refuses_and_lives() {
    let mut rng = Rng::new(3);
    let rig = Rig::fresh(1, 24 << 20, 0);
    let pool = Pool::create("tank", &Shape::Single.specs(rig.all()), manual()).unwrap();
    let root = pool.dataset("tank").unwrap();
    let free_at_first = pool.status().free_bytes;
    for round in 0..4 {
        let mut ids = Vec::new();
        let error = 'full: loop {
            let tx = pool.begin_tx().unwrap();
            let object = root.create_object(&tx).unwrap();
            ids.push(object.id());
            for at in 0..8 {
                let data: Vec<u8> = (0..100_000).map(|_| rng.next() as u8).collect();
                if let Err(error) = object.write(&tx, at * 100_000, &data) {
                    break 'full error;
                }
            }
            drop(tx);
            if rng.below(3) == 0 {
                pool.sync().unwrap();
            }
        };
        assert_eq!(error.kind(), ErrorKind::NoSpace, "round {round}: {error:?}");
        pool.sync().unwrap();
        assert!(ids.len() > 15, "round {round}: {} objects", ids.len());
        let tx = pool.begin_tx().unwrap();
        ids.iter().for_each(|id| root.destroy_object(&tx, *id).unwrap());
        drop(tx);
        pool.sync().unwrap();
        pool.sync().unwrap();
        assert!(pool.check().unwrap().is_clean());
        assert!(pool.status().free_bytes + (1 << 20) > free_at_first, "round {round}");
        assert_eq!(root.used_bytes(), 0);
    }
}

#[test]
fn small_holes_do_not_stop_a_sync_of_large_blocks() {
    let rig = Rig::fresh(1, 24 << 20, 0);
    let pool = Pool::create("tank", &Shape::Single.specs(rig.all()), manual()).unwrap();
    let tx = pool.begin_tx().unwrap();
    let small = pool
        .create_dataset(&tx, "tank/small", DatasetKind::Volume, &[(Property::VolBlockSize, 4096)])
        .unwrap();
    let small = small.create_object(&tx).unwrap();
    let large = pool.dataset("tank").unwrap().create_object(&tx).unwrap();
    drop(tx);
    let mut block = 0;
    loop {
        let tx = pool.begin_tx().unwrap();
        if small.write(&tx, block * 4096, &[block as u8 | 1; 4096]).is_err() {
            break;
        }
        block += 1;
        drop(tx);
        if block % 500 == 0 {
            pool.sync().unwrap();
        }
    }
    pool.sync().unwrap();
    let tx = pool.begin_tx().unwrap();
    (0..block).step_by(2).for_each(|block| small.punch(&tx, block * 4096, 4096).unwrap());
    drop(tx);
    pool.sync().unwrap();
    for at in 0..20 {
        let tx = pool.begin_tx().unwrap();
        large.write(&tx, at * 131_072, &[at as u8 + 1; 131_072]).unwrap();
    }
    pool.sync().unwrap();
    drop((small, large));
    pool.export().unwrap();
    drop(pool);
    let pool = Pool::import(&rig.all(), &host(), manual()).unwrap();
    assert!(pool.check().unwrap().is_clean());
    let large = pool.dataset("tank").unwrap().object(ObjectId(1)).unwrap();
    let mut found = vec![0; 20 * 131_072];
    large.read(0, &mut found).unwrap();
    assert!(found.chunks(131_072).zip(1..).all(|(chunk, byte)| chunk.iter().all(|found| *found == byte)));
}

#[test]
fn a_quota_counts_what_is_below_and_a_reservation_is_kept() {
    let rig = Rig::fresh(1, 24 << 20, 0);
    let pool = Pool::create("tank", &Shape::Single.specs(rig.all()), manual()).unwrap();
    let tx = pool.begin_tx().unwrap();
    let quota = [(Property::Quota, 1 << 20)];
    pool.create_dataset(&tx, "tank/a", DatasetKind::Filesystem, &quota).unwrap();
    let below = pool.create_dataset(&tx, "tank/a/b", DatasetKind::Filesystem, &[]).unwrap();
    let object = below.create_object(&tx).unwrap();
    for at in 0..8 {
        object.write(&tx, at * 131_072, &[7; 131_072]).unwrap();
    }
    let error = object.write(&tx, 1 << 20, &[7]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    let reservation = [(Property::Reservation, 12 << 20)];
    pool.create_dataset(&tx, "tank/c", DatasetKind::Filesystem, &reservation).unwrap();
    let root = pool.dataset("tank").unwrap().create_object(&tx).unwrap();
    let wrote = (0..200).take_while(|at| root.write(&tx, at * 131_072, &[9; 131_072]).is_ok()).count();
    assert!((12..40).contains(&wrote), "{wrote} blocks of 128 KiB");
    drop(tx);
    pool.sync().unwrap();
}

/// Writes when its txg is half stored: what it holds is neither dirty nor used in the tables yet.
struct Greedy {
    pool: Arc<Pool>,
    object: Object,
    refused: AtomicU64,
}

impl TxgHook for Greedy {
    fn sync(&self, _: Txg, _: &mut HookChanges) -> Result<(), PoolError> {
        let tx = self.pool.begin_tx()?;
        let result = self.object.write(&tx, 1 << 20, &[8; 131_072]);
        assert_eq!(result.unwrap_err().kind(), ErrorKind::NoSpace, "the quota is used up");
        self.refused.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

#[test]
fn a_txg_that_syncs_does_not_make_room_in_a_quota() {
    let rig = Rig::fresh(1, 24 << 20, 0);
    let pool = Arc::new(Pool::create("tank", &Shape::Single.specs(rig.all()), manual()).unwrap());
    let tx = pool.begin_tx().unwrap();
    let quota = [(Property::Quota, 1 << 20)];
    let dataset = pool.create_dataset(&tx, "tank/a", DatasetKind::Filesystem, &quota).unwrap();
    let object = dataset.create_object(&tx).unwrap();
    object.write(&tx, 0, &vec![7; 1 << 20]).unwrap();
    drop(tx);
    let greedy = Arc::new(Greedy { pool: pool.clone(), object, refused: AtomicU64::new(0) });
    pool.add_hook(greedy.clone());
    for _ in 0..2 {
        pool.sync().unwrap();
        assert_eq!(dataset.used_bytes(), 1 << 20);
    }
    assert_eq!(greedy.refused.load(Ordering::SeqCst), 2);
}

/// A pool that is full has nothing to sync, so nothing may have to sync before what was added can be used.
#[test]
fn a_vdev_that_is_added_to_a_full_pool_can_be_used_at_once() {
    let rig = Rig::fresh(2, 24 << 20, 0);
    let pool = Pool::create("tank", &[VdevSpec::single(rig.device(0))], manual()).unwrap();
    let object = pool.dataset("tank").unwrap().create_object(&pool.begin_tx().unwrap()).unwrap();
    let mut rng = Rng::new(1);
    let mut at = 0;
    let mut write = || {
        let data: Vec<u8> = (0..131_072).map(|_| rng.next() as u8).collect();
        let result = object.write(&pool.begin_tx().unwrap(), at, &data);
        at += 131_072;
        result.is_ok()
    };
    for _ in 0..20 {
        while write() {}
        pool.sync().unwrap();
    }
    assert!(!write() && pool.status().free_bytes < 1 << 18);
    pool.add(&VdevSpec::single(rig.device(1))).unwrap();
    assert!(pool.status().free_bytes > 20 << 20);
    assert!((0..100).all(|_| write()));
    pool.sync().unwrap();
    assert!(pool.check().unwrap().is_clean());
}
