//! The guest's memory: a file that QEMU and this plug-in have mapped.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::path::Path;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap};

/// Memory below the hole for devices, where an offset in the file is the physical address.
const LOW_BYTES_MAX: u64 = 2 << 30;

/// The mapping; it stays as long as QEMU runs.
///
/// Concurrency: the guest changes the memory at any time. It is copied out byte by byte or word by word, and
/// what is copied is whatever was there; callbacks of a CPU see what that CPU has stored.
#[derive(Debug)]
pub(crate) struct Ram {
    start: NonNull<u8>,
    len_bytes: u64,
}

// SAFETY: the pointer is to memory that is never unmapped, and all accesses are as above.
unsafe impl Send for Ram {}
// SAFETY: as above.
unsafe impl Sync for Ram {}

impl Ram {
    /// Maps the file.
    ///
    /// # Errors
    /// Those of the file; one that is empty, or so long that addresses are no offsets.
    pub(crate) fn map(path: &Path) -> io::Result<Ram> {
        let file = File::open(path)?;
        let len_bytes = file.metadata()?.len();
        if !(1..=LOW_BYTES_MAX).contains(&len_bytes) {
            return Err(io::Error::other(format!("has {len_bytes} bytes, not 1 to {LOW_BYTES_MAX}")));
        }
        // SAFETY: a new mapping at a place of the kernel's choice.
        let start = unsafe {
            mmap(std::ptr::null_mut(), len_bytes as usize, ProtFlags::READ, MapFlags::SHARED, &file, 0)?
        };
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("is mapped nowhere"))?;
        Ok(Ram { start, len_bytes })
    }

    pub(crate) fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Copies from a physical address on. `false`: not all of it is memory.
    pub(crate) fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
        let len = buffer.len() as u64;
        if address.checked_add(len).is_none_or(|end| end > self.len_bytes) {
            return false;
        }
        // SAFETY: within the mapping, which QEMU does not shrink; the buffer is ours, so they do not overlap.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.start.as_ptr().add(address as usize),
                buffer.as_mut_ptr(),
                buffer.len(),
            );
        }
        true
    }

    /// A word, such as an entry of a page table.
    pub(crate) fn word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes).then(|| u64::from_le_bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_as_memory() {
        let path = std::env::temp_dir().join(format!("fastness-tracer-ram-{}", std::process::id()));
        std::fs::write(&path, (0..8192).map(|index| index as u8).collect::<Vec<_>>()).unwrap();
        let ram = Ram::map(&path).unwrap();
        assert_eq!(ram.len_bytes(), 8192);
        assert_eq!(ram.word(8), Some(0x0f0e_0d0c_0b0a_0908));
        assert_eq!(ram.word(8185), None);
        assert_eq!(ram.word(u64::MAX), None);
        std::fs::write(&path, []).unwrap();
        assert!(Ram::map(&path).is_err());
        std::fs::remove_file(&path).unwrap();
    }
}
