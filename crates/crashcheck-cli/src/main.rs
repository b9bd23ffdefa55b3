//! The crash tester as a program of its own: the same commands as `fastness crashcheck`, without pools, logs
//! and caches.

#![forbid(unsafe_code)]

use std::io::Write;
use std::process::ExitCode;

use clap::{Command, CommandFactory, FromArgMatches, Parser, Subcommand};
use fastness_crashcheck_cli::{CheckerError, CrashcheckCommand, Program};
use fastness_terminal::{CompletionsArgs, ManArgs, Outcome, completions, man};

const EXIT_CODES: &str = "\
Exit codes:
  0  done, nothing found
  1  something was found
  2  wrong usage
  3  the request or the configuration is wrong; change it
  4  busy; try again later
  5  no space
  6  the contents of a file are inconsistent
  7  a device failed
  8  closed after an earlier failure
  9  a defect of this program
 10  input or output of the program itself failed
 12  permission denied";

/// Crash-consistency tests for programs and file systems that use persistent memory.
///
/// Traces them under QEMU, makes what a crash can leave in persistent memory, recovers each such image, and
/// shows which lost store breaks which operation.
#[derive(Debug, Parser)]
#[command(name = "crashcheck", version, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Commands,
}

#[derive(Debug, Subcommand)]
enum Commands {
    #[command(flatten)]
    Crashcheck(Box<CrashcheckCommand>),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
    /// Print or write manual pages
    Man(ManArgs),
}

const PROGRAM: Program = Program { guard: &["guard"] };

/// The same command with examples that call this program, not `fastness crashcheck`.
fn by_own_name(command: Command) -> Command {
    let examples = command.get_after_help().map(|help| help.to_string());
    let command = match examples {
        Some(text) => command.after_help(text.replace("fastness crashcheck", "crashcheck")),
        None => command,
    };
    command.mut_subcommands(by_own_name)
}

fn run(cli: Cli, out: &mut dyn Write) -> Result<Outcome, CheckerError> {
    let outcome = match cli.command {
        Commands::Crashcheck(command) => fastness_crashcheck_cli::run(*command, &PROGRAM, out)?,
        Commands::Completions(args) => completions(&args, by_own_name(Cli::command()), out)?,
        Commands::Man(args) => man(&args, by_own_name(Cli::command()), out)?,
    };
    out.flush()?;
    Ok(outcome)
}

fn main() -> ExitCode {
    let matches = by_own_name(Cli::command()).get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let result = run(cli, &mut fastness_terminal::stdout());
    fastness_terminal::end(&result, |error| fastness_terminal::say("crashcheck", error))
}
