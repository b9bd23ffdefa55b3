//! Descriptors: opened, duplicated, closed, and handed to what does not come by here.

use std::ffi::{c_char, c_int, c_uint, c_void};

use libc::{FILE, O_APPEND, mode_t, off_t, size_t};

use crate::transfer::fail;
use crate::{own, process, real, table};

fn opened(fd: c_int) -> c_int {
    if fd >= 0 {
        process::opened(fd);
    }
    fd
}

macro_rules! opens {
    ($(fn $name:ident = $real:ident($($argument:ident: $type:ty),*) $($missing:expr)?;)*) => {
        $(
            // What a caller leaves out is not looked at, unless the file is created.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
                // SAFETY: the program's call.
                opened(unsafe { real::$real($($argument,)* $($missing)?) })
            }
        )*
    };
}

opens! {
    fn open = open(path: *const c_char, flags: c_int, mode: mode_t);
    fn open64 = open(path: *const c_char, flags: c_int, mode: mode_t);
    fn __open_2 = open(path: *const c_char, flags: c_int) 0;
    fn __open64_2 = open(path: *const c_char, flags: c_int) 0;
    fn openat = openat(at: c_int, path: *const c_char, flags: c_int, mode: mode_t);
    fn openat64 = openat(at: c_int, path: *const c_char, flags: c_int, mode: mode_t);
    fn __openat_2 = openat(at: c_int, path: *const c_char, flags: c_int) 0;
    fn __openat64_2 = openat(at: c_int, path: *const c_char, flags: c_int) 0;
    fn creat = creat(path: *const c_char, mode: mode_t);
    fn creat64 = creat(path: *const c_char, mode: mode_t);
}

/// Whether closing this number would close one of ours: for the program it is not open.
fn is_hidden(fd: c_int) -> bool {
    own::is_ours(fd) && process::is_ours()
}

/// A descriptor of the program is about to close.
fn closing(fd: c_int) {
    if (table::find(fd).is_some() || table::is_inherited(fd)) && process::is_ours() {
        process::calmly(|| table::forget(fd));
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn close(fd: c_int) -> c_int {
    if is_hidden(fd) {
        return fail(libc::EBADF) as c_int;
    }
    closing(fd);
    // SAFETY: the program's call.
    unsafe { real::close(fd) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if !process::is_ours() || process::device() == 0 {
        // SAFETY: the program's call.
        return unsafe { real::close_range(first, last, flags) };
    }
    if flags & libc::CLOSE_RANGE_CLOEXEC as c_int == 0 {
        process::calmly(|| table::forget_range(first, last));
    }
    // Around ours.
    let mut from = first;
    loop {
        let ours = own::next(from, last);
        let until = ours.map_or(last, |ours| ours.wrapping_sub(1));
        if ours != Some(from) {
            // SAFETY: the program's call, in parts.
            let done = unsafe { real::close_range(from, until, flags) };
            if done != 0 {
                return done;
            }
        }
        match ours {
            Some(ours) if ours < last => from = ours + 1,
            _ => return 0,
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn closefrom(first: c_int) {
    if !process::is_ours() || process::device() == 0 {
        // SAFETY: the program's call.
        return unsafe { real::closefrom(first) };
    }
    // SAFETY: as above; all that the C library's function promises is that they are closed.
    unsafe { close_range(first.max(0) as c_uint, c_uint::MAX, 0) };
}

fn duplicated(fd: c_int, to: c_int) -> c_int {
    if to >= 0 && to != fd && process::device() != 0 && process::is_ours() {
        process::calmly(|| table::duplicate(fd, to));
    }
    to
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dup(fd: c_int) -> c_int {
    if is_hidden(fd) {
        return fail(libc::EBADF) as c_int;
    }
    // SAFETY: the program's call.
    duplicated(fd, unsafe { real::dup(fd) })
}

/// Before `to` becomes another file.
fn replacing(fd: c_int, to: c_int) -> Option<c_int> {
    if is_hidden(fd) || is_hidden(to) {
        return Some(fail(libc::EBADF) as c_int);
    }
    None
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dup2(fd: c_int, to: c_int) -> c_int {
    // SAFETY: the program's call.
    replacing(fd, to).unwrap_or_else(|| duplicated(fd, unsafe { real::dup2(fd, to) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    // SAFETY: the program's call.
    replacing(fd, to).unwrap_or_else(|| duplicated(fd, unsafe { real::dup3(fd, to, flags) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    if is_hidden(fd) {
        return fail(libc::EBADF) as c_int;
    }
    // SAFETY: the program's call.
    let done = unsafe { real::fcntl(fd, command, argument) };
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => duplicated(fd, done),
        libc::F_SETFL if done == 0 => {
            table::set_appends(fd, argument as c_int & O_APPEND != 0);
            done
        }
        _ => done,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the program's call.
    unsafe { fcntl(fd, command, argument) }
}

/// A `FILE` makes its system calls without coming by here, and closes its descriptor so.
#[unsafe(no_mangle)]
unsafe extern "C" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    closing(fd);
    // SAFETY: the program's call.
    unsafe { real::fdopen(fd, mode) }
}

/// The descriptor of a `FILE` that the program did not make, say its standard output, may have a lease.
fn closing_stream(stream: *mut FILE) {
    if !stream.is_null() {
        // SAFETY: the program's, and not closed yet.
        closing(unsafe { libc::fileno(stream) });
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fclose(stream: *mut FILE) -> c_int {
    closing_stream(stream);
    // SAFETY: the program's call.
    unsafe { real::fclose(stream) }
}

macro_rules! reopens {
    ($($name:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(
                path: *const c_char,
                mode: *const c_char,
                stream: *mut FILE,
            ) -> *mut FILE {
                closing_stream(stream);
                // SAFETY: the program's call.
                unsafe { real::freopen(path, mode, stream) }
            }
        )*
    };
}

reopens! { freopen freopen64 }

macro_rules! maps {
    ($($name:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(
                at: *mut c_void,
                len: size_t,
                access: c_int,
                flags: c_int,
                fd: c_int,
                offset: off_t,
            ) -> *mut c_void {
                if fd >= 0 && flags & libc::MAP_ANONYMOUS == 0 {
                    process::mapping(fd);
                }
                // SAFETY: the program's call.
                unsafe { real::mmap(at, len, access, flags, fd, offset) }
            }
        )*
    };
}

maps! { mmap mmap64 }

/// Whether a descriptor has a lease: for tests and benchmarks, which look for this name.
#[unsafe(no_mangle)]
extern "C" fn fastness_is_leased(fd: c_int) -> c_int {
    table::find(fd).is_some().into()
}
