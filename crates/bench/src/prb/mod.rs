//! `fastness bench prb`: the cost of an entry, how writers scale, and how fast a log recovers.
//!
//! `docs/benchmarks.md` has goals and results.

mod recover;
mod slots;
mod sweep;
mod threads;
pub(crate) mod work;
mod write;

use crate::error::Result;
use crate::{Options, Row};

/// Runs the benchmark.
///
/// # Errors
/// If there is no memory for the emulated PM, or the log reports an error.
pub(crate) fn run(options: Options) -> Result<Vec<Row>> {
    let mut rows = write::goals(options)?;
    rows.push(slots::acquire_release(options)?);
    rows.extend(threads::scaling(options)?);
    rows.extend(threads::oversubscription(options)?);
    rows.push(recover::claim_and_replay(options)?);
    rows.push(write::protection(options)?);
    if !options.quick {
        rows.extend(sweep::rows(options)?);
    }
    Ok(rows)
}
