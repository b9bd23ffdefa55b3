//! Parameters that have no goal: how the write method, alignment, entry size and chunk size matter, another
//! PM log beside ours, and exact counts.

use fastness_pmem::WriteMethod;
use fastness_prb::{Alignment, Config, HEADER_BYTES};

use super::work::{CHUNKS, REGION_BYTES, Writer, config, entries_per_turn};
use super::write::against_floor;
use crate::error::Result;
use crate::measure::{Pair, Spread, by_turns};
use crate::medium::{cut, emulated_pm, medium_name, two_sides};
use crate::pmemlog::PmemLog;
use crate::{Options, Row};

const TURNS: usize = 101;

pub(super) fn rows(_options: Options) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for body_bytes in [64, 256, 1024, 4096, 16384, 65536] {
        for alignment in [Alignment::Line, Alignment::Optane] {
            let config = Config { alignment, ..config() };
            let row = against_floor(config, body_bytes, TURNS, None)?;
            let name = format!("{}, aligned to {}", row.name, alignment.bytes());
            rows.push(Row { name, ..row });
        }
    }
    for body_bytes in [256, 4096] {
        rows.push(flush_against_nt(body_bytes)?);
    }
    for chunks in [128, 1024, 8192] {
        rows.push(chunk_size(chunks)?);
    }
    for body_bytes in [64, 256, 4096, 65536] {
        rows.push(against_pmemlog(body_bytes)?);
    }
    for body_bytes in [64, 256, 4096, 65536] {
        for alignment in [Alignment::Line, Alignment::Optane] {
            rows.push(exact(body_bytes, alignment));
        }
    }
    Ok(rows)
}

fn compare(name: String, pair: &Pair, baseline: &str) -> Row {
    let (value, base) = (Spread::of(pair.a.clone()).median, Spread::of(pair.b.clone()).median);
    Row {
        name,
        value: Some(value),
        unit: "ns",
        baseline: Some(format!("{baseline}, {base:.0} ns")),
        ..Row::ratio(pair.ratio(), None)
    }
}

fn flush_against_nt(body_bytes: usize) -> Result<Row> {
    let (body, count) = (vec![0xa5; body_bytes], entries_per_turn(body_bytes));
    // A region has one write method, so two regions are compared; a pair of turns swaps only the order.
    let side = |method| Writer::new(config(), cut(emulated_pm(REGION_BYTES / 2, method)?, CHUNKS)?);
    let (mut flush, mut nt) = (side(WriteMethod::StoreFlush)?, side(WriteMethod::NonTemporal)?);
    let pair = by_turns(TURNS, count, || flush.turn(&body, count), || nt.turn(&body, count))?;
    Ok(compare(format!("store + flush, {body_bytes} B"), &pair, "non-temporal"))
}

/// Chunks of another size on one side, the usual on the other, dealt out in turns.
fn chunk_size(chunk_count: usize) -> Result<Row> {
    let (body, count) = (vec![0xa5; 4096], entries_per_turn(4096));
    let (ours, theirs) = two_sides(emulated_pm(REGION_BYTES, WriteMethod::Auto)?, CHUNKS)?;
    let mut small = Vec::new();
    for chunk in ours {
        small.extend(cut(chunk, chunk_count / CHUNKS)?);
    }
    let (mut other, mut usual) = (Writer::new(config(), small)?, Writer::new(config(), theirs)?);
    let pair = by_turns(TURNS, count, || other.turn(&body, count), || usual.turn(&body, count))?;
    let kib = |count: usize| (REGION_BYTES / 2 / count) >> 10;
    Ok(compare(format!("chunks of {} KiB, 4096 B", kib(chunk_count)), &pair, &format!("{} KiB", kib(CHUNKS))))
}

fn against_pmemlog(body_bytes: usize) -> Result<Row> {
    let (body, count) = (vec![0xa5; body_bytes], entries_per_turn(body_bytes));
    let mut other = match PmemLog::create(REGION_BYTES) {
        Ok(log) => log,
        Err(error) => {
            let name = format!("against libpmemlog, {body_bytes} B: not measured, {error:#}");
            return Ok(Row { name, medium: medium_name(), threads: 1, ..Row::default() });
        }
    };
    let mut ours = Writer::new(config(), cut(emulated_pm(REGION_BYTES, WriteMethod::Auto)?, CHUNKS)?)?;
    let pair = by_turns(TURNS, count, || ours.turn(&body, count), || other.turn(&body, count))?;
    Ok(compare(format!("write entry, {body_bytes} B, beside libpmemlog"), &pair, "libpmemlog append"))
}

/// Bytes written to PM for an entry; `crates/prb/tests/life_cycle.rs` counts stores, fences and flushes.
fn exact(body_bytes: usize, alignment: Alignment) -> Row {
    let bytes = HEADER_BYTES + body_bytes.next_multiple_of(alignment.bytes()) + HEADER_BYTES;
    Row {
        name: format!(
            "exact: {body_bytes} B aligned to {}: {bytes} B to PM, 2 fences, {} flushes with store + flush, 0 without",
            alignment.bytes(),
            bytes / 64
        ),
        value: Some(bytes as f64),
        unit: "B",
        medium: "any".to_owned(),
        threads: 1,
        ..Row::default()
    }
}
