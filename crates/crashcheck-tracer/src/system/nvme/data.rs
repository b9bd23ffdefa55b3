//! Where the data of a command is: pages (PRP) or lists of segments (SGL).

use fastness_crashcheck_trace::BLOCK_BYTES_MAX;

use super::{Memory, NvmeError, Result, long, read, word};

const PAGE_BYTES: u64 = 4096;
/// Segments of an SGL, and pages with lists, that are followed.
const LISTS_MAX: usize = 4096;

/// The data of a command, in order.
pub(super) fn gather(command: &[u8; 64], len_bytes: u64, memory: Memory<'_>) -> Result<Vec<u8>> {
    if len_bytes > BLOCK_BYTES_MAX as u64 {
        return Err(NvmeError::Long(len_bytes));
    }
    let mut data = Data { bytes: Vec::with_capacity(len_bytes as usize), left: len_bytes, memory };
    match command[1] >> 6 {
        0 => data.pages(long(command, 24), long(command, 32))?,
        1 | 2 => data.segments(command[24..40].try_into().expect("sixteen bytes"))?,
        form => return Err(NvmeError::Form(form)),
    }
    if data.left > 0 { Err(NvmeError::Form(command[1])) } else { Ok(data.bytes) }
}

struct Data<'a> {
    bytes: Vec<u8>,
    left: u64,
    memory: Memory<'a>,
}

impl Data<'_> {
    fn take(&mut self, address: u64, len: u64) -> Result<()> {
        let (at, len) = (self.bytes.len(), len.min(self.left));
        self.bytes.resize(at + len as usize, 0);
        if !(self.memory)(address, &mut self.bytes[at..]) {
            return Err(NvmeError::Memory(address));
        }
        self.left -= len;
        Ok(())
    }

    /// The first page; the second, or a list of all others, whose last entry leads to the next list.
    fn pages(&mut self, first: u64, second: u64) -> Result<()> {
        self.take(first, PAGE_BYTES - first % PAGE_BYTES)?;
        if self.left <= PAGE_BYTES {
            return if self.left > 0 { self.take(second, PAGE_BYTES) } else { Ok(()) };
        }
        let (mut at, mut lists) = (second, 1);
        while self.left > 0 {
            let entry = long(&read::<8>(self.memory, at)?, 0);
            if at % PAGE_BYTES == PAGE_BYTES - 8 && self.left > PAGE_BYTES {
                (at, lists) = (entry, lists + 1);
                if lists > LISTS_MAX {
                    return Err(NvmeError::Form(0));
                }
                continue;
            }
            self.take(entry, PAGE_BYTES)?;
            at = at.wrapping_add(8);
        }
        Ok(())
    }

    /// One segment of data, or lists of them: address, length, and the kind in the upper half of the last
    /// byte.
    fn segments(&mut self, first: [u8; 16]) -> Result<()> {
        let mut next = Some(first);
        for _ in 0..LISTS_MAX {
            let Some(descriptor) = next.take() else { return Ok(()) };
            let (address, len) = (long(&descriptor, 0), u64::from(word(&descriptor, 8)));
            match descriptor[15] >> 4 {
                0 => self.take(address, len)?,
                2 | 3 => {
                    for index in 0..(len / 16).min(LISTS_MAX as u64) {
                        let descriptor: [u8; 16] = read(self.memory, address.wrapping_add(16 * index))?;
                        match descriptor[15] >> 4 {
                            0 => self.take(long(&descriptor, 0), word(&descriptor, 8).into())?,
                            2 | 3 => next = Some(descriptor),
                            _ => return Err(NvmeError::Form(descriptor[15])),
                        }
                    }
                }
                _ => return Err(NvmeError::Form(descriptor[15])),
            }
        }
        Err(NvmeError::Form(first[15]))
    }
}
