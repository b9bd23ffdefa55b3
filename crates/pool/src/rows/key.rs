//! The order of rows in memory.
//!
//! Performance: a row has the first bytes of its key beside it, so that a search reads the memory of the
//! rows on its way only where these are equal and do not tell. Most keys have no more bytes than these.

use std::cmp::Ordering;

const BYTES: usize = 16;

/// The first bytes of a key, padded with zeroes. Of two keys with different ones, the lesser has the lesser.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Prefix(u64, u64);

impl Prefix {
    pub(super) fn of(key: &[u8]) -> Prefix {
        let mut padded = [0; BYTES];
        let len = key.len().min(BYTES);
        padded[..len].copy_from_slice(&key[..len]);
        let both = u128::from_be_bytes(padded);
        Prefix((both >> 64) as u64, both as u64)
    }
}

/// A key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key<'a> {
    pub(super) prefix: Prefix,
    pub(super) bytes: &'a [u8],
}

impl<'a> Key<'a> {
    pub(super) fn of(bytes: &'a [u8]) -> Key<'a> {
        Key { prefix: Prefix::of(bytes), bytes }
    }
}

impl PartialOrd for Key<'_> {
    fn partial_cmp(&self, other: &Key<'_>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// That of the bytes.
impl Ord for Key<'_> {
    fn cmp(&self, other: &Key<'_>) -> Ordering {
        self.prefix.cmp(&other.prefix).then_with(|| match self.bytes.len().max(other.bytes.len()) {
            // The longer one goes on with zeroes.
            ..=BYTES => self.bytes.len().cmp(&other.bytes.len()),
            _ => self.bytes.cmp(other.bytes),
        })
    }
}

/// What has a place in the order of keys: rows are looked up by keys.
pub(super) trait Keyed {
    fn place(&self) -> Key<'_>;
}

impl Keyed for Key<'_> {
    fn place(&self) -> Key<'_> {
        *self
    }
}

impl PartialEq for dyn Keyed + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.place() == other.place()
    }
}

impl Eq for dyn Keyed + '_ {}

impl PartialOrd for dyn Keyed + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for dyn Keyed + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        self.place().cmp(&other.place())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_that_of_the_bytes() {
        let mut keys = vec![Vec::new()];
        for len in [1, 7, 8, 9, 15, 16, 17, 18, 40] {
            for byte in [0, 1, 0x7f, 0xff] {
                keys.push(vec![byte; len]);
                for last in [0, 1, 0xff] {
                    keys.push([&vec![byte; len - 1][..], &[last]].concat());
                }
            }
        }
        for a in &keys {
            for b in &keys {
                assert_eq!(Key::of(a).cmp(&Key::of(b)), a.cmp(b), "{a:?} and {b:?}");
                let (a_keyed, b_keyed): (&dyn Keyed, &dyn Keyed) = (&Key::of(a), &Key::of(b));
                assert_eq!(a_keyed == b_keyed, a == b);
            }
        }
    }
}
