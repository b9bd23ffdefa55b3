//! `fastness crashcheck fuzz`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use fastness_crashcheck::fuzz::{Finding, Fuzz, Fuzzed, Program, Subject, Told, Totals};
use fastness_crashcheck::report::{Report, Show};
use fastness_terminal::{Outcome, note, progress_bar};
use indicatif::ProgressBar;

use crate::error::{Context, Result};
use crate::program::ProgramArgs;
use crate::report::{self, ShowArgs};
use crate::work;

pub(crate) const EXAMPLES: &str = "\
Examples:
  fastness crashcheck fuzz --pm 64K --recover './blob show {pm}' -- ./blob run {pm} @@      @@ is a file with the input
  fastness crashcheck fuzz --pm 64K --recover './blob show {pm}' -- ./blob run {pm}         it is the standard input
  fastness crashcheck fuzz --corpus inputs --budget 600 ...     begins with these, and adds what reaches something new
  fastness crashcheck fuzz --replay fuzz-findings/blob-1.input ...     one input, with all that it shows
Inputs that run new code, or leave stores pending in a new way, are kept and changed again; their crash images are recovered
and judged as by `crashcheck run`. The same seed and number of runs give the same inputs. Each cause is told once, with an
input that is as small as it goes. Exit code 1 if something was found.";

/// How long it takes if nothing is said.
const BUDGET_S: u64 = 60;
/// Inputs that are tried to make that of a finding smaller.
const SHRINK_RUNS: usize = 100;

/// Where findings go if nothing is said.
const OUTPUT: &str = "fuzz-findings";

/// When it ends, and what it begins with: options of several commands.
#[derive(Debug, Args)]
#[command(next_help_heading = "Fuzzing")]
pub(crate) struct LoopArgs {
    /// End after so many inputs
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    runs: Option<u64>,
    /// End after so many findings
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    findings: Option<u64>,
    /// Inputs to begin with, a file each; those that reach something new are added
    #[arg(long, value_name = "FOLDER")]
    corpus: Option<PathBuf>,
    /// Inputs to try for each finding, so that its own becomes small; default: 100
    #[arg(long, value_name = "NUMBER")]
    shrink_runs: Option<usize>,
    /// Letters of findings that are none: A where operations need not be atomic
    #[arg(long, value_name = "LETTERS", default_value = "", hide_default_value = true)]
    ignore: String,
}

/// Options of [`LoopArgs`]: a command that shows a finding again has none of them.
const LOOP_OPTIONS: [&str; 5] = ["--runs", "--findings", "--corpus", "--shrink-runs", "--ignore"];

/// Arguments of `crashcheck fuzz`.
#[derive(Debug, Args)]
pub struct FuzzArgs {
    #[command(flatten)]
    limits: LoopArgs,
    /// End after so many seconds; default, unless --runs is given: 60
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    budget: Option<u64>,
    /// Where findings go: an input, a trace, a report and a command each
    #[arg(short, long, value_name = "FOLDER", default_value = OUTPUT)]
    output: PathBuf,
    /// A word of the program's language, which may come into inputs; may be repeated
    #[arg(long, value_name = "WORD")]
    word: Vec<String>,
    /// Run this input alone, and show what its crashes leave
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
    #[command(flatten)]
    show: ShowArgs,
    #[command(flatten)]
    program: ProgramArgs,
}

impl LoopArgs {
    /// Whether none is given.
    pub(crate) fn is_empty(&self) -> bool {
        let LoopArgs { runs, findings, corpus, shrink_runs, ignore } = self;
        runs.is_none() && findings.is_none() && corpus.is_none() && shrink_runs.is_none() && ignore.is_empty()
    }

    /// Fuzzes; what is found is kept in a folder, and shown.
    pub(crate) fn run(&self, task: &Task<'_>, out: &mut dyn Write) -> Result<Outcome> {
        let bar = Bar::new(task.subject.name());
        let folder = task.output.unwrap_or(Path::new(OUTPUT));
        let fuzz = Fuzz {
            subject: task.subject,
            work: task.work,
            threads: task.threads,
            seed: task.seed,
            runs: self.runs,
            findings_max: self.findings.map(|most| usize::try_from(most).unwrap_or(usize::MAX)),
            deadline: task.deadline.or_else(|| match self.runs {
                Some(_) => None,
                None => Instant::now().checked_add(Duration::from_secs(BUDGET_S)),
            }),
            corpus: self.corpus.as_deref(),
            output: folder,
            shrink_runs: self.shrink_runs.unwrap_or(SHRINK_RUNS),
            ignore: &self.ignore,
            tell: &|told| bar.tell(told),
        };
        let fuzzed = fuzz.run()?;
        drop(bar);
        for finding in &fuzzed.findings {
            save(finding, folder, task.replay)?;
        }
        show(&fuzzed, task, out)?;
        Ok(if fuzzed.findings.is_empty() { Outcome::Clean } else { Outcome::Found })
    }
}

/// What is fuzzed.
pub(crate) struct Task<'a> {
    pub(crate) subject: &'a dyn Subject,
    pub(crate) work: &'a Path,
    pub(crate) threads: usize,
    pub(crate) seed: u64,
    pub(crate) deadline: Option<Instant>,
    pub(crate) output: Option<&'a Path>,
    pub(crate) show: Show,
    /// What shows an input again.
    pub(crate) replay: Replay,
}

/// How a command shows an input again.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Replay {
    /// `fuzz` becomes `fuzz --replay INPUT`.
    Program,
    /// `--fuzz` becomes `--workload INPUT`.
    FileSystem,
}

pub(crate) fn run(args: FuzzArgs, program: &work::Program, out: &mut dyn Write) -> Result<Outcome> {
    let test = args.program.test()?;
    let tools = args.program.tools()?;
    let work = work::begin(program)?;
    let threads = args.program.threads();
    let words = args.word.iter().map(|word| word.clone().into_bytes()).collect();
    let subject = Program::new(&test, &tools, threads, words);
    if let Some(input) = &args.replay {
        return replay(&subject, work.path(), input, args.show.show(), out);
    }
    // A moment beyond the clock's range is none.
    let deadline = args.budget.and_then(|budget_s| Instant::now().checked_add(Duration::from_secs(budget_s)));
    let task = Task {
        subject: &subject,
        work: work.path(),
        threads,
        seed: args.program.seed(),
        deadline,
        output: Some(&args.output),
        show: args.show.show(),
        replay: Replay::Program,
    };
    args.limits.run(&task, out)
}

/// One input.
fn replay(
    subject: &dyn Subject,
    work: &Path,
    input: &Path,
    show: Show,
    out: &mut dyn Write,
) -> Result<Outcome> {
    let (ending, report) = fastness_crashcheck::fuzz::replay(subject, work, input)?;
    let Some(report) = report else {
        writeln!(out, "without any crash the program {ending}")?;
        return Ok(Outcome::Found);
    };
    let reports = [report];
    report::show(&reports, show, out)?;
    Ok(report::outcome(&reports))
}

fn show(fuzzed: &Fuzzed, task: &Task<'_>, out: &mut dyn Write) -> Result<()> {
    let reports: Vec<Report> = fuzzed.reports();
    report::show_causes(&reports, task.show, out)?;
    for finding in &fuzzed.findings {
        let (len, of) = finding.len_bytes;
        writeln!(out, "{}: {}", finding.name, finding.cause)?;
        writeln!(out, "  input  {}: {len} bytes, made of {of}", finding.input.display())?;
        writeln!(out, "  again  {}", command(finding, task.replay))?;
    }
    let Totals { runs, refused, kept, features, tested, images } = fuzzed.totals;
    writeln!(
        out,
        "{runs} inputs with seed {}, {refused} refused, {kept} kept for {features} features; the crashes of \
         {tested} tested with {images} images; {} found",
        task.seed,
        fuzzed.findings.len(),
    )?;
    Ok(())
}

/// Writes what a finding has besides its input and trace: the command, and the report.
fn save(finding: &Finding, folder: &Path, replay: Replay) -> Result<()> {
    let path = folder.join(format!("{}.sh", finding.name));
    let text = format!("#!/bin/sh\n{}\n", command(finding, replay));
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    finding.report.as_ref().map_or(Ok(()), |report| report::save(report, folder))
}

/// The command that shows a finding again: this one, with its input.
fn command(finding: &Finding, replay: Replay) -> String {
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    command_of(words, &finding.input, replay)
}

fn command_of(words: impl IntoIterator<Item = String>, input: &Path, replay: Replay) -> String {
    let input = quote(&input.to_string_lossy());
    let (word, with) = match replay {
        Replay::Program => ("fuzz", format!("fuzz --replay {input}")),
        Replay::FileSystem => ("--fuzz", format!("--workload {input}")),
    };
    let mut words = words.into_iter();
    let mut quoted: Vec<String> = Vec::new();
    let (mut is_there, mut is_options) = (false, true);
    while let Some(next) = words.next() {
        is_options &= next != "--";
        if is_options && LOOP_OPTIONS.contains(&next.as_str()) {
            words.next();
        } else if is_options && LOOP_OPTIONS.iter().any(|option| next.starts_with(&format!("{option}="))) {
        } else if !is_there && next == word {
            is_there = true;
            quoted.push(with.clone());
        } else {
            quoted.push(quote(&next));
        }
    }
    quoted.join(" ")
}

/// A word of a shell that is nothing but this text.
fn quote(word: &str) -> String {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "-_./+=:,@%".contains(char);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// What a terminal shows.
struct Bar {
    bar: ProgressBar,
    totals: Mutex<(Totals, usize)>,
}

impl Bar {
    fn new(name: &str) -> Bar {
        let bar = progress_bar("{prefix}: {elapsed} {wide_msg}");
        bar.set_prefix(name.to_owned());
        Bar { bar, totals: Mutex::default() }
    }

    fn tell(&self, told: &Told<'_>) {
        let mut now = self.totals.lock().unwrap_or_else(PoisonError::into_inner);
        match told {
            Told::Round(totals, found) => *now = (*totals, *found),
            Told::Found(cause) => self.bar.suspend(|| note(format_args!("found: {cause}"))),
            Told::Saved(finding) => {
                self.bar.suspend(|| note(format_args!("{}: {}", finding.name, finding.input.display())));
            }
        }
        let (totals, found) = *now;
        let Totals { runs, kept, features, tested, images, .. } = totals;
        self.bar.set_message(format!(
            "{runs} inputs, {kept} kept, {features} features, {tested} tested with {images} images, {found} found"
        ));
        self.bar.tick();
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_has_a_command_that_shows_it_again() {
        let again = |line: &str, replay| {
            let words = line.split(' ').map(|word| word.replace('_', " "));
            command_of(words, Path::new("out/a 1.input"), replay)
        };
        assert_eq!(
            again(
                "fastness crashcheck fuzz --runs 5 --seed 3 --recover ./a_{pm} -- ./a's fuzz --runs @@",
                Replay::Program
            ),
            "fastness crashcheck fuzz --replay 'out/a 1.input' --seed 3 --recover './a {pm}' -- './a'\\''s' fuzz --runs @@"
        );
        assert_eq!(
            again("fastness crashcheck fs xfs-dax --fuzz --corpus=c --findings 1 -o out", Replay::FileSystem),
            "fastness crashcheck fs xfs-dax --workload 'out/a 1.input' -o out"
        );
    }
}
