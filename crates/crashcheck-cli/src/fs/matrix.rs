//! Each test on each file system.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::time::Instant;

use fastness_crashcheck::report::Report;
use fastness_crashcheck::run::{
    FileSystem, FileTest, GuestSetting, ImagesConfig, analyse_in_guest, trace_in_guest,
};
use fastness_terminal::note;

use super::{FsArgs, Machine};
use crate::error::Result;
use crate::options::Subject;
use crate::progress::Progress;

/// A test on a file system.
struct Cell<'a> {
    /// That of the report.
    name: String,
    test: &'a FileTest,
    system: &'a FileSystem,
    args: &'a FsArgs,
    machine: &'a Machine<'a>,
    images: &'a ImagesConfig,
    deadline: Option<Instant>,
    work: PathBuf,
    trace: PathBuf,
    /// Where images are kept.
    keep: Option<PathBuf>,
}

impl Cell<'_> {
    fn setting(&self) -> GuestSetting<'_> {
        GuestSetting {
            traced: &self.machine.traced,
            guests: &self.machine.guests,
            plugin: &self.machine.plugin,
            exclude: &self.args.hints.exclude,
            symbols: self.machine.symbols.as_ref(),
            trace: &self.trace,
            work: &self.work,
            threads: self.machine.threads,
            has_stacks: self.args.stacks,
            images: self.images,
            in_recovery: self.args.in_recovery(self.keep.as_deref()),
            deadline: self.deadline,
            progress: &|_| {},
        }
    }
}

/// For each test, and each file system: its report, or none if the test could not be run. While one is
/// analysed the next one is traced.
pub(super) fn run(
    args: &FsArgs,
    systems: &[(&str, &FileSystem)],
    tests: &[FileTest],
    machine: &Machine<'_>,
    work: &Path,
) -> Result<Vec<Vec<Option<Report>>>> {
    let deadline = args.budget.deadline();
    let images = ImagesConfig { shrink: args.shrink, ..args.images.config(Subject::Guest) };
    let of_test = |test| systems.iter().map(move |(name, system)| (*name, *system, test));
    let cells: Vec<Cell<'_>> = tests
        .iter()
        .flat_map(of_test)
        .map(|(system_name, system, test): (&str, &FileSystem, &FileTest)| {
            let name = format!("{system_name}-{}", test.name);
            let work = work.join(&name);
            let trace = args.output.trace(&name, &work);
            let keep = args.output.folder().map(|folder| folder.join(&name));
            Cell { name, test, system, args, machine, images: &images, deadline, work, trace, keep }
        })
        .collect();
    let (traced, next) = sync_channel(0);
    let reports: Result<_> = std::thread::scope(|scope| {
        scope.spawn(|| {
            let traced = traced;
            // No more once an error has ended what takes them.
            let _ = cells.iter().try_for_each(|cell| {
                traced.send(trace_in_guest(cell.test, cell.system, &cell.setting(), None))
            });
        });
        let next = next;
        let mut reports = Vec::new();
        for (cell, traced) in cells.iter().zip(&next) {
            let name = &cell.name;
            let progress = Progress::new(name);
            let setting = GuestSetting { progress: &|step| progress.tell(step), ..cell.setting() };
            let report = traced.and_then(|()| analyse_in_guest(name, cell.system, &setting));
            drop(progress);
            // Files of a test are large.
            let _ = std::fs::remove_dir_all(&cell.work);
            match report {
                Ok(report) => {
                    args.output.save(&report)?;
                    note(format_args!("{name}: {}", if report.is_clean() { "ok" } else { "FAILED" }));
                    reports.push(Some(report));
                }
                Err(error) if tests.len() > 1 => {
                    note(format_args!("{name}: not tested: {error}"));
                    reports.push(None);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(reports)
    });
    let mut reports = reports?.into_iter();
    Ok(tests.iter().map(|_| reports.by_ref().take(systems.len()).collect()).collect())
}

/// A line for each test, a column for each file system: table 10.1 of the source.
pub(super) fn table(
    systems: &[(&str, &FileSystem)],
    tests: &[FileTest],
    reports: &[Vec<Option<Report>>],
) -> String {
    let mut out = String::new();
    let width = tests.iter().map(|test| test.name.len()).max().unwrap_or(0).max(4);
    let names: Vec<String> = systems.iter().map(|(name, _)| format!("{name:>16}")).collect();
    // A string takes everything.
    let _ = writeln!(out, "{:width$}{}", "test", names.concat());
    for (test, of_test) in tests.iter().zip(reports) {
        let cells: Vec<String> =
            of_test.iter().map(|report| format!("{:>16}", verdict(report.as_ref()))).collect();
        let _ = writeln!(out, "{:width$}{}", test.name, cells.concat());
    }
    let (all, clean) = reports.iter().flatten().fold((0, 0), |(all, clean), report| {
        (all + 1, clean + usize::from(report.as_ref().is_some_and(Report::is_clean)))
    });
    let _ = writeln!(out, "{clean} of {all} ok");
    out.push_str("A: not atomic, S: several final states, W: no write after recovery, E: the recovery fails, C: it crashes, N: another state when recovered again, -: not tested. In brackets: states.\n");
    out
}

fn verdict(report: Option<&Report>) -> String {
    let Some(report) = report else { return "-".to_owned() };
    let findings = report.operations.iter().flat_map(|operation| &operation.findings);
    let mut letters: Vec<char> = findings.map(|finding| finding.letter).collect();
    letters.sort_unstable();
    letters.dedup();
    let letters = if letters.is_empty() { "ok".to_owned() } else { letters.into_iter().collect() };
    format!("{letters} ({})", report.states.len())
}
