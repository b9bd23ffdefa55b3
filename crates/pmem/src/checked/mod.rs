//! Copying out of memory that may answer with `SIGBUS`: poison, or a mapped file that was truncated.
//!
//! On x86-64 a routine in assembly has a recovery address, which a signal handler resumes at; elsewhere the
//! kernel copies on our behalf and reports `EFAULT`. Neither unwinds or jumps out of a signal handler.

#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(any(test, not(target_arch = "x86_64")))]
mod vm_read;

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{copy_out, prepare};

#[cfg(not(target_arch = "x86_64"))]
pub(crate) use vm_read::{copy_out, prepare};
