//! `fastness bench overload`: what more writers than a PM device can serve cost, with and without a limit.
//!
//! The device is a **model** (`fastness_pmem::model`), except in the rows that say *emulated PM*. Rows under
//! *burnt* run in real time on this machine's CPUs; the shapes of the sources' figures run in slowed time, so
//! that there are as many CPUs as writers.
//!
//! Source: dissertation (2025), figures 3.5, 3.6 and 5.2; zil-pmem thesis, figure 7.11.

mod burnt;
mod direct;
mod load;
mod shapes;

use crate::error::Result;
use crate::{Options, Row};

/// Runs the benchmark.
///
/// # Errors
/// If there is no memory for the emulated PM.
pub(crate) fn run(options: Options) -> Result<Vec<Row>> {
    let mut rows = direct::rows(options)?;
    rows.extend(burnt::rows(options)?);
    rows.extend(shapes::rows(options)?);
    Ok(rows)
}
