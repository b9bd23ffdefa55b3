//! The logs of pools: `fastness log show`, and `dump` and `verify` of a pool that is not running.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use fastness_daemon::{LogCauseReport, PoolReport, Request};
use fastness_lwb::Found;
use fastness_store::survey::{ChunkFound, DryClaim, LogSurvey, RegionsFound, record};
use fastness_store::{Consent, Local, LogImportStep, Places};
use fastness_terminal::size::short;
use fastness_terminal::{Outcome, fields, note};
use serde_json::json;

use crate::connect::{ask_all, print_json};
use crate::error::{Result, refuse};
use crate::offline;
use crate::table::table;

pub(super) const SHOW: &str = "\
Examples:
  fastness log show              the logs of all running pools, volume by volume
  fastness log show tank --json
Offline: `fastness log dump tank` and `fastness log verify tank`.";

/// Arguments of `fastness log show`.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The pool; default: all running pools
    pool: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn show(args: &ShowArgs, out: &mut dyn Write) -> Result<Outcome> {
    let pools: Vec<PoolReport> = ask_all(args.pool.as_deref(), &Request::Status)?;
    if args.json {
        let logs: Vec<_> = pools.iter().map(|pool| json!({"pool": pool.name, "log": pool.log})).collect();
        print_json(out, &logs)?;
        return Ok(Outcome::Clean);
    }
    for pool in &pools {
        let Some(log) = &pool.log else {
            writeln!(out, "pool {}: read-only, its log is not in use", pool.name)?;
            continue;
        };
        let mut rows =
            vec![("pool", pool.name.clone()), ("kind", log.kind.clone()), ("on", log.medium.clone())];
        let region = |region: &fastness_daemon::RegionReport| {
            ("region", format!("{} ({}, {})", region.path, region.id, region.state))
        };
        rows.extend(log.regions.iter().map(region));
        fields(out, &rows)?;
        writeln!(out)?;
        let heads = [
            "RECORDS",
            "BYTES",
            "COMMITS",
            "FLUSHES",
            "COPIED",
            "NEED-COPY",
            "INDIRECT",
            "WAITS",
            "TXG INSTEAD",
            "STALLS",
        ];
        let mut columns = vec![("VOLUME", false)];
        columns.extend(heads.map(|head| (head, true)));
        columns.push(("ERRORS", true));
        let row = |name: &str, of: &fastness_daemon::LogCounters| {
            let counts = [
                of.commits,
                of.flushes,
                of.copied,
                of.need_copy,
                of.indirect,
                of.waits,
                of.fallbacks,
                of.stalls,
                of.errors,
            ];
            let mut row = vec![name.to_owned(), of.records.to_string(), short(of.bytes)];
            row.extend(counts.iter().map(u64::to_string));
            row
        };
        let mut rows: Vec<_> = log.volumes.iter().map(|volume| row(&volume.name, &volume.counters)).collect();
        rows.push(row("all", &log.total));
        table(out, &columns, rows)?;
        for volume in &log.volumes {
            for LogCauseReport { cause, fallbacks, unlogged } in &volume.causes {
                let name = &volume.name;
                writeln!(
                    out,
                    "{name}: {cause}: {fallbacks} waited for a txg, {unlogged} records not logged"
                )?;
            }
        }
        if let Some(of) = &log.medium_counters {
            writeln!(
                out,
                "regions: {} entries, {} with headers; waited: {} for a commit slot, {} for a free chunk; chunks emptied: {}, \
                 faulty: {}",
                of.entries,
                short(of.bytes),
                of.slot_waits,
                of.chunk_waits,
                of.chunks_collected,
                of.media_faults
            )?;
            if of.read_bytes + of.read_faults > 0 {
                let (bytes, faults) = (short(of.read_bytes), of.read_faults);
                writeln!(out, "read back: {bytes}; not as it was written: {faults} times")?;
            }
        }
    }
    Ok(Outcome::Clean)
}

/// Whether a word on the command line names a pool, not the file of a record log.
pub(super) fn is_pool(word: &Path) -> bool {
    word.components().count() == 1 && !word.is_absolute() && (!word.exists() || word.is_dir())
}

/// Looks at the log of a pool that is not running; nothing is changed.
fn look<T>(name: &Path, places: &[PathBuf], with: impl FnOnce(&mut LogSurvey<'_>) -> Result<T>) -> Result<T> {
    let name = name.to_str().ok_or_else(|| refuse("the name of the pool is not valid UTF-8"))?;
    if offline::is_running(name)? {
        let text = format!("pool {name} is running: export it first, or see `fastness log show {name}`");
        return Err(refuse(text));
    }
    let devices = offline::devices(name, places)?;
    // As much as there is.
    let places = Places { consent: Consent::ALL, ..Places::default() };
    let (tell, mut step) = (|text: String| note(text), |_: LogImportStep<'_>| ());
    let mut source = Local::new(&places, devices, &tell, &mut step);
    with(&mut LogSurvey::open(&mut source)?)
}

/// The chunks, and how many regions an import would leave out or refuse.
fn chunks(log: &mut LogSurvey<'_>) -> Result<(Vec<ChunkFound>, usize)> {
    let RegionsFound { chunks, missing, errors } = log.regions()?;
    errors.iter().for_each(|error| note(format_args!("damage: {error}")));
    Ok((chunks, missing + errors.len()))
}

/// Reports what an import would find.
pub(super) fn verify(name: &Path, places: &[PathBuf], out: &mut dyn Write) -> Result<Outcome> {
    look(name, places, |log| verify_log(log, out))
}

fn verify_log(log: &mut LogSurvey<'_>, out: &mut dyn Write) -> Result<Outcome> {
    let (chunks, missing) = chunks(log)?;
    let (mut damages, mut of_sides) = (0, missing);
    for region in log.config().regions.iter().filter(|region| region.is_out) {
        writeln!(out, "degraded: {} is out: nothing in it is needed", region.path.display())?;
        of_sides += 1;
    }
    if missing > 0 {
        writeln!(out, "degraded: {missing} of the log's regions cannot be used")?;
    }
    for chunk in chunks {
        for damage in chunk.side_damage() {
            writeln!(out, "damage of one side: {damage}")?;
            of_sides += 1;
        }
        if let Some(damage) = chunk.damage() {
            writeln!(out, "damage: {damage}")?;
            damages += 1;
        }
        for entry in &chunk.found.entries {
            if let (Some(volume), Err(fault)) = (log.needed(&entry.entry), &entry.record) {
                writeln!(out, "damage: {}: entry at {:#x}: {fault}", volume.name, entry.region_offset)?;
                damages += 1;
            }
        }
    }
    let DryClaim { summaries, problems } = log.claim()?;
    for problem in &problems {
        writeln!(out, "damage: {}: {}", log.name(problem.dataset), problem.cause)?;
        damages += 1;
    }
    let row = |found: &fastness_store::ClaimSummary| {
        vec![log.name(found.dataset), found.records.to_string(), short(found.bytes), found.gaps.to_string()]
    };
    let columns = [("VOLUME", false), ("TO REPLAY", true), ("BYTES", true), ("GAPS", true)];
    table(out, &columns, summaries.iter().map(row).collect())?;
    if damages == 0 && of_sides > 0 {
        note(
            "nothing is lost: an import uses the other side; afterwards replace the damaged or missing side",
        );
        return Ok(Outcome::Found);
    }
    if damages == 0 {
        return Ok(Outcome::Clean);
    }
    note(format_args!(
        "an import refuses this log. `pool import --drop-log-tail` gives up what is damaged and what comes after it, \
         `--read-only` shows the pool without its log and changes nothing; better first: another copy of the medium"
    ));
    Ok(Outcome::Found)
}

/// Shows the contents of the log.
pub(super) fn dump(name: &Path, places: &[PathBuf], is_json: bool, out: &mut dyn Write) -> Result<Outcome> {
    look(name, places, |log| dump_log(log, is_json, out))
}

fn dump_log(log: &mut LogSurvey<'_>, is_json: bool, out: &mut dyn Write) -> Result<Outcome> {
    let mut line = |text: String, value: serde_json::Value| {
        if is_json { writeln!(out, "{value}") } else { writeln!(out, "{text}") }
    };
    let regions: Vec<_> =
        log.config().regions.iter().map(|region| region.path.display().to_string()).collect();
    let kind = log.config().kind.name();
    let synced = log.synced_txg();
    line(
        format!("log of kind {kind} {}; {synced} is synced", regions.join(" ")),
        json!({"kind": kind, "regions": regions, "synced_txg": synced.0}),
    )?;
    for volume in log.volumes() {
        let header = match &volume.header {
            Ok(header) => format!("{header:?}"),
            Err(error) => format!("DAMAGE: {error}"),
        };
        line(format!("{}: {header}", volume.name), json!({"volume": volume.name, "header": header}))?;
        let mut found = Vec::new();
        let Some(ended) = log.chain(volume, &mut |each| found.push(block_or_record(each))) else { continue };
        for (text, value) in found {
            line(text, value)?;
        }
        line(format!("  ends: {ended}"), json!({"chain_ends": ended.to_string()}))?;
    }
    for each in chunks(log)?.0 {
        let (index, chunk, damage) = (each.index, &each.found, each.damage());
        if chunk.entries.is_empty() && damage.is_none() {
            continue;
        }
        line(
            format!("chunk {index} at {:#x}, {} entries", chunk.region_offset, chunk.entries.len()),
            json!({"chunk": index, "region_offset": chunk.region_offset, "entries": chunk.entries.len()}),
        )?;
        for entry in &chunk.entries {
            let of = log.needed(&entry.entry).map_or("not needed", |volume| &volume.name);
            let head = &entry.entry.header;
            let what = match &entry.record {
                Ok(Some(record)) => describe(record),
                Ok(None) => "counts what precedes it".to_owned(),
                Err(fault) => format!("DAMAGE: {fault}"),
            };
            line(
                format!("  {:#12x} txg {} {} {of}: {what}", entry.region_offset, head.txg.0, head.id),
                json!({"region_offset": entry.region_offset, "txg": head.txg.0, "id": head.id.to_string(),
                    "of": of, "record": what}),
            )?;
        }
        let ended = match &damage {
            Some(damage) => format!("DAMAGE: {damage}"),
            None => format!("ends at {:#x}: {:?}", chunk.ends_at, chunk.end),
        };
        line(format!("  {ended}"), json!({"ends_at": chunk.ends_at, "damage": damage}))?;
    }
    Ok(Outcome::Clean)
}

fn describe(found: &fastness_store::survey::RecordSurvey) -> String {
    let range =
        found.range.map_or_else(String::new, |(offset, len_bytes)| format!(" {len_bytes} bytes at {offset}"));
    let data = match &found.data {
        Some(data) => format!(", in {data}"),
        None if found.is_indirect => ", in the pool, DAMAGE: at an invalid address".to_owned(),
        None => String::new(),
    };
    format!("{:?} of object {}{range}{data}", found.record_type, found.object.0)
}

fn block_or_record(found: Found<'_>) -> (String, serde_json::Value) {
    match found {
        Found::Block(block) => (
            format!("  block {} at {}, {} bytes used", block.seq.0, block.extent.place, block.used_bytes),
            json!({"block": block.seq.0, "place": block.extent.place.to_string(), "used_bytes": block.used_bytes}),
        ),
        Found::Record(each) => {
            let found = record(each.bytes);
            let what = match &found {
                Ok(found) => describe(found),
                Err(error) => format!("DAMAGE: {error}"),
            };
            let data = found.ok().and_then(|found| found.data);
            let data = data.map(|data| {
                json!({"blocks": data.blocks, "stored_bytes": data.stored_bytes, "first": data.first.to_string()})
            });
            (
                format!("    record {} txg {}: {what}", each.lsn.0, each.txg.0),
                json!({"record": each.lsn.0, "txg": each.txg.0, "what": what, "data_in_pool": data}),
            )
        }
    }
}
