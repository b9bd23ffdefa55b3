//! Judges litmus files.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use fastness_pm_model::{Config, Machine, Op, Rules};
use serde::Serialize;

use super::error::{LitmusError, Location, Problem};
use super::limits;
use super::parse::{LitmusFile, LitmusTest, Range, State, parse};
use super::report::{FileReport, TestReport, mode_name};

/// Which model judges a file, instead of the one that the file is meant for (`arch`, not strict, if the
/// file does not say).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ModeOverride {
    /// The rules.
    pub rules: Option<Rules>,
    /// Whether non-temporal stores to one line are unordered.
    pub strict_nt: Option<bool>,
}

/// Arguments of `fastness crashcheck litmus`.
#[derive(Debug, Clone, Default)]
pub struct LitmusArgs {
    /// The files, judged in this order.
    pub files: Vec<PathBuf>,
    /// Which model judges them.
    pub mode: ModeOverride,
    /// Report as JSON.
    pub json: bool,
}

/// The JSON report.
#[derive(Serialize)]
struct JsonReport<'a> {
    format: u32,
    ok: bool,
    files: &'a [FileReport],
}

/// Judges files and writes a report to `out`; true if file and model agree on all programs.
///
/// # Errors
/// [`LitmusError`] for the first file that cannot be judged; with `json` nothing has been written then.
pub fn run(args: &LitmusArgs, out: &mut dyn Write) -> Result<bool, LitmusError> {
    let mut reports = Vec::new();
    for path in &args.files {
        let report = run_file(path, args.mode)?;
        if !args.json {
            report.write_text(out).map_err(LitmusError::Write)?;
        }
        reports.push(report);
    }
    let ok = reports.iter().all(FileReport::agrees);
    if args.json {
        let report = JsonReport { format: 1, ok, files: &reports };
        serde_json::to_writer_pretty(&mut *out, &report).map_err(|error| LitmusError::Write(error.into()))?;
        writeln!(out).map_err(LitmusError::Write)?;
    }
    Ok(ok)
}

/// Judges one file.
///
/// # Errors
/// [`LitmusError`] if the file cannot be read or is invalid.
pub fn run_file(path: &Path, mode: ModeOverride) -> Result<FileReport, LitmusError> {
    let text = read(path).map_err(|source| LitmusError::Read { path: path.to_owned(), source })?;
    let invalid = |(location, problem)| LitmusError::Invalid { path: path.to_owned(), location, problem };
    let file = parse(&text).map_err(invalid)?;
    let config = config_of(&file, mode);
    let tests = run_tests(&file.tests, config).map_err(invalid)?;
    Ok(FileReport::new(path.display().to_string(), config, tests))
}

/// Reads one byte more than a file may have at most, so that the parser notices.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path)?.take(limits::FILE_BYTES_MAX + 1).read_to_end(&mut text)?;
    Ok(text)
}

fn config_of(file: &LitmusFile, mode: ModeOverride) -> Config {
    Config {
        rules: mode.rules.or(file.rules).unwrap_or_default(),
        strict_nt: mode.strict_nt.or(file.strict_nt).unwrap_or_default(),
        ..Config::default()
    }
}

/// Judges programs; the persistence comes from each of them, the rest from `config`.
///
/// # Errors
/// The first program that cannot be judged.
pub fn run_tests(tests: &[LitmusTest], config: Config) -> Result<Vec<TestReport>, (Location, Problem)> {
    tests.iter().enumerate().map(|(index, test)| run_test(index, test, config)).collect()
}

fn run_test(index: usize, test: &LitmusTest, config: Config) -> Result<TestReport, (Location, Problem)> {
    let here = |op_index| Location { test_index: Some(index), test: Some(test.name.clone()), op_index };
    let config = Config { persistence: test.persistence, ..config };
    let mut machine = Machine::new(vec![0; pm_bytes(test)], config);
    for (op_index, op) in test.ops.iter().enumerate() {
        machine.apply(op).map_err(|error| (here(Some(op_index)), error.into()))?;
    }
    let mut states = BTreeSet::new();
    let done = machine.for_each_crash_image(limits::IMAGES_MAX, &mut |image| {
        states.insert(observe(image, &test.observe));
        ControlFlow::Continue(())
    });
    done.map_err(|error| (here(None), error.into()))?;
    Ok(TestReport {
        name: test.name.clone(),
        mode: mode_name(test.persistence),
        states: states.len(),
        missing: test.allowed.difference(&states).cloned().collect(),
        extra: states.difference(&test.allowed).cloned().collect(),
    })
}

/// Size of the PM of a program: up to the last line that it uses.
fn pm_bytes(test: &LitmusTest) -> usize {
    let op_end = |op: &Op| match op {
        Op::Store { addr, data, .. } | Op::Rmw { addr, data } => *addr as usize + data.len(),
        Op::Flush { addr, .. } => *addr as usize + 1,
        Op::Fence(_) | Op::Mark(_) => 0,
    };
    let ends = test.observe.iter().map(|range| range.addr + range.size).chain(test.ops.iter().map(op_end));
    ends.max().unwrap_or(0).next_multiple_of(64)
}

fn observe(image: &[u8], ranges: &[Range]) -> State {
    let value = |range: &Range| {
        let bytes = &image[range.addr..range.addr + range.size];
        bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
    };
    ranges.iter().map(value).collect()
}
