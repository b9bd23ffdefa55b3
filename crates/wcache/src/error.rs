//! Errors of the cache, and what the caller must do about each.

use std::io;
use std::path::PathBuf;

use fastness_base::ErrorKind;
use fastness_blkdev::BlockError;
use fastness_pmem::{PersistError, ReadError};
use fastness_prb::{
    BodyError, ClaimError, CollectError, EntryId, Hidden, LogError, Misuse, SetupError, WriteError,
};
use fastness_remote::OpenError;

use crate::id::CacheId;

/// Why the cache refuses or fails. Nothing that was acknowledged is lost, unless the error says so.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A region cannot be divided so.
    #[error(
        "a region of {region_bytes} bytes cannot have {chunks} chunks of {chunk_bytes} bytes: 2 or more, each a \
         multiple of 256 and at least 1024, after the first 16384 bytes"
    )]
    Geometry {
        /// Length of the region.
        region_bytes: u64,
        /// Length of a chunk.
        chunk_bytes: u64,
        /// Number of chunks.
        chunks: u64,
    },
    /// The region holds no cache.
    #[error("the region holds no cache of a block device")]
    NoCache,
    /// There is a cache already.
    #[error("the region holds a cache already")]
    Exists,
    /// There is something else.
    #[error("the region is not empty: it holds something that is no cache of a block device")]
    Occupied,
    /// A block in front of the chunks is unusable.
    #[error("the {block} at region offset {region_offset:#x} is unusable: {reason}")]
    Block {
        /// Which one.
        block: &'static str,
        /// Where.
        region_offset: u64,
        /// What is wrong.
        reason: &'static str,
    },
    /// Another version has written it.
    #[error("the cache has format {found}; this program knows {known}")]
    Version {
        /// On the medium.
        found: u16,
        /// Of this program.
        known: u16,
    },
    /// The region is shorter than the cache in it.
    #[error("the region has {found} bytes, and its cache needs {expected}: it was cut off")]
    Truncated {
        /// Length of the region.
        found: u64,
        /// Length when the cache was made.
        expected: u64,
    },
    /// A side of a mirror is not there, and may have what this one lacks.
    #[error(
        "the other side of the mirror, {}, is not there or cannot be used ({why}), and may be newer than this one: \
         name it by --pm if it has moved, or go on without what only it has by --degraded",
        path.display()
    )]
    SideMissing {
        /// Where it was last.
        path: PathBuf,
        /// Why it cannot be used.
        why: String,
    },
    /// The region is a side no more.
    #[error(
        "the cache goes on with another region in the place of this one: what this one holds is out of date"
    )]
    SideReplaced,
    /// The region was to become a side, and the cache does not know it.
    #[error("the region was to join the mirror of a cache, and that was cut short: attach it again")]
    SideJoining,
    /// Each side was used without the other.
    #[error(
        "each side of the mirror has gone on without the other, and nothing tells which one is right: --degraded goes \
         on with the one that is named, without what only the other has"
    )]
    SidesApart,
    /// A side cannot join or leave.
    #[error("the cache has one region: there is no side to detach")]
    NotMirrored,
    /// It has two already.
    #[error("the cache has two sides already: detach one before another one is attached")]
    Mirrored,
    /// An entry of the log is whole, and says what no cache has written.
    #[error("the entry at region offset {region_offset:#x} is no change of this origin")]
    Record {
        /// Its header.
        region_offset: u64,
    },
    /// Bytes in the log are not those that were written.
    #[error(
        "the newest bytes of the origin's {len_bytes} bytes at offset {offset} are damaged at region offset \
         {region_offset:#x}"
    )]
    Damaged {
        /// First byte on the origin.
        offset: u64,
        /// Bytes on the origin.
        len_bytes: u64,
        /// Where they are in the region.
        region_offset: u64,
    },
    /// Persistent memory cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Persistent memory cannot be written: nothing is acknowledged any more.
    #[error(transparent)]
    Persist(#[from] PersistError),
    /// The log cannot be written.
    #[error("cannot write to the log")]
    Write(#[source] WriteError),
    /// The chunks cannot be used.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// Entries of the log are missing or damaged.
    #[error("entries of the log are missing or damaged")]
    Claim(#[source] ClaimError),
    /// An entry could not be read again.
    #[error("{id} of the log cannot be read")]
    Entry {
        /// The entry.
        id: EntryId,
        /// Why not.
        source: BodyError,
    },
    /// What claim has found is not there any more.
    #[error("the log changed while it was replayed")]
    Replay(#[source] LogError),
    /// Entries are missing although all those found are in order.
    #[error("entries of the log are missing: {0}")]
    Hidden(Hidden),
    /// More entries are missing than a crash leaves.
    #[error("{missing} entries of the last generation are missing; at most {in_flight} were being written")]
    Gaps {
        /// Entries that are missing.
        missing: u64,
        /// Most that a crash leaves.
        in_flight: u64,
    },
    /// Chunks could not be emptied.
    #[error(transparent)]
    Collect(#[from] CollectError),
    /// The origin cannot be opened.
    #[error("cannot open the origin")]
    OpenOrigin(#[source] OpenError),
    /// The origin cannot be looked at.
    #[error("cannot look at the origin")]
    LookAtOrigin(#[source] io::Error),
    /// The origin cannot be marked as that of this cache.
    #[error("cannot mark the origin")]
    MarkOrigin(#[source] io::Error),
    /// The origin fails.
    #[error(transparent)]
    Origin(#[from] BlockError),
    /// The origin has another length.
    #[error(
        "the origin has {found} bytes, and the cache was made for {expected}: detach the cache before its origin \
         is made longer or shorter"
    )]
    Resized {
        /// Length when the cache was made.
        expected: u64,
        /// Length now.
        found: u64,
    },
    /// The origin is another one.
    #[error("the origin is not the one that the cache was made for")]
    OtherOrigin,
    /// The origin belongs to another cache.
    #[error("the origin belongs to cache {cache}, in another region: what that holds would be lost")]
    Foreign {
        /// Whose it is.
        cache: CacheId,
    },
    /// The region is an older copy.
    #[error(
        "the origin was used with a newer copy of this region, or with the other side of its mirror: what this one \
         holds is out of date"
    )]
    OldCopy,
    /// A request is outside of the origin, or not of whole blocks.
    #[error("{len_bytes} bytes at {offset} are not whole blocks of {block_bytes} bytes of the origin")]
    Range {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        len_bytes: u64,
        /// The origin's block.
        block_bytes: u32,
    },
    /// The log is full, and the origin takes nothing.
    #[error("the log is full, and nothing of it can be written to the origin")]
    Full,
    /// The cache has ended.
    #[error("the cache has ended")]
    Ended,
    /// The origin does not have everything.
    #[error("the origin does not have everything yet")]
    NotClean,
    /// What was asked for cannot be.
    #[error("{0}")]
    Refused(String),
    /// A defect of this crate.
    #[error(transparent)]
    Misuse(#[from] Misuse),
}

impl Error {
    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Geometry { .. }
            | Error::NoCache
            | Error::Exists
            | Error::Occupied
            | Error::Version { .. }
            | Error::Resized { .. }
            | Error::OtherOrigin
            | Error::Foreign { .. }
            | Error::OldCopy
            | Error::SideMissing { .. }
            | Error::SideReplaced
            | Error::SideJoining
            | Error::SidesApart
            | Error::NotMirrored
            | Error::Mirrored
            | Error::Range { .. }
            | Error::LookAtOrigin(_)
            | Error::MarkOrigin(_)
            | Error::Refused(_) => ErrorKind::Invalid,
            Error::Block { .. } | Error::Truncated { .. } | Error::Record { .. } | Error::Damaged { .. } => {
                ErrorKind::Corrupt
            }
            Error::Read(_) | Error::Persist(_) => ErrorKind::MediaFailed,
            Error::Write(error) => error.kind(),
            Error::Setup(error) => error.kind(),
            Error::Claim(error) => error.kind(),
            Error::Entry { .. } | Error::Replay(_) | Error::Hidden(_) | Error::Gaps { .. } => {
                ErrorKind::Corrupt
            }
            Error::Collect(error) => error.kind(),
            Error::OpenOrigin(error) => error.kind(),
            Error::Origin(error) => error.kind(),
            Error::Full => ErrorKind::NoSpace,
            Error::Ended => ErrorKind::Closed,
            Error::NotClean => ErrorKind::Retry,
            Error::Misuse(_) => ErrorKind::Bug,
        }
    }

    /// Whether persistent memory has failed, so that nothing can be acknowledged any more.
    pub(crate) fn is_of_region(&self) -> bool {
        matches!(self, Error::Persist(_) | Error::Write(WriteError::Persist(_) | WriteError::Failed))
            || matches!(self, Error::Collect(CollectError::Persist(_)))
    }
}

fastness_base::has_kind!(Error);
