//! Where the counters of the machine are read.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::CostError;

/// Folders of the kernel's counters; others than the usual ones for tests.
#[derive(Debug, Clone)]
pub struct Machine {
    pub(crate) proc: PathBuf,
    pub(crate) sys: PathBuf,
}

impl Default for Machine {
    fn default() -> Machine {
        Machine { proc: PathBuf::from("/proc"), sys: PathBuf::from("/sys") }
    }
}

impl Machine {
    /// Reads counters below other folders than `/proc` and `/sys`; for tests.
    pub fn testing(proc: impl Into<PathBuf>, sys: impl Into<PathBuf>) -> Machine {
        Machine { proc: proc.into(), sys: sys.into() }
    }
}

/// Reads a file of the kernel.
pub(crate) fn read(path: &Path) -> Result<String, CostError> {
    fs::read_to_string(path).map_err(|source| CostError::Read { path: path.to_owned(), source })
}

/// A number that stands alone in a file of the kernel.
pub(crate) fn number(path: &Path) -> Result<u64, CostError> {
    let text = read(path)?;
    let wrong = || CostError::Malformed { path: path.to_owned(), what: "is not a number" };
    text.trim().parse().map_err(|_| wrong())
}
