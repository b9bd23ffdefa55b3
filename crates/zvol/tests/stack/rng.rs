//! Randomness: one seed, one sequence.

/// A generator whose sequence says of which step it is.
#[derive(Debug, Clone)]
pub struct Rng(pub fastness_testkit::Rng);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(fastness_testkit::Rng(seed.wrapping_mul(0xd134_2543_de82_ef95) ^ 0x5eed_0f57_ac4b_0001))
    }

    /// That of one step of one life: it stays the same when another step is left out.
    pub fn of_step(seed: u64, life: u64, step: u64) -> Rng {
        let mut rng = Rng::new(seed);
        let mixed =
            rng.next() ^ life.wrapping_mul(0x9e6c_63d0_876a_68ed) ^ step.wrapping_mul(0xd6e8_feb8_6659_fd93);
        Rng::new(mixed)
    }

    pub fn next(&mut self) -> u64 {
        self.0.next()
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.0.below(end)
    }

    pub fn index(&mut self, len: usize) -> usize {
        self.0.index(len)
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.0.one_in(n)
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        self.0.pick(from)
    }
}
