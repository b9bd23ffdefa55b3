//! The command-line program of Fastness.
//!
//! One file for each group of commands; each writes to the handle it is given, so that a closed pipe ends the
//! program quietly, and returns an [`Outcome`], which becomes the exit code.

#![forbid(unsafe_code)]

mod bench;
mod completions;
mod content;
mod crashcheck;
mod exit;
mod log;
mod output;
mod size;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::exit::Outcome;

const EXIT_CODES: &str = "\
Exit codes:
  0  done, nothing found
  1  damage, a difference or a failed goal was found (log recover, log verify, crashcheck, bench)
  2  wrong usage
  3  the request or the configuration is wrong; change it
  4  busy (for example, open elsewhere); try again later
  5  no space: trim or recover the log, enlarge the region or the file system
  6  bytes on the medium contradict themselves
  7  the medium failed; use a copy, replace it
  8  closed after an earlier failure; open it again
  9  a defect of this program
 10  input or output of the program itself failed";

/// Storage on persistent memory.
///
/// A synchronous write takes as long as the copy into persistent memory, and what was acknowledged is not lost.
/// Where there is no persistent memory, files stand in for it, and the program says what that means.
#[derive(Debug, Parser)]
#[command(name = "fastness", version, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Create, write, recover and examine a durable record log
    #[command(subcommand)]
    Log(log::LogCommand),
    /// Check crash consistency
    #[command(subcommand)]
    Crashcheck(crashcheck::CrashcheckCommand),
    /// Measure, as ratios against a floor in one run
    Bench(bench::BenchArgs),
    /// Print a completion script for a shell
    Completions(completions::CompletionsArgs),
}

fn run(cli: Cli, out: &mut dyn Write) -> anyhow::Result<Outcome> {
    match cli.command {
        Command::Log(command) => log::run(command, out),
        Command::Crashcheck(command) => crashcheck::run(command, out),
        Command::Bench(args) => bench::run(&args, out),
        Command::Completions(args) => completions::run(&args, out),
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut out = output::stdout();
    let result = run(cli, &mut out).and_then(|outcome| {
        out.flush()?;
        Ok(outcome)
    });
    exit::code(result)
}
