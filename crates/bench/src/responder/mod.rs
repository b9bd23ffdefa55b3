//! `fastness bench responder`: a cache in emulated PM in front of a directory, beside the floor, beside the
//! file system behind it, and beside a pass-through mount.
//!
//! Source: the dissertation on PMAL, MeLo@V and First Responder, chapters III to V, scaled to one small
//! machine: tables 5 and 6 (`write`), figures 17 (`mix`), 21 and 25 (`sweep`).

mod cached;
mod front;
mod mix;
mod sweep;
mod write;

pub use front::{report_from_inside, serve_plain};

use crate::error::Result;
use crate::folder::Folder;
use crate::{Options, Row};

/// Runs the benchmark.
///
/// # Errors
/// If nothing can be mounted, or a system call fails.
pub(crate) fn run(options: Options) -> Result<Vec<Row>> {
    let folder = Folder::new()?;
    let mut rows = write::rows(&folder, options)?;
    rows.extend(front::rows(&folder, options)?);
    rows.extend(mix::rows(&folder, options)?);
    if !options.quick {
        rows.extend(sweep::rows(&folder)?);
    }
    Ok(rows)
}
