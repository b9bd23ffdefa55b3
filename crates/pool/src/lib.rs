//! A transactional store on block devices.
//!
//! Motivation: volumes and file systems need a place where their changes become durable in large atomic
//! steps, while an intent log covers the seconds in between.
//!
//! Design: devices form *vdevs* (one device, or a mirror). Data is written to new places only, with its
//! checksum in a table, and is verified on each read. The tables are those of a key-value engine whose file
//! is itself copy-on-write and verified (`meta`). All changes of a *transaction group* (txg) become durable
//! together, with one small write (the uberblock). A crash leaves the last synced txg, byte for byte. The
//! steps and the crash cases are described in `sync`, `label` and `meta`.
//!
//! Shutdown: [`Pool::export`]. Anything else is a crash.
//!
//! # Code map
//! ```text
//! label      both ends of a device                  object     layers in DRAM
//! config     the contents of labels                 handle     reads and writes by users
//! vdev/      mirror, healing, stripe                dataset    the tree, properties (props)
//! alloc      free space                             txg        holds, back-pressure
//! meta/      the file under the tables              sync       takes a txg from DRAM to the vdevs
//! tables     rows                                   publish    what follows a sync
//! extent     blocks, compression                    import     create, import (find: which configuration counts)
//! scrub      scrub, resilver                        change     add, attach, detach, replace, remove
//! carry      a suspended pool, to its next import   settings   properties, features
//! check      allocated = referenced                 pool       transactions, waiting, export
//! relabel    labels of a running pool
//! output     writes blocks to new places            state      what all parts share
//! run        requests being filled and in flight    buffers    memory of blocks, reused
//! log_space/ room for log blocks: allocation, I/O on all sides, labels before a flush returns, resilver
//! stored/    blocks that are durable in place before their txg, and their addresses
//! rows/      ordered tables: rows in DRAM, put and get (table), scan, the synced rows (stored)
//! room/      what changes reserve, and why every txg finds room
//! freeing    what a txg frees, in steps             cleared    cleared ranges that are not freed yet
//! panics     turns a panic into an error            cut        punch, truncate
//! taken      how much space an open object takes    usage      the same, counted
//! ```

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
mod relabel;
mod room;
mod rows;
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
mod taken;
mod thread;
mod txg;
mod usage;
mod vdev;

pub use carry::Unsynced;
pub use check::CheckReport;
pub use config::{DeviceConfig, DeviceState, FORMAT_VERSION, PoolConfig, PoolState, VdevClass, VdevConfig};
pub use dataset::{Dataset, DatasetInfo};
pub use error::{PoolError, Result};
pub use extent::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN};
pub use fastness_blkdev::ErrorKind;
pub use handle::Object;
pub use ids::{DatasetId, Guid, ImportId, Mark, ObjectId, Place, TableId, Txg, UNIT_BYTES};
pub use import::{Host, ImportOptions, MissingLog, VdevSpec};
pub use label::{DATA_START_BYTES, DEVICE_BYTES_MIN, LABEL_BYTES};
pub use log_space::{LOG_BLOCK_BYTES_MAX, LogExtent, LogSpace, LogUsage};
pub use pool::{Pool, Tx};
pub use probe::Probe;
pub use props::{Compression, LogBias, Property, SyncMode};
pub use rows::{ROW_KEY_BYTES_MAX, ROW_SHORT_VALUE_BYTES_MAX, ROW_VALUE_BYTES_MAX, RowChange, Table};
pub use scrub::ScrubReport;
pub use segments::Segment;
pub use settings::{FailMode, Feature};
pub use state::{HookChanges, PoolOptions, TxgHook};
pub use status::{DeviceStatus, PoolStatus};
pub use stored::{StoreRequest, StoredRun};
pub use tables::DatasetKind;
pub use vdev::{Device, DeviceErrors};
