//! The intent log: what makes a synchronous operation durable before its transaction group (txg) is.
//!
//! Motivation: a txg syncs after seconds, a synchronous caller waits for microseconds. An operation changes the pool
//! in memory and describes the change in a *record*; what must be durable at once is written to a log, and replayed
//! after a crash for exactly those txgs that had not synced.
//!
//! Design: [`Zil`] is the intent log of one dataset. There are two ways into it.
//! 1. *Commit lists* (file systems): [`Zil::assign`] keeps a record in memory (`itxg`), [`Zil::commit`] writes those
//!    that an object needs. Most records are never written, because their txg syncs first.
//! 2. *Volumes*: [`Zil::log_write`] writes the record at once, past the commit list and in parallel with others;
//!    [`Zil::flush`] only orders (`bypass`). With kind lwb, which is too slow for that, they use the commit list.
//!
//! How records reach a medium is a *kind* ([`Kind`]): kind pmem ([`PmemLogs`], [`PmemLog`]) has one HDL for each
//! dataset on the pool's PRB; kind lwb ([`LwbLogs`], [`LwbLog`]) has one chain of log-write blocks for each dataset in the
//! pool's log space. [`AnyLog`] is either, for a kind that is changed in use ([`Zil::switch_kind`]). What the log needs of
//! a pool is in [`Pool`]; nothing here knows how a pool stores, what a file or a volume is, or which devices there are.
//!
//! What survives a crash: every record that a commit covered, every write that the bypass acknowledged; of the rest,
//! each record whole or not at all, and none without the earlier ones of its objects. Where a record cannot be logged
//! (no room, log suspended, medium failed) the caller waits for the txg instead, and it is counted.
//!
//! Source: zil-pmem thesis, 2.3.3 to 2.3.5, ch. 4 and 6; why commits run in parallel: `docs/adr`.

#![forbid(unsafe_code)]

mod any;
mod bypass;
mod claim;
mod error;
mod graph;
mod header;
mod ids;
mod itx;
mod itxg;
mod kind;
mod lwb;
mod pieces;
mod pmem;
mod pool;
mod range_lock;
pub mod record;
mod replay;
mod stats;
mod zil;

pub use any::AnyLog;
pub use claim::{ClaimCause, ClaimProblem, ClaimSummary};
pub use error::{CommitError, LogCause, LogError, NotPersisted};
pub use fastness_error::ErrorKind;
pub use header::{HeaderFault, KindId, StoredHeader};
pub use ids::{DatasetId, ObjectId, Txg};
pub use itx::{COPIED_BYTES_MAX, Itx, KEYS_MAX, Keys, WriteClass};
pub use kind::{Entry, Kind, Payload, Persisted, ReadBack};
pub use lwb::{Import as LwbImport, LwbLog, LwbLogs};
pub use pmem::{Import as PmemImport, PmemLog, PmemLogs};
pub use pool::{Pool, PoolFailure, StoreRange, StoredBlocks, StoredData};
pub use range_lock::{RangeGuard, RangeLocks};
pub use replay::{Choice, RecordPlace, ReplayCause, ReplayFailure, ReplayHandler, Replayed};
pub use stats::{Stats, StatsSnapshot};
pub use zil::{Committed, Zil};
