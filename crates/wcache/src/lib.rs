//! DPWC: a write cache in persistent memory (PM) in front of a block device.
//!
//! Motivation: a synchronous write to a disk takes a millisecond, and one to a log in PM a few microseconds.
//! Any [`BlockDevice`](fastness_blkdev::BlockDevice) becomes the *origin* of a [`Cache`], which
//! acknowledges a change once it is in the log, and writes it to the origin in the background.
//!
//! # Design
//! The log is the only HDL of a PRB ([`fastness_prb`]): each change is an entry with the record of a range
//! and its data. Generations of the cache are the PRB's txgs: one is open and gets the entries; once it has a
//! 64th of the log it is closed, and the next one opens. Closed generations are written back in order, as
//! many at a time as the origin takes in a tenth of a second: the newest version of each block, by address,
//! neighbours together. After one flush of the origin the state slot says so, and the chunks with nothing
//! newer are empty again. Many small generations, of which some come back all the time, are what the source
//! lacks: its writers stop while all of its few are closed.
//!
//! An index in DRAM knows where the newest bytes of each block in the log are, so that reads are right at
//! once: what is in the log is read from PM and checked, the rest from the origin. It is in 256 shards; a
//! write takes the lock of one for a few instructions after its entry is durable. Which of two changes is
//! newer, their places in the log say, so that no lock has to order them. Long ranges of zeroes are kept as
//! ranges.
//!
//! The cache is in one region, or in two that are the sides of a mirror ([`Sides`]): blocks and log are on
//! both, at the same offsets. Which of them may be read, `sides` says.
//!
//! As the log fills, writers are slowed down (`throttle`).
//! ```text
//! 0        4 KiB    8 KiB    12 KiB   16 KiB              + chunk size
//! | super- | state  | state  | super- | chunk 0            | chunk 1 ...
//! | block  | slot A | slot B | block  |
//! ```
//!
//! # Crash cases
//! 1. In a change: its entry exists completely or not at all (`fastness_prb`). One of several entries: as
//!    many of these as were made.
//! 2. Between the end of a generation and its write-back, and during that: the log has everything; the next
//!    opening writes it again, in order, so it does not matter what the origin has of it.
//! 3. After the origin's flush, before the slot: as 2. After the slot: the origin has the generation, whether
//!    its chunks were emptied or not.
//! 4. In an opening: `open`. In a creation: `create`. In a detachment: there is a clean cache, or none.
//! 5. The origin loses its power as well: what it had not flushed is in the log.
//! 6. Of a mirror: the sides differ as far as the crash found them at different places. A chunk has the
//!    entries of either (`fastness_prb`), and of the states the newer one counts. Either side alone does,
//!    too. A side that was lost before is out: `loss`.
//!
//! # Failures
//! An origin that fails, or takes long: everything stays in the log, reads of that are right, writes go on
//! until it is full, and then wait or fail ([`WhenFull`]). The write-back tries again, on an origin that is
//! opened again if a flush has failed. A side of a mirror that cannot be written is recorded as out, and the
//! other one goes on; where one side cannot be read, or is damaged, the other is asked. PM that cannot be
//! written otherwise: nothing is acknowledged any more; the
//! origin still gets what the log has. PM that cannot be read, or is damaged: reads of these blocks fail, and
//! nothing of their generation is let go of until they are written again.
//!
//! Performance: a write of 4 KiB is one insertion into a PRB (two fences), a CRC and an index update.
//! Shutdown: dropping a cache changes nothing; [`Cache::flush`] brings everything to the origin.
//!
//! Source: dissertation (2025), 3.8.2.
//!
//! # Code map
//! ```text
//! cache        requests                      create, open  life cycle: creation, replay, detachment
//! cleaner      write-back in the background  write_back    batches to the origin
//! blocks       what the log has, read back   index, block, ranges   where it is
//! throttle     slows writers down            record        what an entry says
//! origin       what the device below is, its mark; file_origin, disk_number, remote_origin, named
//! target       the origin in use, opened again after failures
//! parts        a region, divided             front, superblock, slot, frame   in front of the chunks
//! sides        which of two regions are read loss          one that fails in use
//! attach       sides that join and leave     mirror        what is known of the sides
//! views        the log, read beside writers
//! geometry, id, options, status, error
//! ```

#![forbid(unsafe_code)]

mod attach;
mod block;
mod blocks;
mod cache;
mod cleaner;
mod create;
mod disk_number;
mod error;
mod file_origin;
mod frame;
mod front;
mod geometry;
mod id;
mod index;
mod loss;
mod mirror;
mod named;
mod open;
mod options;
mod origin;
mod parts;
mod ranges;
mod record;
mod remote_origin;
mod sides;
mod slot;
mod status;
mod superblock;
mod target;
mod throttle;
mod views;
mod write_back;

pub use cache::Cache;
pub use cleaner::Cleaner;
pub use error::Error;
pub use fastness_base::ErrorKind;
pub use fastness_prb::OnLoss;
pub use fastness_remote::is_remote;
pub use file_origin::FileOrigin;
pub use geometry::{CHUNK_BYTES_MIN, CHUNKS_MAX, DATA_OFFSET, Geometry};
pub use id::CacheId;
pub use named::origin_named;
pub use open::{Inspection, Replayed};
pub use options::{Options, WhenFull};
pub use origin::{Identity, Mark, Origin};
pub use parts::Parts;
pub use remote_origin::RemoteOrigin;
pub use sides::Sides;
pub use status::{SideStatus, Status};
pub use superblock::{MirrorSide, Superblock};
