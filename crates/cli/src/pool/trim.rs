//! `fastness pool trim`.

use std::io::Write;

use clap::Args;
use fastness_daemon::{JobReport, Request};
use fastness_terminal::Outcome;

use crate::connect::ask;
use crate::error::Result;
use crate::pool::long;
use crate::status::job;

pub(super) const HELP: &str = "\
Examples:
  fastness pool trim tank              start it
  fastness pool trim tank --wait       start it, and show its progress
  fastness pool trim tank /dev/sdb     of one device only
  fastness pool trim tank --cancel
Disks and files then need not keep what is free in the pool. It goes on after an import. With
`fastness pool set autotrim=on tank`, what is freed from then on is discarded every few seconds.";

/// Arguments of `fastness pool trim`.
#[derive(Debug, Args)]
pub(crate) struct TrimArgs {
    /// The pool
    pool: String,
    /// Only this device
    #[arg(conflicts_with = "cancel")]
    device: Option<String>,
    /// End a trim that is under way
    #[arg(short, long, conflicts_with = "wait")]
    cancel: bool,
    /// Wait until it is done, and show the progress
    #[arg(short, long)]
    wait: bool,
}

pub(super) fn run(args: TrimArgs, out: &mut dyn Write) -> Result<Outcome> {
    let TrimArgs { pool, device, cancel, wait } = args;
    if cancel {
        let report: Option<JobReport> = ask(&pool, &Request::CancelTrim)?;
        let text = report.map_or_else(|| "nothing was running".to_owned(), |report| job(&report));
        writeln!(out, "{text}")?;
        return Ok(Outcome::Clean);
    }
    long(&pool, &Request::Trim { device, wait }, wait, out)
}
