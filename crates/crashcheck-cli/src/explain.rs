//! `fastness crashcheck explain` and `fastness crashcheck trace state`.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use fastness_base::{AnyError, ErrorKind};
use fastness_crashcheck::explain::{ExplainedLine, Kept, Pending, Store, explain, pending_at};
use fastness_crashcheck::generate::{Layout, Outline};
use fastness_crashcheck::image::Image;
use fastness_crashcheck::trace::open_trace;
use fastness_terminal::Outcome;

use crate::error::{Context, Result, refuse};
use crate::options::{ImageArgs, Subject, SymbolArgs, Symbols};

pub(crate) const EXPLAIN_EXAMPLES: &str = "\
Examples:
  fastness crashcheck explain run.trace images/0c1b2a3f.../pm0 --at 1234
Says of each store that was pending there whether the image has it. --at is a failure point of the image (index.json of
`crashcheck images`, or a report). With several regions, name their files in the order of the trace.";

pub(crate) const STATE_EXAMPLES: &str = "\
Examples:
  fastness crashcheck trace state run.trace --at 1234
  fastness crashcheck trace state run.trace                  what is not durable at the end";

/// Arguments of `crashcheck explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    trace: PathBuf,
    /// The crash image: a file for each region
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<PathBuf>,
    /// Number of the first event after the crash
    #[arg(long, value_name = "EVENT")]
    at: u64,
    #[command(flatten)]
    symbols: SymbolArgs,
    #[command(flatten)]
    machine: ImageArgs,
}

/// Arguments of `trace state`.
#[derive(Debug, Args)]
pub struct StateArgs {
    trace: PathBuf,
    /// Number of the first event that has not happened yet; default: the end of the trace
    #[arg(long, value_name = "EVENT")]
    at: Option<u64>,
    #[command(flatten)]
    symbols: SymbolArgs,
    #[command(flatten)]
    machine: ImageArgs,
}

fn pending(trace: &Path, machine: &ImageArgs, at: u64) -> Result<Pending> {
    let options = machine.config(Subject::Program).options(Outline::default());
    Ok(pending_at(&mut open_trace(trace)?, options.config, options.memory_max_bytes, at)?)
}

pub(crate) fn run(args: ExplainArgs, out: &mut dyn Write) -> Result<Outcome> {
    let symbols = args.symbols.read()?;
    let pending = pending(&args.trace, &args.machine, args.at)?;
    let layout = pending.replay.layout().clone();
    let image = read(&layout, &args.images)?;
    let Some(lines) = explain(&pending, &image) else {
        return Err(refuse(format!(
            "just before event {}, the image is not possible, or {} has another image there",
            args.at,
            args.trace.display()
        )));
    };
    let lost = lines.iter().filter(|line| line.has_lost()).count();
    writeln!(
        out,
        "just before event {}: {} pending lines; the image has lost something from {lost} of them",
        args.at,
        lines.len()
    )?;
    lines.iter().try_for_each(|line| write_line(&layout, line, true, &symbols, out))?;
    Ok(Outcome::Clean)
}

pub(crate) fn state(args: StateArgs, out: &mut dyn Write) -> Result<Outcome> {
    let symbols = args.symbols.read()?;
    let pending = pending(&args.trace, &args.machine, args.at.unwrap_or(u64::MAX))?;
    let layout = pending.replay.layout().clone();
    let everything = pending.replay.machine().volatile();
    let lines = explain(&pending, &everything)
        .ok_or_else(|| AnyError::new(ErrorKind::Bug, "the image with every store must be possible"))?;
    writeln!(out, "pending lines: {}", lines.len())?;
    if let Some(checkpoint) = pending.replay.checkpoint() {
        writeln!(out, "after checkpoint {checkpoint}")?;
    }
    for (number, disk) in pending.replay.disks().iter().enumerate() {
        writeln!(out, "disk {number}, pending blocks: {}", disk.pending_blocks())?;
    }
    lines.iter().try_for_each(|line| write_line(&layout, line, false, &symbols, out))?;
    Ok(Outcome::Clean)
}

/// Joins the files of the regions.
fn read(layout: &Layout, files: &[PathBuf]) -> Result<Image> {
    if files.len() != layout.parts().len() {
        return Err(refuse(format!(
            "{} files for the {} regions of the trace",
            files.len(),
            layout.parts().len()
        )));
    }
    let mut image = Image::zeroed(layout.len_bytes());
    for (path, part) in files.iter().zip(layout.parts()) {
        let cannot = |what| format!("cannot {what} {}", path.display());
        let file = File::open(path).with_context(|| cannot("open"))?;
        let len_bytes = file.metadata().with_context(|| cannot("read"))?.len();
        if len_bytes != part.region.len_bytes {
            let (region, wanted) = (&part.region.name, part.region.len_bytes);
            return Err(refuse(format!(
                "{} has {len_bytes} bytes, but {region} has {wanted}",
                path.display()
            )));
        }
        image.read_into(part.offset, &file, len_bytes).with_context(|| cannot("read"))?;
    }
    Ok(image)
}

fn write_line(
    layout: &Layout,
    line: &ExplainedLine,
    with_fate: bool,
    symbols: &Symbols,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    let (address, region) = match layout.address_of(line.offset) {
        Some((address, region)) => (address, region.name.as_str()),
        None => (line.offset, ""),
    };
    writeln!(out, "line {address:#x} of {region}")?;
    for (index, (store, kept)) in line.stores.iter().enumerate() {
        let fate = match kept {
            _ if !with_fate => "",
            Kept::Whole => "kept  ",
            Kept::Part => "torn  ",
            Kept::Lost => "lost  ",
        };
        writeln!(out, "  {fate}{}", store_text(store, address, index < line.flushed, symbols))?;
    }
    Ok(())
}

fn store_text(store: &Store, address: u64, is_flushed: bool, symbols: &Symbols) -> String {
    let name = match (store.is_non_temporal, store.is_locked) {
        (true, _) => "ntstore",
        (_, true) => "rmw",
        _ => "store",
    };
    let data: String = store.data.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    let flushed = if is_flushed { ", flushed" } else { "" };
    let at = store.pc.map_or_else(String::new, |pc| match symbols.find(pc) {
        Some(symbol) => format!(" at {pc:#x} {symbol}"),
        None => format!(" at {pc:#x}"),
    });
    let start = address + store.start as u64;
    format!("event {} {name} {start:#x} +{} {data}{at}{flushed}", store.event, store.data.len())
}
