//! Damage to memory, in the ways in which media and stray writes do it.

use crate::Heap;

/// One act of damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edit {
    /// A flipped bit.
    Flip {
        /// Which one.
        bit: usize,
    },
    /// Bytes overwritten with one value; zeroes are what clearing poison leaves.
    Fill {
        /// First byte.
        start: usize,
        /// Number of bytes.
        len: usize,
        /// The value.
        byte: u8,
    },
    /// A misdirected write: bytes that belong elsewhere.
    Copy {
        /// Where they belong.
        from: usize,
        /// Where they are.
        start: usize,
        /// Number of bytes.
        len: usize,
    },
    /// Bytes that cannot be read.
    Poison {
        /// First byte.
        start: usize,
        /// Number of bytes.
        len: usize,
    },
}

impl Edit {
    /// An edit of a memory of `memory_bytes` made from numbers that may be anything; every edit can be made.
    ///
    /// Every other `place` is moved to the front of a line, where headers and their fields are.
    pub fn from_numbers(memory_bytes: usize, kind: u8, place: u32, other: u32, len: u16) -> Self {
        let memory_bytes = memory_bytes.max(1);
        let within = |number: u32| number as usize % memory_bytes;
        let start =
            if kind & 0x80 == 0 { within(place) } else { within(place) / 64 * 64 + other as usize % 8 };
        let start = start.min(memory_bytes - 1);
        let len = (len as usize % 512 + 1).min(memory_bytes - start);
        match kind & 0x7f {
            0..=40 => Self::Flip { bit: start * 8 + other as usize % 8 },
            41..=60 => Self::Fill { start, len, byte: 0 },
            61..=80 => Self::Fill { start, len, byte: other as u8 },
            81..=110 => {
                // Whole lines from the front of a line: the stray write that looks most like an entry.
                let (from, start, len) = if kind & 1 == 0 {
                    (within(other) / 64 * 64, start / 64 * 64, len.next_multiple_of(64))
                } else {
                    (within(other), start, len)
                };
                let len = len.min(memory_bytes - start).min(memory_bytes - from);
                Self::Copy { from, start, len }
            }
            _ => Self::Poison { start, len },
        }
    }

    /// Does it.
    ///
    /// # Panics
    /// Caller bug only: it lies outside of the memory.
    pub fn apply(self, heap: &Heap) {
        match self {
            Self::Flip { bit } => heap.flip(bit),
            Self::Fill { start, len, byte } => heap.fill(start..start + len, byte),
            Self::Copy { from, start, len } => heap.edit(|bytes| bytes.copy_within(from..from + len, start)),
            Self::Poison { start, len } => heap.poison(start..start + len),
        }
    }
}
