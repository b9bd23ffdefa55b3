//! Import of a pool whose log is full of records.

use fastness_store::{Device, Given, PoolLog, PoolOptions, RegionParts, Store, Tuning};

use super::stack::{BLOCK_BYTES, Plan, Site, Stack};
use crate::error::{Result, ensure};
use crate::measure::{Spread, time_ns};
use crate::pool::{noise, store_options};
use crate::{Options, Row};

const GOAL_MS: f64 = 5000.0;

pub(super) fn row(site: &Site, options: Options) -> Result<Row> {
    let data_bytes: u64 = if options.quick { 128 << 20 } else { 1 << 30 };
    let plan = Plan {
        volume_bytes: data_bytes,
        device_bytes: (data_bytes * 3).max(1 << 30),
        // Below the share from which on writers sleep.
        region_bytes: data_bytes * 5 / 2,
        pool: PoolOptions { dirty_max_bytes: data_bytes * 8, ..Plan::default().pool },
        ..Plan::default()
    };
    let mut times = Vec::new();
    for _ in 0..if options.quick { 1 } else { 3 } {
        times.push(once(site, &plan, data_bytes)?);
    }
    let ms = Spread::of(times).median / 1e6;
    let quick = if options.quick { " (a full run has 1024 MiB)" } else { "" };
    // The goal is for 1 GiB; less of it has as much less time.
    let goal_ms = GOAL_MS * data_bytes as f64 / (1u64 << 30) as f64;
    Ok(Row {
        name: format!("import and replay of {} MiB in records of 4 KiB{quick}", data_bytes >> 20),
        value: Some(ms),
        unit: "ms",
        goal: Some(format!("at most {goal_ms:.0} ms")),
        met: Some(ms <= goal_ms),
        medium: site.medium(),
        threads: 1,
        ..Row::default()
    })
}

/// Writes records that no txg has, crashes, and times everything up to the synced end of replay.
fn once(site: &Site, plan: &Plan, data_bytes: u64) -> Result<f64> {
    const NAME: &str = "replay";
    let blocks = data_bytes / BLOCK_BYTES;
    let stack = Stack::kept(site, NAME, plan)?;
    stack.store.pool().freeze();
    let data = noise(BLOCK_BYTES as usize, 11);
    for at in 0..blocks {
        let block = at.wrapping_mul(0x9e37_79b9_7f4a_7c15) % blocks;
        stack.volumes[0].write(block * BLOCK_BYTES, &data, true)?;
    }
    ensure!(stack.fallbacks() == 0, "writes that are not in the log");
    drop(stack);
    let mut records = 0;
    let mut imported = None;
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
    ensure!(records == blocks, "{records} records were replayed, {blocks} were written");
    drop(imported);
    site.place.remove(NAME)?;
    std::fs::remove_file(site.memory.path(NAME))?;
    Ok(ns)
}
