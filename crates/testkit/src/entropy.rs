//! Randomness for tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fastness_prb::Entropy;

use crate::rng::{STEP, mix};

/// Random numbers that are the same in every run (SplitMix64).
#[derive(Debug)]
pub struct SeededEntropy(AtomicU64);

impl SeededEntropy {
    /// A source; any seed is good, different seeds give different numbers.
    pub fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(seed)))
    }
}

impl Entropy for SeededEntropy {
    fn next_u64(&self) -> u64 {
        mix(self.0.fetch_add(STEP, Ordering::Relaxed))
    }
}
