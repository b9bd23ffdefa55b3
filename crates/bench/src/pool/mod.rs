//! `fastness bench pool`: the cost of writes, syncs, reads and imports of a pool, compared with the plainest
//! way to do the same.
//!
//! The medium is a file in the folder that the variable `FASTNESS_BENCH_DIR` names, else in the folder for
//! temporary files. The floor uses another file there, opened the same way; both are written once before
//! anything is measured, so that neither pays for the file system's first allocation.

mod datasets;
mod forget;
mod import;
mod overload;
mod place;
mod read;
mod sync;
mod tables;
mod write;

use crate::error::Result;
use crate::{Options, Row};

pub(crate) use place::{Numbers, Place, noise, store_options};

/// Runs the benchmark.
///
/// # Errors
/// If the folder has no room, or the pool reports an error.
pub(crate) fn run(options: Options) -> Result<Vec<Row>> {
    let place = Place::new()?;
    let mut rows = write::rows(&place, options)?;
    rows.extend(sync::rows(&place, options)?);
    rows.extend(read::rows(&place, options)?);
    rows.extend(overload::rows(&place, options)?);
    rows.push(import::row(&place, options)?);
    rows.extend(datasets::rows(&place)?);
    rows.extend(tables::rows(&place, options)?);
    Ok(rows)
}

/// An asynchronous write and a cached read of 4 KiB beside copies of as much.
///
/// # Errors
/// As of [`run`].
pub(crate) fn in_memory(place: &Place, options: Options) -> Result<Vec<Row>> {
    let mut rows = vec![write::row(place, options)?.at_most(1.15)];
    rows.extend(read::cached(place, options)?.pop().map(|row| row.at_most(1.25)));
    Ok(rows)
}
