//! `perf_event_open(2)`: one system call, which rustix does not have.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// `struct perf_event_attr` of the second version, which has the length of a breakpoint: 72 bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Attributes {
    pub(crate) kind: u32,
    pub(crate) size: u32,
    pub(crate) config: u64,
    pub(crate) sample_period: u64,
    pub(crate) sample_type: u64,
    pub(crate) read_format: u64,
    pub(crate) flags: u64,
    /// Events, or bytes with the flag [`WATERMARK`].
    pub(crate) wakeup: u32,
    pub(crate) breakpoint_type: u32,
    /// Of a breakpoint, its address.
    pub(crate) config1: u64,
    /// Of a breakpoint, its length.
    pub(crate) config2: u64,
}

impl Attributes {
    pub(crate) fn new(kind: u32, config: u64) -> Attributes {
        Attributes { kind, size: size_of::<Attributes>() as u32, config, ..Attributes::default() }
    }
}

/// Flags of the attributes.
pub(crate) const EXCLUDE_KERNEL: u64 = 1 << 5;
pub(crate) const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
pub(crate) const WATERMARK: u64 = 1 << 14;
/// How precise the instruction's address has to be: 0 to 3, from this bit on.
pub(crate) const PRECISE_SHIFT: u32 = 15;

/// Whose events count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Those of any process, on one CPU.
    Cpu(u32),
    /// Those of one thread, on any CPU.
    Thread(u32),
}

/// Opens an event.
///
/// # Errors
/// Of the system call.
pub(crate) fn open(attributes: &Attributes, scope: Scope) -> io::Result<OwnedFd> {
    const CLOSE_ON_EXEC: libc::c_ulong = 8;
    let invalid = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let (thread, cpu): (libc::pid_t, libc::c_int) = match scope {
        Scope::Cpu(cpu) => (-1, cpu.try_into().map_err(invalid)?),
        Scope::Thread(thread) => (thread.try_into().map_err(invalid)?, -1),
    };
    let no_group: libc::c_int = -1;
    // SAFETY: the structure has the size that it names and lives until the call returns; the kernel only
    // reads it.
    let fd = unsafe {
        let attributes: *const Attributes = attributes;
        libc::syscall(libc::SYS_perf_event_open, attributes, thread, cpu, no_group, CLOSE_ON_EXEC)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
}
