//! Numbers of the log that must not be mixed up.

use std::fmt;

/// Number of a transaction group; 0 is "none".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Txg(pub u64);

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

/// Identifies a log: random, 128 bits, neither half zero.
///
/// Source: zil-pmem thesis, 5.3 and 5.10 (a half of zero makes an entry header invalid).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogGuid([u8; 16]);

impl LogGuid {
    /// A GUID from its 16 bytes as stored on the medium; `None` if either half is zero.
    pub fn from_bytes(bytes: [u8; 16]) -> Option<Self> {
        let (low, high) = bytes.split_at(8);
        let zero = |half: &[u8]| half.iter().all(|&b| b == 0);
        (!zero(low) && !zero(high)).then_some(Self(bytes))
    }

    /// The bytes as stored on the medium.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0
    }
}

/// Index of a chunk in the set that the PRB was opened with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkId(pub u32);

impl fmt::Display for Txg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "txg {}", self.0)
    }
}

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

impl fmt::Display for LogGuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for LogGuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LogGuid({self})")
    }
}
