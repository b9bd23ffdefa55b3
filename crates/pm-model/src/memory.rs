//! What the machine keeps PM in.

use crate::line::{LINE, LineBytes};

/// Contents of PM. A clone is independent of what it was made of.
pub trait Memory: Clone {
    /// Length in bytes; the last line may be short.
    fn len_bytes(&self) -> u64;

    /// Contents of line `number`, filled up with zeroes after the end.
    fn line(&self, number: u64) -> [u8; 64];

    /// Puts `bytes` into line `number`, up to the end.
    fn put_line(&mut self, number: u64, bytes: &[u8; 64]);
}

impl Memory for Vec<u8> {
    fn len_bytes(&self) -> u64 {
        self.len() as u64
    }

    fn line(&self, number: u64) -> LineBytes {
        let range = range_of(number, self.len());
        let mut bytes = [0; LINE];
        bytes[..range.len()].copy_from_slice(&self[range]);
        bytes
    }

    fn put_line(&mut self, number: u64, bytes: &LineBytes) {
        let range = range_of(number, self.len());
        let len = range.len();
        self[range].copy_from_slice(&bytes[..len]);
    }
}

/// Byte range of a line in an image of `len` bytes.
fn range_of(number: u64, len: usize) -> std::ops::Range<usize> {
    let start = number as usize * LINE;
    start..(start + LINE).min(len)
}
