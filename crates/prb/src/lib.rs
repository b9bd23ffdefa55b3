//! The PM log: PRB, a persistent ring buffer of chunks, and HDL, the virtual logs on it.
//!
//! A [`Prb`] is a persistent, unordered set of entries in chunks of PM; a writer inserts an entry with two
//! fences and no system call. An [`Hdl`] is the log of one dataset: it orders its entries, finds out after a
//! crash which of them must be replayed, and detects missing ones. Neither knows the contents of bodies.
//!
//! The owner of the logs provides the chunks (any [`fastness_pmem::Medium`], including a
//! [`fastness_pmem::Mirror`]), transaction groups, and storage for each log's header ([`HdlHeader`]).
//!
//! What a crash leaves, and why the log survives it: `chunk` (insertion), `hdl::claim`, `hdl::replay`.
//! Byte-exact layouts: `docs/format.md`. Source: zil-pmem thesis, ch. 5; dissertation (2025), ch. 3.
//!
//! # Code map
//! ```text
//! ids        newtypes for numbers that must not mix  slots      commit slots
//! entry      the header, byte for byte               lists      which chunk is in which state
//! checksum/  fletcher-4, CRC-32C, XXH3               prb        ties the parts together
//! chunk      insertion, emptying, read-back          collect    empties chunks
//! traverse   reads one chunk                         scan       reads every entry of every chunk once
//! hidden     entries beyond the end of a chunk       stats      counters that cost next to nothing
//! counters   dependency tracking                     mirror     two sides: comparison and repair
//! health     whether entries can be written          hdl/       the log: states, write, claim, replay, header
//! live       finds entries of a log in use           side_loss  what happens when a side is lost
//! views      reads entries by their places
//! ```

mod checksum;
mod chunk;
mod collect;
mod config;
mod counters;
mod entry;
mod error;
mod hdl;
mod health;
mod hidden;
mod ids;
mod lists;
mod live;
mod mirror;
mod planted;
mod prb;
mod scan;
mod side_loss;
mod slots;
mod stats;
mod sync;
mod traverse;
mod views;

pub use checksum::{BodySum, Checksum, ChecksumKind, Crc32cSum, Fletcher4Sum, Xxh3Sum};
pub use chunk::{Collected, MediaFault, SideMediaFault};
pub use config::{Clock, Config, Entropy, OsEntropy};
pub use counters::{CounterMismatch, Counters};
pub use entry::{Alignment, DamagedHeader, EntryHeader, FORMAT_VERSION, HEADER_BYTES, Insertion};
pub use error::{
    ClaimError, CollectError, ErrorKind, HeaderError, LogError, Misuse, ReplayError, SetupError, Witness,
    WriteError,
};
pub use hdl::{
    Claimed, Entry, GAPS_MAX, HEADER_BYTES_MAX, HEADER_VERSION, Hdl, HdlHeader, HeaderUpdate, OnLoss,
    Replayed, ReplayingHeader, Written,
};
pub use hidden::{ChunkTail, Hidden, entries_behind};
pub use ids::{ChunkId, EntryId, Generation, Gsid, LogGuid, Txg, UNSYNCED_TXGS};
pub use live::LiveEntry;
pub use mirror::{SideFault, SideRepairs, SideReport, side_report};
#[cfg(feature = "planted-bugs")]
pub use planted::{Bug, plant};
pub use prb::{Placed, Prb, Wait};
pub use scan::ChunkEnd;
pub use slots::{CommitSlots, SLOTS_MAX, SlotGuard};
pub use stats::Stats;
pub use traverse::{BodyError, End, Located, Traversal, read_body};
pub use views::EntryViews;
