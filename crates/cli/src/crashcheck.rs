//! `fastness crashcheck`.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use fastness_crashcheck::litmus::{self, LitmusArgs, ModeOverride};
use fastness_pm_model::Rules;

use crate::exit::Outcome;

const EXAMPLES: &str = "\
Examples:
  fastness crashcheck litmus crates/crashcheck/litmus/*.json
  fastness crashcheck litmus --rules dissertation --json mine.json
Exit code 1 if a program's crash states are not those that its file lists.";

/// Commands of the crash checker.
#[derive(Debug, Subcommand)]
pub(crate) enum CrashcheckCommand {
    /// Judge litmus files: small programs with known sets of crash states
    #[command(after_help = EXAMPLES)]
    Litmus(LitmusFiles),
}

/// By which rules images are allowed.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum RulesArg {
    /// What the architecture promises
    Arch,
    /// The narrower model of the dissertation
    Dissertation,
}

/// Arguments of `fastness crashcheck litmus`.
#[derive(Debug, Args)]
pub(crate) struct LitmusFiles {
    /// Litmus files
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Judge by these rules, whatever the files say
    #[arg(long, value_enum)]
    rules: Option<RulesArg>,
    /// Whether non-temporal stores to one line are unordered, whatever the files say
    #[arg(long, value_name = "BOOL")]
    strict_nt: Option<bool>,
    /// For programs
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(command: CrashcheckCommand, out: &mut dyn Write) -> anyhow::Result<Outcome> {
    let CrashcheckCommand::Litmus(LitmusFiles { files, rules, strict_nt, json }) = command;
    let rules = rules.map(|rules| match rules {
        RulesArg::Arch => Rules::Arch,
        RulesArg::Dissertation => Rules::Dissertation,
    });
    let agrees = litmus::run(&LitmusArgs { files, mode: ModeOverride { rules, strict_nt }, json }, out)?;
    Ok(if agrees { Outcome::Clean } else { Outcome::Found })
}
