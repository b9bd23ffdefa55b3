//! Parts of messages.

use crate::error::PoolError;
use crate::ids::{RECEIVED, Txg};

/// When a device or region was left behind, in words.
pub(super) fn of_when(found: Option<Txg>, expected: Txg) -> String {
    match found {
        Some(found) if found < expected => {
            let behind = expected.0 - found.0;
            format!("from earlier: it ends with {found}, {behind} before that of the others, {expected}")
        }
        Some(found) => format!("from another import of the pool: its {found} is not that of the others"),
        None => format!("from earlier: it does not say which txg it has, and the others have {expected}"),
    }
}

/// Names of clones; what is received for a volume has none that anybody has given it.
pub(super) fn clones(names: &[String]) -> String {
    let word = |name: &String| match name.strip_suffix(RECEIVED).and_then(|name| name.strip_suffix('/')) {
        Some(volume) => format!("what came of a stream for {volume}"),
        None => name.clone(),
    };
    names.iter().map(word).collect::<Vec<_>>().join(", ")
}

/// Result of a pool's operation.
pub type Result<T, E = PoolError> = std::result::Result<T, E>;

impl PoolError {
    /// A value that cannot be.
    pub fn invalid(what: &'static str, value: impl ToString) -> PoolError {
        PoolError::Invalid { what, value: value.to_string() }
    }

    pub(crate) fn bad_value(table: &'static str, what: impl ToString) -> PoolError {
        PoolError::BadValue { table, what: what.to_string() }
    }
}
