//! Two engines for the pool's tables, by turns: what a txg commits, what a read looks up, how a crashed store
//! opens.
//!
//! ```text
//! cargo run --release -- [FOLDER] [ROWS]
//! ```
//! A row is what the pool stores for 32 blocks: a key of 24 bytes, a value of 1 KiB. A commit updates rows at
//! random, in key order as the pool does, and is durable when it returns (fsync, each engine in its own way).

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use fjall::{Database as Fjall, Keyspace, KeyspaceCreateOptions, PersistMode};
use redb::{Database as Redb, ReadableDatabase, TableDefinition};

type Failure = Box<dyn Error>;
const TABLE: TableDefinition<'static, (u64, u64, u64), &[u8]> = TableDefinition::new("extents");
const VALUE_BYTES: usize = 1024;
const ROUNDS: usize = 5;
const LOOKUPS: u64 = 200_000;

struct Rng(u64);

impl Rng {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % end
    }
}

trait Engine: Sized {
    const NAME: &'static str;
    fn open(folder: &Path) -> Result<Self, Failure>;
    fn commit(&mut self, rows: &[u64], value: &[u8]) -> Result<(), Failure>;
    fn lookup(&self, row: u64) -> Result<usize, Failure>;
}

struct OnRedb(Redb);

impl Engine for OnRedb {
    const NAME: &'static str = "redb";

    fn open(folder: &Path) -> Result<Self, Failure> {
        let mut builder = Redb::builder();
        builder.set_cache_size(128 << 20);
        Ok(OnRedb(builder.create(folder.join("redb"))?))
    }

    fn commit(&mut self, rows: &[u64], value: &[u8]) -> Result<(), Failure> {
        let mut transaction = self.0.begin_write()?;
        transaction.set_quick_repair(true);
        {
            let mut table = transaction.open_table(TABLE)?;
            for row in rows {
                table.insert((1, 1, *row), value)?;
            }
        }
        Ok(transaction.commit()?)
    }

    fn lookup(&self, row: u64) -> Result<usize, Failure> {
        let table = self.0.begin_read()?.open_table(TABLE)?;
        Ok(table.get((1, 1, row))?.map_or(0, |value| value.value().len()))
    }
}

struct OnFjall(Fjall, Keyspace);

impl Engine for OnFjall {
    const NAME: &'static str = "fjall";

    fn open(folder: &Path) -> Result<Self, Failure> {
        let database = Fjall::builder(folder.join("fjall")).cache_size(128 << 20).open()?;
        let keyspace = database.keyspace("extents", KeyspaceCreateOptions::default)?;
        Ok(OnFjall(database, keyspace))
    }

    fn commit(&mut self, rows: &[u64], value: &[u8]) -> Result<(), Failure> {
        let mut batch = self.0.batch();
        for row in rows {
            batch.insert(&self.1, key(*row), value);
        }
        batch.commit()?;
        Ok(self.0.persist(PersistMode::SyncAll)?)
    }

    fn lookup(&self, row: u64) -> Result<usize, Failure> {
        Ok(self.1.get(key(row))?.map_or(0, |value| value.len()))
    }
}

fn key(row: u64) -> [u8; 24] {
    let mut key = [0; 24];
    key[7] = 1;
    key[15] = 1;
    key[16..].copy_from_slice(&row.to_be_bytes());
    key
}

/// Rows of one commit, sorted.
fn chosen(rng: &mut Rng, rows: u64, count: u64) -> Vec<u64> {
    let mut chosen: Vec<_> = (0..count).map(|_| rng.below(rows)).collect();
    chosen.sort_unstable();
    chosen.dedup();
    chosen
}

#[derive(Default)]
struct Figures {
    fill_s: f64,
    commit_us: Vec<f64>,
    lookup_ns: Vec<f64>,
    open_ms: f64,
    bytes: u64,
}

fn fill<E: Engine>(folder: &Path, rows: u64, figures: &mut Figures) -> Result<E, Failure> {
    let since = Instant::now();
    let mut engine = E::open(folder)?;
    for start in (0..rows).step_by(8192) {
        let some: Vec<_> = (start..rows.min(start + 8192)).collect();
        engine.commit(&some, &[7; VALUE_BYTES])?;
    }
    figures.fill_s = since.elapsed().as_secs_f64();
    Ok(engine)
}

fn turn<E: Engine>(engine: &mut E, rng: &mut Rng, rows: u64, figures: &mut Figures) -> Result<(), Failure> {
    let value: Vec<u8> = (0..VALUE_BYTES).map(|_| rng.below(256) as u8).collect();
    let some = chosen(rng, rows, 8192);
    let since = Instant::now();
    engine.commit(&some, &value)?;
    figures.commit_us.push(since.elapsed().as_secs_f64() * 1e6 / some.len() as f64);
    let since = Instant::now();
    for _ in 0..LOOKUPS {
        assert_eq!(engine.lookup(rng.below(rows))?, VALUE_BYTES);
    }
    figures.lookup_ns.push(since.elapsed().as_secs_f64() * 1e9 / LOOKUPS as f64);
    Ok(())
}

/// Opens a copy of the store, as a crash now would leave it.
fn reopen<E: Engine>(folder: &Path, figures: &mut Figures) -> Result<(), Failure> {
    let copy = tempfile::tempdir_in(folder.parent().ok_or("a folder in a folder")?)?;
    let status = std::process::Command::new("cp").arg("-r").arg(folder).arg(copy.path().join("s")).status()?;
    assert!(status.success());
    let since = Instant::now();
    let engine = E::open(&copy.path().join("s"))?;
    assert_eq!(engine.lookup(0)?, VALUE_BYTES);
    figures.open_ms = since.elapsed().as_secs_f64() * 1e3;
    let du = std::process::Command::new("du").arg("-sb").arg(folder).output()?;
    figures.bytes = String::from_utf8(du.stdout)?.split_whitespace().next().ok_or("du")?.parse()?;
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn show(name: &str, figures: Figures) {
    println!(
        "{name}: fill {:.1} s; commit {:.2} us a row; lookup {:.0} ns; open after a crash {:.0} ms; {:.0} MiB",
        figures.fill_s,
        median(figures.commit_us),
        median(figures.lookup_ns),
        figures.open_ms,
        figures.bytes as f64 / 1048576.0
    );
}

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let root = arguments.next().map_or_else(|| Ok(tempfile::tempdir()?), |path| tempfile::tempdir_in(path))?;
    let rows: u64 = arguments.next().map_or(Ok(262_144), |text| text.parse())?;
    let folders = [root.path().join("a"), root.path().join("b")];
    folders.iter().try_for_each(std::fs::create_dir)?;
    let (mut of_redb, mut of_fjall) = (Figures::default(), Figures::default());
    let mut redb: OnRedb = fill(&folders[0], rows, &mut of_redb)?;
    let mut fjall: OnFjall = fill(&folders[1], rows, &mut of_fjall)?;
    let mut rng = Rng(1);
    for _ in 0..ROUNDS {
        turn(&mut redb, &mut rng, rows, &mut of_redb)?;
        turn(&mut fjall, &mut rng, rows, &mut of_fjall)?;
    }
    reopen::<OnRedb>(&folders[0], &mut of_redb)?;
    reopen::<OnFjall>(&folders[1], &mut of_fjall)?;
    println!("{rows} rows of {VALUE_BYTES} bytes, commits of 8192 random rows, medians of {ROUNDS} turns");
    show(OnRedb::NAME, of_redb);
    show(OnFjall::NAME, of_fjall);
    Ok(())
}
