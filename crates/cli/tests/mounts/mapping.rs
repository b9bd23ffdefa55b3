//! Files that are mapped.
#![expect(unsafe_code, reason = "mapping a file is")]

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};

/// A shared, writable mapping of the first bytes of a file.
pub struct Mapping {
    at: *mut u8,
    len: usize,
}

// SAFETY: it is moved to another thread as a whole, and no thread keeps its address.
unsafe impl Send for Mapping {}

impl Mapping {
    pub fn of(file: &File, len: usize) -> Mapping {
        // SAFETY: a new mapping at an address of the kernel's choice; it is used through raw pointers only,
        // within `len`, and ends with this value.
        let at = unsafe {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            rustix::mm::mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, file.as_fd(), 0)
        };
        Mapping { at: at.unwrap().cast(), len }
    }

    pub fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.len);
        // SAFETY: within the mapping, and `bytes` are elsewhere; no reference to the mapping exists.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at.add(offset), bytes.len()) };
    }

    pub fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        assert!(offset + len <= self.len);
        let mut bytes = vec![0; len];
        // SAFETY: as in `write`.
        unsafe { std::ptr::copy_nonoverlapping(self.at.add(offset), bytes.as_mut_ptr(), len) };
        bytes
    }

    /// Whether a byte can be read; one that is not there anymore would end this process by a signal.
    pub fn is_there(&self, offset: usize) -> bool {
        assert!(offset < self.len);
        let memory = File::open("/proc/self/mem").unwrap();
        memory.read_at(&mut [0], self.at as u64 + offset as u64).is_ok()
    }

    /// Makes it durable.
    pub fn sync(&self) -> rustix::io::Result<()> {
        // SAFETY: the whole mapping.
        unsafe { rustix::mm::msync(self.at.cast(), self.len, MsyncFlags::SYNC) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the whole mapping, which nothing uses any more.
        let _ = unsafe { rustix::mm::munmap(self.at.cast(), self.len) };
    }
}
