//! `fastness log`: the record log in one region; the logs of pools.

mod create;
mod dump;
mod info;
mod pool;
mod recover;
mod report;
mod verify;
mod write;

use std::io::Write;
use std::path::Path;

use clap::Subcommand;
use fastness_pmem::{OpenOptions as RegionOptions, PmRange, Region};
use fastness_terminal::Outcome;

use crate::error::{Context, Result};

/// Commands on a log.
#[derive(Debug, Subcommand)]
pub(crate) enum LogCommand {
    /// Create an empty log in a new file, or on a device
    #[command(after_help = create::EXAMPLES)]
    Create(create::CreateArgs),
    /// Append records; each is durable when it is acknowledged
    #[command(after_help = write::EXAMPLES)]
    Write(write::WriteArgs),
    /// Read the records that a crash left, and start an empty log
    #[command(after_help = recover::EXAMPLES)]
    Recover(recover::RecoverArgs),
    /// Show the logs of running pools, volume by volume
    #[command(after_help = pool::SHOW)]
    Show(pool::ShowArgs),
    /// Show the contents of a record log, or of the log of a pool that is not running; changes nothing
    #[command(after_help = dump::EXAMPLES)]
    Dump(dump::DumpArgs),
    /// Check the contents of a record log, or of the log of a pool that is not running; exit code 1 if there
    /// is damage
    Verify(verify::VerifyArgs),
    /// Show a log's region: its kind, its chunks, and what survives a crash
    Info(info::InfoArgs),
}

pub(crate) fn run(command: LogCommand, out: &mut dyn Write) -> Result<Outcome> {
    match command {
        LogCommand::Create(args) => create::run(&args, out),
        LogCommand::Write(args) => write::run(&args, out),
        LogCommand::Recover(args) => recover::run(&args, out),
        LogCommand::Show(args) => pool::show(&args, out),
        LogCommand::Dump(args) => dump::run(&args, out),
        LogCommand::Verify(args) => verify::run(&args, out),
        LogCommand::Info(args) => info::run(&args, out),
    }
}

/// Opens the region of an existing log, exclusively.
fn open_region(path: &Path) -> Result<PmRange> {
    let region = Region::open(path, &RegionOptions::new());
    Ok(region.with_context(|| format!("cannot open the log {}", path.display()))?.into_range())
}
