//! `fastness crashcheck litmus`.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use fastness_crashcheck::litmus::{self, LitmusArgs, ModeOverride};
use fastness_pm_model::Rules;
use fastness_terminal::Outcome;

use crate::error::Result;

pub(crate) const EXAMPLES: &str = "\
Examples:
  fastness crashcheck litmus crates/crashcheck/litmus/*.json
  fastness crashcheck litmus --mode dissertation --json mine.json
Exit code 1 if a program's crash states are not those that its file lists.";

/// The rules that decide which images are allowed.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum ModeArg {
    /// What the CPU architecture guarantees
    Arch,
    /// The stricter model of the dissertation
    Dissertation,
}

/// Arguments of `fastness crashcheck litmus`.
#[derive(Debug, Args)]
pub struct LitmusFiles {
    /// Litmus files
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Judge by these rules, overriding the files
    #[arg(long, value_enum)]
    mode: Option<ModeArg>,
    /// Do not order non-temporal stores to the same line, overriding the files
    #[arg(long)]
    strict_nt: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: LitmusFiles, out: &mut dyn Write) -> Result<Outcome> {
    let LitmusFiles { files, mode, strict_nt, json } = args;
    let rules = mode.map(|mode| match mode {
        ModeArg::Arch => Rules::Arch,
        ModeArg::Dissertation => Rules::Dissertation,
    });
    let strict_nt = strict_nt.then_some(true);
    let agrees = litmus::run(&LitmusArgs { files, mode: ModeOverride { rules, strict_nt }, json }, out)?;
    Ok(if agrees { Outcome::Clean } else { Outcome::Found })
}
