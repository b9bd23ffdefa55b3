//! Memory that another process has handed over by a descriptor, and may take away: a guest's, for example.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering};

use rustix::mm::MapFlags;

use crate::mapping::RawMap;

/// Bytes of another process's memory that are outside of what was mapped, or not aligned to their size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no such bytes in this memory")]
pub struct OutOfRange;

/// A part of a file that another process shares with this one: ordinary memory, not PM, and counted nowhere.
///
/// Concurrency: the other process may change any byte at any time, so what is read is a copy, to be checked
/// after it was made. It may cut the file short, too: then ordinary memory takes the place of the mapping,
/// and [`is_lost`](Self::is_lost) says so. Nothing here is durable.
#[derive(Debug)]
pub struct ForeignMemory {
    map: RawMap,
}

// SAFETY: the memory is reached by copies and as atomics alone, and stays mapped for as long as the value.
unsafe impl Send for ForeignMemory {}
// SAFETY: as above.
unsafe impl Sync for ForeignMemory {}

impl ForeignMemory {
    /// Maps `len_bytes` of `file` from `offset` (a multiple of the page size) on.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`]: no bytes, or more than the file has. Those of the system calls.
    pub fn map(file: &File, offset: u64, len_bytes: u64) -> io::Result<ForeignMemory> {
        let end = offset.checked_add(len_bytes).ok_or(io::ErrorKind::InvalidInput)?;
        let found = file.metadata()?;
        if len_bytes == 0 || (found.is_file() && end > found.len()) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let len = usize::try_from(len_bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        Ok(ForeignMemory { map: RawMap::of_part(file, offset, len, MapFlags::SHARED)? })
    }

    /// Length in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.map.len_bytes() as u64
    }

    /// Whether some of it went away since it was mapped.
    pub fn is_lost(&self) -> bool {
        self.map.watched().is_lost()
    }

    /// Start of `range` in memory.
    fn at(&self, offset: u64, len: usize) -> Result<*mut u8, OutOfRange> {
        let range: Range<u64> = offset..offset.checked_add(len as u64).ok_or(OutOfRange)?;
        if range.end > self.len_bytes() {
            return Err(OutOfRange);
        }
        Ok(self.map.base().as_ptr().wrapping_add(range.start as usize))
    }

    /// Fills `to` with the bytes at `offset`.
    ///
    /// # Errors
    /// They are not all in the mapping; nothing was copied.
    #[inline]
    pub fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), OutOfRange> {
        let from = self.at(offset, to.len())?;
        // SAFETY: checked to be in the mapping, which no reference of ours leads into; any bytes are bytes.
        unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    /// Puts `from` at `offset`.
    ///
    /// # Errors
    /// There is no room for all of it; nothing was copied.
    #[inline]
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<(), OutOfRange> {
        let to = self.at(offset, from.len())?;
        // SAFETY: as in `read`.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
        Ok(())
    }

    fn aligned<T>(&self, offset: u64) -> Result<*mut T, OutOfRange> {
        let at = self.at(offset, size_of::<T>())?.cast::<T>();
        if at.is_aligned() { Ok(at) } else { Err(OutOfRange) }
    }

    /// The byte at `offset`, to share with the other process.
    ///
    /// # Errors
    /// It is not in the mapping.
    #[inline]
    pub fn byte(&self, offset: u64) -> Result<&AtomicU8, OutOfRange> {
        let at = self.aligned(offset)?;
        // SAFETY: in the mapping, which stays as long as the reference; every access is atomic, or a copy.
        Ok(unsafe { AtomicU8::from_ptr(at) })
    }

    /// The two bytes at `offset`, which must be even, in this machine's order.
    ///
    /// # Errors
    /// They are not in the mapping, or not aligned.
    #[inline]
    pub fn half(&self, offset: u64) -> Result<&AtomicU16, OutOfRange> {
        let at = self.aligned(offset)?;
        // SAFETY: as in `byte`; aligned.
        Ok(unsafe { AtomicU16::from_ptr(at) })
    }

    /// The eight bytes at `offset`, a multiple of eight, in this machine's order.
    ///
    /// # Errors
    /// They are not in the mapping, or not aligned.
    #[inline]
    pub fn word(&self, offset: u64) -> Result<&AtomicU64, OutOfRange> {
        let at = self.aligned(offset)?;
        // SAFETY: as in `byte`; aligned.
        Ok(unsafe { AtomicU64::from_ptr(at) })
    }

    /// The two bytes at `offset` as they are now, before everything that is read later.
    ///
    /// # Errors
    /// As [`half`](Self::half).
    #[inline]
    pub fn load_half(&self, offset: u64) -> Result<u16, OutOfRange> {
        Ok(self.half(offset)?.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::MemfdFlags;

    fn file(len_bytes: u64) -> File {
        let file = File::from(rustix::fs::memfd_create("foreign", MemfdFlags::CLOEXEC).unwrap());
        file.set_len(len_bytes).unwrap();
        file
    }

    #[test]
    fn two_mappings_of_one_file_see_the_same_bytes() {
        let file = file(16384);
        let (whole, half) =
            (ForeignMemory::map(&file, 0, 16384).unwrap(), ForeignMemory::map(&file, 8192, 8192).unwrap());
        whole.write(8190, b"abcdef").unwrap();
        let mut seen = [0; 4];
        half.read(0, &mut seen).unwrap();
        assert_eq!(&seen, b"cdef");
        half.half(8).unwrap().store(0x0201, Ordering::Release);
        assert_eq!(whole.load_half(8200).unwrap(), 0x0201);
        whole.word(8208).unwrap().store(7, Ordering::Release);
        assert_eq!(half.byte(16).unwrap().load(Ordering::Acquire), 7);
    }

    #[test]
    fn what_is_outside_or_not_aligned_is_refused() {
        let file = file(8192);
        for (offset, len) in [(0, 0), (0, 8193), (4096, 4097), (u64::MAX, 1), (1 << 63, 1 << 63)] {
            assert!(ForeignMemory::map(&file, offset, len).is_err(), "{offset} {len}");
        }
        let memory = ForeignMemory::map(&file, 0, 8192).unwrap();
        let mut to = [0; 16];
        assert_eq!(memory.read(8177, &mut to), Err(OutOfRange));
        assert_eq!(memory.read(u64::MAX - 3, &mut to), Err(OutOfRange));
        assert_eq!(memory.write(8192, b"x"), Err(OutOfRange));
        assert!(memory.half(8191).is_err() && memory.half(1).is_err() && memory.word(4).is_err());
        assert!(memory.byte(8192).is_err() && memory.word(8184).is_ok());
    }

    #[test]
    fn a_file_that_is_cut_short_does_not_kill_the_process() {
        let file = file(1 << 20);
        let memory = ForeignMemory::map(&file, 0, 1 << 20).unwrap();
        memory.write(0, &[1; 100]).unwrap();
        assert!(!memory.is_lost());
        file.set_len(4096).unwrap();
        let mut to = [9; 100];
        memory.read(500_000, &mut to).unwrap();
        assert!(memory.is_lost());
        memory.write(600_000, &to).unwrap();
        memory.word(4096).unwrap().store(1, Ordering::Release);
    }
}
