//! Benchmarks of the stack: programs, never timed tests.
//!
//! Machines are shared and noisy, so two things are compared only within one run, turn by turn, and the
//! result is a ratio with its interval. Every job has a floor: the same bytes moved by the plainest loop.
//! The medium is named in every row; memory that stands in for PM is *emulated PM*.

mod measure;
mod medium;
mod pmemlog;
pub mod prb;
mod report;

pub use report::{Row, render_json, render_table};

/// What to run, from the command line.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// End within 30 s: fewer turns, no sweeps.
    pub quick: bool,
}
