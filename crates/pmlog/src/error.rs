//! Errors of a log, and what the caller must do about each.

use fastness_pmem::{PersistError, ReadError};
use fastness_prb::{
    BodyError, ClaimError, CollectError, EntryId, HeaderError, LogError, SetupError, WriteError,
};

use crate::geometry::GeometryError;
use crate::hidden::Hidden;

pub use fastness_pmem::ErrorKind;

/// A block on the medium is invalid.
///
/// Every variant has the region offset of the byte concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The block cannot be read.
    #[error("the {block} is unreadable")]
    Read {
        /// Which block.
        block: &'static str,
        /// The offset and the reason.
        source: ReadError,
    },
    /// The block is all zero: never written, or wiped.
    #[error("the {block} at region offset {region_offset:#x} is empty")]
    Empty {
        /// Which block.
        block: &'static str,
        /// Where it begins.
        region_offset: u64,
    },
    /// The block begins with something else.
    #[error("there is no {block} at region offset {region_offset:#x}")]
    Magic {
        /// Which block.
        block: &'static str,
        /// Where it begins.
        region_offset: u64,
    },
    /// The block is torn or damaged.
    #[error("checksum mismatch in the {block} at region offset {region_offset:#x}")]
    Checksum {
        /// Which block.
        block: &'static str,
        /// Where it begins.
        region_offset: u64,
    },
    /// Written by another version.
    #[error(
        "the {block} at region offset {region_offset:#x} has version {found}, this program reads {known}"
    )]
    Version {
        /// Which block.
        block: &'static str,
        /// Where it begins.
        region_offset: u64,
        /// Version found.
        found: u16,
        /// Version known.
        known: u16,
    },
    /// A field has an impossible value, although the checksum matches.
    #[error("the {field} of the {block}, at region offset {region_offset:#x}, cannot be {found}")]
    Field {
        /// Which block.
        block: &'static str,
        /// Which field.
        field: &'static str,
        /// Where the field is.
        region_offset: u64,
        /// Its value.
        found: u64,
    },
    /// The log header in a slot is invalid, although the slot's checksum matches.
    #[error("the log header at region offset {region_offset:#x} is invalid")]
    Header {
        /// Where the header begins.
        region_offset: u64,
        /// What is wrong with it.
        source: HeaderError,
    },
    /// A header slot of an earlier log in the region.
    #[error("the header slot at region offset {region_offset:#x} belongs to another log")]
    Foreign {
        /// Where the slot begins.
        region_offset: u64,
    },
}

impl FormatError {
    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Read { source, .. } => source.error_kind(),
            Self::Empty { .. } | Self::Magic { .. } | Self::Version { .. } => ErrorKind::Invalid,
            Self::Checksum { .. } | Self::Field { .. } | Self::Header { .. } | Self::Foreign { .. } => {
                ErrorKind::Corrupt
            }
        }
    }

    /// True if the block seems never to have been written.
    pub(crate) fn is_absent(&self) -> bool {
        matches!(self, Self::Empty { .. } | Self::Magic { .. })
    }
}

fastness_base::has_kind!(FormatError);

/// A log was not created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// The region cannot be divided as requested; nothing was touched.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// There already is a log; nothing was touched.
    #[error("the region holds a log already; overwriting it must be asked for")]
    Exists,
    /// A fence failed: the region holds no log.
    #[error(transparent)]
    Persist(#[from] PersistError),
    /// The chunks could not be set up: the region holds no log.
    #[error(transparent)]
    Setup(#[from] SetupError),
}

impl CreateError {
    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Geometry(_) | Self::Exists => ErrorKind::Invalid,
            Self::Persist(error) => error.kind(),
            Self::Setup(error) => error.kind(),
        }
    }
}

fastness_base::has_kind!(CreateError);

/// A log was not opened. Nothing on the medium was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Neither copy of the superblock exists.
    #[error("the region holds no log")]
    NotALog,
    /// Neither copy of the superblock is usable; this is the error of the first one that was written.
    #[error("both superblocks are damaged")]
    Superblock(#[source] FormatError),
    /// The region is shorter than when the log was created.
    #[error("the region has {found_bytes} bytes, the log was created with {expected_bytes}")]
    Truncated {
        /// Length of the region.
        found_bytes: u64,
        /// Length in the superblock.
        expected_bytes: u64,
    },
    /// Neither header slot is usable.
    #[error("both header slots are damaged; the second: {second}")]
    Headers {
        /// What is wrong with slot A.
        #[source]
        first: FormatError,
        /// What is wrong with slot B.
        second: FormatError,
    },
    /// What was read could not be made durable.
    #[error(transparent)]
    Persist(#[from] PersistError),
    /// The chunks could not be set up.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// Records are missing or unreadable.
    #[error("the log cannot be recovered as a whole")]
    Claim(#[source] ClaimError),
    /// Records are missing in a way that no crash explains.
    #[error("records are missing that a crash does not explain: {0}")]
    Hidden(Hidden),
}

impl OpenError {
    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NotALog => ErrorKind::Invalid,
            Self::Superblock(error) | Self::Headers { first: error, .. } => error.kind(),
            Self::Truncated { .. } | Self::Hidden(_) => ErrorKind::Corrupt,
            Self::Persist(error) => error.kind(),
            Self::Setup(error) => error.kind(),
            Self::Claim(error) => error.kind(),
        }
    }

    /// True if opening with [`OnLoss::DropTail`](fastness_prb::OnLoss::DropTail) may recover part of the log.
    pub fn is_loss(&self) -> bool {
        matches!(self, Self::Claim(_) | Self::Hidden(_))
    }
}

fastness_base::has_kind!(OpenError);

/// A record was not appended. It will not be recovered, unless the error says so.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// No chunk has enough space.
    #[error("the log is full ({capacity_bytes} bytes): carry out its records, then trim it")]
    Full {
        /// Bytes of all chunks.
        capacity_bytes: u64,
    },
    /// A record must fit into one chunk.
    #[error("a record of {record_bytes} bytes does not fit; the limit of this log is {max_bytes}")]
    TooLarge {
        /// Length of the record.
        record_bytes: usize,
        /// Longest possible record.
        max_bytes: usize,
    },
    /// A fence failed: the record may or may not be durable. The log refuses all further use.
    #[error(transparent)]
    Persist(PersistError),
    /// A fence failed earlier.
    #[error("the log failed to persist data earlier; open it again")]
    Closed,
    /// Every chunk failed its read-back.
    #[error("no chunk is usable any more: all have media faults")]
    NoUsableChunk,
    /// A bug in this crate.
    #[error("the log refused a record that it should have taken")]
    Bug(#[source] WriteError),
}

impl AppendError {
    pub(crate) fn new(error: WriteError, capacity_bytes: u64) -> Self {
        match error {
            WriteError::NoFreeChunk => Self::Full { capacity_bytes },
            WriteError::TooLarge { body_bytes, max_bytes } => {
                Self::TooLarge { record_bytes: body_bytes, max_bytes }
            }
            WriteError::Persist(error) => Self::Persist(error),
            WriteError::Failed => Self::Closed,
            WriteError::NoUsableChunk => Self::NoUsableChunk,
            other => Self::Bug(other),
        }
    }

    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Full { .. } => ErrorKind::NoSpace,
            Self::TooLarge { .. } => ErrorKind::Invalid,
            Self::Persist(error) => error.kind(),
            Self::Closed => ErrorKind::Closed,
            Self::NoUsableChunk => ErrorKind::MediaFailed,
            Self::Bug(_) => ErrorKind::Bug,
        }
    }
}

fastness_base::has_kind!(AppendError);

/// A trim failed, and the log refuses all further use. When opened again, it recovers either all records or
/// those since the trim.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrimError {
    /// A fence failed.
    #[error(transparent)]
    Persist(#[from] PersistError),
    /// A fence failed earlier.
    #[error("the log failed to persist data earlier; open it again")]
    Closed,
    /// Chunks could not be emptied.
    #[error(transparent)]
    Collect(#[from] CollectError),
}

impl TrimError {
    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Persist(error) => error.kind(),
            Self::Closed => ErrorKind::Closed,
            Self::Collect(error) => error.kind(),
        }
    }
}

fastness_base::has_kind!(TrimError);

/// Recovery stopped. The log is unchanged; open it again, or continue if the caller's function failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecoverError<E> {
    /// The caller's function failed for a record.
    #[error("the record at {id} could not be carried out")]
    Callback {
        /// Its place.
        id: EntryId,
        /// The function's error.
        source: E,
    },
    /// A record that was readable when the log was opened no longer is.
    #[error("the record at {id} was damaged since the log was opened")]
    Body {
        /// Its place.
        id: EntryId,
        /// What is wrong with it.
        source: BodyError,
    },
    /// The records no longer form a complete log.
    #[error(transparent)]
    Log(LogError),
    /// Not all records have been handed out.
    #[error("the records were not replayed to the end: replay them, or discard them")]
    NotReplayed,
    /// A fence failed.
    #[error(transparent)]
    Persist(#[from] PersistError),
    /// The old log's chunks could not be emptied. The log is recovered; open it again.
    #[error(transparent)]
    Collect(#[from] CollectError),
    /// A fence failed earlier, or there is a bug in this crate.
    #[error("the recovery came out of step")]
    Bug(#[source] fastness_prb::Misuse),
}

impl<E> RecoverError<E> {
    /// What the caller must do; for an error of its own function, Retry.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Callback { .. } => ErrorKind::Retry,
            Self::Body { .. } | Self::Log(_) => ErrorKind::Corrupt,
            Self::NotReplayed => ErrorKind::Invalid,
            Self::Persist(error) => error.kind(),
            Self::Collect(error) => error.kind(),
            Self::Bug(_) => ErrorKind::Bug,
        }
    }
}

impl<E: std::error::Error + 'static> fastness_base::HasKind for RecoverError<E> {
    fn kind(&self) -> ErrorKind {
        RecoverError::kind(self)
    }
}
