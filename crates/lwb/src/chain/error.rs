//! Why a chain cannot be claimed or replayed as it is.

use std::fmt;

use fastness_base::ErrorKind;

use crate::chain::{End, Later};
use crate::ids::{BlockSeq, Lsn, Place};
use crate::space::Space;

/// Where a chain ended, and why.
#[derive(Debug, Clone)]
pub struct Ended {
    /// Number that the next block would have had.
    pub seq: BlockSeq,
    /// Where it should have been; `None` if the last block says that there is none.
    pub place: Option<Place>,
    /// The name of that device.
    pub device: Option<String>,
    /// What was found there instead.
    pub end: End,
    /// What the later blocks say.
    pub later: Later,
}

impl Ended {
    /// A chain that ends at this block; later blocks were not examined.
    pub(crate) fn at<S: Space>(space: &S, seq: BlockSeq, place: Option<Place>, end: impl Into<End>) -> Ended {
        let device = place.and_then(|place| space.device_name(place.device));
        Ended { seq, place, device, end: end.into(), later: Later::default() }
    }

    /// A later block that reports the missing one as durable.
    pub fn witness(&self) -> Option<BlockSeq> {
        self.later.witness(self.seq)
    }

    /// Whether a crash can leave a chain like this. Everything acknowledged then precedes the end, unless the
    /// medium has lost it in a way that looks like a crash.
    pub fn is_clean(&self) -> bool {
        // Claimed blocks may be followed by those that the claim gave up.
        let is_doubted = || self.witness().is_some() || self.later.damaged.is_some();
        matches!(self.end, End::Claimed) || self.end.is_clean() && !is_doubted()
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {}", self.seq.0)?;
        match (self.place, &self.device) {
            (Some(place), Some(name)) => write!(f, " ({place}, {name})")?,
            (Some(place), None) => write!(f, " ({place})")?,
            (None, _) => {}
        }
        write!(f, ": {}", self.end)?;
        match (self.witness(), self.later.damaged) {
            (Some(seq), _) => write!(f, ", but block {} says that it was durable", seq.0),
            (None, Some(seq)) if self.end.is_clean() => write!(f, ", and block {} is damaged", seq.0),
            _ => Ok(()),
        }
    }
}

/// The records lost from a chain that does not end as a crash would leave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostRecords {
    /// The last record that counts; all after it are lost.
    pub after: Lsn,
    /// The last record with pieces still present after the end; 0 if there is none.
    pub seen: Lsn,
}

impl fmt::Display for LostRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            LostRecords { after, seen } if seen > after => {
                write!(f, "records {} to {} and all later ones are lost", after.0 + 1, seen.0)
            }
            LostRecords { after: Lsn(0), .. } => write!(f, "all records are lost"),
            LostRecords { after, .. } => write!(f, "records after {} are lost", after.0),
        }
    }
}

/// A chain is damaged. Nothing is claimed; claim again after repairing the medium, or give up the rest.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimError {
    /// The chain ends in something that no crash can leave.
    #[error("the log is damaged at {ended}; {lost}")]
    Damaged {
        /// Where it ends.
        ended: Box<Ended>,
        /// What is lost with it.
        lost: LostRecords,
    },
    /// The chain ends before a block that the pool knows was durable.
    #[error("the log ends at {ended}, but block {} was durable; {lost}", durable_seq.0)]
    Lost {
        /// Where it ends.
        ended: Box<Ended>,
        /// The block that should be present, too.
        durable_seq: BlockSeq,
        /// What is lost with it.
        lost: LostRecords,
    },
    /// A claimed log does not end with the last claimed record.
    #[error("the log ends with record {}, claimed was {}", found.0, claimed.0)]
    Changed {
        /// The last whole record now.
        found: Lsn,
        /// The last claimed record.
        claimed: Lsn,
    },
}

impl ClaimError {
    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            ClaimError::Damaged { ended, .. } | ClaimError::Lost { ended, .. } => ended.end.kind(),
            ClaimError::Changed { .. } => ErrorKind::Corrupt,
        }
    }
}

fastness_base::has_kind!(ClaimError);

/// Replay stopped before the end; what was replayed stays replayed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError<E: std::error::Error + 'static> {
    /// A claimed block is now missing.
    #[error("the log is damaged at {0}")]
    Damaged(Box<Ended>),
    /// All blocks are present, but the last claimed record is missing.
    #[error("the log ends with record {}, claimed was {}", found.0, claimed.0)]
    Changed {
        /// The last whole record now.
        found: Lsn,
        /// The last claimed record.
        claimed: Lsn,
    },
    /// The owner could not apply a record.
    #[error("record {} (begins in the block at {place}) could not be replayed", lsn.0)]
    Apply {
        /// The record.
        lsn: Lsn,
        /// The block that it begins in.
        place: Place,
        /// The owner's error.
        #[source]
        source: E,
    },
}
