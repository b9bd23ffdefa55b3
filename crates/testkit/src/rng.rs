//! Pseudo-random numbers that follow from a seed.

/// SplitMix64, from its state: one seed, one sequence, on every machine and in every version.
///
/// Recorded seeds depend on every method here: none may draw other numbers than it does.
///
/// Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
#[derive(Debug, Clone)]
pub struct Rng(pub u64);

/// What the state grows by at each step.
pub(crate) const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The number that a state yields.
pub(crate) fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Rng {
    /// The next 64 bits.
    #[expect(clippy::should_implement_trait, reason = "an endless sequence; an iterator would be of no use")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// A number below `end`; small ones are a little more likely if `end` is huge.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// An index into something of length `len`.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of several things.
    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())].clone()
    }

    /// Random bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of the reference implementation by Sebastiano Vigna, from the state 1234567.
    #[test]
    fn it_is_splitmix64() {
        let mut rng = Rng(1_234_567);
        let numbers: Vec<u64> = std::iter::repeat_with(|| rng.next()).take(5).collect();
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(numbers, expected);
    }
}
