//! `fastness bench prb`: what an entry costs.

mod write;

use crate::{Options, Row};

/// Runs the benchmark.
///
/// # Errors
/// If memory for the emulated PM cannot be had, or the log reports an error.
pub fn run(options: Options) -> anyhow::Result<Vec<Row>> {
    write::rows(options)
}
