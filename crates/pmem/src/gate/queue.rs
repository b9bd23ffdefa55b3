//! What a DMA engine is told, and what it answers: descriptors and completion records of Intel DSA.
//!
//! Source: Intel Data Streaming Accelerator architecture specification, ch. 5 and 8; `linux/idxd.h`.

use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// Opcodes.
const NOTHING: u32 = 0;
const MOVE: u32 = 3;
/// There is a completion record, and it is to be written.
const COMPLETION_VALID: u32 = 0x4;
const REQUEST_COMPLETION: u32 = 0x8;
/// What was stored is read back before the completion, so that it has reached the memory controller.
const READ_BACK: u32 = 0x4000;
const OPCODE_SHIFT: u32 = 24;

/// Done, and nothing went wrong.
pub(crate) const SUCCESS: u8 = 1;
/// A page was not there; the bytes before it are done.
pub(crate) const PAGE_FAULT: u8 = 3;
/// In a status of a page fault: which access it was.
const STATUS_MASK: u8 = 0x3f;

/// What an engine is to do: 64 bytes, as the hardware reads them.
///
/// Only this crate makes them, so a queue gets no addresses but those of a write that waits for it.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct Descriptor([u8; 64]);

impl Descriptor {
    /// Does nothing, and says so.
    pub(crate) fn nothing(completion: NonNull<Completion>) -> Descriptor {
        Descriptor::of(NOTHING, COMPLETION_VALID | REQUEST_COMPLETION, completion)
    }

    /// Copies `src` to `dst`, reads it back, and says so.
    pub(crate) fn copy(dst: NonNull<u8>, src: &[u8], completion: NonNull<Completion>) -> Descriptor {
        let mut descriptor =
            Descriptor::of(MOVE, COMPLETION_VALID | REQUEST_COMPLETION | READ_BACK, completion);
        descriptor.put(16, &(src.as_ptr().expose_provenance() as u64).to_le_bytes());
        descriptor.put(24, &(dst.as_ptr().expose_provenance() as u64).to_le_bytes());
        let len_bytes = u32::try_from(src.len()).expect("a transfer is no longer than the queue allows");
        descriptor.put(32, &len_bytes.to_le_bytes());
        descriptor
    }

    fn of(opcode: u32, flags: u32, completion: NonNull<Completion>) -> Descriptor {
        let mut descriptor = Descriptor([0; 64]);
        descriptor.put(4, &(opcode << OPCODE_SHIFT | flags).to_le_bytes());
        descriptor.put(8, &(completion.as_ptr().expose_provenance() as u64).to_le_bytes());
        descriptor
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn number(&self, at: usize) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.0[at..at + 8]);
        u64::from_le_bytes(bytes)
    }

    /// As the hardware reads it.
    pub fn bytes(&self) -> &[u8; 64] {
        &self.0
    }

    /// Whether bytes are to be copied: source, destination, length.
    pub(crate) fn addresses(&self) -> Option<(usize, usize, usize)> {
        let is_copy = self.0[7] == MOVE as u8;
        let len_bytes = (self.number(32) & u64::from(u32::MAX)) as usize;
        is_copy.then(|| (self.number(16) as usize, self.number(24) as usize, len_bytes))
    }

    /// Address of the completion record.
    pub(crate) fn completion(&self) -> usize {
        self.number(8) as usize
    }
}

impl fmt::Debug for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Descriptor(opcode {}, {} bytes)", self.0[7], self.number(32) & u64::from(u32::MAX))
    }
}

/// What an engine writes when it has finished.
#[derive(Debug, Default)]
#[repr(C, align(32))]
pub struct Completion {
    status: AtomicU8,
    result: u8,
    reserved: u16,
    bytes_completed: AtomicU32,
    more: [u64; 3],
}

impl Completion {
    /// The answer, if it is there: a status, and how many bytes are done.
    pub(crate) fn answer(&self) -> Option<(u8, usize)> {
        let status = self.status.load(Ordering::Acquire) & STATUS_MASK;
        (status != 0).then(|| (status, self.bytes_completed.load(Ordering::Relaxed) as usize))
    }

    /// As an engine does it.
    pub(crate) fn complete(&self, status: u8, bytes: u32) {
        self.bytes_completed.store(bytes, Ordering::Relaxed);
        self.status.store(status, Ordering::Release);
    }
}

/// A work queue of a DMA engine.
pub trait WorkQueue: Send + Sync + fmt::Debug {
    /// Gives the engine something to do.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`]: the queue is full. Nothing was queued, whatever the error.
    fn submit(&self, descriptor: &Descriptor) -> io::Result<()>;

    /// The most bytes of one transfer.
    fn transfer_bytes_max(&self) -> usize;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Byte for byte as `struct dsa_hw_desc` of `linux/idxd.h`.
    #[test]
    fn descriptors_are_as_the_hardware_reads_them() {
        let completion = Completion::default();
        let src = [7; 4096];
        let mut dst = [0; 64];
        let at = NonNull::new(dst.as_mut_ptr()).unwrap();
        let descriptor = Descriptor::copy(at, &src, NonNull::from(&completion));
        let bytes = descriptor.bytes();
        assert_eq!(bytes[..8], [0, 0, 0, 0, 0x0c, 0x40, 0, 3], "flags and opcode");
        assert_eq!(bytes[8..16], (NonNull::from(&completion).as_ptr() as u64).to_le_bytes());
        assert_eq!(bytes[16..24], (src.as_ptr() as u64).to_le_bytes());
        assert_eq!(bytes[24..32], (at.as_ptr() as u64).to_le_bytes());
        assert_eq!(bytes[32..36], 4096_u32.to_le_bytes());
        assert!(bytes[36..].iter().all(|byte| *byte == 0));
        assert_eq!(Descriptor::nothing(NonNull::from(&completion)).bytes()[4..8], [0x0c, 0, 0, 0]);
        assert_eq!(
            (size_of::<Completion>(), align_of::<Completion>(), align_of::<Descriptor>()),
            (32, 32, 64)
        );
    }

    #[test]
    fn an_answer_says_what_happened_and_how_far_it_got() {
        let completion = Completion::default();
        assert_eq!(completion.answer(), None);
        // A fault of a write has the top bit as well.
        completion.complete(0x80 | PAGE_FAULT, 640);
        assert_eq!(completion.answer(), Some((PAGE_FAULT, 640)));
    }
}
