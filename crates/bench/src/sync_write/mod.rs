//! `fastness bench sync-write`: 4 KiB random writes with FUA into volumes, in process, with a log in emulated
//! PM.
//!
//! *Floor*: header and body of the entry by plain non-temporal copies and the same two fences. *Upper bound*:
//! the same writes under `sync=disabled`. Pages of the region are mapped before anything is timed, and every
//! row begins with volumes that were written before. Txgs sync between turns, not beside them, but for the
//! rows that say so. Writes and reads that need no log, the block log on a simulated disk, and the rows of
//! `fastness bench vhost-user` come last; the latter not in a quick run.
//!
//! The pool is a file in the folder that the variable `FASTNESS_BENCH_DIR` names, else in that for temporary
//! files.

mod beside;
mod held;
mod kinds;
mod latency;
pub(crate) mod one;
mod read_back;
mod replay;
pub(crate) mod stack;
mod sustained;
mod threads;

use crate::error::Result;
use crate::lwb::simulated::{self, Flushes};
use crate::pool::{Place, in_memory};
use crate::{Options, Row};
use stack::{Memory, Site};

/// Runs the benchmark.
///
/// # Errors
/// If a folder has no room, or the pool reports an error.
pub(crate) fn run(options: Options) -> Result<Vec<Row>> {
    let site = Site { place: Place::new()?, memory: Memory::new()? };
    let mut rows = one::rows(&site, options)?;
    rows.extend(kinds::rows(&site, options)?);
    rows.extend(latency::rows(&site, options)?);
    rows.extend(threads::scaling(&site, options)?);
    rows.extend(threads::committers(&site, options)?);
    rows.push(beside::row(&site, options)?);
    rows.extend(sustained::rows(&site, options)?);
    rows.push(replay::row(&site, options)?);
    rows.extend(held::rows(&site)?);
    rows.extend(read_back::rows(&site, options)?);
    rows.push(simulated::row(options, 1000, Flushes::Exclusive, 8)?);
    rows.extend(in_memory(&site.place, options)?);
    drop(site);
    if !options.quick {
        rows.extend(crate::vhost_user::run(options)?);
    }
    Ok(rows)
}
