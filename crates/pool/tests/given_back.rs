//! A pool that was full of rows has its room back when they are gone: for data, and for rows again.

mod support;

use std::sync::Arc;

use fastness_pool::{Dataset, DatasetKind, ErrorKind, Pool, PoolError, PoolOptions, TableId, Tx};
use support::{Rig, Rng, Shape, host, manual};

const LEN_BYTES: u64 = 24 << 20;
const BLOCK: usize = 4096;

fn create(options: PoolOptions) -> (Arc<Rig>, Pool) {
    let rig = Rig::fresh(1, LEN_BYTES, 1);
    let pool = Pool::create("tank", &Shape::Single.specs(rig.all()), options).unwrap();
    (rig, pool)
}

fn dataset(pool: &Pool) -> Dataset {
    pool.dataset("tank").unwrap()
}

/// Repeats a change until there is no room, whatever is done about that; returns how often it succeeded.
fn until_full(pool: &Pool, mut change: impl FnMut(&Tx, u64) -> Result<(), PoolError>) -> u64 {
    let (mut done, mut failed_at) = (0, None);
    loop {
        match pool.transact(|tx| change(tx, done)) {
            Ok(_) => done += 1,
            Err(error) if error.kind() == ErrorKind::NoSpace && failed_at != Some(done) => {
                failed_at = Some(done);
                // Without a thread this does nothing but say what is wanted.
                pool.reclaim().unwrap();
                pool.sync().unwrap();
            }
            Err(error) if error.kind() == ErrorKind::NoSpace => return done,
            Err(error) => panic!("{error:?}"),
        }
    }
}

fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

fn fill_with_rows(pool: &Pool) -> u64 {
    let table = dataset(pool).table(TableId(1));
    until_full(pool, |tx, number| table.put(tx, &key(number), &[number as u8; 300]))
}

/// All but a few here and there, so that the engine cannot just cut its file off.
fn remove_rows(pool: &Pool, count: u64) {
    let table = dataset(pool).table(TableId(1));
    for number in (0..count).filter(|number| number % 200 != 199) {
        while let Err(error) = pool.transact(|tx| table.remove(tx, &key(number))) {
            assert_eq!(error.kind(), ErrorKind::NoSpace);
            pool.sync().unwrap();
        }
    }
}

/// A new object, as large as it can be.
fn fill_with_data(pool: &Pool, rng: &mut Rng) -> (u64, fastness_pool::ObjectId) {
    let ((object, id), _) = pool
        .transact(|tx| {
            let dataset = dataset(pool);
            let id = dataset.allot_object();
            Ok((dataset.create_object_with(tx, id, BLOCK as u32)?, id))
        })
        .unwrap();
    let blocks = until_full(pool, |tx, number| {
        let data: Vec<u8> = (0..BLOCK).map(|_| rng.next() as u8).collect();
        object.write(tx, number * BLOCK as u64, &data)
    });
    (blocks, id)
}

fn remove_data(pool: &Pool, id: fastness_pool::ObjectId) {
    pool.transact(|tx| dataset(pool).destroy_object(tx, id)).unwrap();
    while pool.is_freeing() || pool.status().used_bytes > LEN_BYTES / 2 {
        pool.sync().unwrap();
    }
}

#[test]
fn a_pool_that_was_full_of_rows_takes_data_when_they_are_gone_and_rows_again() {
    let mut rng = Rng::new(1);
    let (_, fresh) = create(manual());
    let (blocks, _) = fill_with_data(&fresh, &mut rng);
    assert!(blocks > 2000, "{blocks}");
    for imports in [false, true] {
        let (rig, mut pool) = create(manual());
        let rows = fill_with_rows(&pool);
        assert!(rows > 10_000, "{rows}");
        remove_rows(&pool, rows);
        pool.sync().unwrap();
        if imports {
            drop(pool);
            pool = Pool::import(&rig.all(), &host(), manual()).unwrap();
        }
        let (found, object) = fill_with_data(&pool, &mut rng);
        assert!(found * 10 > blocks * 9, "{found} of {blocks} blocks after the rows");
        assert!(pool.check().unwrap().is_clean());
        remove_data(&pool, object);
        let again = fill_with_rows(&pool);
        assert!(again * 10 > rows * 8, "{again} of {rows} rows after the data");
        assert!(pool.check().unwrap().is_clean());
        // Whatever the power leaves of the last txgs is a pool.
        for seed in 0..4 {
            let images = rig.crash(seed);
            let pool = Pool::import(&Rig::new(images, seed).all(), &host(), manual()).unwrap();
            assert!(pool.check().unwrap().is_clean());
            let table = dataset(&pool).table(TableId(1));
            let mut value = Vec::new();
            for number in 0..again {
                value.clear();
                // The last change may not have synced; all before it has.
                let is_there = table.get(&key(number), &mut value).unwrap();
                assert!(is_there && value == [number as u8; 300] || number + 1 == again, "{number}");
            }
        }
    }
}

/// With threads, and readers of every state that there was.
#[test]
fn what_is_read_is_not_given_back() {
    let (_, pool) = create(PoolOptions { dirty_max_bytes: 4 << 20, ..PoolOptions::default() });
    let create = |tx: &Tx| pool.create_dataset(tx, "tank/kept", DatasetKind::Folder, &[]);
    let (kept, _) = pool.transact(create).unwrap();
    let lasting = kept.table(TableId(1));
    for number in 0..2000 {
        pool.transact(|tx| lasting.put(tx, &key(number), &[7; 100])).unwrap();
    }
    pool.sync().unwrap();
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..2u64 {
            let (lasting, is_done) = (&lasting, &is_done);
            scope.spawn(move || {
                let (mut value, mut number) = (Vec::new(), reader);
                while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                    value.clear();
                    assert!(lasting.get(&key(number % 2000), &mut value).unwrap());
                    assert_eq!(value, [7; 100]);
                    number += 7;
                }
            });
        }
        let mut rounds = Vec::new();
        for _ in 0..2 {
            let rows = fill_with_rows(&pool);
            rounds.push(rows);
            remove_rows(&pool, rows);
            pool.sync().unwrap();
        }
        is_done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(rounds.iter().all(|rows| rows * 10 > rounds[0] * 8), "{rounds:?}");
    });
    assert!(pool.check().unwrap().is_clean());
}
