//! What names of pools and datasets may be.

use crate::error::{PoolError, Result};
use crate::ids::RECEIVED;

/// Checks a name of a pool, or the last part of a dataset's.
pub(crate) fn check_component(name: &str) -> Result<()> {
    let is_valid = !name.is_empty()
        && name.len() <= 255
        && name != "."
        && name != ".."
        && name.chars().all(|c| c.is_alphanumeric() || "-_.:".contains(c));
    if is_valid { Ok(()) } else { Err(PoolError::invalid("name of a dataset", name)) }
}

/// The name of the parent and the last part, which begins with `@` for a snapshot.
pub(super) fn split(name: &str) -> Result<(&str, &str)> {
    let invalid = || PoolError::invalid("name of a dataset", name);
    if let Some((volume, snapshot)) = name.split_once('@') {
        check_component(snapshot).map_err(|_| invalid())?;
        return Ok((volume, &name[volume.len()..]));
    }
    let (parent, last) = name.rsplit_once('/').ok_or_else(invalid)?;
    if last != RECEIVED {
        check_component(last)?;
    }
    Ok((parent, last))
}
