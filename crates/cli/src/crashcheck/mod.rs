//! `fastness crashcheck`.

mod litmus;
mod trace;

use std::io::Write;

use clap::Subcommand;

use crate::exit::Outcome;

/// Commands of the crash checker.
#[derive(Debug, Subcommand)]
pub(crate) enum CrashcheckCommand {
    /// Judge litmus files: small programs with known sets of crash states
    #[command(after_help = litmus::EXAMPLES)]
    Litmus(litmus::LitmusFiles),
    /// Record traces, look at them, and turn them into those of other testers
    #[command(subcommand)]
    Trace(trace::TraceCommand),
}

pub(crate) fn run(command: CrashcheckCommand, out: &mut dyn Write) -> anyhow::Result<Outcome> {
    match command {
        CrashcheckCommand::Litmus(args) => litmus::run(args, out),
        CrashcheckCommand::Trace(command) => trace::run(command, out),
    }
}
