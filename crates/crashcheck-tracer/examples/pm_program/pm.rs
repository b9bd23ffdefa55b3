//! A mapped file.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;

pub(crate) struct Pm {
    pub(crate) file: File,
    pub(crate) at: *mut u8,
    pub(crate) len: usize,
}

impl Pm {
    pub(crate) fn map(path: &str) -> Pm {
        let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
        let len = file.metadata().unwrap().len() as usize;
        let at = map(&file, std::ptr::null_mut(), len, 0, libc::MAP_SHARED);
        Pm { file, at, len }
    }

    pub(crate) fn byte(&self, offset: usize) -> *mut u8 {
        assert!(offset < self.len);
        unsafe { self.at.add(offset) }
    }
}

pub(crate) fn map(file: &File, at: *mut u8, len: usize, offset: usize, flags: i32) -> *mut u8 {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let at = unsafe { libc::mmap(at.cast(), len, protection, flags, file.as_raw_fd(), offset as i64) };
    assert_ne!(at, libc::MAP_FAILED);
    at.cast()
}

/// One event of a trace that is to be there. Without the locks of `println`, which are fences.
pub(crate) fn expect(event: &str) {
    let line = format!("{event}\n");
    assert_eq!(unsafe { libc::write(1, line.as_ptr().cast(), line.len()) }, line.len() as isize);
}

/// Long ones by their length and first byte.
pub(crate) fn hex(bytes: &[u8]) -> String {
    if bytes.len() > 64 {
        return format!("{}*{:02x}", bytes.len(), bytes[0]);
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A store by any other means than the tracer's.
pub(crate) fn put(at: *mut u8, value: u64) {
    unsafe { at.cast::<u64>().write_volatile(value) }
}

pub(crate) fn hypercall(kind: u64, value: u64) {
    // What `fastness_crashcheck_trace::hypercall` has.
    unsafe {
        std::arch::asm!(".byte 0x0f, 0x1f, 0x84, 0, 1, 0, 0x5c, 0x7a", in("rdi") kind, in("rsi") value, options(nostack));
    }
}
