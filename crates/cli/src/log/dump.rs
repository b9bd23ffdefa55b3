//! `fastness log dump`.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use fastness_pmem::PmRange;
use fastness_pmlog::{ChunkSurvey, EntrySurvey, FormatError, HeaderSlot, Superblock, Survey};
use fastness_prb::HdlHeader;
use fastness_terminal::{Outcome, size};
use serde_json::{Value, json};

use crate::error::{Result, refuse};
use crate::log::{open_region, pool, report};

pub(super) const EXAMPLES: &str = "\
Examples:
  fastness log dump orders.log                 superblocks, header slots, and the entries of each chunk
  fastness log dump orders.log --headers       superblocks and header slots only
  fastness log dump orders.log --chunk 3 --bodies
  fastness log dump tank -d /srv/disks         the log of a pool: headers, chunks or blocks, records
The log is only read. A damaged part does not hide the others.";

/// Arguments of `fastness log dump`.
#[derive(Debug, Args)]
pub(crate) struct DumpArgs {
    /// File or device of a record log; or the name of a pool, if no file has this name
    file: PathBuf,
    /// Device of the pool, or a folder with its devices; may be repeated
    #[arg(short, long = "device", value_name = "PATH")]
    devices: Vec<PathBuf>,
    /// Show superblocks and header slots only
    #[arg(long, conflicts_with_all = ["bodies", "chunk"])]
    headers: bool,
    /// Show the bodies of the entries, too
    #[arg(long)]
    bodies: bool,
    /// Print JSON, one object a line: the blocks in front, then each chunk
    #[arg(long)]
    json: bool,
    /// Show this chunk only
    #[arg(long, value_name = "N")]
    chunk: Option<usize>,
}

pub(super) fn run(args: &DumpArgs, out: &mut dyn Write) -> Result<Outcome> {
    if pool::is_pool(&args.file) {
        return pool::dump(&args.file, &args.devices, args.json, out);
    }
    let survey = Survey::new(open_region(&args.file)?);
    if let Some(chunk) = args.chunk.filter(|&chunk| chunk >= survey.chunks()) {
        return Err(refuse(format!("there is no chunk {chunk}; the region has {} chunks", survey.chunks())));
    }
    if args.json {
        front_json(&survey, out)?;
    } else {
        front(&survey, out)?;
    }
    if args.headers {
        return Ok(Outcome::Clean);
    }
    let chunks = args.chunk.map_or(0..survey.chunks(), |chunk| chunk..chunk + 1);
    for index in chunks {
        let chunk = survey.chunk(index);
        if args.json {
            writeln!(out, "{}", chunk_json(&survey, index, &chunk, args.bodies))?;
        } else if !(chunk.entries.is_empty() && args.chunk.is_none() && !chunk.is_damaged()) {
            show_chunk(&survey, index, &chunk, args.bodies, out)?;
        }
    }
    if !args.json && args.chunk.is_none() {
        writeln!(out, "the other chunks are empty")?;
    }
    Ok(Outcome::Clean)
}

fn front(survey: &Survey<PmRange>, out: &mut dyn Write) -> io::Result<()> {
    for (name, copy) in ["superblock", "superblock copy"].iter().zip(survey.superblocks()) {
        match copy {
            Ok(Superblock { uuid, geometry }) => writeln!(
                out,
                "{name}: log {uuid}, region of {}, {} chunks of {}, alignment {}, checksum {}",
                size::show(geometry.region_bytes),
                geometry.chunks,
                size::show(geometry.chunk_bytes),
                geometry.alignment.bytes(),
                geometry.checksum.name()
            )?,
            Err(error) => writeln!(out, "{name}: {}", chain(error))?,
        }
    }
    for (name, slot) in ["A", "B"].iter().zip(survey.slots()) {
        match slot {
            Ok(slot) => writeln!(
                out,
                "header slot {name}: sequence {}, {} synced, log number {}, {}",
                slot.sequence,
                slot.synced,
                slot.log_number,
                header(&slot.header)
            )?,
            Err(error) => writeln!(out, "header slot {name}: {}", chain(error))?,
        }
    }
    if let Ok(superblock) = survey.superblock() {
        let missing = superblock.geometry.chunks - survey.chunks() as u64;
        if missing > 0 {
            let len = size::show(survey.len_bytes());
            writeln!(out, "the region has only {len}: {missing} chunks are missing")?;
        }
    } else {
        writeln!(out, "without a superblock, the places of the chunks are unknown")?;
    }
    Ok(())
}

fn chain(error: &FormatError) -> String {
    use std::error::Error;
    error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

fn header(header: &HdlHeader) -> String {
    match header {
        HdlHeader::NoZil => "no log".into(),
        HdlHeader::Logging { log } => format!("logging {log}"),
        HdlHeader::Replaying(replaying) => {
            format!("recovery of {} has begun, from {} on", replaying.log, replaying.first_txg)
        }
    }
}

/// Whether recovery would use the entry.
fn standing(slot: Option<&HeaderSlot>, entry: &EntrySurvey) -> &'static str {
    let header = &entry.entry.header;
    let Some(slot) = slot else { return "unknown" };
    let log = match &slot.header {
        HdlHeader::NoZil => None,
        HdlHeader::Logging { log } => Some(*log),
        HdlHeader::Replaying(replaying) => Some(replaying.log),
    };
    if log != Some(header.log) {
        "other log"
    } else if header.txg <= slot.synced {
        "trimmed"
    } else {
        "needed"
    }
}

fn show_chunk(
    survey: &Survey<PmRange>,
    index: usize,
    chunk: &ChunkSurvey,
    bodies: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    let (start, end) = (chunk.region_offset, chunk.region_offset + chunk.len_bytes);
    writeln!(out, "chunk {index} at {start:#x}..{end:#x}, {} entries", chunk.entries.len())?;
    if !chunk.entries.is_empty() {
        writeln!(
            out,
            "  {:>12} {:8} {:>6} {:>12} {:>20} {:>9}  {:9} body",
            "offset", "log", "txg", "gen.gsid", "counters", "bytes", "standing"
        )?;
    }
    for entry in &chunk.entries {
        let header = &entry.entry.header;
        let place = format!("{}.{}", header.id.generation.0, header.id.gsid.0);
        let [newest, before, oldest] = header.counters.counts;
        let counters = format!("{}:{newest},{before},{oldest}", header.counters.newest.0);
        let log = &header.log.to_string()[..8];
        let body = entry.body.as_ref().map_or_else(ToString::to_string, |()| "ok".into());
        writeln!(
            out,
            "  {:#12x} {log:8} {:>6} {place:>12} {counters:>20} {:>9}  {:9} {body}",
            entry.region_offset,
            header.txg.0,
            header.body_len_bytes,
            standing(survey.slot().ok(), entry)
        )?;
        if bodies && let Ok(body) = survey.read_body(index, &entry.entry) {
            writeln!(out, "               \"{}\"", body.escape_ascii())?;
        }
    }
    writeln!(out, "  ends at {:#x}: {:?}", chunk.end.region_offset, chunk.end.end)?;
    if let Some((offset, entry)) = chunk.behind {
        writeln!(out, "  DAMAGE: {} follows at {offset:#x}, after the end", entry.header.id)?;
    }
    Ok(())
}

fn front_json(survey: &Survey<PmRange>, out: &mut dyn Write) -> io::Result<()> {
    let superblocks = survey.superblocks().each_ref().map(|copy| match copy {
        Ok(Superblock { uuid, geometry }) => {
            json!({"uuid": uuid.to_string(), "geometry": report::geometry_json(geometry)})
        }
        Err(error) => json!({"error": chain(error)}),
    });
    let slots = survey.slots().each_ref().map(|slot| match slot {
        Ok(slot) => json!({
            "sequence": slot.sequence,
            "synced_txg": slot.synced.0,
            "log_number": slot.log_number,
            "committers": slot.committers,
            "unsafe_shutdowns": slot.unsafe_shutdowns,
            "header": header(&slot.header),
        }),
        Err(error) => json!({"error": chain(error)}),
    });
    writeln!(
        out,
        "{}",
        json!({"region_bytes": survey.len_bytes(), "superblocks": superblocks, "header_slots": slots})
    )
}

fn chunk_json(survey: &Survey<PmRange>, index: usize, chunk: &ChunkSurvey, bodies: bool) -> Value {
    let entries: Vec<Value> = chunk
        .entries
        .iter()
        .map(|entry| {
            let header = &entry.entry.header;
            let body = if bodies { survey.read_body(index, &entry.entry).ok() } else { None };
            json!({
                "region_offset": entry.region_offset,
                "log": header.log.to_string(),
                "txg": header.txg.0,
                "generation": header.id.generation.0,
                "gsid": header.id.gsid.0,
                "counters": {"newest_txg": header.counters.newest.0, "counts": header.counters.counts},
                "body_bytes": header.body_len_bytes,
                "standing": standing(survey.slot().ok(), entry),
                "error": entry.body.err().map(|error| error.to_string()),
                "body": body.map(|body| body.escape_ascii().to_string()),
            })
        })
        .collect();
    json!({
        "chunk": index,
        "region_offset": chunk.region_offset,
        "len_bytes": chunk.len_bytes,
        "entries": entries,
        "ends_at": chunk.end.region_offset,
        "end": format!("{:?}", chunk.end.end),
        "behind": chunk.behind.map(|(offset, _)| offset),
    })
}
