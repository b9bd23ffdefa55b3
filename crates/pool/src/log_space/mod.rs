//! Space for log blocks: on the vdevs for logs, if one of them is writable and has space, else among the
//! data.
//!
//! Motivation: an intent log needs blocks that it can allocate and free without a txg. Its owner knows which
//! of its blocks count; this module does not look inside them.
//!
//! Design. Which blocks exist is known in DRAM only. The stored bitmaps of free space do not contain them:
//! after a crash everything is free except what the tables refer to, and what the owner
//! [claims](LogSpace::claim) before any txg runs. A log block among the data is busy in the allocator, so a
//! txg never takes it; and what the last durable txg refers to is busy too, so no log block takes that. Space
//! that is kept back so that txgs can sync, that dirty data has been promised, or that reservations keep free
//! is not given to log blocks.
//!
//! Mirrors. A block proves itself to its owner, and no two blocks with the same proof are ever written, so a
//! read tries every side (`io`). A write or flush counts when one current side has it; the other sides are
//! stale from then on. Before it is acknowledged, these must be durable:
//! 1. The block on a current side, flushed.
//! 2. Labels that call the sides stale which may lack it. Otherwise an import could take such a side for
//!    current; if the good side went away before the log was claimed, the side without the block would look
//!    like the end of the log, and what was acknowledged would be silently lost. With those labels an import
//!    without the good side is refused, and a good side that fails later suspends the pool.
//!
//! So all current sides have all log blocks. To keep it that way, a resilver copies the blocks that a side
//! missed (`resilver`): no table refers to them, so nothing else would.
//!
//! Crash cases: a block that was not acknowledged may be on any of the sides, on none, or torn. Its owner
//! finds it by its proof or does not; either is right. A later read of the block, once it is claimed,
//! rewrites sides that differ.
//!
//! Performance: allocating and freeing take two locks that are never held during I/O. With threads, all sides
//! of a mirror are written and flushed in parallel.
//!
//! ```text
//! blocks    which log blocks exist, and where the next one goes
//! space     allocation and claims
//! io        writes, flushes and reads on all sides
//! stored    blocks that were stored ahead of their txg
//! lost      vdevs for logs that lack a txg
//! resilver  log blocks when a side is added or comes back
//! ```

pub(crate) mod blocks;
mod io;
mod lost;
mod resilver;
pub(crate) mod space;
mod stored;
