//! A pool with its log: what volumes, and every other front end, stand on.
//!
//! Motivation: a pool makes changes durable in large atomic steps, after seconds; an intent log (`zil`) makes
//! single ones durable in microseconds, and knows nothing of pools. Here they become one thing, so that a
//! front end writes no log code.
//!
//! Design: a [`Store`] owns a pool and its log. [`Store::dataset`] opens a dataset; one call makes a change
//! of it ([`OpenDataset::change`]) and returns a [`Receipt`], whose `wait` makes the change as durable as
//! `sync` demands. A front end that is opened with [`Store::attach`] goes on when a suspended pool is
//! imported again ([`Store::clear`]). After a crash a [`Handler`] for each kind of datasets applies the
//! records.
//!
//! The log of a pool ([`PoolLog`]) has one kind at any time. Kind pmem: a region of persistent memory with a
//! superblock (`region`), or a mirror of two (`sides`). Kind lwb: log-write blocks on the pool's vdevs for
//! logs, or on its other vdevs (`space`). The rule: a pool with a region has kind pmem, any other pool kind
//! lwb. The pool stores which one it has ([`LogConfig`]), so that importing without the region, or with a
//! different one, is an error and not an empty log; it also stores each log's header, with the dataset.
//!
//! Import: the pool is imported without txgs ending, every log is claimed in one transaction of the first
//! txg, then txgs run, then datasets are replayed (`import`). The kind can be changed while datasets are
//! written (`change`), and so can the sides of a mirror (`change_sides`).
//!
//! # How durable a change is
//! There are two ways to change a dataset, and a front end takes one of them for all of its changes.
//! [`OpenDataset::change`] is for objects that behave as disks do: changes of overlapping ranges have one
//! order, others have none. [`OpenDataset::transact`] is for changes with an order, of rows and objects,
//! under locks of the front end. They treat the property `sync` differently: `change` does what its
//! [`Demand`] says, and [`Demand::of`] takes that from the property; `transact` looks at the property
//! itself, and its caller decides when to commit.
//!
//! | `sync` | `change` with `Demand::of(sync, is_sync)`, then [`Receipt::wait`] | `transact`, then perhaps [`commit`] |
//! |---|---|---|
//! | `standard` | with `is_sync` durable when `wait` returns, otherwise when the next [`flush`] does | its record is kept in memory: durable when a `commit` that covers it returns |
//! | `always` | durable when `wait` returns, whatever `is_sync` says | as `standard`: the front end commits after each change |
//! | `disabled` | not logged; `wait` and `flush` return at once | no record is kept, `record` is not called; `commit` returns at once |
//!
//! In any case a change is durable with its txg. What `disabled` has left out, the first `flush` or `commit`
//! after the property has changed waits for. If the function that makes the change fails, `change` takes it
//! for made in part, and `transact` for not made.
//!
//! What records may be, and what the log makes of them: [`record`].
//!
//! [`commit`]: OpenDataset::commit
//! [`flush`]: OpenDataset::flush
//!
//! # Code map
//! ```text
//! store         pool and log, datasets              log           the log of a pool, logs of datasets
//! received      volumes that are being received
//! snapshots     snapshots, clones, rollback         destruction   in which order datasets can be destroyed
//! dataset       changes, their records, receipts    logs          what a kind of logs has to be; kind_lwb,
//! transact      the same for file systems: commits                kind_pmem
//! dataset_log   what a dataset logs with: range
//!               locks, delays before it is full     config        what the pool records of its log
//! attached      front ends, across imports          region        superblocks, chunks
//! suspension    requests that wait                  sides         one region, or a mirror of two
//! clear         a suspended pool is imported again  change        change of devices and kind in use
//! imported      an import, and what outlives it     change_sides  attach, detach, replace
//! source, local where an import finds the parts     import        claim, replay, what may be given up
//! handler       kinds of datasets, their replay     side          the pool as zil sees it
//! operations    counters of operations
//! survey        all there is, for `log dump` and    space         log space as lwb sees it
//!               `log verify`
//! options       how a store is opened               tuning        how a log is used on this machine
//! ```
//!
//! Source: zil-pmem thesis, 6.2; `docs/adr/2026-11-22-kinds-and-switching.md`.

#![forbid(unsafe_code)]

mod attached;
mod change;
mod change_sides;
mod clear;
mod config;
mod dataset;
mod dataset_log;
mod destruction;
mod error;
mod handler;
mod import;
mod imported;
mod kind_lwb;
mod kind_pmem;
mod local;
mod log;
mod logs;
mod marks;
mod operations;
mod options;
mod overwrite;
mod received;
mod region;
mod replay;
mod side;
mod side_loss;
mod sides;
mod snapshots;
mod source;
mod space;
mod store;
pub mod survey;
mod suspension;
mod transact;
mod tuning;
mod witness;

pub use attached::{Attached, FrontEnd, Outcome};
pub use clear::Cleared;
pub use config::{ConfigFault, LogConfig, REGIONS_MAX, RegionConfig, RegionId};
pub use dataset::{ChangeError, Demand, OpenDataset, Receipt, Records};
pub use error::StoreError;
pub use fastness_base::Counts;
pub use fastness_prb::Stats as RegionStats;
pub use handler::{Handler, Kinds, ReplayError, Replaying};
pub use import::{LogImportStep, ReplayProgress};
pub use imported::Unopened;
pub use local::{Local, Opener, Places, real};
pub use log::PoolLog;
pub use marks::Mismatch;
pub use operations::{Operation, OperationCounters};
pub use options::{Consent, StoreOptions};
pub use region::{CHUNK_BYTES, FRONT_BYTES, REGION_BYTES_MIN, RegionContents, RegionParts};
pub use replay::ReplayReport;
pub use sides::NewRegion;
pub use source::{Given, Source};
pub use space::PoolSpace;
pub use store::Store;
pub use tuning::Tuning;
pub use witness::RegionWitness;

// What a front end stores, and its records.
pub use fastness_base::{DatasetId, ErrorKind, HasKind, ObjectId, Txg};
pub use fastness_pool::{
    BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, Compression, Dataset, DatasetKind, LogBias, Object, Origin, Property,
    RECEIVED, ROW_KEY_BYTES_MAX, ROW_SHORT_VALUE_BYTES_MAX, ROW_VALUE_BYTES_MAX, Result as PoolResult,
    RowChange, Segment, SyncMode, Table, TableId, Tx,
};
pub use fastness_zil::{CommitError, Itx, KindId, record};

// What a pool is made of: to create one, to import one, to change its devices.
pub use fastness_pool::{
    DEVICE_BYTES_MIN, Device, FailMode, Feature, Guid, ImportOptions, LogData, MissingLog, Pool, PoolConfig,
    PoolError, PoolOptions, PoolState, Probe, UNIT_BYTES, VdevClass, VdevSpec,
};

// What a pool and its logs say about themselves.
pub use fastness_pool::{
    DamagedBlock, DatasetHold, DatasetInfo, DeviceStatus, Difference, Place, PoolStatus, Pulse, Ratio,
    ScrubReport, SnapshotInfo, TrimPoint, is_user_property, thick_bytes,
};
pub use fastness_zil::{ClaimSummary, LogCause, StatsSnapshot};
