//! What names of pools and datasets may be.

use crate::error::{PoolError, Result};

/// Checks a name of a pool, or the last part of a dataset's.
pub(crate) fn check_component(name: &str) -> Result<()> {
    let is_valid = !name.is_empty()
        && name.len() <= 255
        && name != "."
        && name != ".."
        && name.chars().all(|c| c.is_alphanumeric() || "-_.:".contains(c));
    if is_valid { Ok(()) } else { Err(PoolError::invalid("name of a dataset", name)) }
}
