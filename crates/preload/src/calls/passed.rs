//! Calls that the kernel makes on a file with a lease, up to the length that it knows: it has to ask for that
//! before, since what was written past it may have made the file longer.

use std::ffi::{c_int, c_uint};

use libc::{off_t, size_t, ssize_t};

use crate::{real, table};

/// The kernel asks the mount how long the file is.
pub(super) fn tell_length(fd: c_int) {
    if table::find(fd).is_none() && !table::is_inherited(fd) {
        return;
    }
    // SAFETY: numbers, all of which may be 0.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    let asks = libc::AT_EMPTY_PATH | libc::AT_STATX_FORCE_SYNC;
    // SAFETY: a name that ends with NUL, and a structure of ours. If it fails, so will the call.
    unsafe { real::statx(fd, c"".as_ptr(), asks, libc::STATX_SIZE, &raw mut found) };
}

macro_rules! sends {
    ($($name:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(
                to: c_int,
                from: c_int,
                offset: *mut off_t,
                len: size_t,
            ) -> ssize_t {
                tell_length(from);
                // SAFETY: the program's call.
                unsafe { real::sendfile(to, from, offset, len) }
            }
        )*
    };
}

sends! { sendfile sendfile64 }

#[unsafe(no_mangle)]
unsafe extern "C" fn splice(
    from: c_int,
    from_offset: *mut off_t,
    to: c_int,
    to_offset: *mut off_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    tell_length(from);
    // SAFETY: the program's call.
    unsafe { real::splice(from, from_offset, to, to_offset, len, flags) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn copy_file_range(
    from: c_int,
    from_offset: *mut off_t,
    to: c_int,
    to_offset: *mut off_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    tell_length(from);
    tell_length(to);
    // SAFETY: the program's call.
    unsafe { real::copy_file_range(from, from_offset, to, to_offset, len, flags) }
}
