//! Where the program has mapped files that are PM.

/// A part of a file in the program's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// First byte in the program's memory.
    pub(crate) start: u64,
    /// After the last.
    pub(crate) end: u64,
    /// Address in the trace of `start`.
    pub(crate) address: u64,
}

impl Mapping {
    /// The part of it within a range; none if there is no such part.
    fn cut(&self, start: u64, end: u64) -> Option<Mapping> {
        let (start, end) = (start.max(self.start), end.min(self.end));
        (start < end).then(|| Mapping { start, end, address: self.address + (start - self.start) })
    }
}

/// Mappings, ordered; they do not overlap.
#[derive(Debug, Default)]
pub(crate) struct Mappings(Vec<Mapping>);

impl Mappings {
    /// Something is mapped here now; what was here before is not any more.
    pub(crate) fn insert(&mut self, mapping: Mapping) {
        self.remove(mapping.start, mapping.end);
        let at = self.0.partition_point(|other| other.start < mapping.start);
        self.0.insert(at, mapping);
    }

    /// Nothing of PM is mapped here any more. Returns what was.
    pub(crate) fn remove(&mut self, start: u64, end: u64) -> Vec<Mapping> {
        let removed: Vec<_> = self.pieces(start, end).collect();
        if !removed.is_empty() {
            let kept = self.0.iter().flat_map(|mapping| {
                [mapping.cut(0, start), mapping.cut(end, u64::MAX)].into_iter().flatten()
            });
            self.0 = kept.collect();
        }
        removed
    }

    /// The parts of a range that are PM, in order.
    pub(crate) fn pieces(&self, start: u64, end: u64) -> impl Iterator<Item = Mapping> {
        let first = self.0.partition_point(|mapping| mapping.end <= start);
        self.0[first..].iter().map_while(move |mapping| mapping.cut(start, end))
    }

    /// Ranges of memory that have PM; neighbours are one.
    pub(crate) fn ranges(&self) -> Vec<(u64, u64)> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for mapping in &self.0 {
            match ranges.last_mut() {
                Some((_, end)) if *end == mapping.start => *end = mapping.end,
                _ => ranges.push((mapping.start, mapping.end)),
            }
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_file_at_two_places_and_in_parts() {
        let mut mappings = Mappings::default();
        mappings.insert(Mapping { start: 0x1000, end: 0x3000, address: 0 });
        mappings.insert(Mapping { start: 0x5000, end: 0x6000, address: 0x1000 });
        mappings.insert(Mapping { start: 0x3000, end: 0x4000, address: 1 << 40 });
        assert_eq!(mappings.ranges(), [(0x1000, 0x4000), (0x5000, 0x6000)]);
        let pieces: Vec<_> = mappings.pieces(0x2ff8, 0x5008).collect();
        assert_eq!(
            pieces,
            [
                Mapping { start: 0x2ff8, end: 0x3000, address: 0x1ff8 },
                Mapping { start: 0x3000, end: 0x4000, address: 1 << 40 },
                Mapping { start: 0x5000, end: 0x5008, address: 0x1000 },
            ]
        );
        // A hole in the first.
        assert_eq!(mappings.remove(0x1800, 0x2800).len(), 1);
        assert_eq!(
            mappings.pieces(0x1000, 0x3000).map(|piece| piece.address).collect::<Vec<_>>(),
            [0, 0x1800]
        );
    }

    proptest! {
        /// Against an array of pages.
        #[test]
        fn as_an_array(steps in prop::collection::vec((0u64..64, 1u64..16, prop::option::of(0u64..100)), 1..60)) {
            let mut mappings = Mappings::default();
            let mut array = [None; 80];
            for (start, len, to) in steps {
                match to {
                    Some(address) => mappings.insert(Mapping { start, end: start + len, address: address * 1000 }),
                    None => {
                        let before = (start..start + len).filter(|at| array[*at as usize].is_some()).count() as u64;
                        let removed = mappings.remove(start, start + len);
                        prop_assert_eq!(removed.iter().map(|piece| piece.end - piece.start).sum::<u64>(), before);
                    }
                }
                for at in 0..len {
                    array[(start + at) as usize] = to.map(|address| address * 1000 + at);
                }
                let mut found = [None; 80];
                for piece in mappings.pieces(0, 80) {
                    for at in piece.start..piece.end {
                        found[at as usize] = Some(piece.address + (at - piece.start));
                    }
                }
                prop_assert_eq!(found, array);
                for (at, expected) in (0..).zip(array) {
                    prop_assert_eq!(mappings.pieces(at, at + 1).next().map(|piece| piece.address), expected);
                }
            }
        }
    }
}
