//! Ranges of bytes in a file, in order, neither overlapping nor touching.

use std::collections::BTreeMap;
use std::ops::Range;

/// What lies between two ranges and is shorter than this is taken into them: its place in a record would be
/// longer.
const GAP_BYTES: u64 = 64;

/// A set of ranges.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ranges {
    /// Ends by starts.
    ends: BTreeMap<u64, u64>,
    bytes: u64,
}

impl Ranges {
    /// Adds a range.
    pub(crate) fn add(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let Range { mut start, mut end } = range;
        while let Some((&from, &to)) = self.ends.range(..=end).next_back().filter(|(_, to)| **to >= start) {
            self.take(from);
            (start, end) = (start.min(from), end.max(to));
        }
        self.ends.insert(start, end);
        self.bytes += end - start;
    }

    /// Adds all of another set.
    pub(crate) fn add_all(&mut self, other: &Ranges) {
        other.iter().for_each(|range| self.add(range));
    }

    /// Takes a range out; what is around it stays.
    pub(crate) fn remove(&mut self, range: &Range<u64>) {
        if range.is_empty() {
            return;
        }
        while let Some((&from, &to)) =
            self.ends.range(..range.end).next_back().filter(|(_, to)| **to > range.start)
        {
            self.take(from);
            for rest in [from..range.start, range.end..to] {
                if !rest.is_empty() {
                    self.ends.insert(rest.start, rest.end);
                    self.bytes += rest.end - rest.start;
                }
            }
        }
    }

    fn take(&mut self, from: u64) {
        let to = self.ends.remove(&from).expect("it was found");
        self.bytes -= to - from;
    }

    /// The parts of `range` that are not in the set.
    pub(crate) fn missing(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut missing = Ranges::default();
        missing.add(range.clone());
        self.iter().for_each(|there| missing.remove(&there));
        missing.iter().collect()
    }

    /// Those up to `end`, with short gaps between them filled: for a record.
    pub(crate) fn gathered(&self, end: u64) -> Ranges {
        let mut gathered: Vec<Range<u64>> = Vec::with_capacity(self.ends.len());
        for range in
            self.iter().map(|range| range.start..range.end.min(end)).filter(|range| !range.is_empty())
        {
            match gathered.last_mut() {
                Some(last) if range.start - last.end < GAP_BYTES => last.end = range.end,
                _ => gathered.push(range),
            }
        }
        let mut ranges = Ranges::default();
        gathered.into_iter().for_each(|range| ranges.add(range));
        ranges
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.ends.iter().map(|(&start, &end)| start..end)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// How many ranges.
    pub(crate) fn count(&self) -> usize {
        self.ends.len()
    }

    /// Bytes of all ranges.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against a set of bytes.
    #[test]
    fn ranges_are_sets_of_bytes() {
        let mut rng = fastness_testkit::Rng(5);
        for _ in 0..2000 {
            let (mut ranges, mut bytes) = (Ranges::default(), [false; 64]);
            for _ in 0..rng.index(12) {
                let start = rng.index(64);
                let range = start..start + rng.index(65 - start);
                let adds = !rng.one_in(3);
                bytes[range.clone()].fill(adds);
                let range = range.start as u64..range.end as u64;
                if adds { ranges.add(range) } else { ranges.remove(&range) }
            }
            let mut found = [false; 64];
            ranges.iter().for_each(|range| found[range.start as usize..range.end as usize].fill(true));
            assert_eq!(found, bytes);
            assert_eq!(ranges.bytes(), bytes.iter().filter(|&&byte| byte).count() as u64);
            let all: Vec<_> = ranges.iter().collect();
            assert!(all.windows(2).all(|pair| pair[0].end < pair[1].start), "{all:?}");
            let mut missing = [true; 64];
            missing.iter_mut().zip(bytes).for_each(|(missing, there)| *missing = !there);
            let mut said = [false; 64];
            for range in ranges.missing(&(0..64)) {
                said[range.start as usize..range.end as usize].fill(true);
            }
            assert_eq!(said, missing);
        }
    }

    #[test]
    fn short_gaps_are_filled_and_the_end_of_the_file_is_the_end() {
        let mut ranges = Ranges::default();
        [0..10, 70..80, 150..160, 300..400].into_iter().for_each(|range| ranges.add(range));
        let gathered: Vec<_> = ranges.gathered(350).iter().collect();
        assert_eq!(gathered, [0..80, 150..160, 300..350]);
        assert!(ranges.gathered(5).iter().eq(std::iter::once(0..5)));
        assert!(ranges.gathered(0).is_empty());
    }
}
