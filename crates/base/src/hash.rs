//! A hash for keys that are numbers.

use std::hash::Hasher;

/// Numbers that count up, as keys: one multiplication spreads them well enough.
///
/// # Panics
/// Caller bug only: for keys that are no single `u64`.
#[derive(Debug, Default)]
pub struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are u64");
    }

    #[inline]
    fn write_u64(&mut self, value: u64) {
        self.0 = value.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_right(20);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}
