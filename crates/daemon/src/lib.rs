//! A running pool.
//!
//! Motivation: a pool belongs to one process at a time. That process serves its volumes, runs its scrubs and
//! answers commands of other processes; the command line is one of its clients.
//!
//! Design: [`Node`] holds an imported pool and does what a [`Request`] asks for; [`Control`] listens on a
//! Unix socket (mode 0600, in a folder of the user's own) and hands it lines; [`Client`] is the other end.
//! Threads: one for each client of the control socket; their number is bounded, and so are line length and
//! idle time.
//!
//! Shutdown: [`Node::run`] ends on a request or a signal, stops serving, and exports the pool. Killed at any
//! other moment, the next import finds the last synced txg.
//!
//! # Code map
//! ```text
//! node        a pool and its requests                 control   the socket, one thread per client
//! service     what is served; nbd: a volume;          protocol  requests and answers, lines of JSON
//!             mount/: files
//! export      from a volume to NBD, errors            report    what is reported, for tables and --json
//! imported    what an import found                    clear     resumes a suspended pool
//! transfer    snapshots sent and received             frames    bulk data on the socket
//! snapshots   snapshots and clones of volumes         datasets  names and properties; user_properties; thick
//! log_device  devices of the log                      topology  add, attach, replace, scrub: jobs
//! ending      how it ends; history: what was asked    layout    requests that look like mistakes
//! devices     devices by path, labels found by a scan
//! said        standard error: people, a file, the journal; signals: SIGINT, SIGTERM, SIGHUP
//! ```
//! The daemon makes no decisions that belong to the pool.

#![forbid(unsafe_code)]

mod clear;
mod client;
mod control;
mod damaged;
mod dataset_report;
mod datasets;
mod destroyed;
mod devices;
mod durability;
mod ending;
mod error;
mod export;
mod find;
mod frames;
mod history;
mod imported;
mod importing;
mod io_report;
mod jobs;
mod journal;
mod layout;
mod listeners;
mod log_device;
mod log_status;
mod medium;
mod mount;
mod nbd;
mod node;
mod paths;
mod pool_properties;
mod protocol;
mod report;
mod said;
mod service;
mod signals;
mod snapshots;
mod status;
mod thick;
mod topology;
mod transfer;
mod transfers;
mod trim;
mod user_properties;
mod vhost;
mod volumes;

pub use client::{Client, ClientError};
pub use control::Control;
pub use damaged::DamagedReport;
pub use dataset_report::{DatasetReport, PropertyReport, RatioReport};
pub use destroyed::DestroyedReport;
pub use devices::{Candidate, Found, PATIENCE, Unreadable, clear_labels, open_vdevs, scan};
pub use error::StartError;
pub use fastness_zvol::volume_of;
pub use find::{Among, FoundDevices, Search, find_devices};
pub use importing::{ImportReport, ImportStep, ImportWatch, ImportingReport, StepReport};
pub use io_report::{IoCounters, IoReport, IoRow, LatencyBucket, RequestCounters};
pub use journal::EventReport;
pub use layout::{check_layout, check_pool_name};
pub use listeners::check_address;
pub use log_device::{check_new_regions, is_persistent_memory};
pub use medium::{Survival, describe};
pub use mount::check_files_offline;
pub use node::{Ending, Node, NodeOptions};
pub use paths::{
    absolute, all_known_devices, control_socket, known_devices, remember_devices, run_dir, running_pools,
    volume_socket,
};
pub use pool_properties::PoolSetting;
pub use protocol::{
    AccessRequest, Failure, LINE_BYTES_MAX, Message, MountRequest, PmUse, Request, SendRequest, VdevRequest,
};
pub use report::{
    Address, CheckReport, DeviceReport, FilesCheckReport, HistoryReport, JobReport, LogCauseReport,
    LogCounters, LogRegionCounters, LogReport, LogVolumeReport, OfflineReport, OperationReport, PoolReport,
    RegionReport, ServedReport, TlsReport, VdevReport,
};
pub use said::{Level, say, speak_as_service, speaks_as_service};
pub use signals::on_signals;
pub use topology::split_regions;
pub use transfer::{ReceivedReport, StreamReport};
pub use user_properties::inherit_user_properties;
