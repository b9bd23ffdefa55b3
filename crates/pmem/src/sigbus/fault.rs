//! A fault, as the kernel tells it.

use std::ffi::c_int;

/// `si_code`: a machine check that the interrupted instruction met.
const BUS_MCEERR_AR: c_int = 4;
/// `si_code`: a machine check found in memory that is not in use (action optional).
pub(super) const BUS_MCEERR_AO: c_int = 5;

/// A fault, as the kernel tells it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fault {
    pub(super) address: usize,
    pub(super) code: c_int,
    /// Precision of the address: a page, or what a machine check says (2 MiB on devdax); a power of two.
    pub(super) granule_bytes: usize,
}

impl Fault {
    pub(super) fn is_machine_check(code: c_int) -> bool {
        matches!(code, BUS_MCEERR_AR | BUS_MCEERR_AO)
    }

    /// `None` for a signal that was sent by kill(2) or the like.
    pub(super) fn of(info: &libc::siginfo_t) -> Option<Fault> {
        if info.si_code <= 0 {
            return None;
        }
        // SAFETY: SIGBUS with a positive code carries the address.
        let address = unsafe { info.si_addr() } as usize;
        Some(Fault { address, code: info.si_code, granule_bytes: granule_bytes(info) })
    }
}

fn granule_bytes(info: &libc::siginfo_t) -> usize {
    const PAGE_SHIFT: u32 = 12;
    const SHIFT_MAX: u32 = 30;
    /// `si_addr_lsb` follows `si_addr`, which is at byte 16 (asm-generic/siginfo.h).
    const ADDR_LSB_OFFSET: usize = 24;
    if !Fault::is_machine_check(info.si_code) {
        return 1 << PAGE_SHIFT;
    }
    // SAFETY: `siginfo_t` has 128 bytes, is 8-aligned, and the kernel fills the field for these codes.
    let lsb = unsafe { std::ptr::from_ref(info).cast::<u8>().add(ADDR_LSB_OFFSET).cast::<i16>().read() };
    1 << u32::try_from(lsb).unwrap_or(PAGE_SHIFT).clamp(PAGE_SHIFT, SHIFT_MAX)
}
