//! Memory protection keys: the mapping stays read-only except for the thread that is copying.
//!
//! The rights live in a register of each thread (PKRU), so opening and closing the gate costs two register
//! writes and no system call. Two traps that this module deals with:
//! 1. `pkey_alloc` sets the rights of the calling thread only. A thread that existed before has the kernel's
//!    default for every key: no access, not even reading. Hence [`ensure_readable`] before each read.
//! 2. A signal handler runs with the kernel's default rights; ours touches no PM.
//!
//! Source: Linux `pkeys(7)`; Intel SDM volume 3A section 4.6.2.

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;

use crate::cpu::CpuFeatures;
use crate::error::KeysRefusal;

/// Guard against stray stores to the region by the rest of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Protection {
    /// The mapping is writable all the time.
    #[default]
    None,
    /// A memory protection key keeps the mapping read-only except for the thread inside of
    /// [`Medium::copy`](crate::Medium::copy). Refused where CPU or kernel have none. Against accidents, not
    /// against an attacker: any code can execute `wrpkru`.
    Keys,
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Protection::None => "none",
            Protection::Keys => "memory protection keys",
        })
    }
}

/// Whether a region can be opened with [`Protection::Keys`] here.
///
/// # Errors
/// The reason why not.
pub fn protection_keys_available() -> Result<(), KeysRefusal> {
    Key::alloc().map(drop)
}

/// A key of this process; freed when dropped, which must come after unmapping what it guards.
#[derive(Debug)]
pub(crate) struct Key {
    index: u32,
}

impl Key {
    /// Allocates a key; the calling thread may read, not write, what it will guard.
    pub(crate) fn alloc() -> Result<Key, KeysRefusal> {
        if !cfg!(target_arch = "x86_64") {
            return Err(KeysRefusal::Architecture);
        }
        let cpu = CpuFeatures::get();
        if !cpu.pku {
            return Err(KeysRefusal::Cpu);
        }
        if !cpu.ospke {
            return Err(KeysRefusal::Kernel);
        }
        const DISABLE_WRITE: libc::c_ulong = 2;
        // SAFETY: pkey_alloc takes two numbers and touches no memory of ours.
        let index = unsafe { libc::syscall(libc::SYS_pkey_alloc, 0_u64, DISABLE_WRITE) };
        match u32::try_from(index) {
            Ok(index) => Ok(Key { index }),
            Err(_) => Err(KeysRefusal::Alloc(last_errno())),
        }
    }

    /// Puts the pages of a mapping under the key.
    ///
    /// # Safety
    /// `base` and `len_bytes` are a mapping that the caller owns, readable and writable.
    pub(crate) unsafe fn guard_pages(&self, base: *mut c_void, len_bytes: usize) -> Result<(), KeysRefusal> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the caller owns the mapping; its protection bits stay what they were.
        let result =
            unsafe { libc::syscall(libc::SYS_pkey_mprotect, base, len_bytes, protection, self.index) };
        if result == 0 { Ok(()) } else { Err(KeysRefusal::Protect(last_errno())) }
    }

    /// Number of the key, 1 to 15.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        // SAFETY: the key is ours and nothing is mapped under it any more.
        unsafe { libc::syscall(libc::SYS_pkey_free, self.index) };
    }
}

fn last_errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Two bits a key: access disabled, write disabled.
const fn access_bit(key_index: u32) -> u32 {
    1 << (2 * key_index)
}

const fn write_bit(key_index: u32) -> u32 {
    2 << (2 * key_index)
}

/// Lets this thread write under a key for as long as it lives.
///
/// Not `Send`: the rights are the thread's. Dropping it, during a panic too, takes the right to write away
/// and leaves the right to read.
pub(crate) struct WriteGuard {
    key_index: u32,
    _thread_bound: PhantomData<*mut ()>,
}

impl WriteGuard {
    #[inline]
    pub(crate) fn enter(key_index: u32) -> WriteGuard {
        // SAFETY: a Key with this index exists, so the CPU and the kernel have protection keys.
        unsafe { write_rights(read_rights() & !(access_bit(key_index) | write_bit(key_index))) };
        WriteGuard { key_index, _thread_bound: PhantomData }
    }
}

impl Drop for WriteGuard {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: as in `enter`.
        unsafe { write_rights(read_rights() | write_bit(self.key_index)) };
    }
}

/// Gives this thread the right to read under a key, if it was started before the key was made.
#[inline]
pub(crate) fn ensure_readable(key_index: u32) {
    // SAFETY: a Key with this index exists, so the CPU and the kernel have protection keys.
    unsafe {
        let rights = read_rights();
        if rights & access_bit(key_index) != 0 {
            write_rights(rights & !access_bit(key_index) | write_bit(key_index));
        }
    }
}

/// # Safety
/// The kernel has switched protection keys on.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn read_rights() -> u32 {
    let rights: u32;
    // SAFETY: `rdpkru` with ECX = 0 reads PKRU into EAX and clears EDX.
    unsafe {
        std::arch::asm!(
            "rdpkru",
            in("ecx") 0,
            out("eax") rights,
            out("edx") _,
            options(nomem, nostack, preserves_flags)
        );
    }
    rights
}

/// # Safety
/// The kernel has switched protection keys on.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn write_rights(rights: u32) {
    // SAFETY: `wrpkru` with ECX = EDX = 0 sets PKRU from EAX. Without `nomem` the compiler moves no access to
    // memory across it; the CPU executes none across it either (SDM volume 2, WRPKRU).
    unsafe {
        std::arch::asm!("wrpkru", in("eax") rights, in("ecx") 0, in("edx") 0, options(nostack, preserves_flags));
    }
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn read_rights() -> u32 {
    unreachable!("Key::alloc refuses this architecture")
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn write_rights(_rights: u32) {
    unreachable!("Key::alloc refuses this architecture")
}
