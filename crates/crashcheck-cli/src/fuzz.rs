//! `fastness crashcheck fuzz`.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use fastness_crashcheck::fuzz::{Finding, Fuzz, Fuzzed, Told, Totals};
use fastness_crashcheck::report::Report;
use fastness_terminal::{Outcome, note, progress_bar};
use indicatif::ProgressBar;

use crate::error::{Context, Result};
use crate::program::ProgramArgs;
use crate::report::{self, ShowArgs};
use crate::work::{self, Program};

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

/// Arguments of `crashcheck fuzz`.
#[derive(Debug, Args)]
pub struct FuzzArgs {
    /// End after so many inputs
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    runs: Option<u64>,
    /// End after so many seconds; default, unless --runs is given: 60
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    budget: Option<u64>,
    /// End after so many findings
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    findings: Option<u64>,
    /// Inputs to begin with, a file each; those that reach something new are added
    #[arg(long, value_name = "FOLDER")]
    corpus: Option<PathBuf>,
    /// Where findings go: an input, a trace, a report and a command each
    #[arg(short, long, value_name = "FOLDER", default_value = "fuzz-findings")]
    output: PathBuf,
    /// A word of the program's language, which may come into inputs; may be repeated
    #[arg(long, value_name = "WORD")]
    word: Vec<String>,
    /// Inputs to try for each finding, so that its own becomes small
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    shrink_runs: usize,
    /// Run this input alone, and show what its crashes leave
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
    #[command(flatten)]
    show: ShowArgs,
    #[command(flatten)]
    program: ProgramArgs,
}

pub(crate) fn run(args: FuzzArgs, program: &Program, out: &mut dyn Write) -> Result<Outcome> {
    let test = args.program.test()?;
    let tools = args.program.tools()?;
    let work = work::begin(program)?;
    let budget_s = args.budget.or(if args.runs.is_none() { Some(BUDGET_S) } else { None });
    let bar = Bar::new(&test.name);
    let fuzz = Fuzz {
        test: &test,
        tools: &tools,
        work: work.path(),
        threads: args.program.threads(),
        seed: args.program.seed(),
        runs: args.runs,
        findings_max: args.findings.map(|most| usize::try_from(most).unwrap_or(usize::MAX)),
        deadline: budget_s.filter(|_| args.replay.is_none()).and_then(|budget_s| {
            // A moment beyond the clock's range is none.
            Instant::now().checked_add(Duration::from_secs(budget_s))
        }),
        corpus: args.corpus.as_deref(),
        output: &args.output,
        shrink_runs: args.shrink_runs,
        words: args.word.iter().map(|word| word.clone().into_bytes()).collect(),
        tell: &|told| bar.tell(told),
    };
    if let Some(input) = &args.replay {
        return replay(&fuzz, input, args.show, out);
    }
    let fuzzed = fuzz.run()?;
    drop(bar);
    for finding in &fuzzed.findings {
        save(finding, &args.output)?;
    }
    show(&fuzzed, &args, out)?;
    Ok(if fuzzed.findings.is_empty() { Outcome::Clean } else { Outcome::Found })
}

/// One input.
fn replay(fuzz: &Fuzz<'_>, input: &Path, show: ShowArgs, out: &mut dyn Write) -> Result<Outcome> {
    let (ending, report) = fuzz.replay(input)?;
    let Some(report) = report else {
        writeln!(out, "without any crash the program {ending}")?;
        return Ok(Outcome::Found);
    };
    let reports = [report];
    report::show(&reports, show.show(), out)?;
    Ok(report::outcome(&reports))
}

fn show(fuzzed: &Fuzzed, args: &FuzzArgs, out: &mut dyn Write) -> Result<()> {
    let reports: Vec<Report> = fuzzed.reports();
    report::show_causes(&reports, args.show.show(), out)?;
    for finding in &fuzzed.findings {
        let (len, of) = finding.len_bytes;
        writeln!(out, "{}: {}", finding.name, finding.cause)?;
        writeln!(out, "  input  {}: {len} bytes, made of {of}", finding.input.display())?;
        writeln!(out, "  again  {}", command(finding))?;
    }
    let Totals { runs, refused, kept, features, tested, images } = fuzzed.totals;
    writeln!(
        out,
        "{runs} inputs with seed {}, {refused} refused, {kept} kept for {features} features; the crashes of \
         {tested} tested with {images} images; {} found",
        args.program.seed(),
        fuzzed.findings.len(),
    )?;
    Ok(())
}

/// Writes what a finding has besides its input and trace: the command, and the report.
fn save(finding: &Finding, folder: &Path) -> Result<()> {
    let path = folder.join(format!("{}.sh", finding.name));
    let text = format!("#!/bin/sh\n{}\n", command(finding));
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    finding.report.as_ref().map_or(Ok(()), |report| report::save(report, folder))
}

/// The command that shows a finding again: this one, with its input.
fn command(finding: &Finding) -> String {
    command_of(std::env::args_os(), &finding.input)
}

fn command_of(words: impl IntoIterator<Item = OsString>, input: &Path) -> String {
    let mut quoted: Vec<String> = Vec::new();
    let mut is_there = false;
    for word in words {
        quoted.push(quote(&word.to_string_lossy()));
        if !is_there && word == "fuzz" {
            is_there = true;
            quoted.push(format!("--replay {}", quote(&input.to_string_lossy())));
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
        let words =
            ["bin/fastness", "crashcheck", "fuzz", "--recover", "./a show {pm}", "--", "./a's", "fuzz", "@@"];
        let command = command_of(words.map(OsString::from), Path::new("out/a 1.input"));
        assert_eq!(
            command,
            "bin/fastness crashcheck fuzz --replay 'out/a 1.input' --recover './a show {pm}' -- './a'\\''s' fuzz @@"
        );
    }
}
