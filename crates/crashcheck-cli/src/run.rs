//! `fastness crashcheck run`.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use fastness_crashcheck::check::Step;
use fastness_crashcheck::report::Report;
use fastness_crashcheck::run::{Setting, Test};
use fastness_terminal::{Outcome, note};

use crate::error::{Context, Result};
use crate::options::BudgetArgs;
use crate::program::ProgramArgs;
use crate::progress::Progress;
use crate::report::{self, OutputArgs, ShowArgs};
use crate::work::{self, Program};

pub(crate) const EXAMPLES: &str = "\
Examples:
  fastness crashcheck run --pm 1M --recover './journal show {pm}' -- ./journal append {pm}
  fastness crashcheck run --pm 1M --operations file --recover './kv list {pm}' -- ./kv run {pm} {operations}
  fastness crashcheck run journal.toml -o out               a configuration; out has the trace, the report, a page of HTML
  fastness crashcheck run tests/*.toml --junit results.xml  several: a line each
The program is traced under QEMU (scripts/install-qemu) with the plug-in (cargo build --release); recoveries run
without. {pm}, or {0}, {1} ..., are files; a --pm or [[pm]] each. Between two checkpoints lies one operation: the program
says `nopl 0x7a5c0001(%rax,%rax,1)` with 3 in rdi and a number in rsi (docs/crashcheck.md). Without any, the run is one.
Exit code 1 if an operation is not crash-consistent.";

/// Options that a configuration has itself.
const IN_CONFIGURATIONS: [&str; 22] = [
    "exclude",
    "pm",
    "recover",
    "command",
    "stacks",
    "write",
    "predicate",
    "prefix",
    "operations",
    "not_atomic",
    "timeout",
    "recovery_crashes",
    "recovery_per_point",
    "shrink",
    "eadr",
    "dissertation",
    "strict_nt",
    "fast",
    "per_point",
    "nt",
    "seed",
    "no_reads",
];

/// Arguments of `crashcheck run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Configuration files
    #[arg(value_name = "TEST", conflicts_with_all = IN_CONFIGURATIONS)]
    tests: Vec<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    show: ShowArgs,
    #[command(flatten)]
    budget: BudgetArgs,
    #[command(flatten)]
    program: ProgramArgs,
}

pub(crate) fn run(args: RunArgs, program: &Program, out: &mut dyn Write) -> Result<Outcome> {
    let tests = match args.tests.is_empty() {
        true => vec![args.program.test()?],
        false => args.tests.iter().map(|path| Test::read(path)).collect::<Result<_, _>>()?,
    };
    args.output.make()?;
    let work = work::begin(program)?;
    let reports = run_all(&args, &tests, work.path())?;
    drop(work);
    args.output.save_all(&reports)?;
    report::show(&reports, args.show.show(), out)?;
    Ok(report::outcome(&reports))
}

fn run_all(args: &RunArgs, tests: &[Test], work: &Path) -> Result<Vec<Report>> {
    let tools = args.program.tools()?;
    let deadline = args.budget.deadline();
    let mut reports = Vec::new();
    for test in tests {
        let progress = Progress::new(&test.name);
        let tell = |step: &Step<'_>| progress.tell(step);
        let work = work.join(&test.name);
        let trace = args.output.trace(&test.name, &work);
        let threads = args.program.threads();
        let tools = &tools;
        let keep = args.output.folder();
        let setting = Setting { trace: &trace, work: &work, keep, threads, tools, deadline, progress: &tell };
        let report = test.run(&setting).with_context(|| format!("test {}", test.name));
        drop(progress);
        let report = report?;
        args.output.save(&report)?;
        if tests.len() > 1 {
            note(format_args!("{}: {}", report.name, if report.is_clean() { "ok" } else { "FAILED" }));
        }
        reports.push(report);
    }
    Ok(reports)
}
