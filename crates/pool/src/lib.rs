//! A transactional store on block devices.
//!
//! Motivation: volumes and file systems need a place where what they change becomes durable in large atomic steps,
//! while an intent log answers for the seconds in between.
//!
//! Design: devices form *vdevs* (one device, or a mirror); data is written to new places only, with a checksum in a
//! table, and verified at each read; the tables are those of a key-value engine whose file is itself copy-on-write
//! and verified (`meta`). All changes of a *transaction group* (txg) become durable together, with one small write
//! (the uberblock). What a crash leaves is the last synced txg, byte for byte. The steps and the crash cases are
//! described at `sync`, `label` and `meta`.
//!
//! Shutdown: [`Pool::export`]. Anything else is a crash.

mod alloc;
mod buffers;
mod carry;
mod change;
mod check;
mod cleared;
mod codec;
mod config;
mod cut;
mod dataset;
mod elsewhere;
mod engine_error;
mod error;
mod extent;
mod find;
mod freeing;
#[cfg(fuzzing)]
pub mod fuzzing;
#[cfg(test)]
mod golden;
mod handle;
mod ids;
mod import;
mod label;
mod log_space;
mod meta;
mod object;
mod objects;
mod online;
mod output;
mod panics;
mod pool;
mod probe;
mod props;
mod publish;
mod ranges;
mod room;
mod run;
mod scrub;
mod segments;
mod settings;
mod state;
mod status;
mod stored;
mod sync;
mod sync_util;
mod tables;
mod thread;
mod txg;
mod vdev;

pub use carry::Unsynced;
pub use check::CheckReport;
pub use config::{DeviceConfig, DeviceState, FORMAT_VERSION, PoolConfig, PoolState, VdevClass, VdevConfig};
pub use dataset::{Dataset, DatasetInfo};
pub use error::{PoolError, Result};
pub use extent::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN};
pub use fastness_blkdev::ErrorKind;
pub use handle::Object;
pub use ids::{DatasetId, Guid, ImportId, Mark, ObjectId, Place, Txg, UNIT_BYTES};
pub use import::{Host, ImportOptions, MissingLog, VdevSpec};
pub use label::{DATA_START_BYTES, DEVICE_BYTES_MIN, LABEL_BYTES};
pub use log_space::{LOG_BLOCK_BYTES_MAX, LogExtent, LogSpace, LogUsage};
pub use pool::{Pool, Tx};
pub use probe::Probe;
pub use props::{Compression, LogBias, Property, SyncMode};
pub use scrub::ScrubReport;
pub use segments::Segment;
pub use settings::{FailMode, Feature};
pub use state::{HookChanges, PoolOptions, TxgHook};
pub use status::{DeviceStatus, PoolStatus};
pub use stored::{StoreRequest, StoredRun};
pub use tables::DatasetKind;
pub use vdev::{Device, DeviceErrors};
