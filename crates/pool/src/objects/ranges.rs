//! A set of numbers, as ranges.

use std::collections::BTreeMap;
use std::ops::Range;

/// Ranges that neither overlap nor touch: start → end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    pub(crate) fn contains(&self, number: u64) -> bool {
        !self.0.is_empty() && self.0.range(..=number).next_back().is_some_and(|(_, end)| number < *end)
    }

    /// Number of ranges.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether all of a range is in the set.
    pub(crate) fn covers(&self, range: &Range<u64>) -> bool {
        self.0.range(..=range.start).next_back().is_some_and(|(_, end)| range.end <= *end)
    }

    pub(crate) fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        while let Some((&before, &until)) = self.0.range(..=end).next_back() {
            if until < start {
                break;
            }
            self.0.remove(&before);
            start = start.min(before);
            end = end.max(until);
        }
        self.0.insert(start, end);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.0.iter().map(|(start, end)| *start..*end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn behaves_like_a_set(ranges in proptest::collection::vec((0..60u64, 0..12u64), 0..20)) {
            let (mut ours, mut model) = (Ranges::default(), BTreeSet::new());
            for (start, len) in ranges {
                ours.insert(start..start + len);
                model.extend(start..start + len);
            }
            prop_assert!(ours.iter().flatten().eq(model.iter().copied()));
            for number in 0..80 {
                prop_assert_eq!(ours.contains(number), model.contains(&number));
                let end = (number + 1..).find(|end| !model.contains(end)).expect("the model is finite");
                prop_assert_eq!(ours.covers(&(number..end)), model.contains(&number));
                prop_assert!(!ours.covers(&(number..end + 1)));
            }
            let all: Vec<_> = ours.iter().collect();
            prop_assert!(all.windows(2).all(|pair| pair[0].end < pair[1].start));
        }
    }
}
