//! How fast a full region is claimed and replayed.

use fastness_pmem::WriteMethod;
use fastness_prb::{HdlHeader, OnLoss, Prb, Txg, Wait};

use super::work::{CHUNKS, REGION_BYTES, config};
use crate::error::{Result, ensure};
use crate::measure::{Spread, time_ns};
use crate::medium::{cut, emulated_pm, medium_name};
use crate::{Options, Row};

const GOAL: f64 = 2.0;

/// Claim (scan, and a dry run that reads every body) and replay into a buffer, per byte of body.
pub(super) fn claim_and_replay(options: Options) -> Result<Row> {
    let body = vec![0xa5; 4096];
    let prb = Prb::format(config(), cut(emulated_pm(REGION_BYTES, WriteMethod::Auto)?, CHUNKS)?)?;
    let mut hdl = prb.setup_hdl(&HdlHeader::NoZil)?;
    let header = hdl.create_log()?.expect("a new log").into_header();
    hdl.header_synced()?;
    while hdl.write_dependent_entry(Txg(1), &body, Wait::Fail).is_ok() {}
    drop(hdl);
    let bytes = prb.stats().body_bytes;
    let mut ranges = prb.close().map_err(|(_, misuse)| misuse)?;
    let mut gigabytes_per_s = Vec::new();
    for _ in 0..if options.quick { 7 } else { 21 } {
        let prb = Prb::open(config(), ranges)?;
        let mut hdl = prb.setup_hdl(&header)?;
        let mut buffer = vec![0; body.len()];
        let mut replayed = 0;
        let ns = time_ns(|| {
            let _update = hdl.claim(Txg(1), OnLoss::Fail)?;
            prb.finish_claiming()?;
            replayed = hdl.replay(|entry, _update| entry.read_body(&mut buffer))?.entries;
            Ok(())
        })?;
        ensure!(replayed as u64 * body.len() as u64 == bytes, "replayed {replayed} entries");
        gigabytes_per_s.push(bytes as f64 / ns);
        drop(hdl);
        ranges = prb.close().map_err(|(_, misuse)| misuse)?;
    }
    let value = Spread::of(gigabytes_per_s).median;
    Ok(Row {
        name: format!("claim + replay of {} MiB, 4096 B entries", REGION_BYTES >> 20),
        value: Some(value),
        unit: "GB/s",
        goal: Some(format!("at least {GOAL} GB/s")),
        met: Some(value >= GOAL),
        medium: medium_name(),
        threads: 1,
        ..Row::default()
    })
}
