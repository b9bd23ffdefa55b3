//! Bitmaps of free space as rows.
//!
//! Motivation: an import reads all rows, so they must be few and short: most regions of a large pool are full
//! or empty, and one byte says so.
//!
//! Shape: a row describes 16 regions (256 MiB), each with a tag and what follows it; regions after the last
//! non-empty one are left out.
//!
//! | tag | region | follows |
//! |---:|---|---|
//! | 0 | empty | |
//! | 1 | full | |
//! | 2 | runs of set bits in order, not touching, 1 to 127 | count 1, then first bit 2, length 2 for each |
//! | 3 | anything | bitmap, 512 bytes |

use crate::codec::{Reader, Writer};
use crate::space::alloc::{BITMAP_BYTES, Bits, REGION_UNITS, WORDS};

/// Regions of a row.
pub(super) const ROW_REGIONS: usize = 16;
const EMPTY: u8 = 0;
const FULL: u8 = 1;
const RUNS: u8 = 2;
const BITMAP: u8 = 3;
/// More runs take as much space as the bitmap.
const RUNS_MAX: usize = 127;

/// What a row says about a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stored {
    Empty,
    Full,
    Mixed(Box<Bits>),
}

/// The row for regions in order.
pub(super) fn encode(regions: &[Stored]) -> Vec<u8> {
    let count = regions.iter().rposition(|region| *region != Stored::Empty).map_or(0, |last| last + 1);
    let mut out = Writer::default();
    for region in &regions[..count] {
        match region {
            Stored::Empty => drop(out.u8(EMPTY)),
            Stored::Full => drop(out.u8(FULL)),
            Stored::Mixed(bits) => bits.encode(&mut out),
        }
    }
    out.bytes
}

/// The regions of a row; `None` if it is malformed.
pub(super) fn decode(row: &[u8]) -> Option<Vec<Stored>> {
    let mut input = Reader::new(row);
    let mut regions = Vec::new();
    while !input.is_empty() {
        if regions.len() == ROW_REGIONS {
            return None;
        }
        regions.push(match input.u8()? {
            EMPTY => Stored::Empty,
            FULL => Stored::Full,
            RUNS => Stored::Mixed(Box::new(Bits::of_runs(&mut input)?)),
            BITMAP => Stored::Mixed(Box::new(Bits::of_bitmap(input.take(BITMAP_BYTES)?))),
            _ => return None,
        });
    }
    Some(regions)
}

impl Bits {
    fn encode(&self, out: &mut Writer) {
        let (mut runs, mut at) = (Vec::new(), 0);
        while at < REGION_UNITS && runs.len() <= RUNS_MAX {
            let start = self.next(at, true);
            at = self.next(start, false);
            if start < REGION_UNITS {
                runs.push((start as u16, (at - start) as u16));
            }
        }
        match &runs[..] {
            [] => drop(out.u8(EMPTY)),
            [(0, len)] if u64::from(*len) == REGION_UNITS => drop(out.u8(FULL)),
            runs if runs.len() > RUNS_MAX => {
                out.u8(BITMAP);
                self.0.iter().for_each(|word| out.bytes.extend(word.to_le_bytes()));
            }
            runs => {
                out.u8(RUNS).u8(runs.len() as u8);
                for (start, len) in runs {
                    out.bytes.extend(start.to_le_bytes());
                    out.bytes.extend(len.to_le_bytes());
                }
            }
        }
    }

    fn of_bitmap(bytes: &[u8]) -> Bits {
        let mut bits = Bits([0; WORDS]);
        for (word, bytes) in bits.0.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
        }
        bits
    }

    fn of_runs(input: &mut Reader<'_>) -> Option<Bits> {
        let mut bits = Bits([0; WORDS]);
        let mut behind = 0;
        for _ in 0..input.u8()? {
            let mut number = || Some(u64::from(u16::from_le_bytes(input.take(2)?.try_into().ok()?)));
            let (start, len) = (number()?, number()?);
            if start < behind || len == 0 || start + len > REGION_UNITS {
                return None;
            }
            bits.set(start, len, true);
            // Adjacent runs must be merged, so that each bitmap has exactly one row.
            behind = start + len + 1;
        }
        Some(bits)
    }

    /// The first bit from `from` on that has this value, or the end.
    fn next(&self, from: u64, value: bool) -> u64 {
        let mut at = from;
        while at < REGION_UNITS {
            let word = self.0[(at / 64) as usize];
            let rest = (if value { word } else { !word }) >> (at % 64);
            if rest != 0 {
                return at + u64::from(rest.trailing_zeros());
            }
            at = (at / 64 + 1) * 64;
        }
        REGION_UNITS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bits_of(stored: &Stored) -> Bits {
        match stored {
            Stored::Empty => Bits([0; WORDS]),
            Stored::Full => Bits([u64::MAX; WORDS]),
            Stored::Mixed(bits) => (**bits).clone(),
        }
    }

    proptest! {
        #[test]
        fn every_bitmap_comes_back(runs in proptest::collection::vec((0..REGION_UNITS, 1..300_u64), 0..200)) {
            let mut bits = Bits([0; WORDS]);
            for (start, len) in runs {
                bits.set(start, len.min(REGION_UNITS - start), true);
            }
            let row = encode(&[Stored::Full, Stored::Mixed(Box::new(bits.clone())), Stored::Empty, Stored::Full]);
            prop_assert!(row.len() <= 4 + BITMAP_BYTES);
            let found = decode(&row).unwrap();
            prop_assert_eq!(&found[0], &Stored::Full);
            prop_assert_eq!(bits_of(&found[1]).0, bits.0);
            prop_assert_eq!(found.len(), 4);
        }

        #[test]
        fn any_bytes_are_a_row_or_refused(row in proptest::collection::vec(any::<u8>(), 0..600)) {
            if let Some(found) = decode(&row) {
                let again = decode(&encode(&found)).unwrap();
                for (index, region) in found.iter().enumerate() {
                    let other = again.get(index).map_or(Bits([0; WORDS]), bits_of);
                    prop_assert_eq!(bits_of(region).0, other.0);
                }
            }
        }
    }

    #[test]
    fn full_and_empty_regions_are_a_byte_and_scattered_units_a_bitmap() {
        let mixed = |word| Stored::Mixed(Box::new(Bits([word; WORDS])));
        assert_eq!(encode(&[mixed(u64::MAX), mixed(0), mixed(u64::MAX), mixed(0)])[..3], [FULL, EMPTY, FULL]);
        assert_eq!(encode(&vec![Stored::Empty; 16]), []);
        assert_eq!(encode(&[mixed(0x5555_5555_5555_5555)]).len(), 1 + BITMAP_BYTES);
        assert!(decode(&[FULL; 16]).is_some() && decode(&[FULL; 17]).is_none());
    }
}
