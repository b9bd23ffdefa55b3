//! Inputs of programs: text, or any bytes.
//!
//! An input that is text is changed as text, most of the time: its numbers become odd ones, its words empty
//! or as long as names can be, its lines come twice, in another order, or not at all. Whether a program reads
//! lines or fields is not known; what reaches something new is kept.

mod change;
mod shrink;

use fastness_pm_model::Rng;

pub use shrink::shrink;

/// How inputs are changed.
#[derive(Debug, Clone)]
pub struct Mutator {
    /// Words that the program knows, to be put in.
    pub words: Vec<Vec<u8>>,
    /// Longest input, in bytes.
    pub len_max: usize,
    /// Largest number that is written as text: a larger one may only fill the disk.
    pub number_max: u64,
}

impl Default for Mutator {
    fn default() -> Self {
        Self { words: Vec::new(), len_max: 64 << 10, number_max: 1 << 32 }
    }
}

impl Mutator {
    /// Changes `input`, once or a few times; parts of `other` may come in.
    pub fn mutate(&self, input: &[u8], other: &[u8], rng: &mut Rng) -> Vec<u8> {
        let mut bytes = input.to_vec();
        let changes = if rng.one_in(2) { 1 } else { 1 + rng.index(4) };
        for _ in 0..changes {
            self.change(&mut bytes, other, rng);
            bytes.truncate(self.len_max);
        }
        bytes
    }

    fn change(&self, bytes: &mut Vec<u8>, other: &[u8], rng: &mut Rng) {
        if is_text(bytes) && !rng.one_in(8) {
            match rng.below(10) {
                0..=3 => change::number(bytes, self.number_max, rng),
                4 => change::word(bytes, &self.words, rng),
                5 => change::drop_line(bytes, rng),
                6 => change::copy_line(bytes, bytes.clone().as_slice(), rng),
                7 => change::copy_line(bytes, other, rng),
                8 => change::swap_lines(bytes, rng),
                _ => change::name(bytes, rng),
            }
        } else {
            match rng.below(8) {
                0 => change::flip(bytes, rng),
                1 => change::byte(bytes, rng),
                2 => change::integer(bytes, rng),
                3 => change::drop_range(bytes, rng),
                4 => change::copy_range(bytes, rng),
                5 => change::insert(bytes, &self.words, rng),
                6 => change::run(bytes, rng),
                _ => change::splice(bytes, other, rng),
            }
        }
    }
}

/// Whether it is all letters and blanks. Nothing is text, too.
fn is_text(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| matches!(byte, b'\t' | b'\n' | b'\r' | b' '..=b'~' | 0x80..))
}

#[cfg(test)]
mod tests;
