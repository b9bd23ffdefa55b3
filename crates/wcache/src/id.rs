//! The id of a cache.

use std::fmt;

/// Identifies a cache: 16 random bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CacheId(pub [u8; 16]);

impl fmt::Display for CacheId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for CacheId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CacheId({self})")
    }
}
