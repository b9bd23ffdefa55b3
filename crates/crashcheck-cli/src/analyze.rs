//! `fastness crashcheck analyze`.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use fastness_crashcheck::check::{CommandExtract, Oracle, Pace, Predicate, RecoveryCrashes};
use fastness_crashcheck::generate::Layout;
use fastness_crashcheck::run::{Analysis, ImagesConfig, Limits, TracedRecovery};
use fastness_crashcheck::symbols::Symbols;
use fastness_crashcheck::trace::open_trace;
use fastness_crashcheck::tracer::Programs;
use fastness_terminal::Outcome;

use crate::error::{Context, Result, refuse};
use crate::options::{BudgetArgs, HintArgs, ImageArgs, RecoverArgs, Subject, SymbolArgs, words};
use crate::progress::Progress;
use crate::work::Program;
use crate::{report, work};

pub(crate) const EXAMPLES: &str = "\
Examples:
  fastness crashcheck analyze run.trace --recover './journal show {pm}'
  fastness crashcheck analyze run.trace --recover './journal show {pm}' -o out
  fastness crashcheck analyze run.trace --recover './db dump {0} {1}' --prefix
The recovery gets files with what a crash has left, and prints what its user would see; what it prints, and how it ends,
is the state. Words of a command are separated by blanks.
Exit code 1 if an operation is not crash-consistent.";

/// Arguments of `crashcheck analyze`.
#[derive(Debug, Args)]
pub struct AnalyzeArgs {
    trace: PathBuf,
    /// Command that recovers a crash image; {pm} or {0} is the file of the first region, {1} of the second
    #[arg(long, value_name = "COMMAND")]
    recover: String,
    /// The trace has a log of operations, and a state a line with key and value for each key
    #[arg(long, conflicts_with = "prefix")]
    operations: bool,
    /// Write the report as JSON and HTML into this folder
    #[arg(short, long, value_name = "FOLDER")]
    output: Option<PathBuf>,
    #[command(flatten)]
    show: report::ShowArgs,
    #[command(flatten)]
    judge: RecoverArgs,
    #[command(flatten)]
    hints: HintArgs,
    #[command(flatten)]
    budget: BudgetArgs,
    #[command(flatten)]
    symbols: SymbolArgs,
    #[command(flatten)]
    images: ImageArgs,
}

pub(crate) fn run(args: AnalyzeArgs, program: &Program, out: &mut dyn Write) -> Result<Outcome> {
    let name = args.trace.file_stem().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let layout = Layout::of(open_trace(&args.trace)?.header())?;
    let time_out = Duration::from_secs(args.judge.timeout);
    let command = words(&args.recover);
    if command.is_empty() {
        return Err(refuse("the command of --recover is empty"));
    }
    let work = work::begin(program)?;
    let extract = CommandExtract {
        command,
        write: args.judge.write(),
        layout,
        time_out,
        pace: Pace::default(),
        work: work.path().to_owned(),
        current_dir: PathBuf::from("."),
    };
    let depth = args.judge.crashes.depth();
    let tools = (depth > 0).then(|| Programs::default().find()).transpose()?;
    let tracer = tools.as_ref().map(|tools| TracedRecovery {
        command: &extract.command,
        layout: extract.layout.clone(),
        work: work.path().join("reads"),
        current_dir: &extract.current_dir,
        time_out,
        tools,
    });
    let keep = args.output.as_ref().map(|folder| folder.join(&name));
    let in_recovery = tracer.as_ref().map(|tracer| RecoveryCrashes {
        depth,
        per_point: args.judge.crashes.per_point(),
        tracer,
        is_in_kernel: false,
        work: work.path(),
        keep: keep.as_deref(),
    });
    let mut oracles: Vec<Box<dyn Oracle>> = Vec::new();
    let oracle = args.judge.oracle();
    if let Some(command) = oracle.predicate {
        oracles.push(Box::new(Predicate { command, time_out }));
    }
    let progress = Progress::new(&name);
    let config = ImagesConfig { shrink: args.judge.shrink, ..args.images.config(Subject::Program) };
    let symbols = Symbols::of(&mut open_trace(&args.trace)?)?;
    let kernel = args.symbols.read()?;
    let analysis = Analysis {
        name: &name,
        trace: &args.trace,
        images: &config,
        extract: &extract,
        recovery: None,
        oracles,
        has_prefix_oracle: oracle.prefix,
        has_operations: args.operations,
        must_be_atomic: oracle.atomic,
        in_recovery,
        threads: args.judge.threads(),
        exclude: &args.hints.exclude,
        symbols: &|pc, _| symbols.find(pc).or_else(|| kernel.find(pc)),
        deadline: args.budget.deadline(),
        limits: Limits::default(),
        progress: &|step| progress.tell(step),
    };
    let report = analysis.run();
    drop((work, progress));
    let report = report?;
    if let Some(folder) = &args.output {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        report::save(&report, folder)?;
    }
    report::show(std::slice::from_ref(&report), args.show.show(), out)?;
    Ok(report::outcome(&[report]))
}
