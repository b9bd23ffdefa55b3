//! A transactional store on block devices.
//!
//! Motivation: volumes and file systems need a place where their changes become durable in large atomic
//! steps, while an intent log covers the seconds in between.
//!
//! Design: devices form *vdevs* (one device, or a mirror). Data is written to new places only, with its
//! checksum in a table, and is verified on each read. The tables are those of a key-value engine whose file
//! is itself copy-on-write and verified (`metadata`). All changes of a *transaction group* (txg) become
//! durable together, with one small write (the uberblock). A crash leaves the last synced txg, byte for byte.
//! The steps and the crash cases are described in `txg::sync`, `devices::label` and `metadata::file`.
//!
//! Shutdown: [`Pool::export`]. Anything else is a crash.
//!
//! # Code map
//! ```text
//! devices/    what a pool is made of: labels, configuration, vdevs, bulk writing
//! space/      which units are free, and what changes reserve, so that every txg finds room
//! metadata/   the engine's file and its tables
//! objects/    sparse bytes: layers in DRAM, blocks, reads, writes, clearing, how much space they take
//! rows/       ordered tables of datasets
//! namespace/  the tree of datasets, properties, features
//! txg/        the pipeline of txgs, and how one gets from DRAM to the vdevs
//! log_space/  room for log blocks: allocation, I/O on all sides, labels before a flush returns, resilver
//! import/     create and import; from a suspended pool to its next import
//! upkeep/     devices added, replaced, back; scrub, resilver, check, status
//! state/      what all parts of an imported pool share
//! order       in which order a thread takes locks
//! pool        a pool in use: transactions, waiting, export
//! panics      turns a panic into an error
//! ```

mod codec;
mod devices;
mod error;
#[cfg(fuzzing)]
pub mod fuzzing;
#[cfg(test)]
mod golden;
mod ids;
mod import;
mod log_space;
mod metadata;
mod namespace;
mod objects;
mod order;
mod panics;
mod pool;
mod rows;
mod space;
mod state;
mod txg;
mod upkeep;

pub use devices::config::{
    DeviceConfig, DeviceState, FORMAT_VERSION, PoolConfig, PoolState, VdevClass, VdevConfig,
};
pub use devices::label::{DATA_START_BYTES, DEVICE_BYTES_MIN, LABEL_BYTES};
pub use devices::probe::Probe;
pub use devices::vdev::{Device, DeviceErrors};
pub use error::{LostBlock, PoolError, Result};
pub use fastness_blkdev::ErrorKind;
pub use ids::{DatasetId, Guid, ImportId, Mark, ObjectId, Place, RECEIVED, TableId, Txg, UNIT_BYTES};
pub use import::carry::Unsynced;
pub use import::options::{Host, ImportOptions, MissingLog, VdevSpec};
pub use log_space::blocks::{LOG_BLOCK_BYTES_MAX, LogExtent};
pub use log_space::space::{LogSpace, LogUsage};
pub use metadata::tables::DatasetKind;
pub use namespace::dataset::{Dataset, DatasetInfo};
pub use namespace::hold::DatasetHold;
pub use namespace::identity::Difference;
pub use namespace::props::{Compression, LogBias, Property, SyncMode};
pub use namespace::ratio::Ratio;
pub use namespace::settings::{FailMode, Feature, LogData};
pub use namespace::shown::SnapshotInfo;
pub use namespace::user::{
    USER_BYTES_MAX, USER_NAME_BYTES_MAX, USER_VALUE_BYTES_MAX, UserChanges, is_user_property,
};
pub use objects::extent::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN};
pub use objects::handle::Object;
pub use objects::origin::Origin;
pub use objects::segments::Segment;
pub use objects::stored::{StoreRequest, StoredRun};
pub use pool::{Pool, Tx};
pub use rows::limits::{ROW_KEY_BYTES_MAX, ROW_SHORT_VALUE_BYTES_MAX, ROW_VALUE_BYTES_MAX};
pub use rows::table::{RowChange, Table};
pub use space::squeeze::{Short, Squeezed};
pub use space::thick::thick_bytes;
pub use state::options::PoolOptions;
pub use state::txgs::{HookChanges, TxgHook};
pub use txg::pulse::Pulse;
pub use upkeep::check::CheckReport;
pub use upkeep::damage::DamagedBlock;
pub use upkeep::scrub::ScrubReport;
pub use upkeep::status::{DeviceStatus, PoolStatus};
pub use upkeep::trim::{TrimPoint, TrimStep};
