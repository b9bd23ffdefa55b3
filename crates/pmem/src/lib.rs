//! Persistent-memory (PM) regions and the primitives that make stores to them durable.
//!
//! A PM structure is written against [`Medium`]: an exclusively owned range of byte-addressable memory. This
//! crate is the implementation over real mappings: [`Region`] opens a devdax device, a file on a DAX file
//! system, an ordinary file, or memory that stands in for PM in tests, says in [`RegionInfo`] what it found,
//! and becomes a [`PmRange`], which can be split but never shared or aliased.
//!
//! Crash cases, for bytes that [`Medium::copy`] wrote:
//! 1. The process dies: the stores that it made stay visible, whether a fence followed or not, because the
//!    mapping is shared. The next process may act on bytes that are not durable; see [`Medium::write_back`].
//! 2. The power fails before [`Medium::fence`] returned: any 8-byte pieces of them are there, others are not.
//! 3. The power fails after `fence` returned: all are there if [`RegionInfo::durability`] is
//!    [`Durability::PowerFail`], otherwise nothing is promised.
//! 4. `msync` fails inside `fence`: as 2, and the region refuses every further fence.
//! 5. The region goes away under the mapping (the file is cut short, its file system is full below a hole,
//!    the device is unplugged, a store needs bytes that are poisoned): the process lives, and every further
//!    fence fails, so that nothing is acknowledged that is not on the medium. See `sigbus`.
//! 6. A DMA engine that was given a write through a [`gate`] does not answer: as 5, with the memory still in
//!    place, since the engine may store to it.
//!
//! Several writers to one region share a limit if the region has a [`gate`]. [`model`] stands in for the
//! speed of a device. What is written is counted by region and thread, for other processes too
//! ([`counters`]).
//!
//! Performance: one copy costs one `match` on the kernel and no allocation; a fence is one `sfence`, or one
//! system call where the region needs `msync`. Shutdown: dropping the last range unmaps the memory, then
//! releases the lock; nothing is made durable by dropping.
//!
//! Nothing here knows of log entries, checksums, file systems or block devices that a structure implements.

// Mapping memory, storing to it past the compiler's model, and surviving SIGBUS cannot be said in safe Rust.
// This crate is the place for it; every block carries its argument.
#![allow(unsafe_code)]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("fastness-pmem needs 64-bit Linux");

mod any;
pub mod counters;
mod cpu;
mod error;
mod foreign;
pub mod gate;
mod info;
mod kernels;
mod mapping;
mod medium;
mod method;
mod mirror;
pub mod model;
mod numa;
mod open;
mod options;
mod pkeys;
mod range;
mod region;
mod shared;
mod sigbus;
mod slots;
mod sum;
mod sysfs;
mod view;

pub use any::AnyRange;
pub use counters::copied_bytes;
pub use error::{ErrorKind, KeysRefusal, LossCause, RegionError, RegionLost, RegionPoisoned};
pub use foreign::{ForeignMemory, OutOfRange};
pub use info::{
    BadBlocks, BadRange, DomainSource, Durability, PersistenceDomain, REGION_ALIGN_BYTES, RegionInfo,
    RegionKind,
};
pub use medium::{LINE_BYTES, Medium, NoSum, PersistError, ReadError, ReadErrorKind, SidesFailed, Summer};
pub use method::{Kernel, WriteMethod};
pub use mirror::{Mirror, SIDES_MAX};
pub use numa::{cpu_list, cpus_near, cpus_of_node};
pub use options::{MsyncHook, MsyncMode, OpenOptions};
pub use pkeys::{Protection, protection_keys_available};
pub use range::{PmRange, PmView, SplitError};
pub use region::Region;
pub use shared::SharedWords;
pub use slots::{Entered, WRITERS_MAX, WriterSlots};
pub use sum::sum;
pub use view::View;
