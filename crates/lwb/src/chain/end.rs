//! Why a chain ends.

use std::fmt;

use fastness_error::ErrorKind;

use crate::format::Reject;
use crate::ids::{BlockSeq, LogGuid, Lsn};
use crate::space::SpaceError;

/// What is where the next block of a chain would be.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum End {
    /// The last block says that there was no room for another.
    NoRoom,
    /// The block was never written, or a crash lost it: there is none, or one of another chain.
    Unwritten {
        /// The other chain.
        other: Option<LogGuid>,
    },
    /// As `Unwritten`: there is an older block of this chain.
    Stale {
        /// Its number.
        found: BlockSeq,
    },
    /// Some sectors of the block are there, others were never written. A crash leaves such a block while it
    /// is written.
    Torn,
    /// Damage: a sector of the block was written, and has changed since.
    Damaged {
        /// Which, counted from the beginning of the block.
        sector: u32,
    },
    /// Damage: a later block of this chain.
    Misplaced {
        /// Its number.
        found: BlockSeq,
    },
    /// A block of a version that this program does not know.
    Version {
        /// The version.
        found: u16,
    },
    /// Forged, or a defect: the checksum fits, the contents are impossible.
    Malformed {
        /// In the block, in bytes.
        offset: u32,
    },
    /// Forged, or a defect: the chain leaves the space, or uses a place twice.
    OutOfBounds,
    /// The block cannot be read.
    Unreadable(SpaceError),
    /// A record in the block, or one that ends in it, refers to data that is not there.
    Refused {
        /// The record.
        lsn: Lsn,
        /// What its owner says.
        why: SpaceError,
    },
    /// All blocks that were claimed are there. (Only of a log that was claimed before.)
    Claimed,
}

impl End {
    /// Whether a crash leaves such a block; a later one may say that it was not one.
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

    /// Whether something is there that neither a crash nor a medium that cannot be read leaves.
    pub(crate) fn is_changed(&self) -> bool {
        let can_be_read = !matches!(self, End::OutOfBounds | End::Unreadable(_));
        can_be_read && !self.is_clean()
    }

    /// Whether the block is whole, and a record of it cannot be used.
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
