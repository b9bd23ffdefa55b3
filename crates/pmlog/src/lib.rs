//! A durable append-only log of records in one region of persistent memory (PM).
//!
//! A program that must not lose what it acknowledged appends a record and acknowledges once
//! [`RecordLog::append`] has returned: two fences, no system call on PM. It carries out the records at
//! leisure and calls [`RecordLog::trim`] once their effects are durable elsewhere. After a crash,
//! [`RecordLog::open`] returns a [`Recovery`], which hands out the untrimmed records, in order.
//!
//! A log that is never to stop is trimmed in *turns* ([`RecordLog::next_turn`]): one is carried out and
//! trimmed while records are appended to the next.
//!
//! Records that are appended in parallel may be recovered without each other; a record after a *barrier*
//! ([`RecordLog::barrier`], [`RecordLog::append_ordered`], [`RecordLog::trim`]) is never recovered without
//! every record before it.
//!
//! ```
//! use fastness_pmem::{OpenOptions as RegionOptions, Region};
//! use fastness_pmlog::{CreateOptions, OpenOptions, RecordLog};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let path = std::env::temp_dir().join(format!("pmlog-doc-{}", std::process::id()));
//! # let _ = std::fs::remove_file(&path);
//! let region = Region::create_file(&path, 1 << 20, &RegionOptions::new())?;
//! let log = RecordLog::create(region.into_range(), &CreateOptions::new().chunk_bytes(64 << 10))?;
//! log.append(b"debit 7, credit 9")?; // durable: acknowledge it
//! drop(log); // or crash
//!
//! let region = Region::open(&path, &RegionOptions::new())?;
//! let mut recovery = RecordLog::open(region.into_range(), &OpenOptions::new())?;
//! recovery.replay(|_id, record| {
//!     assert_eq!(record, b"debit 7, credit 9"); // carry it out
//!     Ok::<_, std::io::Error>(())
//! })?;
//! let mut log = recovery.finish()?; // empty, ready for more
//! log.append(b"debit 9, credit 7")?;
//! log.trim()?; // its effects are durable elsewhere
//! # std::fs::remove_file(&path)?;
//! # Ok(())
//! # }
//! ```
//!
//! # Design
//! The log is the only HDL of a PRB ([`fastness_prb`]). It adds what a PRB lacks: a superblock that says
//! where the chunks are, and durable storage for the log's header ([`HeaderSlot`], kept twice). Byte-exact
//! layout: [`Superblock`], [`HeaderSlot`], `docs/format.md`.
//! ```text
//! 0        4 KiB    8 KiB    12 KiB   16 KiB              + chunk size
//! | super- | header | header | super- | chunk 0            | chunk 1 ...
//! | block  | slot A | slot B | block  |
//! ```
//!
//! # Crash cases
//! 1. In [`RecordLog::create`] before one superblock is whole: not a log. The superblocks are written last,
//!    after a fence, so a whole one implies a complete log.
//! 2. In an update of the header: the slots are written one after the other, with a fence after each, so one
//!    is whole at any time; the newest whole one wins. Either the update happened or it did not.
//! 3. In an append: the record exists completely or not at all (`fastness_prb`).
//! 4. In [`RecordLog::trim`] (or [`RecordLog::trim_turns`]) before the new header is durable: nothing was
//!    trimmed. After it: the trimmed records are obsolete, whether their chunks were emptied or not.
//! 5. In a recovery: [`Recovery::replay`] first makes durable what it will hand out, so the next recovery
//!    hands out the same records, starting from the first; until [`Recovery::finish`] has made the header of
//!    a new log durable, nothing of the old one is overwritten.
//!
//! Performance: an append is an insertion into a PRB; a trim writes 8 KiB and empties chunks; opening reads
//! the whole log. Shutdown: nothing to do; see [`RecordLog::close`].

#![forbid(unsafe_code)]

mod create;
mod error;
mod finish;
mod front;
mod geometry;
mod hidden;
mod log;
mod medium;
mod open;
mod recovery;
mod slot;
mod superblock;
mod survey;
#[cfg(test)]
mod tests;

pub use create::CreateOptions;
pub use error::{AppendError, CreateError, ErrorKind, FormatError, OpenError, RecoverError, TrimError};
pub use fastness_prb::LiveEntry;
pub use geometry::{CHUNK_BYTES_MIN, CHUNKS_MAX, DATA_OFFSET, Geometry, GeometryError};
pub use hidden::Hidden;
pub use log::{RecordId, RecordLog, Trimmed, Turn};
pub use medium::LogMedium;
pub use open::OpenOptions;
pub use recovery::{Recovery, Replayed};
pub use slot::{HeaderSlot, SLOT_OFFSETS};
pub use superblock::{BLOCK_BYTES, SUPERBLOCK_OFFSETS, Superblock, Uuid};
pub use survey::{ChunkSurvey, EntrySurvey, Survey};
