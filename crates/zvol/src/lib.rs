//! Volumes: a disk's semantics over an object of a pool.
//!
//! Motivation: programs that want a disk (virtual machines, file systems, databases on raw devices) get one that the
//! pool checks, heals, compresses and grows.
//!
//! Design: a volume is a dataset of its own kind whose object 1 holds the bytes; the object's size is the volume's.
//! Volumes are sparse: what was never written, or was discarded, takes no space. A write changes the object in the open
//! transaction group (txg) and returns; a flush waits until the newest txg that the volume changed is durable, and so
//! does each write with FUA. Txgs become durable in order, so waiting for the newest is waiting for all.
//!
//! What survives: after a crash the volume is as of the last synced txg. That is everything that was flushed, in
//! whole txgs: of what was not flushed, a write is there only with all that came before it in earlier txgs.
//!
//! Source: zil-pmem thesis, 2.3 (ZVOL) and 6.3.5. The intent log, which makes flushes quick, is not under this yet.

#![forbid(unsafe_code)]

mod create;
mod error;
mod stats;
mod volume;

pub use create::VolumeOptions;
pub use error::{Result, VolumeError};
pub use stats::{VolumeOperation, VolumeStats};
pub use volume::{VOLUME_BYTES_MAX, Volume};
