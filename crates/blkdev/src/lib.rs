//! Block I/O on files and block devices, behind one trait.

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
pub use info::{DeviceInfo, DeviceKind, Engine, WriteCache};
pub use mem::{MemDevice, MemImage};
pub use stats::{OperationStats, StatsSnapshot};
