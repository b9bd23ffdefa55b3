//! The functions of the C library that are replaced here.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{FILE, iovec, mode_t, off_t, pid_t, rlimit, sighandler_t, size_t, ssize_t, stat};

/// The next definition of a function; what is not there cannot have been called.
fn find(name: &CStr, cache: &AtomicPtr<c_void>) -> *mut c_void {
    let known = cache.load(Ordering::Acquire);
    if !known.is_null() {
        return known;
    }
    // SAFETY: a name that ends with NUL.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if found.is_null() {
        // SAFETY: always sound.
        unsafe { libc::abort() };
    }
    cache.store(found, Ordering::Release);
    found
}

macro_rules! real {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(
            /// The function of the C library.
            ///
            /// # Safety
            /// As of the function.
            pub(crate) unsafe fn $name($($argument: $type),*) -> $result {
                static CACHE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
                let name = concat!(stringify!($name), "\0");
                let name = CStr::from_bytes_with_nul(name.as_bytes()).expect("it ends with NUL");
                let found = find(name, &CACHE);
                type Function = unsafe extern "C" fn($($type),*) -> $result;
                // SAFETY: the C library's function of that name has this type.
                let function = unsafe { std::mem::transmute::<*mut c_void, Function>(found) };
                // SAFETY: the caller's.
                unsafe { function($($argument),*) }
            }
        )*
    };
}

real! {
    fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    fn openat(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    fn creat(path: *const c_char, mode: mode_t) -> c_int;
    fn close(fd: c_int) -> c_int;
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    fn closefrom(first: c_int) -> ();
    fn dup(fd: c_int) -> c_int;
    fn dup2(fd: c_int, to: c_int) -> c_int;
    fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int;
    fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int;
    fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE;
    fn read(fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t;
    fn pread(fd: c_int, buffer: *mut c_void, len: size_t, offset: off_t) -> ssize_t;
    fn readv(fd: c_int, vector: *const iovec, count: c_int) -> ssize_t;
    fn preadv(fd: c_int, vector: *const iovec, count: c_int, offset: off_t) -> ssize_t;
    fn preadv2(fd: c_int, vector: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    fn write(fd: c_int, data: *const c_void, len: size_t) -> ssize_t;
    fn pwrite(fd: c_int, data: *const c_void, len: size_t, offset: off_t) -> ssize_t;
    fn writev(fd: c_int, vector: *const iovec, count: c_int) -> ssize_t;
    fn pwritev(fd: c_int, vector: *const iovec, count: c_int, offset: off_t) -> ssize_t;
    fn pwritev2(fd: c_int, vector: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    fn sendfile(to: c_int, from: c_int, offset: *mut off_t, len: size_t) -> ssize_t;
    fn splice(from: c_int, from_offset: *mut off_t, to: c_int, to_offset: *mut off_t, len: size_t, flags: c_uint)
        -> ssize_t;
    fn copy_file_range(
        from: c_int, from_offset: *mut off_t, to: c_int, to_offset: *mut off_t, len: size_t, flags: c_uint
    ) -> ssize_t;
    fn lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t;
    fn fsync(fd: c_int) -> c_int;
    fn fdatasync(fd: c_int) -> c_int;
    fn sync_file_range(fd: c_int, offset: off_t, len: off_t, flags: c_uint) -> c_int;
    fn fclose(stream: *mut FILE) -> c_int;
    fn freopen(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE;
    fn fstat(fd: c_int, found: *mut stat) -> c_int;
    fn statx(at: c_int, path: *const c_char, flags: c_int, mask: c_uint, found: *mut libc::statx) -> c_int;
    fn sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int;
    fn signal(signal: c_int, handler: sighandler_t) -> sighandler_t;
    fn __sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t;
    fn sigset(signal: c_int, handler: sighandler_t) -> sighandler_t;
    fn siginterrupt(signal: c_int, interrupts: c_int) -> c_int;
    fn pthread_setcanceltype(kind: c_int, before: *mut c_int) -> c_int;
    fn setrlimit(what: c_uint, limit: *const rlimit) -> c_int;
    fn prlimit(process: pid_t, what: c_uint, limit: *const rlimit, before: *mut rlimit) -> c_int;
    fn mmap(at: *mut c_void, len: size_t, access: c_int, flags: c_int, fd: c_int, offset: off_t)
        -> *mut c_void;
}
