//! Fuzzing: inputs that make a program, or a file system, reach something new, whose crashes are tested.
//!
//! Motivation: a test shows the bugs of the inputs that somebody thought of. Here inputs change at random;
//! one that runs new code, or leaves stores pending in a new way, is kept, changed again, and its crash
//! images are made and recovered. What is found is told by its cause, once, with an input that was made as
//! small as it goes.
//!
//! How it goes: inputs are made in rounds of [`ROUND`], run at once, and looked at in order. So a seed
//! decides everything but what the program itself leaves to chance, whatever the number of threads. A run
//! that ends with another exit code than 0 has refused its input: its code counts, its crashes do not,
//! because it has promised nothing. One that is killed by a signal, or hangs, is a finding by itself.
//!
//! ```text
//! session    the loop                     subject      what is fuzzed, for the loop
//! findings   which are new; made smaller  program      an input is a file; code: which of it is the program's
//! corpus     inputs as files              file_system  an input is a workload, which runs in a guest
//! ```
//! Bounds: inputs have at most 64 KiB, 10,000 are read; see [`Corpus`](fastness_crashcheck_fuzz::Corpus).

mod code;
mod corpus;
mod file_system;
mod findings;
mod program;
mod session;
mod subject;

use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::report::Report;

pub use file_system::FuzzedFileSystem;
pub use findings::{Finding, FindingCause};
pub use program::Program;
pub use session::replay;
pub use subject::{Depth, Place, Ran, Subject};

/// Inputs that are made before their results are looked at.
pub const ROUND: usize = 8;

/// What is fuzzed, and how.
pub struct Fuzz<'a> {
    /// The program, or the file system.
    pub subject: &'a dyn Subject,
    /// Temporary files.
    pub work: &'a Path,
    /// Runs at a time.
    pub threads: usize,
    /// What decides which inputs there are.
    pub seed: u64,
    /// Ends after so many inputs.
    pub runs: Option<u64>,
    /// Ends after so many findings.
    pub findings_max: Option<usize>,
    /// Ends then.
    pub deadline: Option<Instant>,
    /// Inputs to begin with, and where those go that reach something new.
    pub corpus: Option<&'a Path>,
    /// Where findings go: an input, a trace and a report each. Made when there is one.
    pub output: &'a Path,
    /// Most inputs that are tried to make that of a finding smaller.
    pub shrink_runs: usize,
    /// Letters of findings that are none here: `A` where operations need not be atomic.
    pub ignore: &'a str,
    /// Told of each round, and of each finding.
    pub tell: &'a (dyn Fn(&Told<'_>) + Sync),
}

/// How far it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Inputs that were run.
    pub runs: u64,
    /// Those that the program, or its test, has refused.
    pub refused: u64,
    /// Those that have reached something new.
    pub kept: usize,
    /// Blocks of code, by how often they ran, and patterns of pending stores.
    pub features: usize,
    /// Inputs whose crashes were tested.
    pub tested: usize,
    /// Crash images that were recovered for these.
    pub images: usize,
}

/// What a caller is told.
pub enum Told<'a> {
    /// A round has ended.
    Round(Totals, usize),
    /// Something was found; its input is made smaller now.
    Found(&'a FindingCause),
    /// It was saved.
    Saved(&'a Finding),
}

/// The result.
pub struct Fuzzed {
    /// How much was done.
    pub totals: Totals,
    /// What was found, in the order in which it was.
    pub findings: Vec<Finding>,
}

impl Fuzzed {
    /// The reports of those that a crash shows.
    pub fn reports(&self) -> Vec<Report> {
        self.findings.iter().filter_map(|finding| finding.report.clone()).collect()
    }
}

/// A file of a finding, or of the corpus.
fn file(folder: &Path, name: &str, extension: &str) -> PathBuf {
    folder.join(format!("{name}.{extension}"))
}

#[cfg(test)]
mod tests;
