//! Numbers of the log that must not be mixed up.

use std::fmt;

pub use fastness_base::{LogGuid, Txg};

/// How many transaction groups can be unsynced at a time: open, quiescing, syncing.
///
/// Source: zil-pmem thesis, 5.5.
pub const UNSYNCED_TXGS: u64 = 3;

/// Number of a generation; 0 is "before the first".
///
/// Entries of one generation are independent of each other; each depends on every entry of every earlier
/// generation. Source: zil-pmem thesis, 5.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Generation(pub u64);

/// Generation-scoped id: identifies an entry inside its generation; 0 is "none".
///
/// Source: zil-pmem thesis, 5.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Gsid(pub u64);

/// Identifies an entry in its log; the order is the replay order.
///
/// Source: zil-pmem thesis, 5.4 (lexicographic order of generation and gsid).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EntryId {
    /// The entry's generation.
    pub generation: Generation,
    /// The entry's id in that generation.
    pub gsid: Gsid,
}

impl EntryId {
    /// Shorthand for an id from plain numbers.
    pub const fn new(generation: u64, gsid: u64) -> Self {
        Self { generation: Generation(generation), gsid: Gsid(gsid) }
    }
}

/// Index of a chunk in the set that the PRB was opened with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkId(pub u32);

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "entry {}.{}", self.generation.0, self.gsid.0)
    }
}

impl fmt::Display for ChunkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "chunk {}", self.0)
    }
}
