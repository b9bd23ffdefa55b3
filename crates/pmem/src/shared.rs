//! Words of memory that several processes share: what they need beside a region that they all use.
//!
//! The memory is a file without a name (`memfd`), sealed against any change of its length, so that no
//! process can take pages from under another one. It ends with its last process; nothing in it is durable.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

const WORD_BYTES: usize = size_of::<AtomicU64>();
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Words that all processes which have mapped them see, and change atomically.
///
/// Shape: 64-bit words, zero at first. Concurrency: any process can store anything at any time; what is read
/// is not to be trusted further than the process that stores it.
#[derive(Debug)]
pub struct SharedWords {
    base: NonNull<AtomicU64>,
    words: usize,
    file: File,
}

// SAFETY: the memory is reached as atomics alone, and stays mapped for as long as the value lives.
unsafe impl Send for SharedWords {}
// SAFETY: as above.
unsafe impl Sync for SharedWords {}

impl SharedWords {
    /// Memory of `words` zeroes.
    ///
    /// # Errors
    /// Of the system calls: no memory, or no descriptor, is left.
    pub fn create(words: usize) -> io::Result<SharedWords> {
        let file = File::from(rustix::fs::memfd_create(
            "fastness-shared",
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
        )?);
        let bytes = words.checked_mul(WORD_BYTES).ok_or(io::ErrorKind::InvalidInput)?;
        file.set_len(bytes as u64)?;
        rustix::fs::fcntl_add_seals(&file, SEALS)?;
        SharedWords::map(file, words)
    }

    /// The same memory in another process, by a descriptor of it.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`]: it is something else, or its length could change. Those of the system
    /// calls.
    pub fn join(file: File) -> io::Result<SharedWords> {
        if !rustix::fs::fcntl_get_seals(&file)?.contains(SEALS) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let bytes = usize::try_from(file.metadata()?.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        SharedWords::map(file, bytes / WORD_BYTES)
    }

    fn map(file: File, words: usize) -> io::Result<SharedWords> {
        if words == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: the kernel chooses an address that is free. The file is as long as that, and sealed so.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                words * WORD_BYTES,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &file,
                0,
            )?
        };
        let base = NonNull::new(base.cast()).expect("mmap returned no address zero");
        Ok(SharedWords { base, words, file })
    }
}

impl Deref for SharedWords {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: mapped, aligned to a page, and as long as that until this is dropped; every bit pattern is
        // an atomic word, and all access to it is atomic.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.words) }
    }
}

impl AsFd for SharedWords {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing borrows it any more.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.words * WORD_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn who_joins_sees_the_same_words() {
        let first = SharedWords::create(100).unwrap();
        let second = SharedWords::join(first.as_fd().try_clone_to_owned().unwrap().into()).unwrap();
        assert_eq!((first.len(), second.len()), (100, 100));
        first[99].store(7, Ordering::Relaxed);
        assert_eq!(second[99].load(Ordering::Relaxed), 7);
        drop(first);
        assert_eq!(second[99].fetch_add(1, Ordering::Relaxed), 7);
    }

    #[test]
    fn what_could_be_cut_short_is_refused() {
        let file = File::from(rustix::fs::memfd_create("x", MemfdFlags::ALLOW_SEALING).unwrap());
        file.set_len(4096).unwrap();
        assert_eq!(SharedWords::join(file).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        let words = SharedWords::create(8).unwrap();
        assert!(words.file.set_len(0).is_err(), "it is sealed");
        assert!(SharedWords::create(0).is_err());
    }
}
