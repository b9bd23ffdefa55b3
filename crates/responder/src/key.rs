//! Keys of files: where a file's chunks are placed.
//!
//! Chunk `index` of a file with key `k` has the slot `(k + index) mod slots`. A file gets its key when the
//! cache first meets it: the last key, advanced by a stride, so that the files lie side by side and collide
//! only once they have gone around the region. The stride is a guess at how long the file will get, from how
//! long others of its tenant are: the Stride Table.

use std::collections::BTreeMap;

use crate::error::Error;
use crate::tag::KEY_MAX;

/// Lengths, in chunks, are counted by powers of two.
const SIZES: usize = 48;

/// How many files of a tenant have which length.
///
/// Source: "First Responder", 5.2.3: the stride is the next larger size after that with most files.
#[derive(Debug, Clone)]
pub(crate) struct StrideTable {
    /// Files of at most `2^i` chunks, and more than half of that.
    files: [u64; SIZES],
}

impl Default for StrideTable {
    fn default() -> Self {
        StrideTable { files: [0; SIZES] }
    }
}

fn size_of_table(chunks: u64) -> usize {
    (chunks.max(1).next_power_of_two().trailing_zeros() as usize).min(SIZES - 1)
}

impl StrideTable {
    /// A file has another length than before, or is new, or gone.
    pub(crate) fn update(&mut self, before: Option<u64>, now: Option<u64>) {
        let (before, now) = (before.map(size_of_table), now.map(size_of_table));
        if before != now {
            if let Some(size) = before {
                self.files[size] = self.files[size].saturating_sub(1);
            }
            if let Some(size) = now {
                self.files[size] += 1;
            }
        }
    }

    /// In chunks; of sizes with as many files, the larger counts.
    fn stride(&self) -> u64 {
        let most = (0..SIZES).max_by_key(|&size| self.files[size]).filter(|&size| self.files[size] > 0);
        most.map_or(1, |size| 2 << size)
    }
}

/// Gives out keys.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    next: u64,
    tables: BTreeMap<u32, StrideTable>,
}

impl Keys {
    /// Notes that a key is in use.
    pub(crate) fn skip(&mut self, key: u64, stride: u64) {
        self.next = self.next.max(key.saturating_add(stride.max(1)));
    }

    /// A key for a file of `chunks`, of a tenant, in a region with `slots`.
    ///
    /// A stride of a multiple of the slots would put all files into one place: it is at most a quarter of
    /// them.
    pub(crate) fn give(&mut self, tenant: u32, chunks: u64, slots: u64) -> Result<u64, Error> {
        let table = self.tables.entry(tenant).or_default();
        let stride = table.stride().max(chunks).min(slots / 4).max(1);
        table.update(None, Some(chunks));
        let key = self.next;
        let next = key.checked_add(stride).filter(|&next| next <= KEY_MAX);
        self.next = next.ok_or(Error::KeysExhausted)?;
        Ok(key)
    }

    /// A file of a tenant has another length, or is gone.
    pub(crate) fn resized(&mut self, tenant: u32, before: u64, now: Option<u64>) {
        self.tables.entry(tenant).or_default().update(Some(before), now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stride_is_the_size_after_that_with_most_files() {
        let mut table = StrideTable::default();
        assert_eq!(table.stride(), 1, "nothing is known");
        for chunks in [3, 4, 100, 1] {
            table.update(None, Some(chunks));
        }
        assert_eq!(table.stride(), 8, "two files of three and four chunks: the size is 4");
        table.update(Some(3), Some(70));
        assert_eq!(table.stride(), 256, "two files of 65 to 128 chunks");
        table.update(Some(70), None);
        table.update(Some(100), None);
        assert_eq!(table.stride(), 8);
        table.update(None, Some(u64::MAX / 2));
    }

    #[test]
    fn files_lie_side_by_side_and_tenants_have_their_own_table() {
        let mut keys = Keys::default();
        assert_eq!(keys.give(1, 0, 1000).unwrap(), 0);
        assert_eq!(keys.give(1, 0, 1000).unwrap(), 1, "the first file's stride was a guess without files");
        assert_eq!(keys.give(1, 9, 1000).unwrap(), 3);
        assert_eq!(keys.give(2, 0, 1000).unwrap(), 12, "a file that is there needs what it has");
        assert_eq!(keys.give(2, 5000, 1000).unwrap(), 13);
        assert_eq!(keys.give(2, 0, 1000).unwrap(), 13 + 250, "at most a quarter of the slots");
    }

    #[test]
    fn there_are_so_many_keys() {
        let mut keys = Keys::default();
        keys.skip(KEY_MAX - 2, 1);
        assert_eq!(keys.give(0, 0, 1000).unwrap(), KEY_MAX - 1);
        assert!(matches!(keys.give(0, 0, 1000), Err(Error::KeysExhausted)));
    }
}
