//! Why a chain ends.

use std::fmt;

use fastness_base::ErrorKind;

use crate::format::Reject;
use crate::ids::{BlockSeq, LogGuid, Lsn};
use crate::space::SpaceError;

/// What was found where the next block of a chain should be.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum End {
    /// The last block says that there was no space for another.
    NoRoom,
    /// The block was never written, or a crash lost it: its place holds no block, or one of another chain.
    Unwritten {
        /// The other chain.
        other: Option<LogGuid>,
    },
    /// As `Unwritten`, but the place holds an older block of this chain.
    Stale {
        /// Its number.
        found: BlockSeq,
    },
    /// Some sectors of the block are present, others were never written: a crash during the write of the
    /// block leaves this.
    Torn,
    /// Damage: a sector of the block was written and has changed since.
    Damaged {
        /// Its index in the block.
        sector: u32,
    },
    /// Damage: the place holds a later block of this chain.
    Misplaced {
        /// Its number.
        found: BlockSeq,
    },
    /// A block of an unknown version.
    Version {
        /// The version.
        found: u16,
    },
    /// Forged, or a bug: the checksum fits, the contents are impossible.
    Malformed {
        /// In the block, in bytes.
        offset: u32,
    },
    /// Forged, or a bug: the chain leaves the space, or uses a place twice.
    OutOfBounds,
    /// The block cannot be read.
    Unreadable(SpaceError),
    /// A record in the block, or one that ends in it, refers to missing data.
    Refused {
        /// The record.
        lsn: Lsn,
        /// The owner's error.
        why: SpaceError,
    },
    /// All claimed blocks are present. (Only for a log that was claimed before.)
    Claimed,
}

impl End {
    /// Whether a crash can leave such a block; a later block may prove that it was not a crash.
    pub(crate) fn is_clean(&self) -> bool {
        match self {
            End::NoRoom | End::Unwritten { .. } | End::Stale { .. } | End::Torn | End::Claimed => true,
            End::Damaged { .. }
            | End::Misplaced { .. }
            | End::Version { .. }
            | End::Malformed { .. }
            | End::OutOfBounds
            | End::Refused { .. }
            | End::Unreadable(_) => false,
        }
    }

    /// Whether this is something that neither a crash nor an unreadable medium can leave.
    pub(crate) fn is_changed(&self) -> bool {
        let can_be_read = !matches!(self, End::OutOfBounds | End::Unreadable(_));
        can_be_read && !self.is_clean()
    }

    /// Whether the block is whole, but one of its records cannot be used.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self, End::Refused { .. })
    }

    /// What the caller must do, if the chain should not have ended here.
    pub fn kind(&self) -> ErrorKind {
        match self {
            End::Unreadable(error) | End::Refused { why: error, .. } => error.kind(),
            End::Version { .. } => ErrorKind::Invalid,
            _ => ErrorKind::Corrupt,
        }
    }
}

impl From<Reject> for End {
    fn from(reject: Reject) -> End {
        match reject {
            Reject::NoBlock => End::Unwritten { other: None },
            Reject::Foreign(guid) => End::Unwritten { other: Some(guid) },
            Reject::Stale(found) => End::Stale { found },
            Reject::Misplaced(found) => End::Misplaced { found },
            Reject::Torn => End::Torn,
            Reject::Damaged { sector } => End::Damaged { sector },
            Reject::Version(found) => End::Version { found },
            Reject::Malformed { offset } => End::Malformed { offset },
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::NoRoom => write!(f, "there was no room for another"),
            End::Unwritten { other: None } => write!(f, "never written"),
            End::Unwritten { other: Some(guid) } => write!(f, "never written, holds a block of log {guid}"),
            End::Stale { found } => write!(f, "never written, holds the older block {}", found.0),
            End::Torn => write!(f, "written in part"),
            End::Damaged { sector } => write!(f, "sector {sector} was written, and has changed"),
            End::Misplaced { found } => write!(f, "holds block {} instead", found.0),
            End::Version { found } => write!(f, "has the unknown version {found}"),
            End::Malformed { offset } => write!(f, "has an impossible value at byte {offset}"),
            End::OutOfBounds => write!(f, "is outside of the log's space, or in use already"),
            End::Unreadable(error) => write!(f, "cannot be read: {error}"),
            End::Refused { lsn, why } => write!(f, "the data of record {} cannot be had: {why}", lsn.0),
            End::Claimed => write!(f, "not claimed"),
        }
    }
}
