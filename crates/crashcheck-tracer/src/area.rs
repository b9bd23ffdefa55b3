//! A region of PM as the trace has it: its contents, and which lines are dirty.

use std::ops::Range;

/// Bytes of a cache line.
pub(crate) const LINE_BYTES: u64 = 64;
/// Regions begin at multiples of this: an address says which region it is in.
const AREA_BITS: u32 = 40;
/// Longest region.
pub(crate) const AREA_BYTES_MAX: u64 = 1 << AREA_BITS;

/// First address of a region, by its number.
pub(crate) fn start_of(index: usize) -> u64 {
    (index as u64) << AREA_BITS
}

/// Region, and byte in it, of an address.
pub(crate) fn locate(address: u64) -> (usize, u64) {
    ((address >> AREA_BITS) as usize, address & (AREA_BYTES_MAX - 1))
}

/// A region.
#[derive(Debug)]
pub(crate) struct Area {
    /// What the events so far make of it. Bytes that were never touched take no memory.
    contents: Vec<u8>,
    /// A bit for each line that was stored to past no cache, and not flushed since.
    dirty: Vec<u64>,
}

impl Area {
    /// All zero, nothing dirty.
    pub(crate) fn new(len_bytes: u64) -> Area {
        let lines = len_bytes.div_ceil(LINE_BYTES);
        Area { contents: vec![0; len_bytes as usize], dirty: vec![0; lines.div_ceil(64) as usize] }
    }

    pub(crate) fn len_bytes(&self) -> u64 {
        self.contents.len() as u64
    }

    pub(crate) fn contents(&self) -> &[u8] {
        &self.contents
    }

    /// The caller has checked the bounds.
    pub(crate) fn put(&mut self, offset: u64, data: &[u8]) {
        let to = &mut self.contents[offset as usize..][..data.len()];
        // Nearly all of them: a length that is known is a move of a register.
        match data.len() {
            8 => to[..8].copy_from_slice(&data[..8]),
            16 => to[..16].copy_from_slice(&data[..16]),
            4 => to[..4].copy_from_slice(&data[..4]),
            _ => to.copy_from_slice(data),
        }
    }

    /// Lines that a cached store touches.
    pub(crate) fn set_dirty(&mut self, offset: u64, len: usize) {
        for line in offset / LINE_BYTES..(offset + len as u64).div_ceil(LINE_BYTES) {
            self.dirty[(line / 64) as usize] |= 1 << (line % 64);
        }
    }

    /// The line of a byte was flushed.
    pub(crate) fn set_clean(&mut self, offset: u64) {
        let line = offset / LINE_BYTES;
        self.dirty[(line / 64) as usize] &= !(1 << (line % 64));
    }

    pub(crate) fn set_all_clean(&mut self) {
        self.dirty.fill(0);
    }

    /// First bytes of the dirty lines that have one in the range.
    pub(crate) fn dirty_lines(&self, range: Range<u64>) -> Vec<u64> {
        let end = range.end.min(self.len_bytes()).div_ceil(LINE_BYTES);
        let mut line = range.start / LINE_BYTES;
        let mut found = Vec::new();
        while line < end {
            let bits = self.dirty[(line / 64) as usize] >> (line % 64);
            if bits == 0 {
                line = (line / 64 + 1) * 64;
                continue;
            }
            line += u64::from(bits.trailing_zeros());
            if line < end {
                found.push(line * LINE_BYTES);
            }
            line += 1;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dirty_lines_are_found() {
        let mut area = Area::new(64 * 200 + 1);
        assert_eq!(area.dirty_lines(0..u64::MAX), []);
        area.set_dirty(60, 8);
        area.set_dirty(63 * 64, 1);
        area.set_dirty(64 * 64, 65);
        area.set_dirty(64 * 200, 1);
        assert_eq!(area.dirty_lines(0..u64::MAX), [0, 64, 63 * 64, 64 * 64, 65 * 64, 200 * 64]);
        assert_eq!(area.dirty_lines(64..64 * 64), [64, 63 * 64]);
        assert_eq!(area.dirty_lines(65..66), [64]);
        assert_eq!(area.dirty_lines(63 * 64 + 5..64 * 64 + 1), [63 * 64, 64 * 64]);
        area.set_clean(70);
        assert_eq!(area.dirty_lines(0..128), [0]);
        area.set_all_clean();
        assert_eq!(area.dirty_lines(0..u64::MAX), []);
    }

    #[test]
    fn addresses_name_regions() {
        assert_eq!(locate(start_of(3) + 17), (3, 17));
        assert_eq!(locate(0), (0, 0));
    }
}
