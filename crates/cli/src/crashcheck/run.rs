//! `fastness crashcheck run`.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use fastness_crashcheck::check::Step;
use fastness_crashcheck::report::Report;
use fastness_crashcheck::run::{
    HintsConfig, ImagesConfig, OperationsConfig, OracleConfig, PmConfig, RecoverConfig, Setting, Test,
    TraceConfig,
};
use fastness_crashcheck::tracer::Programs;

use super::options::{BudgetArgs, HintArgs, ImageArgs, RecoverArgs, RecoveryCrashArgs, Subject, words};
use super::progress::Progress;
use super::report::{self, OutputArgs, ShowArgs};
use super::work;
use crate::error::{Context, Result, refuse};
use crate::exit::Outcome;
use crate::output::note;
use crate::size;

pub(super) const EXAMPLES: &str = "\
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

/// Where a program logs its operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OperationsArg {
    /// In a file, whose name the program gets where its arguments have {operations}
    File,
    /// On standard output
    Stdout,
    /// By the instruction
    Instruction,
}

/// Arguments of `crashcheck run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Configuration files
    #[arg(value_name = "TEST", conflicts_with_all = IN_CONFIGURATIONS)]
    tests: Vec<PathBuf>,
    /// Size of a file that stands for persistent memory; may be repeated
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pm: Vec<u64>,
    /// Command that recovers a crash image, and prints what a user would see
    #[arg(long, value_name = "COMMAND")]
    recover: Option<String>,
    /// Record this many return addresses for each event; needs frame pointers
    #[arg(long)]
    stacks: bool,
    /// The program logs its operations, there; a line of a state is a key and its value
    #[arg(long, value_enum, value_name = "WHERE", conflicts_with = "prefix")]
    operations: Option<OperationsArg>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    show: ShowArgs,
    /// Path of a qemu-x86_64 with support for plug-ins
    #[arg(long, value_name = "PROGRAM")]
    qemu: Option<PathBuf>,
    /// Path of the plug-in
    #[arg(long, value_name = "FILE")]
    plugin: Option<PathBuf>,
    #[command(flatten)]
    judge: RecoverArgs,
    #[command(flatten)]
    crashes: RecoveryCrashArgs,
    #[command(flatten)]
    hints: HintArgs,
    #[command(flatten)]
    budget: BudgetArgs,
    #[command(flatten)]
    images: ImageArgs,
    /// The program under test, and its arguments
    #[arg(last = true)]
    command: Vec<String>,
}

pub(super) fn run(args: RunArgs, out: &mut dyn Write) -> Result<Outcome> {
    let tests = match args.tests.is_empty() {
        true => vec![from_arguments(&args)?],
        false => args.tests.iter().map(|path| Test::read(path)).collect::<Result<_, _>>()?,
    };
    args.output.make()?;
    let work = work::begin()?;
    let reports = run_all(&args, &tests, work.path())?;
    drop(work);
    args.output.save_all(&reports)?;
    report::show(&reports, args.show.show(), out)?;
    Ok(report::outcome(&reports))
}

fn run_all(args: &RunArgs, tests: &[Test], work: &Path) -> Result<Vec<Report>> {
    let tools = Programs { qemu_user: args.qemu.clone(), plugin: args.plugin.clone() }.find()?;
    let deadline = args.budget.deadline();
    let mut reports = Vec::new();
    for test in tests {
        let progress = Progress::new(&test.name);
        let tell = |step: &Step<'_>| progress.tell(step);
        let work = work.join(&test.name);
        let trace = args.output.trace(&test.name, &work);
        let threads = args.judge.threads();
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

/// The test that the command line describes.
fn from_arguments(args: &RunArgs) -> Result<Test> {
    let missing =
        |what| refuse(format!("{what} is missing; see the examples in `fastness crashcheck run --help`"));
    let recover = args.recover.as_deref().ok_or_else(|| missing("--recover COMMAND"))?;
    let program = args.command.first().ok_or_else(|| missing("-- PROGRAM"))?;
    if args.pm.is_empty() {
        return Err(missing("--pm SIZE"));
    }
    let name =
        Path::new(program).file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let plain = |char: char| if char.is_ascii_alphanumeric() || "-_.+".contains(char) { char } else { '_' };
    let pm = args.pm.iter().enumerate();
    let test = Test {
        name: name.chars().map(plain).collect(),
        pm: pm
            .map(|(index, size)| PmConfig { name: format!("pm{index}"), size: *size, initial: None })
            .collect(),
        trace: TraceConfig {
            command: args.command.clone(),
            stacks: args.stacks,
            timeout_s: args.judge.timeout,
        },
        recover: RecoverConfig {
            command: words(recover),
            write: args.judge.write(),
            timeout_s: args.judge.timeout,
            crashes: args.crashes.depth(),
            per_point: args.crashes.per_point(),
        },
        images: ImagesConfig { shrink: args.judge.shrink, ..args.images.config(Subject::Program) },
        oracle: OracleConfig {
            operations: args.operations.map(|place| match place {
                OperationsArg::File => OperationsConfig::File,
                OperationsArg::Stdout => OperationsConfig::Stdout,
                OperationsArg::Instruction => OperationsConfig::Instruction,
            }),
            ..args.judge.oracle()
        },
        hints: HintsConfig { exclude: args.hints.exclude.clone() },
        dir: PathBuf::from("."),
    };
    test.check().map_err(refuse)?;
    Ok(test)
}
