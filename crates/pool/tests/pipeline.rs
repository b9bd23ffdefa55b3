//! Transactions of two open txgs, hooks, and a pool that is frozen.

mod support;

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use fastness_pool::{
    DatasetId, DatasetKind, ErrorKind, HookChanges, Pool, PoolError, PoolOptions, Property, Tx, Txg, TxgHook,
};
use support::{Rig, Shape, compare_synced, host, manual, new_model};

const LEN_BYTES: u64 = 16 << 20;

fn fresh() -> (Arc<Rig>, Pool) {
    let rig = Rig::fresh(1, LEN_BYTES, 0);
    let pool = Pool::create("tank", &Shape::Single.specs(rig.all()), manual()).unwrap();
    (rig, pool)
}

/// Calls `act` with transactions of two txgs that are open at one time, then syncs the older one.
fn with_two_txgs(pool: &Pool, act: impl FnOnce(&Tx, &Tx)) {
    let old = pool.begin_tx().unwrap();
    std::thread::scope(|scope| {
        let sync = scope.spawn(|| pool.sync().unwrap());
        while pool.open_txg() == old.txg() {
            std::thread::sleep(Duration::from_micros(50));
        }
        let new = pool.begin_tx().unwrap();
        assert_eq!(new.txg(), old.txg().next());
        act(&old, &new);
        drop((new, old));
        sync.join().unwrap();
    });
}

fn is_overtaken<T: std::fmt::Debug>(result: Result<T, PoolError>) -> bool {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Retry);
    matches!(error, PoolError::Overtaken { .. })
}

#[test]
fn a_name_is_not_taken_in_an_older_txg_than_it_was_given_up_in() {
    let (rig, pool) = fresh();
    let tx = pool.begin_tx().unwrap();
    let first = pool.create_dataset(&tx, "tank/a", DatasetKind::Filesystem, &[]).unwrap().id();
    pool.create_dataset(&tx, "tank/b", DatasetKind::Filesystem, &[]).unwrap();
    drop(tx);
    pool.sync().unwrap();
    with_two_txgs(&pool, |old, new| {
        // Before the newer txg has changed anything, the older one may.
        pool.dataset("tank/b").unwrap().set(old, Property::Compression, Some(1)).unwrap();
        pool.destroy_dataset(new, "tank/a").unwrap();
        assert!(is_overtaken(pool.create_dataset(old, "tank/a", DatasetKind::Filesystem, &[])));
        assert!(is_overtaken(pool.rename_dataset(old, "tank/b", "tank/a")));
        assert!(is_overtaken(pool.destroy_dataset(old, "tank/b")));
        assert!(is_overtaken(pool.dataset("tank/b").unwrap().set(old, Property::Sync, Some(1))));
        // What another transaction does at once.
        pool.create_dataset(new, "tank/a", DatasetKind::Filesystem, &[]).unwrap();
    });
    // The newer txg is lost: exactly the older one is found.
    drop(pool);
    let pool = Pool::import(&rig.all(), &host(), manual()).unwrap();
    assert_eq!(pool.datasets().len(), 3);
    assert_eq!(pool.dataset("tank/a").unwrap().id(), first);
    assert_eq!(pool.dataset("tank/b").unwrap().get(Property::Compression), (1, true));
    assert!(pool.check().unwrap().is_clean());
}

#[test]
fn nothing_is_stored_before_what_it_belongs_to() {
    let (rig, pool) = fresh();
    with_two_txgs(&pool, |old, new| {
        let dataset = pool.create_dataset(new, "tank/a", DatasetKind::Filesystem, &[]).unwrap();
        assert!(is_overtaken(dataset.create_object(old)));
        dataset.put_aux(old, b"key", Some(b"value"));
        let object = dataset.create_object(new).unwrap();
        assert!(is_overtaken(object.write(old, 0, b"early")));
        assert!(is_overtaken(object.truncate(old, 7)));
        assert!(is_overtaken(dataset.destroy_object(old, object.id())));
    });
    let images = rig.devices[0].inner().image();
    compare_synced(&Pool::import(&Rig::new(vec![images], 1).all(), &host(), manual()).unwrap(), &new_model());
    pool.sync().unwrap();
    let dataset = pool.dataset("tank/a").unwrap();
    assert_eq!(dataset.synced_aux(b"key").unwrap().unwrap(), b"value");
    assert!(pool.check().unwrap().is_clean());
}

#[test]
fn what_a_newer_txg_destroys_is_whole_in_the_older_one() {
    let (rig, pool) = fresh();
    let tx = pool.begin_tx().unwrap();
    pool.create_dataset(&tx, "tank/a", DatasetKind::Filesystem, &[]).unwrap();
    drop(tx);
    pool.sync().unwrap();
    with_two_txgs(&pool, |old, new| {
        let dataset = pool.dataset("tank/a").unwrap();
        let object = dataset.create_object(old).unwrap();
        object.write(old, 0, &[7; 200_000]).unwrap();
        object.write(new, 0, &[8; 5]).unwrap();
        drop(object);
        pool.destroy_dataset(new, "tank/a").unwrap();
    });
    let image = rig.devices[0].inner().image();
    let crashed = Pool::import(&Rig::new(vec![image], 1).all(), &host(), manual()).unwrap();
    let dataset = crashed.dataset("tank/a").unwrap();
    assert!(crashed.check().unwrap().is_clean(), "{:?}", crashed.check());
    assert!(dataset.used_bytes() >= 200_000);
    let mut found = vec![0; 200_000];
    dataset.object(fastness_pool::ObjectId(1)).unwrap().read(0, &mut found).unwrap();
    assert!(found.iter().all(|byte| *byte == 7));
    let tx = crashed.begin_tx().unwrap();
    assert_eq!(dataset.create_object(&tx).unwrap().id().0, 2, "no number is used twice");
    drop(tx);
    for _ in 0..2 {
        pool.sync().unwrap();
        assert!(pool.check().unwrap().is_clean(), "{:?}", pool.check());
    }
    assert_eq!(pool.datasets().len(), 1);
}

#[test]
fn an_older_txg_is_cut_at_its_own_size() {
    let (rig, pool) = fresh();
    let tx = pool.begin_tx().unwrap();
    let object = pool.dataset("tank").unwrap().create_object(&tx).unwrap();
    let other = pool.dataset("tank").unwrap().create_object(&tx).unwrap();
    object.write(&tx, 0, &[7; 10_000]).unwrap();
    other.write(&tx, 0, &[7; 10_000]).unwrap();
    drop(tx);
    with_two_txgs(&pool, |old, new| {
        object.truncate(new, 100).unwrap();
        object.truncate(old, 5000).unwrap();
        object.truncate(old, 9000).unwrap();
        other.truncate(new, 3000).unwrap();
        other.punch(old, 0, 4000).unwrap();
    });
    let image = rig.devices[0].inner().image();
    let crashed = Pool::import(&Rig::new(vec![image], 1).all(), &host(), manual()).unwrap();
    let read = |pool: &Pool, id| {
        let object = pool.dataset("tank").unwrap().object(fastness_pool::ObjectId(id)).unwrap();
        let mut bytes = vec![1; 20_000];
        let len = object.read(0, &mut bytes).unwrap();
        bytes[..len].iter().map(|byte| u64::from(*byte)).sum::<u64>() / 7 * 100_000 + len as u64
    };
    assert_eq!(read(&crashed, 1), 5000 * 100_000 + 9000);
    assert_eq!(read(&crashed, 2), 6000 * 100_000 + 10_000);
    assert_eq!(read(&pool, 1), 100 * 100_000 + 9000);
    assert_eq!(read(&pool, 2), 3000);
}

/// Stores the number of each txg, and fails when told to.
#[derive(Default)]
struct Recorder {
    seen: Mutex<Vec<(Txg, bool)>>,
    fails_at: Option<u64>,
}

impl TxgHook for Recorder {
    fn sync(&self, txg: Txg, changes: &mut HookChanges) -> Result<(), PoolError> {
        self.seen.lock().unwrap().push((txg, false));
        if self.fails_at == Some(txg.0) {
            return Err(PoolError::ReadOnly("the hook cannot".to_owned()));
        }
        changes.put(DatasetId(1), b"last", Some(&txg.0.to_le_bytes()));
        changes.put(DatasetId(99), b"nobody", Some(b"x"));
        Ok(())
    }

    fn synced(&self, txg: Txg) {
        self.seen.lock().unwrap().push((txg, true));
    }
}

fn last(pool: &Pool) -> Option<u64> {
    let value = pool.dataset("tank").unwrap().synced_aux(b"last").unwrap()?;
    Some(u64::from_le_bytes(value.try_into().unwrap()))
}

#[test]
fn a_hook_is_called_once_for_each_txg_and_its_changes_are_part_of_it() {
    let rig = Rig::fresh(1, LEN_BYTES, 3);
    let pool = Pool::create("tank", &Shape::Single.specs(rig.all()), manual()).unwrap();
    let hook = Arc::new(Recorder::default());
    pool.add_hook(hook.clone());
    let first = pool.open_txg();
    for _ in 0..5 {
        assert_eq!(last(&pool).unwrap_or(first.0 - 1), pool.synced_txg().0);
        pool.sync().unwrap();
    }
    let expected: Vec<_> =
        (first.0..first.0 + 5).flat_map(|txg| [(Txg(txg), false), (Txg(txg), true)]).collect();
    assert_eq!(*hook.seen.lock().unwrap(), expected);
    assert!(pool.check().unwrap().is_clean(), "what has no dataset is not stored");
    // A crash at any write of a sync: the hook's value is that of the txg that is found.
    let start = rig.ops.load(std::sync::atomic::Ordering::SeqCst);
    pool.sync().unwrap();
    let ops = rig.ops.load(std::sync::atomic::Ordering::SeqCst) - start;
    let base = rig.devices[0].inner().image();
    drop(pool);
    let mut found = std::collections::BTreeMap::new();
    for (cut, seed) in (4..ops + 6).flat_map(|cut| (0..4).map(move |seed| (cut, seed))) {
        let rig = Rig::new(vec![base.clone()], cut);
        rig.cut_at.store(cut, std::sync::atomic::Ordering::SeqCst);
        if let Ok(pool) = Pool::import(&rig.all(), &host(), manual()) {
            pool.add_hook(Arc::new(Recorder::default()));
            let _ = pool.sync();
        }
        let pool = Pool::import(&Rig::new(rig.crash(seed), 0).all(), &host(), manual()).unwrap();
        assert_eq!(last(&pool), Some(pool.synced_txg().0));
        *found.entry(pool.synced_txg()).or_insert(0) += 1;
    }
    assert!(found.len() == 2 && found.values().all(|count| *count > 2), "both sides of the sync: {found:?}");
}

#[test]
fn a_hook_that_fails_suspends_the_pool() {
    let rig = Rig::fresh(1, LEN_BYTES, 3);
    let pool = Pool::create("tank", &Shape::Single.specs(rig.all()), manual()).unwrap();
    let open = pool.open_txg();
    pool.add_hook(Arc::new(Recorder { fails_at: Some(open.0 + 1), ..Recorder::default() }));
    pool.sync().unwrap();
    assert!(matches!(pool.sync().unwrap_err(), PoolError::ReadOnly(_)));
    let error = pool.begin_tx().unwrap_err();
    assert!(matches!(&error, PoolError::Suspended { txg, .. } if *txg == open.next()), "{error:?}");
    assert!(error.to_string().contains("the hook cannot"));
    assert!(pool.status().suspended.is_some() && pool.export().is_err());
    drop(pool);
    let pool = Pool::import(&rig.all(), &host(), manual()).unwrap();
    assert_eq!((pool.synced_txg(), last(&pool)), (open, Some(open.0)));
}

#[test]
fn a_frozen_pool_syncs_nothing_more() {
    let rig = Rig::fresh(1, LEN_BYTES, 3);
    let options =
        PoolOptions { has_txg_thread: true, txg_timeout: Duration::from_millis(2), ..PoolOptions::default() };
    let pool = Pool::create("tank", &Shape::Single.specs(rig.all()), options).unwrap();
    let root = pool.dataset("tank").unwrap();
    let tx = pool.begin_tx().unwrap();
    let object = root.create_object(&tx).unwrap();
    object.write(&tx, 0, b"kept").unwrap();
    drop(tx);
    let synced = pool.sync().unwrap();
    pool.freeze();
    let ops = rig.ops.load(std::sync::atomic::Ordering::SeqCst);
    let tx = pool.begin_tx().unwrap();
    object.write(&tx, 0, b"lost").unwrap();
    drop(tx);
    std::thread::sleep(Duration::from_millis(50));
    assert!(pool.synced_txg() >= synced && pool.synced_txg() < pool.open_txg());
    assert_eq!(rig.ops.load(std::sync::atomic::Ordering::SeqCst), ops, "not a write reached the device");
    let mut found = [0; 4];
    object.read(0, &mut found).unwrap();
    assert_eq!(&found, b"lost");
    let id = object.id();
    drop((object, root, pool));
    let pool = Pool::import(&rig.all(), &host(), manual()).unwrap();
    pool.dataset("tank").unwrap().object(id).unwrap().read(0, &mut found).unwrap();
    assert_eq!(&found, b"kept");
}
