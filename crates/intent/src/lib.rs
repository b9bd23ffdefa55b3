//! The intent log of a pool: connects `zil`, which knows nothing of pools, to `pool`, which knows nothing of
//! logs.
//!
//! Design: a [`PoolLog`] is the log of one pool; at any time all of its volumes use the same kind. Kind pmem:
//! a region of persistent memory with a superblock (`region`), or a mirror of two (`sides`). Kind lwb:
//! log-write blocks on the pool's vdevs for logs, or on its other vdevs (`space`). The rule: a pool with a
//! region has kind pmem, any other pool kind lwb. The pool stores which one it has ([`LogConfig`]), so that
//! importing without the region, or with a different one, is an error and not an empty log; it also stores
//! each log's header, with the dataset.
//!
//! Import: the pool is imported without txgs ending, every log is claimed in one transaction of the first
//! txg, then txgs run, then volumes are replayed (`import`). The kind can be changed while volumes are
//! written (`change`), and so can the sides of a mirror (`change_sides`).
//!
//! # Code map
//! ```text
//! dataset       an open dataset: changes, their records, and receipts
//! config        what the pool records of its log      log           the log of a pool, logs of volumes
//! region        superblocks, chunks                   logs          all logs, of either kind
//! sides         one region, or a mirror of two        change_sides  attach, detach, replace
//! change        change of devices and kind in use     import        claim, replay, what may be given up
//! side          the pool as zil sees it               replay        applies records to objects
//! space         log space as lwb sees it              pm_device     persistent memory as a block device
//! survey        everything there is, for `log dump` and `log verify`
//! volume_log    what a volume logs with: range locks, and delays before the log is full
//! ```
//!
//! Source: zil-pmem thesis, 6.2; `docs/adr/2026-11-22-kinds-and-switching.md`.

#![forbid(unsafe_code)]

mod change;
mod change_sides;
mod config;
mod dataset;
mod error;
mod import;
mod log;
mod logs;
mod marks;
mod pm_device;
mod region;
mod replay;
mod side;
mod side_loss;
mod sides;
mod space;
pub mod survey;
mod volume_log;
mod witness;

pub use config::{ConfigFault, LogConfig, REGIONS_MAX, RegionConfig};
pub use dataset::{ChangeError, Demand, OpenDataset, Receipt, Records};
pub use error::IntentError;
pub use fastness_prb::Stats as RegionStats;
pub use import::{Consent, LogImportStep, ReplayProgress, Txgs};
pub use log::{Members, PoolLog, Tuning, Zil};
pub use logs::AnyLog;
pub use marks::Mismatch;
pub use pm_device::PmDevice;
pub use region::{CHUNK_BYTES, FRONT_BYTES, REGION_BYTES_MIN, RegionId, RegionParts};
pub use replay::ReplayReport;
pub use side::PoolSide;
pub use sides::NewRegion;
pub use space::PoolSpace;
pub use volume_log::VolumeLog;
pub use witness::RegionWitness;
