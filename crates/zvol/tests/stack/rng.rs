//! Randomness: one seed, one sequence.

/// A small generator.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0xd134_2543_de82_ef95) ^ 0x5eed_0f57_ac4b_0001)
    }

    /// That of one step of one life: it stays the same when another step is left out.
    pub fn of_step(seed: u64, life: u64, step: u64) -> Rng {
        let mut rng = Rng::new(seed);
        let mixed =
            rng.next() ^ life.wrapping_mul(0x9e6c_63d0_876a_68ed) ^ step.wrapping_mul(0xd6e8_feb8_6659_fd93);
        Rng::new(mixed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }
}
