//! The bitmap of a region.

use crate::space::alloc::WORDS;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bits(pub(super) [u64; WORDS]);

impl Bits {
    pub(super) fn get(&self, at: u64) -> bool {
        self.0[(at / 64) as usize] >> (at % 64) & 1 == 1
    }

    /// Sets `len` bits from `at` on, a word at a time.
    pub(super) fn set(&mut self, at: u64, len: u64, value: bool) {
        let (mut at, end) = (at, at + len);
        while at < end {
            let count = (64 - at % 64).min(end - at);
            let mask = u64::MAX >> (64 - count) << (at % 64);
            let word = &mut self.0[(at / 64) as usize];
            *word = if value { *word | mask } else { *word & !mask };
            at += count;
        }
    }

    /// First run of `len` zeroes from `from` on, ending before `end`.
    pub(super) fn find_run(&self, from: u64, len: u64, end: u64) -> Option<u64> {
        let (mut at, mut start) = (from, from);
        while at < end {
            let word = self.0[(at / 64) as usize];
            if at.is_multiple_of(64) && word == u64::MAX {
                at += 64;
                start = at;
                continue;
            }
            if word >> (at % 64) & 1 == 1 {
                start = at + 1;
            } else if at + 1 - start == len {
                return Some(start);
            }
            at += 1;
        }
        None
    }
}
