//! `fastness crashcheck`.

mod analyze;
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

use crate::error::Result;
use crate::exit::Outcome;

/// Commands of the crash checker.
#[derive(Debug, Subcommand)]
pub(crate) enum CrashcheckCommand {
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

pub(crate) fn run(command: CrashcheckCommand, out: &mut dyn Write) -> Result<Outcome> {
    match command {
        CrashcheckCommand::Run(args) => run::run(args, out),
        CrashcheckCommand::Fuzz(args) => fuzz::run(args, out),
        CrashcheckCommand::Fs(args) => fs::run(args, out),
        CrashcheckCommand::Analyze(args) => analyze::run(args, out),
        CrashcheckCommand::Report(args) => report::run(args, out),
        CrashcheckCommand::Images(args) => images::run(args, out),
        CrashcheckCommand::Explain(args) => explain::run(args, out),
        CrashcheckCommand::Trace(command) => trace::run(command, out),
        CrashcheckCommand::Litmus(args) => litmus::run(args, out),
        CrashcheckCommand::Guard => work::guard(),
    }
}
