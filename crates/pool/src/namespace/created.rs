//! When a dataset was made, as it is stored.

use std::time::{SystemTime, UNIX_EPOCH};

/// Key of aux data: seconds since the beginning of 1970, 8 bytes.
pub(crate) const CREATED: &[u8] = b"created";

/// What the clock says now.
pub(crate) fn now() -> Vec<u8> {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    seconds.to_le_bytes().to_vec()
}
