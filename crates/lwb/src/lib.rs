//! The block log: opaque records in a chain of log-write blocks (LWBs) on block devices.
//!
//! Motivation: a record is durable long before the txg that it belongs to, and threads that commit at the
//! same time share writes and flushes. The counterpart on persistent memory is `prb`; there records need no
//! batching.
//!
//! Design: [`Log::append`] puts a record into DRAM, [`Log::commit`] makes all up to a number durable. Records
//! are assigned to blocks one by one under a lock (the *issuer lock*), which is cheap; blocks are filled,
//! checksummed and written outside the lock, by the thread that closed them, many at a time. A block carries
//! the address of the next one before that is written. Acknowledgements follow the order of the chain: a
//! block counts once it and all earlier ones are written and flushed. The log has no threads of its own.
//!
//! The chain begins in a [`Header`], which the owner stores in its txgs: [`Log::sync_header`] while a txg is
//! written, [`Log::synced`] once it is durable. After a crash: [`claim`], [`Claimed::replay`],
//! [`Claimed::release`].
//!
//! Crash cases: see `chain`. Failures: a write or flush that fails reaches the waiters of that block and of
//! all later ones; nothing after it can be acknowledged, because replay stops there. The log is then *down*:
//! commits fail, their callers wait for their txgs instead, and the next suitable txg starts a new chain.
//! This neither loses nor reorders records: those that are neither durable in the old chain nor synced go
//! into the new one.
//!
//! Performance: a commit whose records are already in blocks does not touch the issuer lock; it waits for
//! exactly the block with its last record. One flush serves all blocks written before it. A thread that
//! commits alone never waits for others. Batches, buffers and lists are reused, so that a commit of one block
//! need not allocate; a burst of several blocks does.
//!
//! Not protected against: a medium that loses whole sectors of the last acknowledged blocks, which looks like
//! a crash; deliberate damage (checksums have no key).
//!
//! Nothing here knows about pools, datasets, or the contents of records.
//!
//! # Code map
//! ```text
//! space          what the log needs from below     format/       blocks and pieces, byte for byte
//! device_space   the same on one block device      header        what the owner stores
//! log/queue      records without a block yet       chain/walk    from block to block
//! log/issuer     packs records into blocks         chain/read    one block, from any copy that has it
//! log/issue      fills and writes blocks           chain/later   later blocks: did a crash leave this end?
//! log/index      states and waiters                chain/gather  reassembles records from pieces
//! log/flush      acknowledges in order             chain/claim   finds, checks and holds the space
//! log/unwind     cleans up after a panic           chain/replay  in order, with a checkpoint
//! log/sync       headers, release, new chains      log/witness   an idle log records what was acknowledged last
//! ```

#![forbid(unsafe_code)]

mod chain;
mod device_space;
mod error;
mod format;
mod header;
mod ids;
mod log;
mod space;

pub use chain::{
    BlockSurvey, ClaimError, Claimed, End, Ended, Found, Later, LostRecords, OnLoss, Record, ReplayError,
    Replayed, claim, claim_each, survey,
};
pub use device_space::DeviceSpace;
pub use error::{CommitError, HeaderError};
pub use format::RECORD_BYTES_MAX;
pub use header::{Chain, Claim, HEADER_BYTES, HEADER_VERSION, Header};
pub use ids::{AHEAD, BlockSeq, Extent, LogGuid, Lsn, Place, Txg};
pub use log::{Log, Options, Status};
pub use space::{BLOCK_BYTES_MAX, Space, SpaceError, UNIT_BYTES};
