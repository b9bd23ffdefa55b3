//! A program: its input is a file, or comes on standard input.

use std::path::Path;
use std::time::Instant;

use fastness_crashcheck_fuzz::Features;
use fastness_crashcheck_fuzz::bytes::{self, Mutator};
use fastness_crashcheck_trace::coverage;
use fastness_pm_model::Rng;

use super::code::Code;
use super::subject::{Depth, Place, Ran, Subject};
use crate::error::{CheckError, Result, make_dir};
use crate::explain::pending_features;
use crate::report::Report;
use crate::run::{Setting, Test};
use crate::trace::open_trace;
use crate::tracer::Tools;

/// Most crash images of a failure point while inputs are tried.
const PER_POINT_MAX: usize = 64;
/// Most recoveries to find what a crash must have lost, meanwhile.
const SHRINK_MAX: usize = 16;

/// What there is to begin with where nothing is given: nothing, and a line with a number.
const SEEDS: [&[u8]; 2] = [b"", b"a 1\n"];

/// A program under test.
pub struct Program<'a> {
    test: &'a Test,
    /// The test as it is done for each input that is kept.
    quick: Test,
    tools: &'a Tools,
    threads: usize,
    mutator: Mutator,
}

impl<'a> Program<'a> {
    /// `words` may come into its inputs; `threads` recoveries run at a time.
    pub fn new(test: &'a Test, tools: &'a Tools, threads: usize, words: Vec<Vec<u8>>) -> Program<'a> {
        Program { test, quick: quick(test), tools, threads, mutator: Mutator { words, ..Mutator::default() } }
    }

    fn setting<'b>(&'b self, place: &'b Place, deadline: Option<Instant>) -> Setting<'b> {
        Setting {
            trace: &place.trace,
            work: &place.work,
            keep: None,
            threads: self.threads,
            tools: self.tools,
            deadline,
            progress: &|_| {},
        }
    }
}

/// Fewer crash images, and no recovery is traced.
fn quick(test: &Test) -> Test {
    let mut quick = test.clone();
    quick.images.reads = false;
    quick.images.per_point = quick.images.per_point.min(PER_POINT_MAX);
    quick.images.shrink = quick.images.shrink.min(SHRINK_MAX);
    quick
}

impl Subject for Program<'_> {
    fn name(&self) -> &str {
        &self.test.name
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        SEEDS.map(<[u8]>::to_vec).to_vec()
    }

    fn mutate(&self, input: &[u8], other: &[u8], rng: &mut Rng) -> Vec<u8> {
        self.mutator.mutate(input, other, rng)
    }

    fn shrink(
        &self,
        input: &[u8],
        most: usize,
        fails: &mut dyn FnMut(&[u8]) -> Result<bool>,
    ) -> Result<Vec<u8>> {
        bytes::shrink(input, most, fails)
    }

    fn run(&self, place: &Place, input: &[u8]) -> Result<Ran> {
        make_dir(&place.work)?;
        let (file, blocks) = (place.work.join("input"), place.work.join("coverage"));
        std::fs::write(&file, input).map_err(CheckError::file("write", &file))?;
        let ending = match self.test.trace(&self.setting(place, None), Some(&file), Some(&blocks)) {
            Ok(ending) => ending,
            Err(error @ CheckError::Tracer(_)) => return Ok(Ran::Refused(error)),
            Err(error) => return Err(error),
        };
        match features(place, &blocks) {
            Ok(features) => Ok(Ran::Ended(ending, features)),
            // It was killed.
            Err(_) if !ending.is_success() => Ok(Ran::Ended(ending, Features::default())),
            Err(error) => Err(error),
        }
    }

    fn judge(&self, place: &Place, depth: Depth, deadline: Option<Instant>) -> Result<Option<Report>> {
        let test = match depth {
            Depth::Quick => &self.quick,
            Depth::Full => self.test,
        };
        match test.analyse(&self.setting(place, deadline)) {
            Ok(report) => Ok(Some(report)),
            // It has logged what is no operation.
            Err(CheckError::Operations { .. } | CheckError::Trace(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn features(place: &Place, blocks: &Path) -> Result<Features> {
    let code = Code::of(&mut open_trace(&place.trace)?)?;
    let mut features = Features::default();
    let read = std::fs::File::open(blocks).and_then(coverage::read);
    for block in read.map_err(CheckError::file("read", blocks))? {
        if let Some(number) = code.own(block.pc) {
            features.add_block(number, block.count);
        }
    }
    pending_features(&mut open_trace(&place.trace)?, &|pc| code.number(pc), &mut features)?;
    Ok(features)
}
