//! Block I/O on files and block devices, behind one trait.
//!
//! Code that stores data on vdevs uses [`BlockDevice`]: bytes in blocks, with caches that can lose them until
//! they are flushed. Implementations: [`FileDevice`] (files and disks; single requests by system call,
//! batches by io_uring; direct I/O where possible), [`MemDevice`] (memory), and [`Faulty`], which wraps any
//! of them, injects faults from a seed or a list of rules, and knows every state that a crash may leave.
//!
//! Crash cases, for the bytes of a write:
//! 1. Before the write returned, and until a later flush has succeeded: each 512-byte sector is old, or any
//!    of the contents written since the last flush, whatever the order of the writes.
//! 2. After a flush that began after the write had returned, or after a FUA write: all are present.
//! 3. A flush or FUA write failed: as 1, permanently. The kernel may have dropped the bytes and forgotten the
//!    error, so the device is poisoned: no later flush succeeds, through any handle, until all handles are
//!    dropped and the device is opened again; then reads show what is on the medium.
//! 4. The process dies: page-cached writes are still visible to the next process, but not durable; it flushes
//!    before it acts on them.
//! 5. A discard that was not flushed: as 1.
//!
//! Not protected against: a disk that lies about flushes, bit rot (checksums are the caller's), other
//! processes that ignore the advisory lock of a file.
//!
//! Performance: one system call per request and no allocation, if the buffer is aligned ([`AlignedBuf`]); one
//! system call for up to 128 requests of a batch with io_uring. Statistics cost two clock readings and three
//! relaxed additions. Shutdown: dropping a device unlocks it and makes nothing durable.
//!
//! Nothing here knows about pools, extents, labels or transaction groups.
//!
//! # Code map
//! ```text
//! device   the trait, requests of a batch            file/open   choices, locks, what was found
//! check    validates ranges before any I/O           file/probe  statx, sysfs, ioctls
//! health   the poison that all handles share         file/psync  one system call per request
//! mem      memory, with images that are cheap to     file/uring  batches
//!          copy
//! faulty/  plan: which fault when; strike: what it does; pending: which states a crash may leave
//! ```
//! Invariant: no layer above a device skips a flush because of its cache type, and no flush succeeds after
//! one has failed (`health`).

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("fastness-blkdev needs 64-bit Linux");

mod aligned;
mod check;
mod device;
mod error;
mod faulty;
mod file;
mod health;
mod info;
mod mem;
mod stats;

pub use aligned::AlignedBuf;
pub use device::{BlockDevice, Request};
pub use error::{BlockError, Cause, ErrorKind, OpenError, Operation};
pub use faulty::{CrashScope, Enumerated, Fault, FaultPlan, Faulty, On, When};
pub use file::{Direct, EngineChoice, FileDevice, OpenOptions};
pub use health::{Health, Poisoned};
pub use info::{DeviceInfo, DeviceKind, Engine, WriteCache};
pub use mem::{MemDevice, MemImage};
pub use stats::{OperationStats, Stats, StatsSnapshot};
