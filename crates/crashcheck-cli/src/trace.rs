//! `fastness crashcheck trace`.

mod record;

use std::fs::File;
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use fastness_crashcheck::trace::{Filter, show};
use fastness_crashcheck_trace::{Header, Reader, Region, Writer, vinter};
use fastness_terminal::Outcome;
use fastness_terminal::size;

use crate::error::{Context, Result};
use crate::explain;
use crate::options::SymbolArgs;

const SHOW_EXAMPLES: &str = "\
Examples:
  fastness crashcheck trace show run.trace
  fastness crashcheck trace show run.trace --line 0x10040      what happened to one cache line
  fastness crashcheck trace show run.trace --from 1000 --count 20
  fastness crashcheck trace show run.trace --json | jq 'select(.event == \"ntstore\")'
A trace that is damaged or cut off is shown up to there; then the offset is said, and the exit code is 6.";

const VINTER_EXAMPLES: &str = "\
Examples:
  fastness crashcheck trace from-vinter trace.bin run.trace --size 128M
  fastness crashcheck trace to-vinter run.trace trace.bin";

/// Commands about traces.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Run a program, and record what it does to the files that are its persistent memory
    #[command(after_help = record::EXAMPLES)]
    Record(record::RecordArgs),
    /// Print a trace
    #[command(after_help = SHOW_EXAMPLES)]
    Show(ShowArgs),
    /// Print what is pending, and not yet durable, at an event
    #[command(after_help = explain::STATE_EXAMPLES)]
    State(explain::StateArgs),
    /// Convert a trace that Vinter wrote
    #[command(after_help = VINTER_EXAMPLES)]
    FromVinter(FromVinterArgs),
    /// Convert a trace to Vinter's format, which has no disks, threads or initial contents
    #[command(after_help = VINTER_EXAMPLES)]
    ToVinter(ToVinterArgs),
}

/// Arguments of `trace show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    trace: PathBuf,
    /// Only events of the cache line at this address: 4096 or 0x1000
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    line: Option<u64>,
    /// Number of the first event
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    from: u64,
    /// Number of events at most
    #[arg(long, value_name = "NUMBER")]
    count: Option<u64>,
    /// Print JSON, one object a line: the header, then each event
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    symbols: SymbolArgs,
}

/// Arguments of `trace from-vinter`.
#[derive(Debug, Args)]
pub struct FromVinterArgs {
    vinter: PathBuf,
    trace: PathBuf,
    /// Length of the persistent memory; Vinter's traces do not contain it
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    size: u64,
}

/// Arguments of `trace to-vinter`.
#[derive(Debug, Args)]
pub struct ToVinterArgs {
    trace: PathBuf,
    vinter: PathBuf,
}

fn address(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("{text} is not an address: write 4096 or 0x1000"))
}

fn open(path: &Path) -> Result<BufReader<File>> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    Ok(BufReader::with_capacity(1 << 20, file))
}

fn create(path: &Path) -> Result<File> {
    File::create_new(path).with_context(|| format!("cannot create {}", path.display()))
}

pub(crate) fn run(command: TraceCommand, out: &mut dyn Write) -> Result<Outcome> {
    match command {
        TraceCommand::State(args) => return explain::state(args, out),
        TraceCommand::Record(args) => return record::run(args, out),
        TraceCommand::Show(ShowArgs { trace, line, from, count, json, symbols }) => {
            let symbols = symbols.read()?;
            let mut reader = Reader::new(open(&trace)?)?;
            show(&mut reader, Filter { line, from, count }, json, &|pc, _| symbols.find(pc), out)?;
        }
        TraceCommand::FromVinter(FromVinterArgs { vinter, trace, size }) => {
            let region = Region { name: vinter.display().to_string(), start: 0, len_bytes: size };
            let header = Header { tool: "vinter".to_owned(), regions: vec![region], devices: Vec::new() };
            let input = open(&vinter)?;
            let mut writer = Writer::new(create(&trace)?, &header)?;
            let count = vinter::import(input, &mut writer)?;
            writer.finish()?;
            writeln!(out, "{count} events")?;
        }
        TraceCommand::ToVinter(ToVinterArgs { trace, vinter }) => {
            let mut reader = Reader::new(open(&trace)?)?;
            let vinter::Exported { records, left_out } = vinter::export(&mut reader, create(&vinter)?)?;
            writeln!(
                out,
                "{records} records; {left_out} events that the format cannot express were left out"
            )?;
        }
    }
    Ok(Outcome::Clean)
}
