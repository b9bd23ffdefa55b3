//! Surviving `SIGBUS`: a region whose file was cut short or whose file system is full, a device that is gone,
//! poison.
//!
//! Two ways, because a load and a store want different things:
//! 1. A load that fails must say so. On x86-64 a routine in assembly has a recovery address, which the
//!    handler resumes at (`checked_x86`); elsewhere the kernel copies on our behalf and reports `EFAULT`
//!    (`vm_read`).
//! 2. A store that fails may go anywhere, as long as the next fence fails. The handler notes that the region
//!    is lost and puts ordinary memory in its place (`watch`); then the instruction is made again. So every
//!    way to store, to flush and to zero survives, compiled as the compiler likes, and none of them costs
//!    anything. Why not a recovery address for each store: `docs/adr/2026-11-23-stores-to-a-lost-region.md`.
//!
//! The handler takes no lock, allocates nothing, and makes one system call. Neither way unwinds or jumps out
//! of it. A `SIGBUS` that is neither goes to the handler that was installed before, or to the default action.

mod fault;
mod handler;
mod watch;

#[cfg(target_arch = "x86_64")]
mod checked_x86;
#[cfg(any(test, not(target_arch = "x86_64")))]
mod vm_read;

#[cfg(target_arch = "x86_64")]
pub(crate) use checked_x86::copy_out;
pub(crate) use handler::prepare;
#[cfg(not(target_arch = "x86_64"))]
pub(crate) use vm_read::copy_out;
pub(crate) use watch::{Watched, watch};
