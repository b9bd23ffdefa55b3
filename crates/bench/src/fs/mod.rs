//! `fastness bench fs`: a file system in process, with a log in emulated PM.
//!
//! *Floor* of a synchronous write: header and body of the log's entry by plain non-temporal copies and the
//! same two fences, as in `bench sync-write`. Txgs sync between turns, not beside them.

pub(crate) mod file;
mod names;
mod replay;
mod write;

use crate::error::Result;
use crate::pool::Place;
use crate::sync_write::stack::{Memory, Site};
use crate::{Options, Row};

/// Runs the benchmark.
///
/// # Errors
/// If a folder has no room, or the pool reports an error.
pub(crate) fn run(options: Options) -> Result<Vec<Row>> {
    let site = Site { place: Place::new()?, memory: Memory::new()? };
    let mut rows = write::rows(&site, options)?;
    rows.extend(names::rows(&site, options)?);
    rows.push(replay::row(&site, options)?);
    Ok(rows)
}
