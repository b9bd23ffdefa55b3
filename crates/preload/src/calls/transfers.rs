//! Reads, writes, and what makes them durable.

use std::ffi::{c_int, c_uint, c_void};

use libc::{iovec, off_t, size_t, ssize_t};

use super::passed::tell_length;
use crate::buffers::Buffers;
use crate::transfer::{self, Start};
use crate::{process, real};

/// Flags of `preadv2` and `pwritev2` that change nothing where every write is durable.
const NO_EFFECT: c_int = libc::RWF_HIPRI | libc::RWF_DSYNC | libc::RWF_SYNC;

fn buffer(base: *const c_void, len: size_t) -> iovec {
    iovec { iov_base: base.cast_mut(), iov_len: len }
}

#[inline]
fn is_leased(fd: c_int) -> bool {
    process::find(fd).is_some()
}

/// The kernel's `lseek`, with which `-1` means the current position.
fn start_of(offset: off_t) -> Start {
    if offset == -1 { Start::Current } else { Start::At(offset) }
}

macro_rules! transfers {
    ($(fn $name:ident = $real:ident($fd:ident $(, $argument:ident: $type:ty)*) $transfer:ident
        $buffers:expr, $start:expr $(, if $condition:expr)?;)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($fd: c_int $(, $argument: $type)*) -> ssize_t {
                if is_leased($fd) $(&& $condition)? {
                    // SAFETY: the program's buffers, as it has described them.
                    let done = unsafe {
                        $buffers.and_then(|buffers| transfer::$transfer($fd, buffers, $start))
                    };
                    if let Some(done) = done {
                        return done;
                    }
                }
                // With a flag that the library does not know, the kernel may look where the file ends.
                $(if !($condition) { tell_length($fd); })?
                // SAFETY: the program's call.
                unsafe { real::$real($fd $(, $argument)*) }
            }
        )*
    };
}

transfers! {
    fn read = read(fd, base: *mut c_void, len: size_t) read
        Some(Buffers::one(&buffer(base, len))), Start::Current;
    fn pread = pread(fd, base: *mut c_void, len: size_t, offset: off_t) read
        Some(Buffers::one(&buffer(base, len))), Start::At(offset);
    fn pread64 = pread(fd, base: *mut c_void, len: size_t, offset: off_t) read
        Some(Buffers::one(&buffer(base, len))), Start::At(offset);
    fn readv = readv(fd, vector: *const iovec, count: c_int) read
        Buffers::new(vector, count), Start::Current;
    fn preadv = preadv(fd, vector: *const iovec, count: c_int, offset: off_t) read
        Buffers::new(vector, count), Start::At(offset);
    fn preadv64 = preadv(fd, vector: *const iovec, count: c_int, offset: off_t) read
        Buffers::new(vector, count), Start::At(offset);
    fn preadv2 = preadv2(fd, vector: *const iovec, count: c_int, offset: off_t, flags: c_int) read
        Buffers::new(vector, count), start_of(offset), if flags & !NO_EFFECT == 0;
    fn preadv64v2 = preadv2(fd, vector: *const iovec, count: c_int, offset: off_t, flags: c_int) read
        Buffers::new(vector, count), start_of(offset), if flags & !NO_EFFECT == 0;
    fn write = write(fd, base: *const c_void, len: size_t) write
        Some(Buffers::one(&buffer(base, len))), Start::Current;
    fn pwrite = pwrite(fd, base: *const c_void, len: size_t, offset: off_t) write
        Some(Buffers::one(&buffer(base, len))), Start::At(offset);
    fn pwrite64 = pwrite(fd, base: *const c_void, len: size_t, offset: off_t) write
        Some(Buffers::one(&buffer(base, len))), Start::At(offset);
    fn writev = writev(fd, vector: *const iovec, count: c_int) write
        Buffers::new(vector, count), Start::Current;
    fn pwritev = pwritev(fd, vector: *const iovec, count: c_int, offset: off_t) write
        Buffers::new(vector, count), Start::At(offset);
    fn pwritev64 = pwritev(fd, vector: *const iovec, count: c_int, offset: off_t) write
        Buffers::new(vector, count), Start::At(offset);
    fn pwritev2 = pwritev2(fd, vector: *const iovec, count: c_int, offset: off_t, flags: c_int) write
        Buffers::new(vector, count), start_of(offset), if flags & !NO_EFFECT == 0;
    fn pwritev64v2 = pwritev2(fd, vector: *const iovec, count: c_int, offset: off_t, flags: c_int) write
        Buffers::new(vector, count), start_of(offset), if flags & !NO_EFFECT == 0;
}

/// With `_FORTIFY_SOURCE`: the program knows how large its buffer is.
///
/// # Safety
/// As of `read`.
#[unsafe(no_mangle)]
unsafe extern "C" fn __read_chk(fd: c_int, base: *mut c_void, len: size_t, room: size_t) -> ssize_t {
    check(len, room);
    // SAFETY: the program's call.
    unsafe { read(fd, base, len) }
}

/// # Safety
/// As of `pread`.
#[unsafe(no_mangle)]
unsafe extern "C" fn __pread_chk(
    fd: c_int,
    base: *mut c_void,
    len: size_t,
    offset: off_t,
    room: size_t,
) -> ssize_t {
    check(len, room);
    // SAFETY: the program's call.
    unsafe { pread(fd, base, len, offset) }
}

/// # Safety
/// As of `pread`.
#[unsafe(no_mangle)]
unsafe extern "C" fn __pread64_chk(
    fd: c_int,
    base: *mut c_void,
    len: size_t,
    offset: off_t,
    room: size_t,
) -> ssize_t {
    check(len, room);
    // SAFETY: the program's call.
    unsafe { pread(fd, base, len, offset) }
}

/// Ends a program that would overflow its buffer, as the C library does.
fn check(len: size_t, room: size_t) {
    if len > room {
        std::process::abort();
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fsync(fd: c_int) -> c_int {
    // SAFETY: the program's call.
    if transfer::is_durable(fd) { 0 } else { unsafe { real::fsync(fd) } }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdatasync(fd: c_int) -> c_int {
    // SAFETY: the program's call.
    if transfer::is_durable(fd) { 0 } else { unsafe { real::fdatasync(fd) } }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sync_file_range(fd: c_int, offset: off_t, len: off_t, flags: c_uint) -> c_int {
    match transfer::is_durable(fd) && offset >= 0 && len >= 0 {
        true => 0,
        // SAFETY: the program's call.
        false => unsafe { real::sync_file_range(fd, offset, len, flags) },
    }
}
