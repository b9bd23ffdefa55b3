//! The programs, and what is demanded of them.

mod calls;
mod counted;
mod handlers;
mod inherited;
mod kills;
mod mixed;
mod random;

use std::ffi::{CString, c_int};
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::Path;

/// A file for reading and writing, made if it is not there.
pub fn file(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

/// Whether reads and writes of a descriptor go past the mount.
pub fn is_leased(fd: &impl AsRawFd) -> bool {
    let name = CString::new("fastness_is_leased").unwrap();
    // SAFETY: the library's function of that name has this type.
    unsafe {
        let found = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
        assert!(!found.is_null(), "the library is not loaded");
        let ask: extern "C" fn(c_int) -> c_int = std::mem::transmute(found);
        ask(fd.as_raw_fd()) == 1
    }
}

/// Runs `act` in a forked process, and waits for it.
pub fn in_child(act: impl FnOnce()) {
    // SAFETY: the child does not return from here.
    match unsafe { libc::fork() } {
        0 => {
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
            // SAFETY: ends the child without what its parent has left to do.
            unsafe { libc::_exit(i32::from(done.is_err())) }
        }
        child => {
            assert!(child > 0);
            let mut status = 0;
            // SAFETY: a number of ours.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0, "the child failed");
        }
    }
}
