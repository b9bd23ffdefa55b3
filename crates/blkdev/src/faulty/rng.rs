//! A generator that yields the same sequence for a seed on every machine and in every version.

/// SplitMix64. Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    /// A generator for one of many independent decisions under one seed.
    pub(crate) fn of(seed: u64, stream: u64, index: u64) -> Rng {
        let mut outer = Rng(seed ^ stream.wrapping_mul(0xd6e8_feb8_6659_fd93));
        let mixed = outer.next();
        Rng(mixed ^ index.wrapping_mul(0xa076_1d64_78bd_642f))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; the bias is below 2^-32 for the bounds in use.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    pub(crate) fn coin(&mut self) -> bool {
        self.next() >> 63 == 1
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}
