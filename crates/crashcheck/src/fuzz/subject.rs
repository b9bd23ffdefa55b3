//! What is fuzzed, as the loop sees it: inputs are bytes.

use std::path::{Path, PathBuf};
use std::time::Instant;

use fastness_crashcheck_fuzz::Features;
use fastness_crashcheck_trace::coverage;
use fastness_pm_model::Rng;

use crate::error::{CheckError, Result};
use crate::explain::pending_features;
use crate::process::Ending;
use crate::report::Report;
use crate::run::ImagesConfig;
use crate::trace::open_trace;

/// Where one input at a time is run.
pub struct Place {
    /// Temporary files.
    pub(super) work: PathBuf,
    /// The trace of the last run.
    pub(super) trace: PathBuf,
}

impl Place {
    /// `name` tells it from others that are used at the same time.
    pub(super) fn new(work: &Path, name: &str) -> Place {
        let work = work.join(name);
        Place { trace: work.join("trace"), work }
    }

    /// Where it goes which blocks of code ran.
    pub(super) fn coverage(&self) -> PathBuf {
        self.work.join("coverage")
    }

    /// What the last run reached. `own`: the number of an instruction whose block counts; `number`: that of
    /// one which stores.
    ///
    /// # Errors
    /// Those of the files that it has left.
    pub(super) fn features(
        &self,
        own: impl Fn(u64) -> Option<u64>,
        number: &dyn Fn(u64) -> u64,
    ) -> Result<Features> {
        let mut features = Features::default();
        let path = self.coverage();
        let blocks = std::fs::File::open(&path).and_then(coverage::read);
        for block in blocks.map_err(CheckError::file("read", &path))? {
            if let Some(place) = own(block.pc) {
                features.add_block(place, block.count);
            }
        }
        pending_features(&mut open_trace(&self.trace)?, number, &mut features)?;
        Ok(features)
    }
}

/// What became of a run.
pub enum Ran {
    /// It has ended so, and reached this.
    Ended(Ending, Features),
    /// It could not be traced.
    Refused(CheckError),
}

/// The same with at most so many images of a failure point, and so many recoveries to find what a crash must
/// have lost; no recovery is traced.
pub(super) fn quick(images: &ImagesConfig, per_point_max: usize, shrink_max: usize) -> ImagesConfig {
    ImagesConfig {
        reads: false,
        per_point: images.per_point.min(per_point_max),
        shrink: images.shrink.min(shrink_max),
        ..images.clone()
    }
}

/// How many crash images are made of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Few, because there are many inputs.
    Quick,
    /// All that the test asks for.
    Full,
}

/// A program, or a file system.
pub trait Subject: Sync {
    /// Its name, also in file names.
    fn name(&self) -> &str;

    /// Inputs to begin with if there are no others.
    fn seeds(&self) -> Vec<Vec<u8>>;

    /// Changes an input; parts of `other` may come in.
    fn mutate(&self, input: &[u8], other: &[u8], rng: &mut Rng) -> Vec<u8>;

    /// A smaller input of which `fails` says yes, as it does of `input`; it is asked up to `most` times.
    ///
    /// # Errors
    /// Those of `fails`.
    fn shrink(
        &self,
        input: &[u8],
        most: usize,
        fails: &mut dyn FnMut(&[u8]) -> Result<bool>,
    ) -> Result<Vec<u8>>;

    /// Runs and traces it.
    ///
    /// # Errors
    /// Those of this machine. What the subject does, and that it cannot be traced, is no error.
    fn run(&self, place: &Place, input: &[u8]) -> Result<Ran>;

    /// Tests the crashes of the last run at a place; no recovery begins after the deadline. None if the trace
    /// cannot be judged.
    ///
    /// # Errors
    /// [`CheckError`]
    fn judge(&self, place: &Place, depth: Depth, deadline: Option<Instant>) -> Result<Option<Report>>;
}
