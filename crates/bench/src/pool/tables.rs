//! A million rows in one table: put, looked up, listed, synced; and again from the disk.
//!
//! The file is sparse: what a million rows reserve (8 GiB) is far more than they take.

use std::ops::{Bound, ControlFlow};

use fastness_blkdev::Operation;
use fastness_store::{DatasetKind, Device, ImportOptions, Pool, PoolOptions, Table, TableId, VdevSpec};
use redb::{Database, TableDefinition};

use super::place::{Numbers, Place, told_to};
use crate::error::{Context, Result, ensure, foreign, wrong};
use crate::measure::{Spread, process_cpu_ns, rss_bytes, time_ns};
use crate::{Options, Row};

const VALUE_BYTES: usize = 64;
const LEN_BYTES: u64 = 24 << 30;
const DIRTY_MAX_BYTES: u64 = 4 << 30;

/// A key of 16 bytes: scattered, none twice.
fn key(row: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&row.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    key[8..].copy_from_slice(&row.to_be_bytes());
    key
}

/// Times of one round, in ns.
#[derive(Default)]
struct Round {
    put: f64,
    put_cpu: f64,
    put_by_two: f64,
    hot_get: f64,
    hot_scan: f64,
    sync: f64,
    sync_cpu: f64,
    engine: f64,
    engine_cpu: f64,
    cold_get: f64,
    cold_scan: f64,
    written_bytes: f64,
    grown_bytes: f64,
}

pub(super) fn rows(place: &Place, options: Options) -> Result<Vec<Row>> {
    let (rows, rounds) = if options.quick { (200_000, 1) } else { (1_000_000, 5) };
    let rounds = (0..rounds).map(|_| one_round(place, rows)).collect::<Result<Vec<_>>>()?;
    let spread = |of: fn(&Round) -> f64| Spread::of(rounds.iter().map(of).collect());
    let median = |of: fn(&Round) -> f64| spread(of).median;
    let per_s = |of: fn(&Round) -> f64| rows as f64 / (median(of) / 1e9);
    let row = |name: String, value: f64, unit: &'static str| Row {
        name,
        value: Some(value),
        unit,
        medium: place.medium(),
        threads: 1,
        ..Row::default()
    };
    let at_least = |row: Row, bound: f64| Row {
        goal: Some(format!("at least {bound:.0}")),
        met: row.value.map(|value| value >= bound),
        ..row
    };
    let gets = gets_of(rows) as f64;
    let sync = Row::ratio(spread(|round| round.sync / round.engine), None);
    let sync_cpu = Row::ratio(spread(|round| round.sync_cpu / round.engine_cpu), None);
    Ok(vec![
        at_least(
            row(
                format!("{rows} rows of 16 + {VALUE_BYTES} B into one table, in memory"),
                per_s(|r| r.put),
                "rows/s",
            ),
            300_000.0,
        ),
        row("the same, CPU time of each".to_owned(), median(|r| r.put_cpu) / rows as f64, "ns"),
        Row {
            threads: 2,
            ..row("the same, 2 threads, one table".to_owned(), per_s(|r| r.put_by_two), "rows/s")
        },
        row(
            "growth of memory for each unsynced row".to_owned(),
            median(|r| r.grown_bytes) / rows as f64,
            "B",
        ),
        row("look-up of an unsynced row".to_owned(), median(|r| r.hot_get) / gets, "ns"),
        row("scan of all rows, unsynced".to_owned(), per_s(|r| r.hot_scan), "rows/s"),
        Row {
            baseline: Some(format!(
                "redb alone: the same rows in order, one durable commit, {:.0} ms",
                median(|r| r.engine) / 1e6
            )),
            ratio: sync.ratio,
            ratio_interval: sync.ratio_interval,
            ..row(format!("sync of {rows} rows"), median(|r| r.sync) / 1e6, "ms")
        },
        Row {
            baseline: Some(format!("redb alone, {:.0} ms", median(|r| r.engine_cpu) / 1e6)),
            ratio: sync_cpu.ratio,
            ratio_interval: sync_cpu.ratio_interval,
            ..row("the same, CPU time".to_owned(), median(|r| r.sync_cpu) / 1e6, "ms")
        },
        row(
            "the same, bytes written for each row".to_owned(),
            median(|r| r.written_bytes) / rows as f64,
            "B",
        ),
        row("look-up of a synced row, after an import".to_owned(), median(|r| r.cold_get) / gets, "ns"),
        row("scan of all rows, after an import".to_owned(), per_s(|r| r.cold_scan), "rows/s"),
    ])
}

fn gets_of(rows: u64) -> u64 {
    rows / 10
}

fn put(pool: &Pool, table: &Table, rows: impl Iterator<Item = u64>) -> Result<()> {
    for row in rows {
        let tx = pool.begin_tx()?;
        table.put(&tx, &key(row), &[row as u8; VALUE_BYTES])?;
        tx.commit();
    }
    Ok(())
}

/// Time and CPU time of `work`, in ns.
fn costs(work: impl FnOnce() -> Result<()>) -> Result<(f64, f64)> {
    let before = process_cpu_ns();
    let ns = time_ns(work)?;
    Ok((ns, process_cpu_ns() - before))
}

fn get_some(table: &Table, rows: u64) -> Result<f64> {
    let (mut numbers, mut value) = (Numbers(7), Vec::new());
    time_ns(|| {
        for _ in 0..gets_of(rows) {
            let row = numbers.below(rows);
            let is_there = table.get(&key(row), &mut value)?;
            ensure!(is_there && value == [row as u8; VALUE_BYTES], "row {row}");
        }
        Ok(())
    })
}

fn scan_all(table: &Table, rows: u64) -> Result<f64> {
    let mut count = 0;
    let ns = time_ns(|| {
        let show = |_: &[u8], _: &[u8]| {
            count += 1;
            ControlFlow::Continue(())
        };
        Ok(table.scan((Bound::Unbounded, Bound::Unbounded), show)?)
    })?;
    ensure!(count == rows, "{count} rows");
    Ok(ns)
}

fn import(place: &Place) -> Result<Pool> {
    let device = Device::open(place.path("tables"))?;
    Ok(Pool::import(&[device], &ImportOptions::default(), told_to(DIRTY_MAX_BYTES))?)
}

fn one_round(place: &Place, rows: u64) -> Result<Round> {
    std::fs::File::create_new(place.path("tables"))?.set_len(LEN_BYTES)?;
    let vdev = VdevSpec::single(Device::open(place.path("tables"))?);
    let pool = Pool::create("bench", &[vdev], told_to(DIRTY_MAX_BYTES))?;
    let tx = pool.begin_tx()?;
    let one = pool.create_dataset(&tx, "bench/one", DatasetKind::Filesystem, &[])?.table(TableId(0));
    let two = pool.create_dataset(&tx, "bench/two", DatasetKind::Filesystem, &[])?.table(TableId(0));
    drop(tx);
    pool.sync()?;
    let (mut round, before) = (Round::default(), rss_bytes()?);
    (round.put, round.put_cpu) = costs(|| put(&pool, &one, 0..rows))?;
    round.grown_bytes = rss_bytes()?.saturating_sub(before) as f64;
    round.hot_get = get_some(&one, rows)?;
    round.hot_scan = scan_all(&one, rows)?;
    let written = || -> u64 {
        let vdevs = pool.status().vdevs;
        vdevs.iter().flat_map(|vdev| &vdev.2).map(|side| side.io.of(Operation::Write).bytes).sum()
    };
    let before = written();
    (round.sync, round.sync_cpu) = costs(|| {
        pool.sync()?;
        Ok(())
    })?;
    round.written_bytes = (written() - before) as f64;
    (round.engine, round.engine_cpu) = engine(place, rows)?;
    round.put_by_two = time_ns(|| {
        std::thread::scope(|scope| {
            let other = scope.spawn(|| put(&pool, &two, (0..rows).step_by(2)));
            put(&pool, &two, (1..rows).step_by(2))?;
            other.join().map_err(|_| wrong("a thread panicked"))?
        })
    })?;
    // The second table is not needed any more.
    drop((one, two, pool));
    let pool = import(place)?;
    let one = pool.dataset("bench/one")?.table(TableId(0));
    round.cold_get = get_some(&one, rows)?;
    drop((one, pool));
    let pool = import(place)?;
    round.cold_scan = scan_all(&pool.dataset("bench/one")?.table(TableId(0)), rows)?;
    drop(pool);
    place.remove("tables")?;
    Ok(round)
}

/// The floor of the sync: the engine alone, in a file of its own.
fn engine(place: &Place, rows: u64) -> Result<(f64, f64)> {
    const TABLE: TableDefinition<'_, (u64, u8, &[u8], u16), &[u8]> = TableDefinition::new("rows");
    let mut sorted: Vec<u64> = (0..rows).collect();
    sorted.sort_by_key(|row| key(*row));
    // The cache that a pool gives it: with less of it, it writes pages more than once.
    let mut builder = Database::builder();
    builder.set_cache_size(PoolOptions::default().meta_cache_bytes);
    let database = builder.create(place.path("engine")).map_err(foreign).context("the engine's file")?;
    let write = || -> Result<(), redb::Error> {
        let mut transaction = database.begin_write()?;
        transaction.set_quick_repair(true);
        {
            let mut table = transaction.open_table(TABLE)?;
            for row in sorted {
                table.insert((2, 0, &key(row)[..], 0), &[row as u8; VALUE_BYTES][..])?;
            }
        }
        Ok(transaction.commit()?)
    };
    let costs = costs(|| write().map_err(foreign))?;
    drop(database);
    place.remove("engine")?;
    Ok(costs)
}
