//! Crash images of all prefixes of a trace.
//!
//! # Which prefixes are enough
//! A store, a flush, an `lfence` or a mark never makes an image impossible: the new store can be missing
//! completely, a flush promises nothing before the next fence, and a `clflush` limits only stores after
//! it. So the allowed set grows from operation to operation, until a fence or a locked operation (R7, R10)
//! shrinks it. It is enough to enumerate before each operation that shrinks the set, before each mark
//! (with the older mark as the last one), and at the end: what was possible at any other prefix is still
//! possible at the next one of these, with the same last mark. In particular what was possible right
//! after a mark is still possible before the next shrinking operation. `tests/explore.rs` compares this
//! with the exploration of every prefix.
//!
//! The argument needs complete sets. Where a set is too large and is sampled instead,
//! [`CrashPoints::every_op`] takes more samples, and can enumerate the prefixes whose sets are still small.

use std::collections::HashSet;
use std::ops::ControlFlow;

use twox_hash::XxHash3_128;

use crate::config::Config;
use crate::enumerate::TooMany;
use crate::machine::{Machine, ModelError};
use crate::op::Op;
use crate::scope::Scope;
use crate::trace::Trace;

/// How much to explore at each crash point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// A crash point with at most this many images is enumerated.
    pub exhaustive_limit: usize,
    /// A crash point with more images is sampled this many times.
    pub samples: usize,
    /// Seed of the samples.
    pub seed: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self { exhaustive_limit: 4096, samples: 256, seed: 0 }
    }
}

/// A crash, and what it left.
#[derive(Debug, Clone, Copy)]
pub struct CrashPoint<'a> {
    /// How many operations of the trace had been issued.
    pub op_index: usize,
    /// The last mark among these.
    pub last_mark: Option<u64>,
    /// PM after the crash.
    pub image: &'a [u8],
    /// Whether this crash point is enumerated and not sampled.
    pub exhaustive: bool,
}

/// What an exploration did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Crash points explored.
    pub points: usize,
    /// Images handed out; an image is handed out once for each last mark.
    pub images: usize,
    /// Crash points that were enumerated.
    pub exhaustive_points: usize,
    /// Crash points that were sampled.
    pub sampled_points: usize,
    /// The visitor stopped the exploration.
    pub stopped: bool,
}

/// The crash points of a trace.
#[derive(Debug, Clone)]
pub struct CrashPoints<'a> {
    trace: &'a Trace,
    config: Config,
    budget: Budget,
    every_op: bool,
}

impl<'a> CrashPoints<'a> {
    /// The crash points that are enough, see the module documentation.
    pub fn new(trace: &'a Trace, config: Config, budget: Budget) -> Self {
        Self { trace, config, budget, every_op: false }
    }

    /// Explores every prefix of the trace instead.
    #[must_use]
    pub fn every_op(mut self) -> Self {
        self.every_op = true;
        self
    }

    /// Calls `visit` for the images of the crash points, in the order of the trace. The same image with
    /// the same last mark is visited once only, at the first crash point that has it.
    ///
    /// # Errors
    /// [`ModelError`] if an operation does not fit the initial image.
    pub fn explore(
        &self,
        visit: &mut dyn FnMut(CrashPoint<'_>) -> ControlFlow<()>,
    ) -> Result<Summary, ModelError> {
        let mut run =
            Run { budget: self.budget, summary: Summary::default(), mark: None, seen: HashSet::new() };
        let mut machine = Machine::new(self.trace.initial.clone(), self.config);
        for (index, op) in self.trace.ops.iter().enumerate() {
            let is_needed = self.every_op || machine.can_shrink(op) || matches!(op, Op::Mark(_));
            if is_needed && run.point(&machine, index, visit).is_break() {
                return Ok(run.stopped());
            }
            machine.apply(op)?;
            if let Op::Mark(mark) = op {
                run.mark = Some(*mark);
            }
        }
        let flow = run.point(&machine, self.trace.ops.len(), visit);
        Ok(if flow.is_break() { run.stopped() } else { run.summary })
    }
}

/// State of an exploration.
struct Run {
    budget: Budget,
    summary: Summary,
    mark: Option<u64>,
    /// Last mark and hash of the images visited.
    seen: HashSet<(Option<u64>, u128)>,
}

impl Run {
    fn stopped(mut self) -> Summary {
        self.summary.stopped = true;
        self.summary
    }

    fn point(
        &mut self,
        machine: &Machine,
        op_index: usize,
        visit: &mut dyn FnMut(CrashPoint<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.summary.points += 1;
        let limit = self.budget.exhaustive_limit;
        let done = machine.for_each_crash_image(limit, &mut |image| self.image(op_index, true, image, visit));
        match done {
            Ok(done) => {
                self.summary.exhaustive_points += 1;
                if done.complete { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            }
            // None has been visited.
            Err(TooMany { .. }) => {
                self.summary.sampled_points += 1;
                let Budget { samples, seed, .. } = self.budget;
                let seed = seed.wrapping_add(op_index as u64);
                machine.sample(Scope::default(), seed, samples, &mut |image| {
                    self.image(op_index, false, image.memory, visit)
                })
            }
        }
    }

    /// Visits an image that is new for this mark.
    fn image(
        &mut self,
        op_index: usize,
        exhaustive: bool,
        image: &[u8],
        visit: &mut dyn FnMut(CrashPoint<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if !self.seen.insert((self.mark, XxHash3_128::oneshot(image))) {
            return ControlFlow::Continue(());
        }
        self.summary.images += 1;
        visit(CrashPoint { op_index, last_mark: self.mark, image, exhaustive })
    }
}

/// Explores the crash points of `trace` that are enough to see every allowed image of every prefix with
/// its last mark; see [`CrashPoints`].
///
/// # Errors
/// [`ModelError`] if an operation does not fit the initial image.
pub fn explore(
    trace: &Trace,
    config: &Config,
    budget: Budget,
    visit: &mut dyn FnMut(CrashPoint<'_>) -> ControlFlow<()>,
) -> Result<Summary, ModelError> {
    CrashPoints::new(trace, *config, budget).explore(visit)
}
