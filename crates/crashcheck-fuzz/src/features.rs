//! What a run reached, as hashes.

use std::collections::BTreeSet;

/// Most features of one run; further ones are dropped.
pub const FEATURES_MAX: usize = 1 << 18;

/// What a run reached. Two runs that did the same have the same features.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Features(BTreeSet<u64>);

/// Keeps features of one kind apart from those of others.
const BLOCK: u64 = 1;
const PENDING: u64 = 2;

impl Features {
    /// A block of code ran `count` times; `place` names it, the same in each run.
    ///
    /// Once, twice, a few times and often are different features: a loop that runs once more is new where
    /// that is a lot.
    pub fn add_block(&mut self, place: u64, count: u64) {
        if count > 0 {
            self.add(&[BLOCK, place, u64::from(bucket(count))]);
        }
    }

    /// A store was pending when something was expected to be durable; `parts` say which one, where, and what
    /// it lacked.
    pub fn add_pending(&mut self, parts: &[u64]) {
        let mut all = vec![PENDING];
        all.extend_from_slice(parts);
        self.add(&all);
    }

    fn add(&mut self, parts: &[u64]) {
        if self.0.len() < FEATURES_MAX {
            self.0.insert(mix(parts));
        }
    }

    /// All of them, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u64> {
        self.0.iter().copied()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Counts that are one: 1, 2, 3, 4 to 7, 8 to 15, and so on without end, because how long a value is matters
/// to what stores it.
fn bucket(count: u64) -> u32 {
    match count {
        0 => 0,
        1..=3 => count as u32,
        _ => 2 + count.ilog2(),
    }
}

/// A hash of numbers in order; the same on every platform and in every version.
pub fn mix(parts: &[u64]) -> u64 {
    parts.iter().fold(0x9e37_79b9_7f4a_7c15, |hash, part| {
        let mut z = (hash ^ part).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 30).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    })
}

/// A hash of bytes; the same on every platform and in every version.
pub fn mix_bytes(bytes: &[u8]) -> u64 {
    let word = |chunk: &[u8]| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    };
    let words: Vec<u64> = std::iter::once(bytes.len() as u64).chain(bytes.chunks(8).map(word)).collect();
    mix(&words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(blocks: &[(u64, u64)], pending: &[&[u64]]) -> Features {
        let mut features = Features::default();
        blocks.iter().for_each(|(place, count)| features.add_block(*place, *count));
        pending.iter().for_each(|parts| features.add_pending(parts));
        features
    }

    #[test]
    fn what_differs_is_told_apart() {
        let base = of(&[(7, 1)], &[]);
        assert_eq!(base, of(&[(7, 1)], &[]));
        for other in [of(&[(8, 1)], &[]), of(&[(7, 2)], &[]), of(&[], &[&[7, 1]]), of(&[], &[])] {
            assert_ne!(base, other);
        }
        assert_ne!(of(&[], &[&[1, 2]]), of(&[], &[&[2, 1]]), "the order of parts");
        assert_ne!(mix_bytes(b"ab"), mix_bytes(b"ab\0"));
    }

    #[test]
    fn counts_are_told_apart_where_they_differ_much() {
        let buckets = [1, 2, 3, 4, 7, 8, 15, 16, 2047, 2048, u64::MAX].map(bucket);
        assert_eq!(buckets, [1, 2, 3, 4, 4, 5, 5, 6, 12, 13, 65]);
        assert!(of(&[(7, 0)], &[]).is_empty(), "a block that did not run");
    }
}
