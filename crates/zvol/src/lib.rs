//! Volumes: a disk's semantics over an object of a pool.
//!
//! Motivation: programs that want a disk (virtual machines, file systems, databases on raw devices) get one
//! that the pool checks, heals, compresses and grows.
//!
//! Design: a volume is a dataset of its own kind whose object 1 holds the bytes; the object's size is the
//! volume's. Volumes are sparse: what was never written, or was discarded, takes no space. A write changes
//! the object in the open transaction group (txg) and returns; a flush, and a write with FUA, waits until the
//! intent log has what it needs, or, where there is none or it has no room, until the newest txg that the
//! volume changed is durable. Txgs become durable in order, so waiting for the newest is waiting for all.
//!
//! What survives: everything that was flushed. Of what was not flushed, a write may be there or not, as on a
//! disk.
//!
//! # Code map
//! `create`: make, open, resize. `volume`: read, write, flush, discard.
//!
//! Source: zil-pmem thesis, 2.3 (ZVOL) and 6.3.5.

#![forbid(unsafe_code)]

mod create;
mod error;
mod stats;
mod volume;

pub use create::VolumeOptions;
pub use error::{Result, VolumeError};
pub use stats::{VolumeOperation, VolumeStats};
pub use volume::{VOLUME_BYTES_MAX, Volume};
