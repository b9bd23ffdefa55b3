//! One input: the program is traced with it; the crashes of that trace are tested.

use std::path::{Path, PathBuf};
use std::time::Instant;

use fastness_crashcheck_fuzz::Features;
use fastness_crashcheck_trace::coverage;

use super::Fuzz;
use super::place::Places;
use crate::error::{CheckError, Result};
use crate::explain::pending_features;
use crate::process::Ending;
use crate::report::Report;
use crate::run::{Setting, Test};
use crate::trace::open_trace;

/// Most crash images of a failure point while inputs are tried.
const PER_POINT_MAX: usize = 64;
/// Most recoveries to find what a crash must have lost, meanwhile.
const SHRINK_MAX: usize = 16;

/// The test as it is done for each input that is kept: fewer crash images, and no recovery is traced. The
/// report of a finding is made with the test itself.
pub fn quick(test: &Test) -> Test {
    let mut quick = test.clone();
    quick.images.reads = false;
    quick.images.per_point = quick.images.per_point.min(PER_POINT_MAX);
    quick.images.shrink = quick.images.shrink.min(SHRINK_MAX);
    quick
}

/// What became of a run.
pub(super) enum Ran {
    /// It has ended so, and reached this.
    Ended(Ending, Features),
    /// It could not be traced.
    Refused(CheckError),
}

/// A place where one input at a time is run.
pub(super) struct Runner<'a> {
    fuzz: &'a Fuzz<'a>,
    work: PathBuf,
    trace: PathBuf,
}

impl<'a> Runner<'a> {
    /// `name` tells it from others that run at the same time.
    pub(super) fn new(fuzz: &'a Fuzz<'a>, name: &str) -> Runner<'a> {
        let work = fuzz.work.join(name);
        Runner { fuzz, trace: work.join("trace"), work }
    }

    fn setting(&self, deadline: Option<Instant>) -> Setting<'_> {
        Setting {
            trace: &self.trace,
            work: &self.work,
            keep: None,
            threads: self.fuzz.threads,
            tools: self.fuzz.tools,
            deadline,
            progress: &|_| {},
        }
    }

    /// The trace of the last run.
    pub(super) fn trace(&self) -> &Path {
        &self.trace
    }

    /// Runs the program.
    ///
    /// # Errors
    /// Those of files. What the program does, and that it cannot be traced, is no error.
    pub(super) fn run(&self, input: &[u8]) -> Result<Ran> {
        crate::error::make_dir(&self.work)?;
        let (file, blocks) = (self.work.join("input"), self.work.join("coverage"));
        std::fs::write(&file, input).map_err(CheckError::file("write", &file))?;
        let ending = match self.fuzz.test.trace(&self.setting(None), Some(&file), Some(&blocks)) {
            Ok(ending) => ending,
            Err(error @ CheckError::Tracer(_)) => return Ok(Ran::Refused(error)),
            Err(error) => return Err(error),
        };
        match self.features(&blocks) {
            Ok(features) => Ok(Ran::Ended(ending, features)),
            // It was killed.
            Err(_) if !ending.is_success() => Ok(Ran::Ended(ending, Features::default())),
            Err(error) => Err(error),
        }
    }

    fn features(&self, blocks: &Path) -> Result<Features> {
        let places = Places::of(&mut open_trace(&self.trace)?)?;
        let read = std::fs::File::open(blocks).and_then(coverage::read);
        let mut features = Features::default();
        for block in read.map_err(CheckError::file("read", blocks))? {
            if let Some(place) = places.own(block.pc) {
                features.add_block(place, block.count);
            }
        }
        pending_features(&mut open_trace(&self.trace)?, &|pc| places.number(pc), &mut features)?;
        Ok(features)
    }

    /// Tests the crashes of the last run; no recovery begins after the deadline. None if the trace cannot be
    /// judged: the program has logged what is no operation.
    ///
    /// # Errors
    /// [`CheckError`]
    pub(super) fn judge(&self, test: &Test, deadline: Option<Instant>) -> Result<Option<Report>> {
        match test.analyse(&self.setting(deadline)) {
            Ok(report) => Ok(Some(report)),
            Err(CheckError::Operations { .. } | CheckError::Trace(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
