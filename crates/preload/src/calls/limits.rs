//! A limit of the length of files is the kernel's to keep, with its signal: such a process has no leases.

use std::ffi::{c_int, c_uint};

use libc::{pid_t, rlimit};

use super::passed::tell_length;
use crate::{process, real, table};

/// The process has a limit: each write that begins after this meets the kernel.
///
/// # Safety
/// The program's: a limit that can be read, or null.
unsafe fn limiting(what: c_uint, limit: *const rlimit) {
    // SAFETY: the caller's.
    let limit = unsafe { limit.as_ref() };
    if what == libc::RLIMIT_FSIZE
        && limit.is_some_and(|limit| limit.rlim_cur != libc::RLIM_INFINITY)
        && process::device() != 0
        && process::is_ours()
    {
        // The kernel compares with the length that it knows.
        table::leased().for_each(tell_length);
        process::calmly(|| table::forget_range(0, c_uint::MAX));
    }
}

macro_rules! limits {
    ($($set:ident $exchange:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $set(what: c_uint, limit: *const rlimit) -> c_int {
                // SAFETY: the program's call.
                unsafe {
                    let done = real::setrlimit(what, limit);
                    limiting(what, limit);
                    done
                }
            }

            #[unsafe(no_mangle)]
            unsafe extern "C" fn $exchange(
                process: pid_t,
                what: c_uint,
                limit: *const rlimit,
                before: *mut rlimit,
            ) -> c_int {
                // SAFETY: the program's call.
                unsafe {
                    let done = real::prlimit(process, what, limit, before);
                    if process == 0 || process == libc::getpid() {
                        limiting(what, limit);
                    }
                    done
                }
            }
        )*
    };
}

limits! {
    setrlimit prlimit
    setrlimit64 prlimit64
}
