//! The intent log of a pool: what ties `zil`, which knows no pool, to `pool`, which knows no log.
//!
//! Design: a [`PoolLog`] is the log device of one pool: a region of persistent memory with a superblock (`region`) and
//! the logs of all volumes. The pool stores which region that is, so that an import without it, or with another, is an
//! error and not an empty log; and each log's header, beside its dataset.
//!
//! Import: the pool is imported without txgs ending, the region is scanned and every log is claimed in one transaction
//! of the first txg, then txgs run, then volumes are replayed. Source: zil-pmem thesis, 6.2; `docs/adr`.

#![forbid(unsafe_code)]

mod error;
mod log;
mod region;
mod replay;
mod side;
mod volume_log;

pub use error::IntentError;
pub use log::{Missing, PoolLog, Tuning, Zil};
pub use region::{CHUNK_BYTES, REGION_BYTES_MIN, RegionId};
pub use replay::ReplayReport;
pub use side::PoolSide;
pub use volume_log::VolumeLog;
