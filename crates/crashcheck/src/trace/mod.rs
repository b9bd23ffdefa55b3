//! Traces: opened, made from in-process recordings, and printed.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use fastness_crashcheck_trace::{Reader, Region};

use crate::error::{CheckError, Result};

mod record;
mod show;

pub use record::record;
pub use show::{Filter, ShowError, show};
pub(crate) use show::{hex, name, text};

/// Opens a trace.
///
/// # Errors
/// Those of the file, and of its beginning.
pub fn open_trace(path: &Path) -> Result<Reader<BufReader<File>>> {
    let file = File::open(path).map_err(CheckError::file("open", path))?;
    Ok(Reader::new(BufReader::with_capacity(1 << 20, file))?)
}

/// The last part of a region's path: what is said of it does not depend on where a test keeps its files.
pub(crate) fn short_name(region: &Region) -> &str {
    region.name.rsplit('/').next().unwrap_or_default()
}
