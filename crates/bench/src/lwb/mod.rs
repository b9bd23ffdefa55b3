//! `fastness bench lwb`: threads that commit records to the block log, beside threads that write the same
//! bytes and make them durable themselves.
//!
//! The floor is what a program does without a log: `pwrite` and `fdatasync` for each record, each thread in
//! its own range of one file. Folder and medium as for `fastness bench pool`.

mod commit;
mod indirect;

use crate::error::Result;
use crate::pool::Place;
use crate::{Options, Row};

/// Runs the benchmark.
///
/// # Errors
/// If the folder has no room, or the log reports an error.
pub(crate) fn run(options: Options) -> Result<Vec<Row>> {
    let place = Place::new()?;
    let mut rows = vec![commit::row(&place, options, 8, 4096, Some(2.0))?];
    for (threads, bytes) in [(1, 4096), (1, 256), (8, 256), (32, 4096)] {
        rows.push(commit::row(&place, options, threads, bytes, None)?);
    }
    for (bytes, threads) in [(1 << 20, 1), (1 << 20, 8), (128 << 10, 1), (128 << 10, 8)] {
        rows.push(indirect::row(&place, options, bytes, threads)?);
    }
    Ok(rows)
}
