//! Buffers that direct I/O can use without a copy.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// Bytes that start at a multiple of some alignment.
///
/// Shape: an ordinary vector, longer by the alignment; the bytes begin at its first aligned address. This
/// needs no unsafe code, because the heap part of a vector that is never resized does not move.
pub struct AlignedBuf {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuf {
    /// `len` zeroes.
    ///
    /// # Panics
    /// If the alignment is not a power of two.
    pub fn zeroed(len: usize, align_bytes: usize) -> AlignedBuf {
        assert!(align_bytes.is_power_of_two(), "an alignment is a power of two, not {align_bytes}");
        let bytes = vec![0; len + align_bytes - 1];
        let start = bytes.as_ptr().addr().wrapping_neg() & (align_bytes - 1);
        AlignedBuf { bytes, start, len }
    }

    /// A copy of `data`.
    ///
    /// # Panics
    /// If the alignment is not a power of two.
    pub fn copy_of(data: &[u8], align_bytes: usize) -> AlignedBuf {
        let mut buf = AlignedBuf::zeroed(data.len(), align_bytes);
        buf.copy_from_slice(data);
        buf
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len)
    }
}

/// Whether a buffer begins at a multiple of `align_bytes`, a power of two.
pub(crate) fn is_aligned(buf: &[u8], align_bytes: usize) -> bool {
    buf.as_ptr().addr() & (align_bytes - 1) == 0
}
