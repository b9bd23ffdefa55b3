//! Single steps of tables, and what a damaged medium may hold.

use std::ops::{Bound, ControlFlow};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fastness_blkdev::MemDevice;
use redb::ReadableTable;

use super::*;
use crate::error::PoolError;
use crate::ids::Txg;
use crate::metadata::tables::{DOOMED, ROWS};
use crate::rows::layer::{Row, Rows, shard_of};
use crate::{Dataset, DatasetKind, Device, Pool, PoolOptions, Property, VdevSpec};

const ALL: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Unbounded, Bound::Unbounded);

fn pool() -> Pool {
    let device = Device::new("a", Arc::new(MemDevice::new("a", 64 << 20)));
    let options = PoolOptions { has_txg_thread: false, ..PoolOptions::default() };
    Pool::create("tank", &[VdevSpec::single(device)], options).unwrap()
}

fn table(pool: &Pool) -> Table {
    pool.dataset("tank").unwrap().table(TableId(203))
}

fn get(table: &Table, key: &[u8]) -> Option<Vec<u8>> {
    let mut value = vec![0xee; 10];
    table.get(key, &mut value).unwrap().then_some(value)
}

fn list(table: &Table, bounds: (Bound<&[u8]>, Bound<&[u8]>)) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    let show = |key: &[u8], value: &[u8]| {
        found.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    };
    table.scan(bounds, show).unwrap();
    found
}

fn put(pool: &Pool, table: &Table, key: &[u8], value: &[u8]) {
    table.put(&pool.begin_tx().unwrap(), key, value).unwrap();
}

/// What the engine has of a dataset.
fn stored_rows(pool: &Pool) -> Vec<(u64, u8, Vec<u8>, u16, usize)> {
    let snapshot = pool.shared.tables.current();
    let rows = snapshot.rows.range::<(u64, u8, &[u8], u16)>(..).unwrap();
    let row = |row: Result<(redb::AccessGuard<'_, _>, redb::AccessGuard<'_, &'static [u8]>), _>| {
        let (key, value): (redb::AccessGuard<'_, crate::metadata::tables::RowKey>, _) = row.unwrap();
        let (dataset, table, key, number) = key.value();
        (dataset, table, key.to_vec(), number, value.value().len())
    };
    rows.map(row).collect()
}

#[test]
fn a_row_is_seen_at_once_and_after_the_sync() {
    let pool = pool();
    let table = table(&pool);
    put(&pool, &table, b"b", b"1");
    put(&pool, &table, b"a", b"");
    let both = vec![(b"a".to_vec(), vec![]), (b"b".to_vec(), b"1".to_vec())];
    assert_eq!((get(&table, b"a"), get(&table, b"b")), (Some(vec![]), Some(b"1".to_vec())));
    assert_eq!(list(&table, ALL), both);
    pool.sync().unwrap();
    assert!(table.core.rows.layers(shard_of(table.id(), b"b")).is_empty());
    assert_eq!((get(&table, b"a"), get(&table, b"c")), (Some(vec![]), None));
    assert_eq!(list(&table, ALL), both);
    // A removed row masks what is synced.
    table.remove(&pool.begin_tx().unwrap(), b"a").unwrap();
    assert_eq!((get(&table, b"a"), list(&table, ALL)), (None, both[1..].to_vec()));
    pool.sync().unwrap();
    assert_eq!((get(&table, b"a"), list(&table, ALL)), (None, both[1..].to_vec()));
    assert_eq!(stored_rows(&pool), [(1, 203, b"b".to_vec(), 0, 1)]);
}

/// The txg thread takes the layer of a txg that has quiesced from a shard while the next txg changes its own.
/// Two threads do nothing else, so that a share of the open layer is caught at once.
#[test]
fn taking_a_quiesced_layer_leaves_the_open_one_alone() {
    const TABLE: TableId = TableId(203);
    let (rows, is_destroyed, is_done) = (Rows::default(), AtomicBool::new(false), AtomicBool::new(false));
    let put = |txg| {
        rows.put(Txg(txg), TABLE, Row::new(b"key", Some(b"value")), Charge::default(), &is_destroyed, |_| {})
    };
    let shard = shard_of(TABLE, b"key");
    put(1).unwrap();
    put(2).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                assert_eq!(rows.layer(shard, Txg(1)).map(|layer| layer.txg), Some(Txg(1)));
            }
        });
        let writes = catch_unwind(AssertUnwindSafe(|| (0..300_000).for_each(|_| assert!(put(2).is_some()))));
        is_done.store(true, Ordering::Relaxed);
        writes.expect("nothing shares the open layer");
    });
}

#[test]
fn tables_and_datasets_do_not_see_each_other() {
    let pool = pool();
    let tx = pool.begin_tx().unwrap();
    let other = pool.create_dataset(&tx, "tank/a", DatasetKind::Filesystem, &[]).unwrap();
    let root = pool.dataset("tank").unwrap();
    let tables: Vec<Table> =
        [&root, &other].iter().flat_map(|dataset| [0, 1, 255].map(|id| dataset.table(TableId(id)))).collect();
    for (number, table) in tables.iter().enumerate() {
        table.put(&tx, b"k", &[number as u8]).unwrap();
    }
    drop(tx);
    let check = || {
        for (number, table) in tables.iter().enumerate() {
            assert_eq!(list(table, ALL), [(b"k".to_vec(), vec![number as u8])]);
        }
    };
    check();
    pool.sync().unwrap();
    check();
    pool.rename_dataset(&pool.begin_tx().unwrap(), "tank/a", "tank/b").unwrap();
    check();
}

#[test]
fn a_change_in_an_older_txg_counts_in_the_newer_one_too() {
    let pool = pool();
    let table = table(&pool);
    let old = pool.begin_tx().unwrap();
    std::thread::scope(|scope| {
        let sync = scope.spawn(|| pool.sync().unwrap());
        while pool.open_txg() == old.txg() {
            std::thread::yield_now();
        }
        let new = pool.begin_tx().unwrap();
        table.put(&new, b"a", b"new").unwrap();
        table.put(&new, b"b", b"new").unwrap();
        table.remove(&old, b"a").unwrap();
        table.put(&old, b"b", b"old, and last").unwrap();
        table.put(&old, b"c", b"old").unwrap();
        assert_eq!((get(&table, b"a"), get(&table, b"b").unwrap()), (None, b"old, and last".to_vec()));
        drop((old, new));
        sync.join().unwrap();
    });
    for _ in 0..2 {
        let expected = [(b"b".to_vec(), b"old, and last".to_vec()), (b"c".to_vec(), b"old".to_vec())];
        assert_eq!(list(&table, ALL), expected);
        pool.sync().unwrap();
    }
    assert_eq!(pool.status().dirty_bytes, 0);
}

/// Every length around the fragments' and the longest: stored, replaced by every other, removed.
#[test]
fn values_of_every_length_replace_each_other() {
    let pool = pool();
    let table = table(&pool);
    let lens = [0, 1, 1023, 1024, 1025, 2048, 5000, ROW_VALUE_BYTES_MAX];
    for key in [vec![7; 1], vec![7; 256], vec![7; 257], vec![7; ROW_KEY_BYTES_MAX]] {
        for old in lens {
            for new in lens {
                for len in [old, new] {
                    let value: Vec<u8> = (0..len).map(|at| (at * 7 + len) as u8).collect();
                    put(&pool, &table, &key, &value);
                    pool.sync().unwrap();
                    assert_eq!(get(&table, &key).unwrap(), value);
                    assert_eq!(list(&table, ALL), [(key.clone(), value)]);
                    let max = (1280 - key.len()).min(1024);
                    let stored = stored_rows(&pool);
                    let fragments: Vec<_> = stored.iter().map(|row| (usize::from(row.3), row.4)).collect();
                    let expected: Vec<_> = (0..=len / max).map(|at| (at, max.min(len - at * max))).collect();
                    assert_eq!(fragments, expected);
                }
            }
        }
        table.remove(&pool.begin_tx().unwrap(), &key).unwrap();
        pool.sync().unwrap();
        assert_eq!(stored_rows(&pool), []);
        assert!(pool.check().unwrap().is_clean());
    }
}

#[test]
fn what_cannot_be_stored_is_refused() {
    let pool = pool();
    let table = table(&pool);
    let old = pool.begin_tx().unwrap();
    let is_invalid = |result| assert!(matches!(result, Err(PoolError::Invalid { .. })), "{result:?}");
    let (long, value) = ([1; ROW_KEY_BYTES_MAX + 1], vec![1; ROW_VALUE_BYTES_MAX + 1]);
    is_invalid(table.put(&old, b"", b"1"));
    is_invalid(table.put(&old, &long, b"1"));
    is_invalid(table.put(&old, b"a", &value));
    // Where values are short: up to one fragment.
    let short = pool.dataset("tank").unwrap().table(TableId(127));
    for (key_bytes, max) in [(1, 1023), (256, 1023), (257, 1022), (1024, 255)] {
        is_invalid(short.put(&old, &long[..key_bytes], &value[..=max]));
        short.put(&old, &long[..key_bytes], &value[..max]).unwrap();
    }
    is_invalid(table.remove(&old, b""));
    is_invalid(table.get(&long, &mut Vec::new()).map(|_| ()));
    std::thread::scope(|scope| {
        let sync = scope.spawn(|| pool.sync().unwrap());
        while pool.open_txg() == old.txg() {
            std::thread::yield_now();
        }
        let new = pool.begin_tx().unwrap();
        let born: Dataset = pool.create_dataset(&new, "tank/a", DatasetKind::Filesystem, &[]).unwrap();
        let result = born.table(TableId(0)).put(&old, b"a", b"1");
        assert!(matches!(result, Err(PoolError::Overtaken { .. })));
        drop((old, new));
        sync.join().unwrap();
    });
    let tx = pool.begin_tx().unwrap();
    pool.dataset("tank").unwrap().set(&tx, Property::ReadOnly, Some(1)).unwrap();
    assert!(matches!(table.put(&tx, b"a", b"1"), Err(PoolError::ReadOnly(name)) if name == "tank"));
    assert_eq!(list(&table, ALL), []);
    drop(tx);
    pool.sync().unwrap();
    assert_eq!((pool.status().dirty_bytes, pool.shared.space.room.reserved()), (0, 0));
}

#[test]
fn rows_count_as_dirty_until_they_are_durable() {
    let pool = pool();
    let table = table(&pool);
    let bytes = |expected: u64| assert_eq!(pool.status().dirty_bytes, expected);
    put(&pool, &table, b"12345678", &[1; 100]);
    bytes(8 + 100 + 80);
    put(&pool, &table, b"12345678", &[1; 3]);
    bytes(8 + 3 + 80);
    table.remove(&pool.begin_tx().unwrap(), b"12345678").unwrap();
    bytes(8 + 80);
    table.remove(&pool.begin_tx().unwrap(), b"other").unwrap();
    bytes(8 + 5 + 2 * 80);
    assert!(pool.shared.space.room.reserved() > 0);
    pool.sync().unwrap();
    bytes(0);
    assert_eq!(pool.shared.space.room.reserved(), 0);
}

/// The bounds of a scan, in every combination.
#[test]
fn a_scan_has_exactly_what_is_within_its_bounds() {
    let pool = pool();
    let table = table(&pool);
    for key in [2_u8, 4, 6, 8] {
        put(&pool, &table, &[key], &[key]);
        if key == 4 {
            pool.sync().unwrap();
        }
    }
    let bound = |kind: u8, key: &'static [u8]| match kind {
        0 => Bound::Unbounded,
        1 => Bound::Included(key),
        _ => Bound::Excluded(key),
    };
    const KEYS: [[u8; 1]; 10] = [[0], [1], [2], [3], [4], [5], [6], [7], [8], [9]];
    for (from_kind, to_kind) in (0..3).flat_map(|kind| [(kind, 0), (kind, 1), (kind, 2)]) {
        for (from, to) in KEYS.iter().flat_map(|from| KEYS.iter().map(move |to| (from, to))) {
            let bounds = (bound(from_kind, from), bound(to_kind, to));
            let is_in = |key: u8| {
                (from_kind == 0 || key > from[0] || from_kind == 1 && key == from[0])
                    && (to_kind == 0 || key < to[0] || to_kind == 1 && key == to[0])
            };
            let expected: Vec<u8> = [2, 4, 6, 8].into_iter().filter(|key| is_in(*key)).collect();
            let found: Vec<u8> = list(&table, bounds).into_iter().map(|(key, _)| key[0]).collect();
            assert_eq!(found, expected, "{bounds:?}");
        }
    }
}

/// Plants rows that no sync writes.
fn plant(pool: &Pool, rows: &[(&[u8], u16, usize)]) {
    let transaction = pool.shared.tables.database.begin_write().unwrap();
    for (key, number, len) in rows {
        let mut stored = transaction.open_table(ROWS).unwrap();
        stored.insert((1, 203, *key, *number), vec![1; *len].as_slice()).unwrap();
    }
    transaction.commit().unwrap();
    pool.sync().unwrap();
}

#[test]
fn fragments_that_form_no_row_are_an_error_and_not_a_value() {
    let wrong: [&[(&[u8], u16, usize)]; 6] = [
        &[(b"a", 0, 1025)],
        &[(b"a", 0, 1024)],
        &[(b"a", 0, 1024), (b"a", 2, 3)],
        &[(b"a", 0, 1024), (b"b", 0, 3)],
        &[(b"a", 1, 3)],
        &[(b"", 0, 3)],
    ];
    for (number, rows) in wrong.iter().enumerate() {
        let pool = pool();
        let table = table(&pool);
        plant(&pool, rows);
        let is_bad = |result: Result<(), PoolError>| {
            assert!(matches!(result, Err(PoolError::BadValue { table: "rows", .. })), "{number}: {result:?}");
        };
        is_bad(table.scan(ALL, |_, _| ControlFlow::Continue(())));
        is_bad(pool.check().map(|_| ()));
        if number < 4 {
            is_bad(table.get(b"a", &mut Vec::new()).map(|_| ()));
        }
    }
    let pool = pool();
    let all: Vec<(&[u8], u16, usize)> = (0..70).map(|number| (&b"a"[..], number, 1024)).collect();
    plant(&pool, &all);
    assert!(matches!(table(&pool).get(b"a", &mut Vec::new()), Err(PoolError::BadValue { .. })));
}

#[test]
fn a_check_finds_rows_without_a_dataset() {
    let pool = pool();
    let transaction = pool.shared.tables.database.begin_write().unwrap();
    transaction.open_table(ROWS).unwrap().insert((9, 0, &b"a"[..], 0), &b"1"[..]).unwrap();
    transaction.commit().unwrap();
    pool.sync().unwrap();
    let report = pool.check().unwrap();
    assert_eq!((report.table_rows, report.lost_datasets), (0, vec![crate::DatasetId(9)]));
}

/// Rows of the txg after the one that destroys their dataset: nothing would ever free them.
#[test]
fn rows_of_a_newer_txg_go_with_their_dataset() {
    let pool = pool();
    let dataset =
        pool.create_dataset(&pool.begin_tx().unwrap(), "tank/a", DatasetKind::Filesystem, &[]).unwrap();
    pool.sync().unwrap();
    let old = pool.begin_tx().unwrap();
    std::thread::scope(|scope| {
        let sync = scope.spawn(|| pool.sync().unwrap());
        while pool.open_txg() == old.txg() {
            std::thread::yield_now();
        }
        let new = pool.begin_tx().unwrap();
        dataset.table(TableId(0)).put(&new, b"a", b"1").unwrap();
        pool.destroy_dataset(&old, "tank/a").unwrap();
        drop((old, new));
        sync.join().unwrap();
    });
    for _ in 0..3 {
        pool.sync().unwrap();
        assert!(pool.check().unwrap().is_clean());
    }
    assert_eq!(stored_rows(&pool), []);
}

#[test]
fn a_destroyed_dataset_takes_its_rows_with_it_in_steps() {
    let device = Device::new("a", Arc::new(MemDevice::new("a", 64 << 20)));
    let options = PoolOptions { has_txg_thread: false, frees_per_txg: 100, ..PoolOptions::default() };
    let pool = Pool::create("tank", &[VdevSpec::single(device)], options).unwrap();
    let tx = pool.begin_tx().unwrap();
    let doomed = pool.create_dataset(&tx, "tank/a", DatasetKind::Filesystem, &[]).unwrap();
    let table = doomed.table(TableId(200));
    drop(tx);
    for number in 0..1000_u32 {
        // Now and then in fragments, which a step may divide.
        let len = if number % 10 == 0 { 3000 } else { 10 };
        put(&pool, &table, &number.to_be_bytes(), &vec![1; len]);
    }
    put(&pool, &self::table(&pool), b"stays", b"1");
    pool.sync().unwrap();
    // Changes of the txg that destroys it, too.
    put(&pool, &table, b"unsynced", &[1; 10]);
    let tx = pool.begin_tx().unwrap();
    pool.destroy_dataset(&tx, "tank/a").unwrap();
    let is_gone = |result| assert!(matches!(result, Err(PoolError::NoDataset(_))), "{result:?}");
    is_gone(table.put(&tx, b"a", b"1"));
    is_gone(table.get(b"unsynced", &mut Vec::new()).map(|_| ()));
    is_gone(table.scan(ALL, |_, _| ControlFlow::Continue(())));
    drop(tx);
    let (mut left, mut txgs) = (1201, 0);
    while pool.is_freeing() || txgs == 0 {
        pool.sync().unwrap();
        let now = stored_rows(&pool).len();
        assert!(left - now <= 100, "a txg removed {} rows", left - now);
        assert!(pool.check().unwrap().is_clean());
        (left, txgs) = (now, txgs + 1);
    }
    assert!(txgs >= 12);
    assert_eq!(stored_rows(&pool), [(1, 203, b"stays".to_vec(), 0, 1)]);
    let transaction = pool.shared.tables.database.begin_write().unwrap();
    assert!(transaction.open_table(DOOMED).unwrap().first().unwrap().is_none());
    assert_eq!((pool.status().dirty_bytes, pool.shared.space.room.reserved()), (0, 0));
}
