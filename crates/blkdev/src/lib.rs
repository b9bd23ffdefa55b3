//! Block I/O on files and block devices, behind one trait.

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("fastness-blkdev needs 64-bit Linux");

mod check;
mod device;
mod error;
mod info;
mod mem;
mod stats;

pub use device::{BlockDevice, Request};
pub use error::{BlockError, Cause, ErrorKind, OpenError, Operation};
pub use info::{DeviceInfo, DeviceKind, Engine, WriteCache};
pub use mem::{MemDevice, MemImage};
pub use stats::{OperationStats, StatsSnapshot};
