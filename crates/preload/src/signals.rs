//! Signals wait while a thread is in PM.
//!
//! A handler may write to a file, and would wait for a lock that its own thread holds. Faults are not held
//! back: the handler of `pmem` answers those of a region that goes away.

/// Bytes of the kernel's set of signals.
const SET_BYTES: usize = 8;

const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

const HELD_BACK: u64 =
    !(bit(libc::SIGBUS) | bit(libc::SIGSEGV) | bit(libc::SIGILL) | bit(libc::SIGFPE) | bit(libc::SIGTRAP));

/// No signal is handled by this thread until this is dropped.
pub(crate) struct Blocked {
    before: u64,
}

impl Blocked {
    #[inline]
    pub(crate) fn new() -> Blocked {
        let mut before = 0_u64;
        change(libc::SIG_BLOCK, &HELD_BACK, &raw mut before);
        Blocked { before }
    }
}

impl Drop for Blocked {
    #[inline]
    fn drop(&mut self) {
        change(libc::SIG_SETMASK, &self.before, std::ptr::null_mut());
    }
}

fn change(how: i32, set: &u64, before: *mut u64) {
    // SAFETY: both sets have the length that is given. The call fails only for arguments that it does not
    // know.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, how, &raw const *set, before, SET_BYTES) };
}
