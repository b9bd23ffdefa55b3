//! Volumes: disk semantics on top of an object of a pool.
//!
//! Motivation: programs that need a disk (virtual machines, file systems, databases on raw devices) get one
//! that the pool checks, heals, compresses and grows.
//!
//! Design: a volume is a dataset of its own kind whose object 1 holds the bytes; the object's size is the
//! volume's size. Volumes are sparse: what was never written, or was discarded, takes no space. A write
//! changes the object in the open transaction group (txg) and returns. A flush, or a write with FUA, waits
//! until the intent log has what it needs or, if there is no log or it has no space, until the newest txg
//! that changed the volume is durable. Txgs become durable in order, so waiting for the newest is waiting for
//! all.
//!
//! What survives: everything that was flushed. A write that was not flushed may or may not survive, as on a
//! disk.
//!
//! # Code map
//! `create`: make, open, resize. `volume`: read, write, flush, discard. `replay`: the records of a crash.
//! `transfer`: snapshots that go from one pool to another.
//!
//! Source: zil-pmem thesis, 2.3 (ZVOL) and 6.3.5.

#![forbid(unsafe_code)]

mod create;
mod error;
mod replay;
mod transfer;
mod volume;

pub use create::VolumeOptions;
pub use error::{Result, VolumeError};
pub use fastness_stream::Token;
pub use replay::VolumeReplay;
pub use transfer::{
    Incoming, Outgoing, ReceiveOptions, Received, StreamSize, TransferError, abort_receiving,
    drop_interrupted, receive, receiving, volume_of,
};
pub use volume::{VOLUME_BYTES_MAX, Volume};
