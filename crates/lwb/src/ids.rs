//! Numbers that must not mix, and places.

use std::fmt;

pub use fastness_base::{LogGuid, Txg};

/// Sequence number of a record in its log, from 1. A number is used once in the life of a
/// [`Log`](crate::Log).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lsn(pub u64);

impl Lsn {
    pub(crate) fn next(self) -> Lsn {
        Lsn(self.0.saturating_add(1))
    }
}

/// Sequence number of a block in its chain; the next block has the next number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BlockSeq(pub u64);

impl BlockSeq {
    pub(crate) fn next(self) -> BlockSeq {
        // No chain is long enough to get there, but a forged header can claim it.
        BlockSeq(self.0.saturating_add(1))
    }

    /// Whether this is the largest number: no block has it.
    pub(crate) fn is_last(self) -> bool {
        self.0 == u64::MAX
    }
}

/// A new name for a chain, from the operating system's generator: all blocks of the chain carry it, and no
/// other block does.
///
/// # Panics
/// If the system has no randomness: a name that is not unique would make stale blocks look valid.
pub(crate) fn random_guid() -> LogGuid {
    loop {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).expect("the system has a source of randomness");
        if let Some(guid) = LogGuid::from_bytes(bytes) {
            return guid;
        }
    }
}

/// Where a block begins. The [`Space`](crate::Space) defines what the numbers mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Number of a device, the unit of flushing.
    pub device: u32,
    /// Offset in bytes, a multiple of [`UNIT_BYTES`](crate::UNIT_BYTES).
    pub offset: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device {} at {:#x}", self.device, self.offset)
    }
}

/// The bytes that a block may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    /// Where it begins.
    pub place: Place,
    /// Length in bytes: a multiple of [`UNIT_BYTES`](crate::UNIT_BYTES), at most
    /// [`BLOCK_BYTES_MAX`](crate::BLOCK_BYTES_MAX).
    pub len_bytes: u32,
}

/// How many of the next blocks a block names: even if a block and the one after it are lost, with the places
/// that they name, the blocks after them can be found.
pub const AHEAD: usize = 3;

/// Places of the next blocks, written or not, as far as they are allocated; none after the first without a
/// place.
pub(crate) type Ahead = [Option<Extent>; AHEAD];
