//! Errors of a pool: what, where, and what the caller must do about it.

mod from;
mod kind;
mod lost;
mod words;

use std::io;
use std::sync::Arc;

use fastness_blkdev::BlockError;
use fastness_remote::OpenError;

pub use crate::error::{lost::LostBlock, words::Result};
use crate::ids::{DatasetId, Guid, ObjectId, Place, Txg};

/// What went wrong with a pool.
///
/// State afterwards: unless a variant says otherwise, nothing was changed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// A file or device could not be opened.
    #[error("cannot open a device of the pool")]
    Open(#[source] Arc<OpenError>),
    /// A device failed, and no other copy was available.
    #[error("a device failed")]
    Device(#[source] Arc<BlockError>),
    /// No device was given.
    #[error("no device was given")]
    NoDevice,
    /// A vdev was given no device.
    #[error("a vdev needs a device")]
    EmptyVdev,
    /// All vdevs given for a pool are for logs.
    #[error("a pool needs a vdev that is not for logs")]
    OnlyLogVdevs,
    /// The blocks of the device are larger than a unit of allocation, or do not divide it.
    #[error("{path} has blocks of {block_bytes} bytes; 4096 at most")]
    BlockSize {
        /// The device.
        path: String,
        /// Its logical blocks.
        block_bytes: u32,
    },
    /// The devices are those of a pool of another name, which is this.
    #[error("the devices belong to pool {0}")]
    OtherName(String),
    /// The pool has more devices than a label can describe.
    #[error("the configuration needs {needed_bytes} bytes, a label has {slot_bytes}")]
    ConfigTooLarge {
        /// What the description needs.
        needed_bytes: usize,
        /// What a label has for it.
        slot_bytes: usize,
    },
    /// All sides of a vdev are missing, offline or stale.
    #[error("a vdev has no device left that can be written")]
    NoSideLeft,
    /// The metadata has more pages than an uberblock can refer to. No txg of such a size can sync.
    #[error("the metadata has grown beyond 62 GiB")]
    MetadataTooLarge,
    /// The operating system started no thread.
    #[error("no thread could be started")]
    NoThread(#[source] Arc<io::Error>),
    /// The device is too small for two labels and some data.
    #[error("{path} has {len_bytes} bytes, a pool needs {least_bytes} on each device")]
    TooSmall {
        /// The device.
        path: String,
        /// Its length.
        len_bytes: u64,
        /// The least that a pool needs.
        least_bytes: u64,
    },
    /// Neither label of the device is a pool's label.
    #[error("{path} is no device of a pool: it has no label")]
    NoLabel {
        /// The device.
        path: String,
    },
    /// There were labels on the device, and all are damaged.
    #[error("all labels of {path} are damaged")]
    DamagedLabels {
        /// The device.
        path: String,
    },
    /// The pool was written by another version of this program.
    #[error("{path} has format version {version}; this program knows {known}")]
    OtherVersion {
        /// The device.
        path: String,
        /// Version found.
        version: u32,
        /// The version known.
        known: u32,
    },
    /// The pool's media need something that this program does not know.
    #[error(
        "pool {pool} needs feature {feature}, which this program does not know{}",
        if *is_read_only_compatible { "; it can be imported read-only" } else { "" }
    )]
    UnknownFeature {
        /// The pool.
        pool: String,
        /// The feature.
        feature: String,
        /// Whether a read-only import may go on without it.
        is_read_only_compatible: bool,
    },
    /// The device belongs to a different pool from the others.
    #[error("{path} belongs to pool {found_name} ({found}), not to {expected_name} ({expected})")]
    ForeignPool {
        /// The device.
        path: String,
        /// Its pool.
        found: Guid,
        /// Its pool's name.
        found_name: String,
        /// Pool of the other devices.
        expected: Guid,
        /// Its name.
        expected_name: String,
    },
    /// The device is no longer part of the pool; or not yet: the power failed while it was being added.
    #[error("{path} ({guid}) is no part of pool {pool}: it was removed, or never quite added")]
    Removed {
        /// The device.
        path: String,
        /// Its GUID.
        guid: Guid,
        /// The pool.
        pool: String,
    },
    /// A vdev has no usable side.
    #[error("pool {pool} cannot be imported without {path} ({guid}): vdev {vdev} has no other copy")]
    MissingDevice {
        /// The pool.
        pool: String,
        /// Number of the top-level vdev.
        vdev: u16,
        /// GUID of the missing device.
        guid: Guid,
        /// Where it was last.
        path: String,
    },
    /// A side of a mirror is missing, and the labels found call it current: it may know of newer txgs.
    #[error(
        "pool {pool}: {path} ({guid}) of vdev {vdev} is missing, and only it could tell whether it is newer than what is \
         there; import with it, or without it by --degraded: changes that only it has are then lost"
    )]
    MissingSide {
        /// The pool.
        pool: String,
        /// Number of the top-level vdev.
        vdev: u16,
        /// GUID of the missing device.
        guid: Guid,
        /// Where it was last.
        path: String,
    },
    /// A device is an earlier copy of itself, or a copy from another history: it lacks what txgs have written
    /// since, and no side of its vdev has that.
    #[error("{path} ({guid}) of pool {pool} is a copy {}; put the device itself back", words::of_when(*found, *expected))]
    OldCopy {
        /// The pool.
        pool: String,
        /// Number of the top-level vdev.
        vdev: u16,
        /// GUID of the device.
        guid: Guid,
        /// Where it is.
        path: String,
        /// Newest txg that it has; `None` if it does not say.
        found: Option<Txg>,
        /// Newest txg of the pool.
        expected: Txg,
    },
    /// A vdev for logs has no current side. What was acknowledged since the last synced txg is on it.
    #[error(
        "pool {pool}: log device {path} ({guid}) of vdev {vdev} is not here, and what was acknowledged last is on it; \
         import with it, or without it and what only it has by --missing-log (`fastness up`: --drop-log)"
    )]
    MissingLog {
        /// The pool.
        pool: String,
        /// Number of the top-level vdev.
        vdev: u16,
        /// GUID of the missing device.
        guid: Guid,
        /// Where it was last.
        path: String,
    },
    /// A log vdev cannot be removed while log blocks are on it. Nothing new is allocated there: try again
    /// once the logged changes have synced and the log has moved elsewhere.
    #[error(
        "vdev {vdev} ({path}) still holds {used_bytes} bytes of logs; try again when they have been synced"
    )]
    LogInUse {
        /// Number of the top-level vdev.
        vdev: u16,
        /// Its first device.
        path: String,
        /// Bytes of log blocks on it.
        used_bytes: u64,
    },
    /// Two sides of a mirror were used without each other. Leave out the one whose changes are to be lost.
    #[error("pool {pool}: {path} and {other_path} were each used without the other; leave one of them out")]
    Split {
        /// The pool.
        pool: String,
        /// A device.
        path: String,
        /// Another.
        other_path: String,
    },
    /// Another host has the pool, or had it when it died.
    #[error(
        "pool {pool} is in use by host {host_name} ({host_id:016x}); export it there, or, if that host is not running, import by \
         --force"
    )]
    InUseByHost {
        /// The pool.
        pool: String,
        /// That host.
        host_name: String,
        /// Its id.
        host_id: u64,
    },
    /// The pool was destroyed, and nothing has overwritten these devices since.
    #[error("pool {pool} was destroyed; `fastness pool import -D {pool}` brings it back")]
    Destroyed {
        /// The pool.
        pool: String,
    },
    /// The pool has less space than a reservation would keep free.
    #[error(
        "a reservation of {wanted_bytes} bytes for {name} is more than the pool can keep: {free_bytes} bytes at most"
    )]
    Reservation {
        /// The dataset.
        name: String,
        /// What it was to have.
        wanted_bytes: u64,
        /// What it could have.
        free_bytes: u64,
    },
    /// A thick volume could not be overwritten as a whole after a snapshot.
    #[error(
        "{volume} has a refreservation: a snapshot needs its room once more, which is {wanted_bytes} bytes, \
         and {free_bytes} are free; destroy something, add a device, or set refreservation=none"
    )]
    NoRoomForSnapshot {
        /// The volume.
        volume: String,
        /// What would have to be kept in addition.
        wanted_bytes: u64,
        /// What is free and not kept for others.
        free_bytes: u64,
    },
    /// Bytes that do not match their checksum, on all copies.
    #[error("{what} at {place} is damaged on every copy")]
    Damaged {
        /// What the bytes are.
        what: &'static str,
        /// Where.
        place: Place,
    },
    /// A block of an object is damaged on all copies.
    #[error("{dataset} {object}: bytes from {offset:#x} on are damaged on every copy at {place}")]
    DamagedBlock {
        /// The dataset.
        dataset: DatasetId,
        /// The object.
        object: ObjectId,
        /// First byte of the block.
        offset: u64,
        /// Where it is stored.
        place: Place,
    },
    /// A block whose only copy was in the log, which has lost it.
    #[error(transparent)]
    LostInLog(#[from] LostBlock),
    /// No copy of an uberblock is intact.
    #[error("pool {pool} has no whole uberblock")]
    NoUberblock {
        /// The pool.
        pool: String,
    },
    /// A checksummed value in a table is impossible: a defect, or damage that kept the checksum valid.
    #[error("table {table} has a value that cannot be: {what}")]
    BadValue {
        /// The table.
        table: &'static str,
        /// What is wrong.
        what: String,
    },
    /// The metadata engine failed.
    #[error("the metadata engine failed")]
    Engine(#[source] Arc<redb::Error>),
    /// The pool, the dataset or its quota has no space left.
    #[error(
        "no space{}: {wanted_bytes} bytes wanted, {free_bytes} free",
        if *is_quota { " in the quota" } else { "" }
    )]
    NoSpace {
        /// What the operation may need.
        wanted_bytes: u64,
        /// What is left for it.
        free_bytes: u64,
        /// Whether a quota refuses it, and not the pool.
        is_quota: bool,
    },
    /// A thread of the pool panicked: a defect in this program. What it was doing may be half done.
    #[error("a defect of this program: a thread of the pool panicked: {what}")]
    Panicked {
        /// The message of the panic.
        what: String,
    },
    /// An earlier txg could not be made durable; the pool takes no more changes. Import it again.
    #[error("the pool is suspended since {txg} failed: {reason}")]
    Suspended {
        /// The txg that failed.
        txg: Txg,
        /// Why, in words; the error itself was returned by the sync.
        reason: String,
    },
    /// The pool was exported or is being closed.
    #[error("the pool is closed")]
    Closed,
    /// The pool or the dataset is read-only.
    #[error("{0} is read-only")]
    ReadOnly(String),
    /// No such dataset.
    #[error("dataset {0} does not exist")]
    NoDataset(String),
    /// No such object.
    #[error("{dataset} has no {object}")]
    NoObject {
        /// The dataset.
        dataset: DatasetId,
        /// The object.
        object: ObjectId,
    },
    /// The transaction is too old: a newer txg has already changed datasets, whose changes must be in the
    /// order of txgs, or that newer txg creates the object to be changed. Begin another and try again.
    #[error("the transaction belongs to {txg}, and {newest} has gone ahead of it; begin another")]
    Overtaken {
        /// The transaction's txg.
        txg: Txg,
        /// The txg that went ahead.
        newest: Txg,
    },
    /// A dataset of that name exists.
    #[error("dataset {0} exists already")]
    Exists(String),
    /// A snapshot that other volumes begin at.
    #[error("{name} has clones: {}; destroy them first", words::clones(clones))]
    HasClones {
        /// The snapshot.
        name: String,
        /// Names of the clones.
        clones: Vec<String>,
    },
    /// A volume cannot become what an older snapshot is while there are newer ones.
    #[error("{name} is not the newest snapshot of its volume; newer: {}", newer.join(", "))]
    NotNewest {
        /// The snapshot.
        name: String,
        /// Names of the newer ones.
        newer: Vec<String>,
    },
    /// A volume has other contents than its newest snapshot, where an increment needs just that.
    #[error("the volume of {0} has changed since")]
    ChangedSince(String),
    /// A dataset that has children, or is open; a device, or the pool, that something else needs.
    #[error("{name} is busy: {why}")]
    Busy {
        /// The dataset, the device or the pool.
        name: String,
        /// What keeps it busy.
        why: &'static str,
    },
    /// An invalid property name or value, or an invalid range.
    #[error("invalid {what}: {value}")]
    Invalid {
        /// What it should have been.
        what: &'static str,
        /// What it is.
        value: String,
    },
    /// A write that must not grow its object ends after the end of the object.
    #[error("the object has {size_bytes} bytes, and the write ends at {end}")]
    BeyondEnd {
        /// Where the write ends.
        end: u64,
        /// Size of the object now.
        size_bytes: u64,
    },
}
