//! Tables: against a model across txgs and imports; beside writers and txgs that end; in full pools; with a
//! million rows.

mod support;

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fastness_pool::{
    DatasetKind, ErrorKind, Pool, PoolError, PoolOptions, ROW_VALUE_BYTES_MAX, Table, TableId,
};
use proptest::prelude::*;
use support::{Rig, Rng, Shape, host, manual};

const ALL: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Unbounded, Bound::Unbounded);

fn create(len_bytes: u64, options: PoolOptions) -> (Arc<Rig>, Pool) {
    let rig = Rig::fresh(1, len_bytes, 1);
    let pool = Pool::create("tank", &Shape::Single.specs(rig.all()), options).unwrap();
    (rig, pool)
}

fn table(pool: &Pool) -> Table {
    pool.dataset("tank").unwrap().table(TableId(129))
}

fn put(pool: &Pool, table: &Table, key: &[u8], value: &[u8]) {
    table.put(&pool.begin_tx().unwrap(), key, value).unwrap();
}

#[derive(Debug, Clone)]
enum Step {
    Put(Vec<u8>, Vec<u8>),
    Remove(Vec<u8>),
    Get(Vec<u8>),
    /// From after a key to a key; stops after so many rows, and goes on.
    Scan(Vec<u8>, Vec<u8>, usize),
    /// Many rows at once, for several batches.
    Many(u8, u16),
    Sync,
    Import,
    Crash,
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => proptest::collection::vec(0..4u8, 1..4),
        1 => (0..4u8, 200..1025usize).prop_map(|(byte, len)| vec![byte; len]),
    ]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    let len = prop_oneof![10 => 0..200usize, 3 => 1000..3000usize, 1 => Just(ROW_VALUE_BYTES_MAX)];
    (any::<u8>(), len).prop_map(|(byte, len)| (0..len).map(|at| byte ^ at as u8).collect())
}

fn a_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (key(), value()).prop_map(|(key, value)| Step::Put(key, value)),
        6 => key().prop_map(Step::Remove),
        4 => key().prop_map(Step::Get),
        3 => (key(), key(), 1..40usize).prop_map(|(from, to, rows)| Step::Scan(from, to, rows)),
        1 => (0..4u8, 1..2000u16).prop_map(|(first, count)| Step::Many(first, count)),
        3 => Just(Step::Sync),
        1 => Just(Step::Import),
        1 => Just(Step::Crash),
    ]
}

/// As one scan, and in parts that each begin after the last key.
fn compare(
    table: &Table,
    rows: &BTreeMap<Vec<u8>, Vec<u8>>,
    bounds: (Bound<&[u8]>, Bound<&[u8]>),
    part: usize,
) {
    let is_void = matches!(bounds, (Bound::Excluded(from), Bound::Included(to)) if from >= to);
    let within = (!is_void).then(|| rows.range::<[u8], _>(bounds));
    let expected: Vec<_> = within.into_iter().flatten().map(|(k, v)| (k.clone(), v.clone())).collect();
    for part in [usize::MAX, part] {
        let mut found: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        loop {
            let (before, mut is_cut) = (found.len(), false);
            let from = found.last().map(|(key, _)| key.clone());
            let from = from.as_deref().map_or(bounds.0, Bound::Excluded);
            let show = |key: &[u8], value: &[u8]| {
                found.push((key.to_vec(), value.to_vec()));
                is_cut = found.len() - before == part;
                if is_cut { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            table.scan((from, bounds.1), show).unwrap();
            if !is_cut {
                break;
            }
        }
        assert_eq!(found.len(), expected.len());
        assert!(found == expected);
    }
}

fn run(steps: &[Step]) {
    let options = PoolOptions { dirty_max_bytes: 64 << 20, ..manual() };
    let (rig, mut pool) = create(256 << 20, options.clone());
    let (mut rows, mut synced) = (BTreeMap::new(), BTreeMap::new());
    for step in steps {
        let table = table(&pool);
        match step {
            Step::Put(key, value) => {
                put(&pool, &table, key, value);
                rows.insert(key.clone(), value.clone());
            }
            Step::Remove(key) => {
                table.remove(&pool.begin_tx().unwrap(), key).unwrap();
                rows.remove(key);
            }
            Step::Get(key) => {
                let mut value = vec![1; 3];
                let is_there = table.get(key, &mut value).unwrap();
                assert_eq!(is_there.then_some(&value), rows.get(key));
            }
            Step::Scan(from, to, part) => {
                compare(&table, &rows, (Bound::Excluded(from), Bound::Included(to)), *part);
            }
            Step::Many(first, count) => {
                for number in 0..*count {
                    let key = [&[*first][..], &number.to_be_bytes()].concat();
                    put(&pool, &table, &key, &key);
                    rows.insert(key.clone(), key);
                }
            }
            Step::Sync => {
                pool.sync().unwrap();
                synced.clone_from(&rows);
            }
            Step::Import | Step::Crash => {
                if matches!(step, Step::Import) {
                    pool.export().unwrap();
                    synced.clone_from(&rows);
                }
                drop((table, pool));
                rows.clone_from(&synced);
                pool = Pool::import(&rig.all(), &host(), options.clone()).unwrap();
            }
        }
    }
    compare(&table(&pool), &rows, ALL, 7);
    pool.sync().unwrap();
    compare(&table(&pool), &rows, ALL, 700);
    assert!(pool.check().unwrap().is_clean());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn a_table_behaves_like_a_map(steps in proptest::collection::vec(a_step(), 1..120)) {
        run(&steps);
    }
}

/// Keys of rows that are there all the time; between any two there is room for others.
fn lasting(number: u32) -> [u8; 4] {
    (number * 2).to_be_bytes()
}

fn number(value: &[u8]) -> u64 {
    u64::from_be_bytes(value.try_into().expect("8 bytes"))
}

/// Txgs end all the time, and are shown while scans and lookups are under way. Rows that exist throughout a
/// scan are in it once, with a value that is not older than one seen before; what a thread has changed it
/// sees.
#[test]
fn scans_and_lookups_beside_writers_and_txgs_miss_nothing() {
    const ROWS: u32 = 3000;
    let options = PoolOptions {
        has_txg_thread: true,
        txg_timeout: Duration::from_millis(1),
        meta_cache_bytes: 8 << 20,
        ..manual()
    };
    let (_rig, pool) = create(512 << 20, options);
    let table = table(&pool);
    (0..ROWS).for_each(|row| put(&pool, &table, &lasting(row), &0_u64.to_be_bytes()));
    let (is_done, scans) = (AtomicBool::new(false), AtomicU64::new(0));
    let first = pool.synced_txg();
    std::thread::scope(|scope| {
        for writer in 0..2_u32 {
            let (pool, table, is_done) = (&pool, &table, &is_done);
            scope.spawn(move || {
                let (mut rng, mut value, mut found) = (Rng::new(writer.into()), 0_u64, Vec::new());
                // Each its own rows, so that it knows what they should be.
                let mut own = BTreeMap::new();
                while !is_done.load(Ordering::Relaxed) {
                    value += 1;
                    let row = rng.below(u64::from(ROWS) / 2) as u32 * 2 + writer;
                    put(pool, table, &lasting(row), &value.to_be_bytes());
                    let other = (row * 2 + 1).to_be_bytes();
                    if rng.below(2) == 0 {
                        put(pool, table, &other, &value.to_be_bytes());
                        own.insert(other, value);
                    } else {
                        table.remove(&pool.begin_tx().unwrap(), &other).unwrap();
                        own.remove(&other);
                    }
                    let look = ((rng.below(u64::from(ROWS) / 2) as u32 * 2 + writer) * 2 + 1).to_be_bytes();
                    let is_there = table.get(&look, &mut found).unwrap();
                    assert_eq!(is_there.then(|| number(&found)), own.get(&look).copied(), "read your writes");
                    assert!(table.get(&lasting(row), &mut found).unwrap() && number(&found) == value);
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                let mut newest = vec![0; ROWS as usize];
                while !is_done.load(Ordering::Relaxed) {
                    let (mut next, mut last) = (0, None);
                    let show = |key: &[u8], value: &[u8]| {
                        assert!(last.as_deref() < Some(key), "keys only go up");
                        last = Some(key.to_vec());
                        let key = u32::from_be_bytes(key.try_into().unwrap());
                        if key % 2 == 0 {
                            assert_eq!(key / 2, next, "a row that is always there");
                            let seen = &mut newest[next as usize];
                            assert!(*seen <= number(value), "row {next} went back");
                            *seen = number(value);
                            next += 1;
                        }
                        ControlFlow::Continue(())
                    };
                    table.scan(ALL, show).unwrap();
                    assert_eq!(next, ROWS);
                    scans.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let start = Instant::now();
        let txgs = || pool.synced_txg().0 - first.0;
        // As long as it takes to mean something, on a machine that may be busy.
        while (txgs() < 100 || scans.load(Ordering::Relaxed) < 100) && start.elapsed().as_secs() < 60 {
            std::thread::sleep(Duration::from_millis(10));
        }
        is_done.store(true, Ordering::Relaxed);
        assert!(txgs() >= 100 && scans.load(Ordering::Relaxed) >= 100, "{} txgs, {scans:?} scans", txgs());
    });
}

/// Rows slow writers down like blocks: memory keeps its bound, and a large txg ends early.
#[test]
fn rows_are_bounded_in_memory() {
    let options = PoolOptions {
        has_txg_thread: true,
        txg_timeout: Duration::from_secs(3600),
        dirty_max_bytes: 4 << 20,
        ..manual()
    };
    let (_rig, pool) = create(1 << 30, options);
    let table = table(&pool);
    let mut most = 0;
    for row in 0..200_000_u64 {
        put(&pool, &table, &row.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes(), &[7; 64]);
        if row % 100 == 0 {
            most = most.max(pool.status().dirty_bytes);
        }
    }
    assert!(most > 1 << 20 && most <= 4 << 20, "{most} bytes");
    assert!(pool.synced_txg().0 > 5, "txgs ended early");
}

fn is_no_space<T>(result: Result<T, PoolError>) -> bool {
    match result {
        Ok(_) => false,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{error:?}");
            true
        }
    }
}

/// What a full pool accepts it can sync; it can be changed here and there, and emptied.
#[test]
fn a_pool_full_of_rows() {
    for (key_bytes, value_bytes) in [(8, 30), (8, 900), (1024, 10), (100, 10_000), (8, ROW_VALUE_BYTES_MAX)] {
        let (rig, pool) = create(24 << 20, manual());
        let (table, mut rng) = (table(&pool), Rng::new(key_bytes as u64));
        let mut rows = BTreeMap::new();
        let new_key = |rng: &mut Rng| -> Vec<u8> { (0..key_bytes).map(|_| rng.next() as u8).collect() };
        loop {
            let (before, tx) = (rows.len(), pool.begin_tx().unwrap());
            loop {
                let (key, value) = (new_key(&mut rng), rng.bytes(value_bytes));
                if is_no_space(table.put(&tx, &key, &value)) {
                    break;
                }
                rows.insert(key, value);
            }
            drop(tx);
            pool.sync().unwrap();
            if rows.len() == before {
                break;
            }
        }
        for round in 0..20 {
            let tx = pool.begin_tx().unwrap();
            for _ in 0..200 {
                let at = new_key(&mut rng);
                let Some((key, _)) = rows.range(at..).next() else { continue };
                let key = key.clone();
                if round % 2 == 0 {
                    let value = rng.bytes(value_bytes);
                    if !is_no_space(table.put(&tx, &key, &value)) {
                        rows.insert(key, value);
                    }
                } else if !is_no_space(table.remove(&tx, &key)) {
                    rows.remove(&key);
                }
            }
            drop(tx);
            pool.sync().unwrap();
        }
        compare(&table, &rows, ALL, usize::MAX);
        assert!(pool.check().unwrap().is_clean());
        drop((table, pool));
        let pool = Pool::import(&rig.all(), &host(), manual()).unwrap();
        let table = self::table(&pool);
        compare(&table, &rows, ALL, usize::MAX);
        while !rows.is_empty() {
            let (before, tx) = (rows.len(), pool.begin_tx().unwrap());
            rows.retain(|key, _| is_no_space(table.remove(&tx, key)));
            drop(tx);
            pool.sync().unwrap();
            assert!(rows.len() < before, "a full pool can be emptied");
        }
        assert!(pool.check().unwrap().is_clean());
        compare(&table, &rows, ALL, 1);
    }
}

#[test]
fn a_read_only_import_reads_rows() {
    let (rig, pool) = create(24 << 20, manual());
    put(&pool, &table(&pool), b"a", b"1");
    pool.sync().unwrap();
    drop(pool);
    let options = PoolOptions { is_read_only: true, ..manual() };
    let pool = Pool::import(&rig.all(), &host(), options).unwrap();
    compare(&table(&pool), &[(b"a".to_vec(), b"1".to_vec())].into(), ALL, 1);
    assert!(matches!(pool.begin_tx(), Err(PoolError::ReadOnly(_))));
    drop(pool);
    let pool = Pool::import(&rig.all(), &host(), manual()).unwrap();
    let table = table(&pool);
    pool.export().unwrap();
    assert!(matches!(table.get(b"a", &mut Vec::new()), Err(PoolError::Closed)));
    assert!(matches!(table.scan(ALL, |_, _| ControlFlow::Continue(())), Err(PoolError::Closed)));
}

/// A million rows: put, listed, and destroyed in steps, beside another dataset that is used all the time.
#[test]
fn a_million_rows_are_destroyed_in_bounded_steps() {
    const ROWS: u64 = 1_000_000;
    let (_rig, pool) = create(2 << 30, manual());
    let tx = pool.begin_tx().unwrap();
    let dataset = pool.create_dataset(&tx, "tank/a", DatasetKind::Filesystem, &[]).unwrap();
    drop(tx);
    let big = dataset.table(TableId(0));
    let key = |row: u64| row.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    for part in 0..10 {
        let tx = pool.begin_tx().unwrap();
        (part * ROWS / 10..(part + 1) * ROWS / 10).for_each(|row| big.put(&tx, &key(row), &[7; 64]).unwrap());
        drop(tx);
        pool.sync().unwrap();
    }
    let mut count = 0;
    let show = |_: &[u8], value: &[u8]| {
        assert_eq!(value, [7; 64]);
        count += 1;
        ControlFlow::Continue(())
    };
    big.scan(ALL, show).unwrap();
    assert_eq!((count, pool.check().unwrap().table_rows), (ROWS, ROWS));
    pool.destroy_dataset(&pool.begin_tx().unwrap(), "tank/a").unwrap();
    let (mut txgs, small) = (0, table(&pool));
    while pool.is_freeing() || txgs == 0 {
        put(&pool, &small, b"a", &txgs_value(txgs));
        pool.sync().unwrap();
        txgs += 1;
    }
    // 4096 in each, and not all in the first.
    assert!((244..300).contains(&txgs), "{txgs} txgs");
    assert!(pool.check().unwrap().is_clean());
    compare(&small, &[(b"a".to_vec(), txgs_value(txgs - 1))].into(), ALL, 1);
}

fn txgs_value(txgs: u64) -> Vec<u8> {
    txgs.to_be_bytes().to_vec()
}
