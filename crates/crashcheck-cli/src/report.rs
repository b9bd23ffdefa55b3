//! `fastness crashcheck report`, and where reports go.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use fastness_crashcheck::report::{
    Report, Show, VERSION, cause_reports, causes_text, html, junit, table, text_with,
};
use fastness_terminal::Outcome;

use crate::error::{Context, Result, refuse};

pub(crate) const EXAMPLES: &str = "\
Examples:
  fastness crashcheck report out/*.json                      a line each
  fastness crashcheck report out/journal.json                the whole of it
  fastness crashcheck report out/*.json --all --causes all.json
  fastness crashcheck report out/journal.json --html journal.html
  fastness crashcheck report out/*.json --junit results.xml
Exit code 1 if one of them has found something.";

/// Arguments of `crashcheck report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Reports that `crashcheck run` or `analyze` wrote
    #[arg(required = true, value_name = "REPORT")]
    reports: Vec<PathBuf>,
    /// Write an HTML page; for one report only
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write JUnit XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write the causes of all findings, of all reports together, as JSON
    #[arg(long, value_name = "FILE")]
    causes: Option<PathBuf>,
    #[command(flatten)]
    show: ShowArgs,
}

/// How much is printed: options of several commands.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Show all crashes of a cause in full, not the smallest alone, and all hints
    #[arg(long)]
    all: bool,
}

impl ShowArgs {
    pub(crate) fn show(&self) -> Show {
        Show { all: self.all }
    }
}

/// Where the results of a test go: options of several commands.
#[derive(Debug, Args)]
pub(crate) struct OutputArgs {
    /// Keep traces in this folder, with the reports as JSON and HTML
    #[arg(short, long, value_name = "FOLDER")]
    output: Option<PathBuf>,
    /// Write JUnit XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write the causes of all findings, of all tests together, as JSON
    #[arg(long, value_name = "FILE")]
    causes: Option<PathBuf>,
}

impl OutputArgs {
    /// Creates the folder, if one is wanted.
    pub(crate) fn make(&self) -> Result<()> {
        let Some(folder) = &self.output else { return Ok(()) };
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))
    }

    pub(crate) fn folder(&self) -> Option<&Path> {
        self.output.as_deref()
    }

    /// Where the trace of a test goes: to `work` unless it is kept.
    pub(crate) fn trace(&self, name: &str, work: &Path) -> PathBuf {
        self.folder().unwrap_or(work).join(format!("{name}.trace"))
    }

    /// Keeps a report.
    pub(crate) fn save(&self, report: &Report) -> Result<()> {
        self.folder().map_or(Ok(()), |folder| save(report, folder))
    }

    /// Keeps the reports of all tests, and the causes of all that they have found.
    pub(crate) fn save_all(&self, reports: &[Report]) -> Result<()> {
        if let Some(path) = &self.causes {
            write_json(path, &cause_reports(reports))?;
        }
        self.junit.as_deref().map_or(Ok(()), |path| save_junit(reports, path))
    }
}

pub(crate) fn run(args: ReportArgs, out: &mut dyn Write) -> Result<Outcome> {
    let reports = args.reports.iter().map(|path| read(path)).collect::<Result<Vec<_>>>()?;
    if let Some(path) = &args.html {
        let [report] = &reports[..] else { return Err(refuse("--html takes one report")) };
        write_file(path, &html(report))?;
    }
    if let Some(path) = &args.junit {
        save_junit(&reports, path)?;
    }
    if let Some(path) = &args.causes {
        write_json(path, &cause_reports(&reports))?;
    }
    show(&reports, args.show.show(), out)?;
    Ok(outcome(&reports))
}

pub(crate) fn outcome(reports: &[Report]) -> Outcome {
    if reports.iter().all(Report::is_clean) { Outcome::Clean } else { Outcome::Found }
}

/// Prints one report in full; of several the causes of what they have found, and a table.
pub(crate) fn show(reports: &[Report], show: Show, out: &mut dyn Write) -> std::io::Result<()> {
    match reports {
        [report] => write!(out, "{}", text_with(report, show)),
        reports => {
            show_causes(reports, show, out)?;
            write!(out, "{}", table(reports))
        }
    }
}

/// Prints the causes of what reports have found, and an empty line, if they have found something.
pub(crate) fn show_causes(reports: &[Report], show: Show, out: &mut dyn Write) -> std::io::Result<()> {
    let causes = causes_text(reports, show);
    if causes.is_empty() { Ok(()) } else { writeln!(out, "{causes}") }
}

/// Writes JUnit XML.
fn save_junit(reports: &[Report], path: &Path) -> Result<()> {
    write_file(path, &junit(reports))
}

/// Writes `NAME.json` and `NAME.html`.
pub(crate) fn save(report: &Report, folder: &Path) -> Result<()> {
    let file = |extension: &str| folder.join(format!("{}.{extension}", report.name));
    write_json(&file("json"), report)?;
    write_file(&file("html"), &html(report))
}

fn read(path: &Path) -> Result<Report> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let report: Report = serde_json::from_str(&text)
        .map_err(|error| refuse(format!("{} is not a report: {error}", path.display())))?;
    if report.version != VERSION {
        let (have, path) = (report.version, path.display());
        return Err(refuse(format!("{path} has version {have}; this program reads version {VERSION}")));
    }
    Ok(report)
}

fn write_json(path: &Path, value: &impl serde::Serialize) -> Result<()> {
    let cannot = || format!("cannot write {}", path.display());
    let mut out = BufWriter::new(File::create(path).with_context(cannot)?);
    serde_json::to_writer_pretty(&mut out, value).map_err(std::io::Error::from).with_context(cannot)?;
    out.flush().with_context(cannot)
}

fn write_file(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
