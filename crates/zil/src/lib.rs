//! The intent log: what makes a synchronous operation durable before its transaction group (txg) is.
//!
//! Motivation: a txg syncs after seconds, a synchronous caller waits for microseconds. An operation changes
//! the pool in memory and describes the change in a *record*; what must be durable at once is written to a
//! log. After a crash, replay applies the records of exactly those txgs that had not synced.
//!
//! Design: [`Zil`] is the intent log of one dataset. There are two ways into it.
//! 1. *Commit lists* (file systems): [`Zil::assign`] keeps a record in memory (`itxg`), [`Zil::commit`]
//!    writes those that an object needs. Most records are never written, because their txg syncs first.
//! 2. *Volumes*: [`Zil::log_write`] writes the record at once, past the commit list and in parallel with
//!    others; [`Zil::flush`] only orders (`bypass`). With kind lwb, which is too slow for that, they use the
//!    commit list.
//!
//! How records reach a medium is a *kind* ([`Kind`]): kind pmem ([`PmemLogs`], [`PmemLog`]) has one HDL for
//! each dataset on the pool's PRB; kind lwb ([`LwbLogs`], [`LwbLog`]) has one chain of log-write blocks for
//! each dataset in the pool's log space. [`DynLog`] is of any kind, for one that is changed in use
//! ([`Zil::switch_kind`]). What the log needs of a pool is in [`Pool`]; nothing here knows how a pool stores,
//! what a file or a volume is, or which devices there are.
//!
//! What survives a crash: every record that a commit covered, and every write that the bypass acknowledged;
//! of the rest, each record whole or not at all, and none without the earlier ones of its objects. Where a
//! record cannot be logged (no space, log suspended, medium failed) the caller waits for the txg instead, and
//! that is counted.
//!
//! # Code map
//! ```text
//! record/    the records, byte for byte                kind        the interface to a medium
//! itx, itxg  records in memory, by txg                 graph       dependencies within a commit list
//! zil        assign, commit, fall back to the txg      bypass      volumes: records that skip the commit list
//! pool       what the log needs of a pool              range_lock  one order for overlapping writes
//! replay     handler, failures, choices                pmem/       commit, log (states), logs, import, replay
//! claim      problems and summaries of an import       lwb/        the same on a chain of log-write blocks; data
//! any        a log of either kind                                  (stored ahead, or read back), held (blocks that
//! pieces     data read back, as records                            an import claims)
//! kept       bytes of files that are gone
//! ```
//!
//! *A commit.* [`Zil::commit`] takes the lists of the unsynced txgs and hands them to the kind in order.
//! `PmemLog::persist` (`pmem/commit.rs`) writes the records that the object needs, in parallel with other
//! commits, and waits for those that other threads are writing. If the log does not accept a record, the
//! commit waits for the txg instead, and nothing that depends on that record is logged before then. Why
//! replay is right: `docs/adr/2026-11-22-parallel-commits.md`. `LwbLog::persist` (`lwb/commit.rs`) appends
//! what the object needs to the chain, in an order that respects the dependencies, and commits the chain.
//! Large amounts of data to be read back are stored where their txg will have them (`lwb/data.rs`,
//! `pool/stored`), and their records hold the address: `docs/adr/2026-11-22-indirect-records.md`.
//!
//! *A volume's write.* [`Zil::log_write`] writes the record at once (kind pmem), or assigns it to the list,
//! which [`Zil::flush`] commits (kind lwb, or bypass off). Headers of kind pmem are stored by transactions;
//! those of kind lwb by the txg that is being written (`LwbLogs::sync`). Changing the kind:
//! [`Zil::switch_kind`], `docs/adr/2026-11-22-kinds-and-switching.md`.
//!
//! Source: zil-pmem thesis, 2.3.3 to 2.3.5, ch. 4 and 6; why commits run in parallel: `docs/adr`.

#![forbid(unsafe_code)]

mod any;
mod bypass;
mod claim;
mod error;
mod graph;
mod header;
mod itx;
mod itxg;
mod kept;
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

pub use any::{DynLog, OwnedLog};
pub use claim::{ClaimCause, ClaimProblem, ClaimSummary};
pub use error::{CommitError, LogCause, LogError, NotPersisted};
pub use fastness_base::ErrorKind;
pub use fastness_base::{DatasetId, ObjectId, Txg};
pub use header::{HeaderFault, KindId, StoredHeader};
pub use itx::{COPIED_BYTES_MAX, Itx, WriteClass};
pub use kind::{Entry, KEYS_MAX, Keys, Kind, Payload, Persisted, ReadBack};
pub use lwb::{Import as LwbImport, LwbLog, LwbLogs};
pub use pmem::{Import as PmemImport, PmemLog, PmemLogs};
pub use pool::{FileEnd, Pool, PoolFailure, StoreRange, StoredBlocks, StoredData};
pub use range_lock::{RangeGuard, RangeLocks};
pub use replay::{Choice, RecordPlace, ReplayCause, ReplayFailure, ReplayHandler, Replayed};
pub use stats::{Stats, StatsSnapshot};
pub use zil::{Committed, Zil};
