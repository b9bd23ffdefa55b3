//! The crash tester on the command line: the program `crashcheck`, and `fastness crashcheck`.
//!
//! One file for each command; each writes to the handle it is given, and returns an [`Outcome`].
//!
//! ```text
//! run, analyze, fs            test programs, a trace, file systems of a guest
//! fuzz                        finds the inputs whose crashes break a program; `fs` calls it for file systems
//! report, images, explain     what they have found, and how
//! trace, litmus               traces; small programs with known crash states
//! machine, program, options   options of several commands: guests, programs under test, crash images
//! progress                    what a terminal shows meanwhile
//! work                        temporary files, and programs that end with the tester
//! error                       why a command failed, and advice
//! ```

#![forbid(unsafe_code)]

mod analyze;
mod error;
mod explain;
mod fs;
mod fuzz;
mod images;
mod litmus;
mod machine;
mod options;
mod program;
mod progress;
mod report;
mod run;
mod trace;
mod work;

use std::io::Write;

use clap::Subcommand;
use fastness_terminal::Outcome;

pub use crate::error::CheckerError;
pub use crate::work::Program;

/// Commands of the crash checker.
#[derive(Debug, Subcommand)]
pub enum CrashcheckCommand {
    /// Test programs: trace them, recover their crash images, and judge their operations
    #[command(after_help = run::EXAMPLES)]
    Run(run::RunArgs),
    /// Find the inputs whose crashes break a program: they change at random, and new code leads the way
    #[command(after_help = fuzz::EXAMPLES)]
    Fuzz(fuzz::FuzzArgs),
    /// Test file systems of a real kernel, in a guest
    #[command(after_help = fs::EXAMPLES)]
    Fs(fs::FsArgs),
    /// Recover the crash images of a trace, and judge its operations
    #[command(after_help = analyze::EXAMPLES)]
    Analyze(analyze::AnalyzeArgs),
    /// Show reports, or convert them to other formats
    #[command(after_help = report::EXAMPLES)]
    Report(report::ReportArgs),
    /// Generate the crash images of a trace
    #[command(after_help = images::EXAMPLES)]
    Images(images::ImagesArgs),
    /// Show which stores a crash image has lost
    #[command(after_help = explain::EXPLAIN_EXAMPLES)]
    Explain(explain::ExplainArgs),
    /// Record traces, show them, and convert them from and to other testers' formats
    #[command(subcommand)]
    Trace(trace::TraceCommand),
    /// Judge litmus files: small programs with known sets of crash states
    #[command(after_help = litmus::EXAMPLES)]
    Litmus(litmus::LitmusFiles),
    /// What the others start: ends what they leave when they are killed
    #[command(hide = true)]
    Guard,
}

/// Runs a command, which prints to `out`.
///
/// # Errors
/// What the command could not do, with advice.
pub fn run(
    command: CrashcheckCommand,
    program: &Program,
    out: &mut dyn Write,
) -> Result<Outcome, CheckerError> {
    match command {
        CrashcheckCommand::Run(args) => run::run(args, program, out),
        CrashcheckCommand::Fuzz(args) => fuzz::run(args, program, out),
        CrashcheckCommand::Fs(args) => fs::run(args, program, out),
        CrashcheckCommand::Analyze(args) => analyze::run(args, program, out),
        CrashcheckCommand::Report(args) => report::run(args, out),
        CrashcheckCommand::Images(args) => images::run(args, out),
        CrashcheckCommand::Explain(args) => explain::run(args, out),
        CrashcheckCommand::Trace(command) => trace::run(command, out),
        CrashcheckCommand::Litmus(args) => litmus::run(args, out),
        CrashcheckCommand::Guard => work::guard(),
    }
}
