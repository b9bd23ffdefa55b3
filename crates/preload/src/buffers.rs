//! What programs read into and write from: one buffer, or several, in memory that may be a file's.

use std::ops::{Deref, DerefMut};

use libc::iovec;

use crate::process;
use crate::scratch::Scratch;

/// Longest transfer; the kernel's is longer by less than a page.
pub(crate) const BYTES_MAX: usize = 0x7fff_f000;

const PAGE: usize = 4096;

/// The buffers of a call.
#[derive(Clone, Copy)]
pub(crate) struct Buffers<'a>(&'a [iovec]);

impl<'a> Buffers<'a> {
    /// # Safety
    /// The program's: `vector` has `count` buffers. `None`: a number that the kernel refuses.
    pub(crate) unsafe fn new(vector: *const iovec, count: i32) -> Option<Buffers<'a>> {
        if vector.is_null() || !(1..=1024).contains(&count) {
            return None;
        }
        // SAFETY: the caller's.
        Some(Buffers(unsafe { std::slice::from_raw_parts(vector, count as usize) }))
    }

    pub(crate) fn one(vector: &'a iovec) -> Buffers<'a> {
        Buffers(std::slice::from_ref(vector))
    }

    /// Bytes of all of them; `None` if the kernel would refuse or shorten that, or nothing is to be done.
    pub(crate) fn len(&self) -> Option<usize> {
        let sum = self.0.iter().try_fold(0_usize, |sum, buffer| sum.checked_add(buffer.iov_len))?;
        (1..=BYTES_MAX).contains(&sum).then_some(sum)
    }

    /// What is to be written, in one piece that can be read under a lock.
    ///
    /// # Safety
    /// The program's: the buffers can be read.
    pub(crate) unsafe fn gather(&self, len: usize) -> Option<Piece<'a>> {
        if let ([buffer], false) = (self.0, process::has_mapped()) {
            // SAFETY: the caller's.
            let bytes = unsafe { std::slice::from_raw_parts_mut(buffer.iov_base.cast::<u8>(), len) };
            touch(bytes);
            return Some(Piece::Program(bytes));
        }
        let mut own = Scratch::new(len)?;
        let mut at = 0;
        for buffer in self.0 {
            // SAFETY: the caller's; the piece is as long as all of them together.
            unsafe {
                let to = own.as_mut_ptr().add(at);
                std::ptr::copy_nonoverlapping(buffer.iov_base.cast::<u8>(), to, buffer.iov_len);
            }
            at += buffer.iov_len;
        }
        Some(Piece::Scratch(own))
    }

    /// Where to read to, in one piece that can be written under a lock.
    ///
    /// # Safety
    /// The program's: the buffers can be written.
    pub(crate) unsafe fn space(&self, len: usize) -> Option<Piece<'a>> {
        if let ([buffer], false) = (self.0, process::has_mapped()) {
            // SAFETY: the caller's.
            let bytes = unsafe { std::slice::from_raw_parts_mut(buffer.iov_base.cast::<u8>(), len) };
            return Some(Piece::Program(bytes));
        }
        Scratch::new(len).map(Piece::Scratch)
    }

    /// Gives the program what was read.
    ///
    /// # Safety
    /// The program's: the buffers can be written.
    pub(crate) unsafe fn scatter(&self, piece: &Piece<'_>, len: usize) {
        let Piece::Scratch(own) = piece else { return };
        let mut at = 0;
        for buffer in self.0 {
            let count = buffer.iov_len.min(len - at);
            // SAFETY: the caller's; the piece has `len` bytes at least.
            unsafe { std::ptr::copy_nonoverlapping(own.as_ptr().add(at), buffer.iov_base.cast(), count) };
            at += count;
        }
    }
}

/// Lets page faults happen now, and not under a lock.
fn touch(bytes: &[u8]) {
    for at in (0..bytes.len()).step_by(PAGE) {
        std::hint::black_box(bytes[at]);
    }
    std::hint::black_box(bytes.last());
}

/// Bytes in one piece: the program's, or ours.
pub(crate) enum Piece<'a> {
    Program(&'a mut [u8]),
    Scratch(Scratch),
}

impl Deref for Piece<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Piece::Program(bytes) => bytes,
            Piece::Scratch(bytes) => bytes,
        }
    }
}

impl DerefMut for Piece<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Piece::Program(bytes) => bytes,
            Piece::Scratch(bytes) => bytes,
        }
    }
}
