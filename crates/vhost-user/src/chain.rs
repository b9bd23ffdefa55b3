//! A chain of descriptors: first buffers that the device reads, then those that it writes.

use fastness_pmem::OutOfRange;

use crate::memory::{Memory, Place};
use crate::ring::{RingError, SIZE_MAX};

/// Another descriptor follows.
pub const NEXT: u16 = 1;
/// The device writes to the buffer.
pub const WRITE: u16 = 2;
/// The buffer is a table of descriptors.
pub const INDIRECT: u16 = 4;
pub(crate) const DESCRIPTOR_BYTES: u64 = 16;

/// A descriptor. Layout, little-endian: as the fields. Source: VIRTIO 1.2, 2.7.5.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptor {
    /// Address of the buffer that the guest uses.
    pub address: u64,
    /// Length of the buffer in bytes.
    pub len: u32,
    /// [`NEXT`], [`WRITE`], [`INDIRECT`].
    pub flags: u16,
    /// The descriptor that follows.
    pub next: u16,
}

impl Descriptor {
    pub(crate) fn encode(self) -> [u8; 16] {
        let [a0, a1, a2, a3, a4, a5, a6, a7] = self.address.to_le_bytes();
        let ([l0, l1, l2, l3], [f0, f1]) = (self.len.to_le_bytes(), self.flags.to_le_bytes());
        let [n0, n1] = self.next.to_le_bytes();
        [a0, a1, a2, a3, a4, a5, a6, a7, l0, l1, l2, l3, f0, f1, n0, n1]
    }

    fn decode(bytes: [u8; 16]) -> Descriptor {
        let [a0, a1, a2, a3, a4, a5, a6, a7, l0, l1, l2, l3, f0, f1, n0, n1] = bytes;
        Descriptor {
            address: u64::from_le_bytes([a0, a1, a2, a3, a4, a5, a6, a7]),
            len: u32::from_le_bytes([l0, l1, l2, l3]),
            flags: u16::from_le_bytes([f0, f1]),
            next: u16::from_le_bytes([n0, n1]),
        }
    }
}

/// Bytes of one region, by its number in the memory.
#[derive(Debug, Clone, Copy)]
struct Part {
    region: usize,
    offset: u64,
    len: u64,
}

/// The bytes of buffers one after the other, as if they were one. Keeps its allocation.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    parts: Vec<Part>,
    len: u64,
}

impl Stream {
    fn clear(&mut self) {
        self.parts.clear();
        self.len = 0;
    }

    fn push(&mut self, memory: &Memory, address: u64, len: u64) -> Result<(), OutOfRange> {
        let parts = &mut self.parts;
        memory.of_guest(address, len, |region, offset, len| parts.push(Part { region, offset, len }))?;
        self.len += len;
        Ok(())
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Calls `each` with the parts of the bytes from `at` on: region, offset there, and what range of the
    /// `len` bytes they are.
    fn visit(
        &self,
        at: u64,
        len: usize,
        mut each: impl FnMut(usize, u64, std::ops::Range<usize>) -> Result<(), OutOfRange>,
    ) -> Result<(), OutOfRange> {
        let (mut skip, mut done) = (at, 0);
        for part in &self.parts {
            if skip >= part.len {
                skip -= part.len;
                continue;
            }
            if done == len {
                break;
            }
            let count = (part.len - skip).min((len - done) as u64) as usize;
            each(part.region, part.offset + skip, done..done + count)?;
            (skip, done) = (0, done + count);
        }
        if done == len { Ok(()) } else { Err(OutOfRange) }
    }

    /// Fills `to` with the bytes from `at` on.
    pub(crate) fn read(&self, memory: &Memory, at: u64, to: &mut [u8]) -> Result<(), OutOfRange> {
        let len = to.len();
        self.visit(at, len, |region, offset, range| memory.region(region).read(offset, &mut to[range]))
    }

    /// Puts `from` at `at`.
    pub(crate) fn write(&self, memory: &Memory, at: u64, from: &[u8]) -> Result<(), OutOfRange> {
        self.visit(at, from.len(), |region, offset, range| memory.region(region).write(offset, &from[range]))
    }
}

/// What a chain is made of.
#[derive(Debug, Default)]
pub(crate) struct Chain {
    /// What the driver has written for us.
    pub(crate) readable: Stream,
    /// What we write for the driver.
    pub(crate) writable: Stream,
    /// A table of descriptors outside of the queue.
    indirect: Stream,
}

impl Chain {
    /// Reads the chain at `head` of a queue with `size` descriptors.
    pub(crate) fn read(
        &mut self,
        memory: &Memory,
        descriptors: &Place,
        size: u16,
        head: u16,
    ) -> Result<(), RingError> {
        self.readable.clear();
        self.writable.clear();
        let (mut is_indirect, mut size, mut index) = (false, size, head);
        for _ in 0..SIZE_MAX {
            if index >= size {
                return Err(RingError::Descriptor(index));
            }
            let (mut bytes, offset) = ([0; 16], DESCRIPTOR_BYTES * u64::from(index));
            if is_indirect {
                self.indirect.read(memory, offset, &mut bytes)?;
            } else {
                descriptors.region.memory.read(descriptors.offset + offset, &mut bytes)?;
            }
            let descriptor = Descriptor::decode(bytes);
            let len = u64::from(descriptor.len);
            if descriptor.flags & INDIRECT != 0 {
                let entries = len / DESCRIPTOR_BYTES;
                let is_last = descriptor.flags & NEXT == 0;
                let is_whole =
                    len.is_multiple_of(DESCRIPTOR_BYTES) && (1..=SIZE_MAX.into()).contains(&entries);
                if is_indirect || !is_last || !is_whole {
                    return Err(RingError::Indirect);
                }
                self.indirect.clear();
                self.indirect.push(memory, descriptor.address, len)?;
                (is_indirect, size, index) = (true, entries as u16, 0);
                continue;
            }
            match (descriptor.flags & WRITE != 0, self.writable.len()) {
                (true, _) => self.writable.push(memory, descriptor.address, len)?,
                (false, 0) => self.readable.push(memory, descriptor.address, len)?,
                // Source: 2.7.4.2: what is read comes first.
                (false, _) => return Err(RingError::Chain),
            }
            if descriptor.flags & NEXT == 0 {
                return Ok(());
            }
            index = descriptor.next;
        }
        Err(RingError::Chain)
    }
}
