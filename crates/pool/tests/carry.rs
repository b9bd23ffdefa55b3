//! What a suspended pool had in memory is taken over by its next import: every object reads as it did.

mod support;

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::time::Duration;

use fastness_blkdev::{BlockDevice, Fault, FaultPlan, Faulty, MemDevice, On, Operation, When};
use fastness_pool::{
    DatasetKind, Device, FailMode, Feature, ImportOptions, ObjectId, Pool, PoolError, PoolOptions, Property,
    Table, TableId, Tx, VdevSpec,
};
use support::Rng;

const BLOCK: u64 = 4096;
const OBJECTS: u64 = 3;
/// One more than the largest number of an object that comes and goes.
const NUMBERS: u64 = 12;
const LEN: u64 = 40 * BLOCK;

fn options() -> PoolOptions {
    PoolOptions { has_txg_thread: false, txg_timeout: Duration::from_secs(3600), ..PoolOptions::default() }
}

fn disk() -> Arc<Faulty<MemDevice>> {
    Arc::new(Faulty::new(MemDevice::new("disk", 32 << 20), FaultPlan::new(0)))
}

fn import(disk: &Arc<Faulty<MemDevice>>) -> Result<Pool, PoolError> {
    let device = Device::new("disk", Arc::clone(disk) as Arc<dyn BlockDevice>);
    Pool::import(&[device], &ImportOptions::default(), options())
}

fn create(disk: &Arc<Faulty<MemDevice>>) -> Pool {
    let device = Device::new("disk", Arc::clone(disk) as Arc<dyn BlockDevice>);
    let pool = Pool::create("tank", &[VdevSpec::single(device)], options()).unwrap();
    let tx = pool.begin_tx().unwrap();
    let root = pool.dataset("tank").unwrap();
    root.set(&tx, Property::RecordSize, Some(BLOCK)).unwrap();
    for id in 1..=OBJECTS {
        let object = root.create_object(&tx).unwrap();
        assert_eq!(object.id(), ObjectId(id));
        object.truncate(&tx, LEN).unwrap();
    }
    drop(tx);
    pool.sync().unwrap();
    pool
}

/// Keys and values.
type Rows = Vec<(Vec<u8>, Vec<u8>)>;

fn table(pool: &Pool) -> Table {
    pool.dataset("tank").unwrap().table(TableId::FIRST_LONG)
}

fn rows(pool: &Pool) -> Rows {
    let mut rows = Vec::new();
    let show = |key: &[u8], value: &[u8]| {
        rows.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    };
    table(pool).scan((Bound::Unbounded, Bound::Unbounded), show).unwrap();
    rows
}

/// All objects, their sizes and bytes, or that they do not exist; and all rows of a table.
fn contents(pool: &Pool) -> (Vec<Option<Vec<u8>>>, Rows) {
    let root = pool.dataset("tank").unwrap();
    let read = |id| {
        let object = match root.object(ObjectId(id)) {
            Err(PoolError::NoObject { .. }) => return None,
            object => object.unwrap(),
        };
        let mut bytes = vec![0xee; object.size_bytes() as usize];
        assert_eq!(object.read(0, &mut bytes).unwrap(), bytes.len());
        Some(bytes)
    };
    ((1..NUMBERS).map(read).collect(), rows(pool))
}

/// One change, in the open txg; false if the pool takes none.
fn change(pool: &Pool, rng: &mut Rng) -> bool {
    let Ok(tx) = pool.begin_tx() else { return false };
    let key = [rng.below(20) as u8];
    match rng.below(9) {
        0 => table(pool).remove(&tx, &key).unwrap(),
        8 => create_or_destroy(pool, &tx, rng),
        1..4 => {
            let len = [10, 3000][usize::from(rng.below(8) == 0)];
            table(pool).put(&tx, &key, &rng.bytes(len)).unwrap();
        }
        _ => change_object(pool, &tx, rng),
    }
    true
}

/// An object that comes with some bytes, or goes.
fn create_or_destroy(pool: &Pool, tx: &Tx, rng: &mut Rng) {
    let root = pool.dataset("tank").unwrap();
    let id = ObjectId(OBJECTS + 1 + rng.below(NUMBERS - OBJECTS - 1));
    if root.object(id).is_ok() {
        return root.destroy_object(tx, id).unwrap();
    }
    // A number is not given twice in one import.
    let id = root.allot_object();
    if id.0 < NUMBERS {
        let object = root.create_object_with(tx, id, 8192).unwrap();
        object.write(tx, rng.below(20_000), &rng.bytes(5000)).unwrap();
    }
}

fn change_object(pool: &Pool, tx: &Tx, rng: &mut Rng) {
    let object = pool.dataset("tank").unwrap().object(ObjectId(rng.below(OBJECTS) + 1)).unwrap();
    let size = object.size_bytes();
    let (offset, len) = (rng.below(size - 1), rng.below(5 * BLOCK) + 1);
    let len = len.min(size - offset);
    match rng.below(8) {
        0 => object.punch(tx, offset, len).unwrap(),
        1 => object.truncate(tx, (rng.below(40) + 10) * 1000).unwrap(),
        2 => object.write(tx, offset / BLOCK * BLOCK, &rng.bytes(BLOCK as usize)).unwrap(),
        _ => object.write(tx, offset, &rng.bytes(len as usize)).unwrap(),
    }
}

#[test]
fn everything_in_memory_is_taken_over() {
    let mut lost_writes = 0;
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let disk = disk();
        let pool = create(&disk);
        (0..rng.below(30)).for_each(|_| assert!(change(&pool, &mut rng)));
        pool.sync().unwrap();
        let synced = contents(&pool);
        let operation = if rng.below(2) == 0 { Operation::Flush } else { Operation::Write };
        let nth = rng.below(if operation == Operation::Flush { 2 } else { 4 }) + 1;
        (0..rng.below(20) + 1).for_each(|_| assert!(change(&pool, &mut rng)));
        disk.set_plan(FaultPlan::new(seed).rule(On::Only(operation), When::From(nth), Fault::Errno(5)));
        // Of the next txg, before it knows that the one before failed.
        let held = pool.begin_tx().unwrap();
        let later = pool.dataset("tank").unwrap().object(ObjectId(1)).unwrap();
        later.write(&held, 0, &rng.bytes(100)).unwrap();
        table(&pool).put(&held, &[rng.below(20) as u8], &rng.bytes(10)).unwrap();
        drop(held);
        assert!(pool.sync().is_err(), "seed {seed}");
        assert!(!change(&pool, &mut rng), "it takes no changes");
        // As users see it, who are told what is in memory.
        let seen = contents(&pool);
        let mut unsynced = pool.abandon().unwrap();
        assert!(unsynced.bytes() > 0);
        assert!(matches!(pool.begin_tx(), Err(PoolError::Closed)));
        disk.set_plan(FaultPlan::new(0));
        disk.reopen(seed).unwrap();
        // The last flush may have worked although it failed.
        let next = import(&disk).unwrap();
        lost_writes += usize::from(contents(&next) == synced && synced != seen);
        let tx = next.begin_replay_tx().unwrap();
        unsynced.apply(&next, &tx).unwrap();
        drop(tx);
        assert!(contents(&next) == seen, "seed {seed}");
        next.sync().unwrap();
        assert!(next.check().unwrap().is_clean());
        drop(next);
        assert!(contents(&import(&disk).unwrap()) == seen, "seed {seed}");
    }
    assert!(lost_writes > 100, "without taking over, most would have lost something: {lost_writes}");
}

/// A crash before the transaction has synced finds the pool as before, and so does the next try.
/// Rows may refer to objects by numbers, of objects that do not exist yet, too.
#[test]
fn numbers_that_were_allotted_are_not_given_again() {
    let disk = disk();
    let pool = create(&disk);
    let tx = pool.begin_tx().unwrap();
    let allotted = pool.dataset("tank").unwrap().allot_object();
    table(&pool).put(&tx, b"key", &allotted.0.to_le_bytes()).unwrap();
    drop(tx);
    disk.set_plan(FaultPlan::new(1).rule(On::Only(Operation::Write), When::From(1), Fault::Errno(5)));
    assert!(pool.sync().is_err());
    let mut unsynced = pool.abandon().unwrap();
    disk.set_plan(FaultPlan::new(0));
    disk.reopen(1).unwrap();
    let next = import(&disk).unwrap();
    let tx = next.begin_replay_tx().unwrap();
    unsynced.apply(&next, &tx).unwrap();
    drop(tx);
    assert!(next.dataset("tank").unwrap().allot_object() > allotted);
}

#[test]
fn taking_over_is_one_step() {
    let disk = disk();
    let pool = create(&disk);
    let mut rng = Rng::new(1);
    let before = contents(&pool);
    (0..20).for_each(|_| assert!(change(&pool, &mut rng)));
    disk.set_plan(FaultPlan::new(0).rule(On::Only(Operation::Flush), When::From(1), Fault::Errno(5)));
    assert!(pool.sync().is_err());
    let seen = contents(&pool);
    let mut unsynced = pool.abandon().unwrap();
    disk.set_plan(FaultPlan::new(0));
    disk.reopen(1).unwrap();
    for _ in 0..3 {
        let next = import(&disk).unwrap();
        assert!(contents(&next) == before);
        unsynced.apply(&next, &next.begin_replay_tx().unwrap()).unwrap();
        assert!(contents(&next) == seen);
    }
}

/// What fails in the middle is in no txg, whenever txgs end: they do not run before all of it is there, and
/// with txgs that run nothing is begun.
#[test]
fn what_is_taken_over_in_part_is_in_no_txg() {
    let disk = disk();
    let pool = create(&disk);
    let object = |pool: &Pool, id| pool.dataset("tank").unwrap().object(ObjectId(id)).unwrap();
    let tx = pool.begin_tx().unwrap();
    object(&pool, OBJECTS).write(&tx, 0, &[1; 2 * BLOCK as usize]).unwrap();
    drop(tx);
    pool.sync().unwrap();
    let before = contents(&pool);
    let tx = pool.begin_tx().unwrap();
    object(&pool, 1).write(&tx, 0, &[2; BLOCK as usize]).unwrap();
    // A part of a block stays, and is read again when it is taken over.
    object(&pool, OBJECTS).truncate(&tx, BLOCK + 100).unwrap();
    drop(tx);
    disk.set_plan(FaultPlan::new(0).rule(On::Only(Operation::Flush), When::From(1), Fault::Errno(5)));
    assert!(pool.sync().is_err());
    let seen = contents(&pool);
    let mut unsynced = pool.abandon().unwrap();
    drop(pool);
    disk.set_plan(FaultPlan::new(0));
    disk.reopen(1).unwrap();
    let eager = PoolOptions { txg_timeout: Duration::from_millis(1), ..PoolOptions::default() };
    let import_paused = || {
        let device = Device::new("disk", Arc::clone(&disk) as Arc<dyn BlockDevice>);
        Pool::import_paused(&[device], &ImportOptions::default(), eager.clone()).unwrap()
    };
    let next = import_paused();
    let synced = next.synced_txg();
    let tx = next.begin_replay_tx().unwrap();
    disk.set_plan(FaultPlan::new(0).rule(On::Only(Operation::Read), When::From(1), Fault::Errno(5)));
    assert!(matches!(unsynced.apply(&next, &tx), Err(PoolError::Device(_))));
    disk.set_plan(FaultPlan::new(0));
    drop(tx);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(next.synced_txg(), synced);
    drop(next);
    let next = import_paused();
    assert!(contents(&next) == before);
    next.start_txgs().unwrap();
    let tx = next.begin_replay_tx().unwrap();
    assert!(matches!(unsynced.apply(&next, &tx), Err(PoolError::Busy { .. })));
    drop(tx);
    assert!(contents(&next) == before);
    drop(next);
    let next = import_paused();
    let tx = next.begin_replay_tx().unwrap();
    unsynced.apply(&next, &tx).unwrap();
    let txg = tx.commit();
    next.start_txgs().unwrap();
    next.wait_synced(txg).unwrap();
    assert!(contents(&next) == seen);
}

/// A transaction that has begun when the pool is given up is in what is handed out, or was refused.
#[test]
fn nothing_that_was_told_is_missing_from_what_is_handed_out() {
    for seed in 0..20 {
        let disk = disk();
        let pool = Arc::new(create(&disk));
        let writers: Vec<_> = (1..=OBJECTS)
            .map(|id| {
                let pool = Arc::clone(&pool);
                let object = pool.dataset("tank").unwrap().object(ObjectId(id)).unwrap();
                std::thread::spawn(move || {
                    let mut told = 0;
                    while let Ok(tx) = pool.begin_tx() {
                        object.write(&tx, 0, &(told + 1u64).to_le_bytes()).unwrap();
                        table(&pool).put(&tx, &[id as u8], &(told + 1).to_le_bytes()).unwrap();
                        told += 1;
                    }
                    told
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(2));
        disk.set_plan(FaultPlan::new(seed).rule(On::Only(Operation::Flush), When::From(1), Fault::Errno(5)));
        assert!(pool.sync().is_err());
        let mut unsynced = pool.abandon().unwrap();
        let told: Vec<u64> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        disk.set_plan(FaultPlan::new(0));
        disk.reopen(seed).unwrap();
        let next = import(&disk).unwrap();
        unsynced.apply(&next, &next.begin_replay_tx().unwrap()).unwrap();
        let (objects, rows) = contents(&next);
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes[..8].try_into().unwrap());
        let found: Vec<_> = objects.iter().flatten().map(|bytes| number(bytes)).collect();
        assert_eq!(found, told);
        let row = |id: u64| rows.iter().find(|(key, _)| key[..] == [id as u8]);
        let found: Vec<_> = (1..=OBJECTS).map(|id| row(id).map_or(0, |(_, value)| number(value))).collect();
        assert_eq!(found, told);
    }
}

#[test]
fn settings_are_stored_and_a_pool_that_works_is_not_given_up() {
    let disk = disk();
    let pool = create(&disk);
    assert!(matches!(pool.abandon(), Err(PoolError::Busy { .. })));
    assert_eq!((pool.fail_mode(), pool.is_active(Feature::LogDevice)), (FailMode::Wait, false));
    let tx = pool.begin_tx().unwrap();
    pool.set_fail_mode(&tx, FailMode::Continue).unwrap();
    pool.set_feature(&tx, Feature::LogDevice, true).unwrap();
    drop(tx);
    pool.sync().unwrap();
    drop(pool);
    let pool = import(&disk).unwrap();
    assert_eq!((pool.fail_mode(), pool.is_active(Feature::LogDevice)), (FailMode::Continue, true));
    let tx = pool.begin_tx().unwrap();
    pool.set_feature(&tx, Feature::LogDevice, false).unwrap();
    drop(tx);
    pool.sync().unwrap();
    drop(pool);
    assert!(!import(&disk).unwrap().is_active(Feature::LogDevice));
}

/// Changes until nothing is taken any more, in the open txg; returns how many were.
fn change_until_full(pool: &Pool, block: u64, rng: &mut Rng) -> u64 {
    let object = pool.dataset("tank/full").unwrap().object(ObjectId(1)).unwrap();
    let span = 2 * object.size_bytes();
    let (mut taken, mut refused) = (0, 0);
    while refused < 20 {
        let tx = pool.begin_tx().unwrap();
        let size = object.size_bytes();
        let (offset, len) = (rng.below(size), rng.below(3 * block) + 1);
        let result = match rng.below(4) {
            0 => object.punch(&tx, offset, len),
            1 => object.truncate(&tx, size - rng.below(block)),
            // Into holes, too.
            _ => object.write(&tx, rng.below(span), &rng.bytes(len as usize)),
        };
        match result {
            Ok(()) => taken += 1,
            Err(error) => {
                assert_eq!(error.kind(), fastness_pool::ErrorKind::NoSpace);
                refused += 1;
            }
        }
    }
    taken
}

#[test]
fn a_full_pool_is_taken_over() {
    for (seed, block) in [512, 4096, 16 << 10, 128 << 10].into_iter().cycle().take(16).enumerate() {
        let mut rng = Rng::new(seed as u64);
        // The first flush, and nothing became durable; or the last, and all did.
        let failing_flush = 1 + (seed / 4 % 2) as u64;
        let disk = disk();
        let fails =
            || FaultPlan::new(0).rule(On::Only(Operation::Flush), When::From(failing_flush), Fault::Errno(5));
        let pool = create(&disk);
        let tx = pool.begin_tx().unwrap();
        let properties = [(Property::VolBlockSize, block)];
        let dataset = pool.create_dataset(&tx, "tank/full", DatasetKind::Volume, &properties).unwrap();
        let object = dataset.create_object(&tx).unwrap();
        drop(tx);
        let mut at = 0;
        loop {
            let before = at;
            let tx = pool.begin_tx().unwrap();
            let mut data = || -> Vec<u8> { (0..block).map(|_| rng.next() as u8).collect() };
            while object.write(&tx, at, &data()).is_ok() {
                at += block;
            }
            drop(tx);
            pool.sync().unwrap();
            if at == before {
                break;
            }
        }
        // Room for something, and all of it promised: in the txg that fails, and in the next.
        object.punch(&pool.begin_tx().unwrap(), 0, at * 3 / 4).unwrap();
        for _ in 0..3 {
            pool.sync().unwrap();
        }
        if failing_flush == 2 {
            // Whole blocks, which take what was promised for them: there is no room for them twice.
            let (tx, mut at) = (pool.begin_tx().unwrap(), 0);
            while object.write(&tx, at, &rng.bytes(block as usize)).is_ok() {
                at += block;
            }
        }
        change_until_full(&pool, block, &mut rng);
        disk.set_plan(fails());
        assert!(pool.sync().is_err());
        let read = |pool: &Pool| {
            let object = pool.dataset("tank/full").unwrap().object(ObjectId(1)).unwrap();
            let mut bytes = vec![0; object.size_bytes() as usize];
            object.read(0, &mut bytes).unwrap();
            bytes
        };
        let seen = read(&pool);
        let mut unsynced = pool.abandon().unwrap();
        drop((pool, object));
        let mut take_over = |fails_again: bool| {
            disk.set_plan(FaultPlan::new(0));
            if failing_flush == 2 {
                disk.inner().flush().unwrap();
            }
            disk.reopen(seed as u64).unwrap();
            let device = Device::new("disk", Arc::clone(&disk) as Arc<dyn BlockDevice>);
            let next = Pool::import_paused(&[device], &ImportOptions::default(), options()).unwrap();
            unsynced.apply(&next, &next.begin_replay_tx().unwrap()).unwrap();
            next.start_txgs().unwrap();
            disk.set_plan(if fails_again { fails() } else { FaultPlan::new(0) });
            match next.sync() {
                Err(_) if fails_again => {}
                synced => drop(synced.unwrap_or_else(|error| panic!("blocks of {block}: {error:?}"))),
            }
            next
        };
        for _ in 0..2 {
            drop(take_over(true));
        }
        let next = take_over(false);
        assert!(read(&next) == seen);
        assert!(next.check().unwrap().is_clean());
        drop(next);
        assert!(read(&import(&disk).unwrap()) == seen);
    }
}
