//! `fastness bench lwb`: threads that commit records to the block log, beside threads that write the same
//! bytes and make them durable themselves.
//!
//! The floor is what a program does without a log: `pwrite` and `fdatasync` for each record, each thread in
//! its own range of one file. Folder and medium as for `fastness bench pool`. The same again on a simulated
//! disk, whose flush takes a fixed time: that of a real one has moods of its own.

mod commit;
mod indirect;
pub(crate) mod simulated;

use crate::error::Result;
use crate::pool::Place;
use crate::{Options, Row};
use commit::Load;

/// Runs the benchmark.
///
/// # Errors
/// If the folder has no room, or the log reports an error.
pub(crate) fn run(options: Options) -> Result<Vec<Row>> {
    let place = Place::new()?;
    let mut rows = Vec::new();
    for (threads, bytes, goal) in
        [(8, 4096, Some(2.0)), (1, 4096, None), (1, 256, None), (8, 256, None), (32, 4096, None)]
    {
        rows.push(commit::row(&place, options, Load { threads, bytes, goal })?);
    }
    rows.extend(simulated::rows(options)?);
    for (bytes, threads) in [(1 << 20, 1), (1 << 20, 8), (128 << 10, 1), (128 << 10, 8)] {
        rows.push(indirect::row(&place, options, bytes, threads)?);
    }
    Ok(rows)
}
