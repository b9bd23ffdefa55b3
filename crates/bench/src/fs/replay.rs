//! Import of a pool whose log is full of records of files.

use fastness_store::{Device, Given, PoolLog, PoolOptions, RegionParts, Store, Tuning};
use fastness_zpl::{FileSystem, FileSystemOptions, Ino, RenameHow, SetAttributes, WriteHow};

use super::file::new_file;
use crate::error::{Result, ensure};
use crate::measure::time_ns;
use crate::pool::{noise, store_options};
use crate::sync_write::stack::{Plan, Site, Stack};
use crate::{Options, Row};

const NAME: &str = "files-replay";
const GOAL_PER_SECOND: f64 = 200_000.0;
/// Records of one round.
const ROUND: u64 = 5;

/// Writes records that no txg has, crashes, and times everything up to the synced end of replay.
pub(super) fn row(site: &Site, options: Options) -> Result<Row> {
    let rounds: u64 = if options.quick { 10_000 } else { 200_000 };
    let plan = Plan {
        volumes: 0,
        // Rows that no txg has stored reserve whole pages, and no txg stores any here.
        device_bytes: if options.quick { 8 << 30 } else { 32 << 30 },
        region_bytes: 4 << 30,
        pool: PoolOptions { dirty_max_bytes: 16 << 30, ..Plan::default().pool },
        ..Plan::default()
    };
    let stack = Stack::kept(site, NAME, &plan)?;
    let fs = FileSystem::create(&stack.store, "bench/files", &FileSystemOptions::default())?;
    stack.settle()?;
    stack.store.pool().freeze();
    let data = noise(1024, 5);
    for number in 0..rounds {
        let (old, new) = (format!("old-{number}"), format!("new-{number}"));
        let file = fs.make(Ino::ROOT, old.as_bytes(), &new_file(0o644))?.ino;
        fs.write(file, 0, &data, WriteHow::default())?;
        let set = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
        fs.set_attributes(file, &set)?;
        fs.rename((Ino::ROOT, old.as_bytes()), (Ino::ROOT, new.as_bytes()), RenameHow::Replace)?;
        if number % 2 == 0 {
            fs.unlink(Ino::ROOT, new.as_bytes())?;
        } else {
            fs.link(file, Ino::ROOT, old.as_bytes())?;
        }
        if number % 1000 == 999 {
            fs.sync_all()?;
        }
    }
    fs.sync_all()?;
    ensure!(stack.fallbacks() == 0, "changes that are not in the log");
    drop(fs);
    drop(stack);
    let (mut records, mut imported) = (0, None);
    let ns = time_ns(|| {
        let device = Device::open(site.place.path(NAME))?;
        let region = PoolLog::open_region(&site.memory.path(NAME), true)?;
        let mut parts = Given { devices: vec![device], regions: vec![RegionParts::of(region)?] };
        let options = store_options(PoolOptions::default(), Tuning::default());
        let (store, report) = Store::import(&mut parts, options)?;
        records = report.records;
        imported = Some(store);
        Ok(())
    })?;
    ensure!(records > rounds * (ROUND - 1), "{records} records of {rounds} rounds were replayed");
    drop(imported);
    site.place.remove(NAME)?;
    std::fs::remove_file(site.memory.path(NAME))?;
    let per_second = records as f64 / (ns / 1e9);
    Ok(Row {
        name: format!("import and replay of {records} records of mixed types"),
        value: Some(per_second),
        unit: "records/s",
        goal: Some(format!("at least {GOAL_PER_SECOND:.0}/s")),
        met: Some(per_second >= GOAL_PER_SECOND),
        medium: site.medium(),
        threads: 1,
        ..Row::default()
    })
}
