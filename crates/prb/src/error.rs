//! Errors of the PRB and its logs, and what the caller must do about each.

use fastness_pmem::PersistError;

use crate::checksum::ChecksumKind;
use crate::counters::CounterMismatch;
use crate::ids::{EntryId, Generation, LogGuid, Txg};
use crate::traverse::BodyError;

pub use fastness_pmem::ErrorKind;

/// A PRB cannot be set up with these chunks and parameters.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// Too few or too many commit slots.
    #[error("{ncommitters} commit slots; there can be 1 to {max}")]
    Committers {
        /// As configured.
        ncommitters: u32,
        /// Maximum.
        max: u32,
    },
    /// One fence is not enough for this checksum.
    #[error("insertion with one fence needs a 128-bit checksum, {} is too weak", checksum.name())]
    WeakChecksum {
        /// As configured.
        checksum: ChecksumKind,
    },
    /// No chunk, or more than 2^32.
    #[error("a PRB needs 1 to 2^32 chunks, not {count}")]
    ChunkCount {
        /// As given.
        count: usize,
    },
    /// A chunk is misaligned or too small.
    #[error(
        "chunk {index} at region offset {region_offset:#x} with {len_bytes} bytes: offset and length must be \
         multiples of {alignment_bytes}, the length more than a header's 256"
    )]
    Chunk {
        /// Index of the chunk.
        index: usize,
        /// Its region offset.
        region_offset: u64,
        /// Its length in bytes.
        len_bytes: usize,
        /// The alignment that it must have.
        alignment_bytes: usize,
    },
    /// A side of the mirror was lost while it was formatted.
    #[error("side {side} of the mirror was lost while it was made empty")]
    SideLost {
        /// The side.
        side: usize,
    },
    /// A chunk could not be made durably empty.
    #[error(transparent)]
    Persist(#[from] PersistError),
}

/// An operation was called at the wrong time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misuse {
    /// The log is in another state.
    #[error("{operation} needs a log in state {needed}, it is {found}")]
    State {
        /// What was called.
        operation: &'static str,
        /// State that it needs.
        needed: &'static str,
        /// State of the log.
        found: &'static str,
    },
    /// A log with this GUID is already set up.
    #[error("log {log} is set up already")]
    AlreadySetUp {
        /// The log.
        log: LogGuid,
    },
    /// Chunks may not be collected or reused before every log is claimed.
    #[error("claiming is not over: {unclaimed} logs are not claimed")]
    ClaimingNotOver {
        /// Logs that are set up but not claimed.
        unclaimed: usize,
    },
    /// A log with entries can be set up only before claiming is over.
    #[error("log {log} comes too late: claiming is over and its entries may be collected")]
    ClaimingOver {
        /// The log.
        log: LogGuid,
    },
    /// Logs are still set up.
    #[error("{hdls} logs are still set up")]
    StillInUse {
        /// How many.
        hdls: usize,
    },
    /// Entries are left to replay.
    #[error("replay has not finished")]
    ReplayNotFinished,
}

/// An entry was not written, or must not be acknowledged. It will not be replayed, unless the error says so.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The log cannot be written in this state.
    #[error(transparent)]
    Misuse(#[from] Misuse),
    /// Bodies must fit the smallest chunk.
    #[error("a body of {body_bytes} bytes does not fit; the limit is {max_bytes}")]
    TooLarge {
        /// Length of the body.
        body_bytes: usize,
        /// Longest possible body.
        max_bytes: usize,
    },
    /// It does not fit into a header.
    #[error("{txg} does not fit into an entry")]
    TxgTooLarge {
        /// The entry's txg.
        txg: Txg,
    },
    /// More than three txgs would be unsynced at a time.
    #[error("{txg} is not synced but older than the two before the newest, {newest}")]
    TxgOutsideCorridor {
        /// The entry's txg.
        txg: Txg,
        /// Newest txg of the log.
        newest: Txg,
    },
    /// No free chunk, and the caller did not want to wait.
    #[error("no free chunk; a synced txg frees some")]
    NoFreeChunk,
    /// Every chunk failed its read-back.
    #[error("no chunk is usable any more: all have media faults")]
    NoUsableChunk,
    /// A side of the mirror was lost while the entry was written. The entry is durable on the other side and
    /// counts like any other from now on; it must not be acknowledged before the owner has recorded that the
    /// lost side is out ([`Prb::side_is_out`](crate::Prb::side_is_out)). Nothing else is written before that.
    #[error("{id} is on one side of the mirror only: side {lost} was lost, and that is not recorded yet")]
    OnOneSide {
        /// The entry.
        id: EntryId,
        /// Region offset of its header, as in [`Placed`](crate::Placed).
        region_offset: u64,
        /// The side that lacks it.
        lost: usize,
    },
    /// A side of the mirror was lost earlier, and the owner has not recorded that it is out.
    #[error("a side of the mirror was lost, and that is not recorded yet")]
    SideLost,
    /// A fence failed: the entry may or may not be durable. The PRB refuses further writes.
    #[error(transparent)]
    Persist(#[from] PersistError),
    /// A fence failed earlier.
    #[error("the PRB failed to persist data earlier and must be opened again")]
    Failed,
}

/// A log cannot be claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimError {
    /// The log is in another state.
    #[error(transparent)]
    Misuse(#[from] Misuse),
    /// The entries do not form a log that can be replayed.
    #[error(transparent)]
    Log(#[from] LogError),
    /// An entry's body cannot be read.
    #[error("{id}: {source}")]
    Body {
        /// The entry.
        id: EntryId,
        /// What is wrong with it, and where.
        source: BodyError,
    },
    /// The last generation has more gaps than a header can record.
    #[error("the last generation, {}, has more than {max} gaps: part of a chunk is lost", generation.0)]
    TooManyGaps {
        /// The generation.
        generation: Generation,
        /// Maximum number of gaps that a header records.
        max: usize,
    },
}

/// The entries found do not form a complete log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// Entries are missing: the witness depends on more (or fewer) entries than were found.
    #[error(
        "{witness} was written after {} entries of {}, {} are there: entries are missing",
        mismatch.expected, mismatch.txg, mismatch.found
    )]
    MissingEntries {
        /// The entry whose counters do not match, or the seal at the end of the log.
        witness: Witness,
        /// The counts.
        mismatch: CounterMismatch,
    },
    /// Two entries have the same place in the log.
    #[error("{id} exists more than once, at region offsets {first:#x} and {second:#x}")]
    Duplicate {
        /// The place.
        id: EntryId,
        /// Region offset of one of them.
        first: u64,
        /// Region offset of another.
        second: u64,
    },
    /// An entry's txg cannot have been unsynced together with those of earlier entries.
    #[error("{id} is of {txg}, which cannot be unsynced when {newest} is")]
    TxgOutsideCorridor {
        /// The entry.
        id: EntryId,
        /// Its txg.
        txg: Txg,
        /// Newest txg before it.
        newest: Txg,
    },
}

/// What showed that entries are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Witness {
    /// An entry that depends on them.
    Entry(EntryId),
    /// The seal that claim put after the last entry.
    Seal(EntryId),
}

impl std::fmt::Display for Witness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Entry(id) => write!(f, "{id}"),
            Self::Seal(id) => write!(f, "the seal {id}"),
        }
    }
}

/// Replay stopped. What was replayed stays replayed; replay can be resumed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError<E> {
    /// The log is in another state.
    #[error(transparent)]
    Misuse(#[from] Misuse),
    /// The entries do not form a log that can be replayed further.
    #[error(transparent)]
    Log(LogError),
    /// The callback returned an error for an entry.
    #[error("replay of {id} failed")]
    Callback {
        /// The entry.
        id: EntryId,
        /// The callback's error.
        source: E,
    },
}

/// Bytes are not an HDL header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// Fewer bytes than a header has.
    #[error("a log header of {len} bytes is too short, it needs {needed}")]
    TooShort {
        /// Bytes given.
        len: usize,
        /// Bytes needed.
        needed: usize,
    },
    /// The checksum does not match.
    #[error("log header checksum mismatch")]
    Checksum,
    /// Written by another version.
    #[error("log header version {found}, this program reads {known}")]
    Version {
        /// Version found.
        found: u16,
        /// Version known.
        known: u16,
    },
    /// A field has an impossible value.
    #[error("log header field at byte {offset} is invalid")]
    Field {
        /// Offset of the field in bytes.
        offset: usize,
    },
}

/// Garbage collection failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CollectError {
    /// Called at the wrong time.
    #[error(transparent)]
    Misuse(#[from] Misuse),
    /// A chunk could not be made durably empty. The PRB refuses further writes.
    #[error(transparent)]
    Persist(#[from] PersistError),
}

macro_rules! kinds {
    ($($error:ty { $($variant:pat => $kind:ident,)* })*) => {$(
        impl $error {
            /// What the caller must do.
            pub fn kind(&self) -> ErrorKind {
                match self { $($variant => ErrorKind::$kind,)* }
            }
        }

        fastness_base::has_kind!($error);
    )*};
}

kinds! {
    Misuse {
        Self::State { .. } | Self::AlreadySetUp { .. } | Self::ClaimingNotOver { .. } => Invalid,
        Self::ClaimingOver { .. } | Self::StillInUse { .. } | Self::ReplayNotFinished { .. } => Invalid,
    }
    SetupError {
        Self::Committers { .. } | Self::WeakChecksum { .. } | Self::ChunkCount { .. } | Self::Chunk { .. } => Invalid,
        Self::Persist(_) | Self::SideLost { .. } => MediaFailed,
    }
    WriteError {
        Self::Misuse(_) => Invalid,
        Self::TooLarge { .. } | Self::TxgTooLarge { .. } => Invalid,
        Self::TxgOutsideCorridor { .. } => Bug,
        Self::NoFreeChunk | Self::OnOneSide { .. } | Self::SideLost => Retry,
        Self::NoUsableChunk | Self::Persist(_) => MediaFailed,
        Self::Failed => Closed,
    }
    ClaimError {
        Self::Misuse(_) => Invalid,
        Self::Log(_) | Self::TooManyGaps { .. } | Self::Body { .. } => Corrupt,
    }
    HeaderError {
        Self::TooShort { .. } | Self::Checksum | Self::Version { .. } | Self::Field { .. } => Corrupt,
    }
    CollectError {
        Self::Misuse(_) => Invalid,
        Self::Persist(_) => MediaFailed,
    }
}

impl<E: std::error::Error + 'static> fastness_base::HasKind for ReplayError<E> {
    /// For an error of the caller's function, Retry.
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Misuse(_) => ErrorKind::Invalid,
            Self::Log(_) => ErrorKind::Corrupt,
            Self::Callback { .. } => ErrorKind::Retry,
        }
    }
}
