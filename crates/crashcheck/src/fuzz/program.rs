//! A program: its input is a file, or comes on standard input.

use std::time::Instant;

use fastness_crashcheck_fuzz::Features;
use fastness_crashcheck_fuzz::bytes::{self, Mutator};
use fastness_pm_model::Rng;

use super::code::Code;
use super::subject::{Depth, Place, Ran, Subject, quick};
use crate::error::{CheckError, Result, make_dir};
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
        let images = quick(&test.images, PER_POINT_MAX, SHRINK_MAX);
        let quick = Test { images, ..test.clone() };
        Program { test, quick, tools, threads, mutator: Mutator { words, ..Mutator::default() } }
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
        let file = place.work.join("input");
        std::fs::write(&file, input).map_err(CheckError::file("write", &file))?;
        let ending = match self.test.trace(&self.setting(place, None), Some(&file), Some(&place.coverage())) {
            Ok(ending) => ending,
            Err(error @ CheckError::Tracer(_)) => return Ok(Ran::Refused(error)),
            Err(error) => return Err(error),
        };
        match features(place) {
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

fn features(place: &Place) -> Result<Features> {
    let code = Code::of(&mut open_trace(&place.trace)?)?;
    place.features(|pc| code.own(pc), &|pc| code.number(pc))
}
