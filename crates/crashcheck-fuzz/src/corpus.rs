//! What is kept: inputs that reached something new.

use std::collections::HashMap;

use fastness_pm_model::Rng;

use crate::features::Features;

/// Most bytes of inputs that are kept; further ones are not.
pub const BYTES_MAX: usize = 64 << 20;
/// Most features that are known; further ones are not new.
pub const KNOWN_MAX: usize = 1 << 20;

/// Inputs that reached something new, in the order in which they came.
///
/// For each feature the smallest input that has it is its owner; an input that owns none is seldom changed
/// again. Bounds: [`BYTES_MAX`], [`KNOWN_MAX`].
#[derive(Debug, Clone)]
pub struct Corpus<I> {
    entries: Vec<Entry<I>>,
    owners: HashMap<u64, usize>,
    bytes: usize,
}

#[derive(Debug, Clone)]
struct Entry<I> {
    input: I,
    size_bytes: usize,
    /// Features of which it is the owner.
    owned: usize,
    /// How often it was chosen.
    chosen: u64,
}

impl<I> Default for Corpus<I> {
    fn default() -> Self {
        Self { entries: Vec::new(), owners: HashMap::new(), bytes: 0 }
    }
}

impl<I> Corpus<I> {
    /// Considers an input of `size_bytes`: it is kept if it reached what none before did. Returns how much
    /// that is.
    pub fn add(&mut self, input: I, size_bytes: usize, features: &Features) -> usize {
        let new = features.iter().filter(|feature| !self.owners.contains_key(feature)).count();
        let is_full = self.bytes.saturating_add(size_bytes) > BYTES_MAX
            || self.owners.len().saturating_add(new) > KNOWN_MAX;
        if new == 0 || is_full {
            return 0;
        }
        let index = self.entries.len();
        let mut owned = 0;
        for feature in features.iter() {
            let owner = self.owners.entry(feature).or_insert(index);
            if *owner != index {
                let before = &mut self.entries[*owner];
                if before.size_bytes <= size_bytes {
                    continue;
                }
                before.owned -= 1;
                *owner = index;
            }
            owned += 1;
        }
        self.bytes += size_bytes;
        self.entries.push(Entry { input, size_bytes, owned, chosen: 0 });
        new
    }

    /// The one to change next: of a few at random the one that was chosen least, owners of features first.
    /// None if there are no inputs.
    pub fn choose(&mut self, rng: &mut Rng) -> Option<&I> {
        if self.entries.is_empty() {
            return None;
        }
        let index = (0..3)
            .map(|_| rng.index(self.entries.len()))
            .min_by_key(|index| {
                let entry = &self.entries[*index];
                // Without features of its own, it waits eight times as long.
                let weight = if entry.owned == 0 { 8 } else { 1 };
                (entry.chosen + 1).saturating_mul(weight)
            })
            .unwrap_or_default();
        self.entries[index].chosen += 1;
        Some(&self.entries[index].input)
    }

    /// Any of them, to take parts of. None if there are none.
    pub fn any(&self, rng: &mut Rng) -> Option<&I> {
        let index = rng.index(self.entries.len());
        self.entries.get(index).map(|entry| &entry.input)
    }

    /// All that are kept.
    pub fn inputs(&self) -> impl Iterator<Item = &I> {
        self.entries.iter().map(|entry| &entry.input)
    }

    /// How many are kept.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether none is kept.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many features were reached.
    pub fn features(&self) -> usize {
        self.owners.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn features(places: &[u64]) -> Features {
        let mut features = Features::default();
        places.iter().for_each(|place| features.add_block(*place, 1));
        features
    }

    #[test]
    fn what_reaches_something_new_is_kept() {
        let mut corpus = Corpus::default();
        assert_eq!(corpus.add("a", 1, &features(&[1, 2])), 2);
        assert_eq!(corpus.add("b", 1, &features(&[2, 1])), 0, "nothing new");
        assert_eq!(corpus.add("c", 1, &features(&[2, 3])), 1);
        assert_eq!(corpus.inputs().copied().collect::<Vec<_>>(), ["a", "c"]);
        assert_eq!(corpus.features(), 3);
    }

    #[test]
    fn a_smaller_input_owns_what_it_shares() {
        let mut corpus = Corpus::default();
        corpus.add("large", 100, &features(&[1, 2]));
        corpus.add("small", 10, &features(&[1, 2, 3]));
        corpus.add("larger", 200, &features(&[1, 2, 3, 4]));
        let owned: Vec<usize> = corpus.entries.iter().map(|entry| entry.owned).collect();
        assert_eq!(owned, [0, 3, 1]);
        let mut rng = Rng::new(1);
        let mut count = HashMap::new();
        (0..600).for_each(|_| *count.entry(*corpus.choose(&mut rng).unwrap()).or_insert(0) += 1);
        assert!(count["large"] * 4 < count["small"], "{count:?}");
        assert!(count["larger"] * 2 > count["small"], "{count:?}");
    }

    #[test]
    fn it_does_not_grow_without_bound() {
        let mut corpus = Corpus::default();
        assert_eq!(corpus.add((), BYTES_MAX, &features(&[1])), 1);
        assert_eq!(corpus.add((), 1, &features(&[2])), 0);
        assert_eq!(corpus.len(), 1);
        let mut empty: Corpus<()> = Corpus::default();
        assert!(empty.choose(&mut Rng::new(0)).is_none() && empty.any(&mut Rng::new(0)).is_none());
    }
}
