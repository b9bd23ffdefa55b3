//! Durable writes at the speed of persistent memory (PM) in front of a directory of any file system.
//!
//! A [`Cache`] puts each write into a region of PM, where it is durable when the call returns, and writes it
//! to the directory in the background. After a crash [`Cache::open`] finds everything that was acknowledged;
//! a [`Cache::flush`] later, the directory alone has it.
//!
//! # Design
//! How a write becomes durable and atomic is a protocol's matter; there are FR, MeLo@V and PMAL, over
//! the same chunks (`chunks`), and Log, which has a log of what was synced (`log`). The cache above them
//! knows files, names, lengths, and intents; the backing store below it is a trait ([`Backing`]). Layout:
//! `docs/format.md`. Why it is so: `docs/adr/2026-11-25-responder.md`.
//! ```text
//! cache, recovery, flusher          files; what a crash needs completed
//! few_files                         a recovery with few descriptors
//! names                             the log of names: creation, removal, renaming without a sync
//! truncation                        lengths, and what leaves no chunk
//! detach, orphans                   the end of a cache; data of files that are not there
//! lease, client, board, link        files that other processes use directly; what all share besides PM
//! outside, inspect                  for front ends and tools: what they do to the directory; a region unopened
//! chunks                            chunks in slots, and the protocols that write to them
//! log, logged, ranges               the protocol Log; what it knows of a file
//! writes, create                    writes and syncs; a new cache
//! group, tag, operation, journal, intent, opening, superblock   what is on the medium
//! file, length, times, key          files that the cache knows, and where their chunks go
//! backing                           a directory of the system's, or one in memory that fails as told
//! ```
//!
//! # Crash cases
//! 1. In a write: all of it or nothing (`chunks::fr`, `chunks::melo`, `chunks::pmal`).
//! 2. In a flush: the chunks are dirty still, and are flushed again. A chunk is clean only after a sync.
//! 3. In a change of names: what the directory was not given is made again (`names`). In a removal: the
//!    record says that the file has lost its name; of one that is open, an intent says that it may be gone.
//!    If it is not in the directory any more, its chunks are given up; if it is, it keeps them.
//! 4. In a truncation: the intent says to which length; it is made again.
//! 5. In a recovery: the next one does the same.
//!
//! Shutdown: nothing to do; dropping a cache leaves what a crash would. [`Cache::detach`] ends it.

#![forbid(unsafe_code)]

mod backing;
mod board;
mod cache;
mod chunks;
mod client;
mod copied;
mod create;
mod detach;
mod error;
mod few_files;
mod file;
mod flusher;
mod geometry;
mod group;
mod inspect;
mod intent;
mod journal;
mod key;
mod kind;
mod lease;
mod length;
pub mod link;
mod log;
mod log_error;
mod logged;
mod medium;
mod names;
mod naming;
mod opened;
mod opening;
mod operation;
mod options;
mod orphans;
mod outside;
mod own_files;
mod protocol;
mod protocols;
mod ranges;
mod recovery;
mod stats;
mod superblock;
mod tag;
mod times;
mod truncation;
mod writes;

pub use backing::{
    Attributes, Backing, BackingFile, BackingNode, CacheId, Call, Directory, DirectoryId, FileId, FileType,
    Mark, MemoryBacking, Named, Opening, Renaming, Stat, Verdict,
};
pub use cache::{Cache, Handle};
pub use client::{Client, Denied, LeasedFile, Position, Written};
pub use copied::Copied;
pub use error::{Error, LogError};
pub use fastness_base::{ErrorKind, HasKind};
pub use flusher::{Flusher, PERIOD_DEFAULT};
pub use geometry::Geometry;
pub use inspect::Inspection;
pub use kind::ProtocolKind;
pub use lease::Lease;
pub use medium::CacheMedium;
pub use options::Options;
pub use own_files::{CACHE_FILE, ORPHANS_FILE, OWN_FILES};
pub use protocol::Clock;
pub use stats::{Counts, Orphan, Recovered, Status, Transfers};
