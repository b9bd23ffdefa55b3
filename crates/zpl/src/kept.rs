//! Rows that were read or changed, kept in memory: inodes, and entries of directories.
//!
//! Bounded: what is not used makes room, so files that were opened once and forgotten cost nothing.
//!
//! Coherence: whoever changes a row has the lock of its inode or directory, changes the tables first, and
//! then what is kept, before the lock is released. A reader has no lock. It announces that it is going to
//! read the tables, reads, and keeps what it found only if nothing was kept for the row meanwhile (the
//! *guard*): so an older row never takes the place of a newer one. A change that fails keeps nothing. Replay
//! changes rows by itself, one record after the other.

use std::sync::Arc;
use std::time::Duration;

use quick_cache::sync::{Cache, GuardResult};
use quick_cache::{DefaultHashBuilder, Weighter};

use crate::error::Result;
use crate::ino::Ino;
use crate::inode::Inode;
use crate::names::CHAIN_MAX;

/// Memory for inodes and for entries, in bytes: a million files, about.
const INODES_BYTES_MAX: u64 = 192 << 20;
const ENTRIES_BYTES_MAX: u64 = 128 << 20;
/// What the cache has for each row besides its key and value.
const OVERHEAD_BYTES: u64 = 40;
/// Rows that there is memory for from the beginning.
const EXPECTED: usize = 1024;
/// A reader does not wait for another one that reads the same row: it may read the tables as well.
const NEVER: Option<Duration> = Some(Duration::ZERO);
/// Longest row that needs no memory of its own: names of up to 28 bytes.
const SHORT_BYTES_MAX: usize = 37;

/// The row of an entry. `is_last`: none with the same hash comes after it; otherwise that is not known.
#[derive(Debug, Clone, Default)]
pub(crate) enum KeptRow {
    /// There is none, and so none after it.
    #[default]
    None,
    Short {
        len: u8,
        is_last: bool,
        bytes: [u8; SHORT_BYTES_MAX],
    },
    Long {
        is_last: bool,
        bytes: Arc<[u8]>,
    },
}

impl KeptRow {
    pub(crate) fn of(row: &[u8], is_last: bool) -> KeptRow {
        if row.len() > SHORT_BYTES_MAX {
            return KeptRow::Long { is_last, bytes: row.into() };
        }
        let mut bytes = [0; SHORT_BYTES_MAX];
        bytes[..row.len()].copy_from_slice(row);
        KeptRow::Short { len: row.len() as u8, is_last, bytes }
    }

    /// Whether it is known that no row with the same hash comes after it.
    pub(crate) fn is_last(&self) -> bool {
        match self {
            KeptRow::None => true,
            KeptRow::Short { is_last, .. } | KeptRow::Long { is_last, .. } => *is_last,
        }
    }

    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        match self {
            KeptRow::None => None,
            KeptRow::Short { len, bytes, .. } => Some(&bytes[..usize::from(*len)]),
            KeptRow::Long { bytes, .. } => Some(bytes),
        }
    }
}

type EntryKey = (Ino, u64);

#[derive(Debug, Clone)]
struct ByBytes;

impl Weighter<Ino, Inode> for ByBytes {
    fn weight(&self, _: &Ino, _: &Inode) -> u64 {
        (size_of::<Ino>() + size_of::<Inode>()) as u64 + OVERHEAD_BYTES
    }
}

impl Weighter<EntryKey, KeptRow> for ByBytes {
    fn weight(&self, _: &EntryKey, row: &KeptRow) -> u64 {
        let own_bytes = match row {
            KeptRow::Long { bytes, .. } => bytes.len() as u64 + OVERHEAD_BYTES,
            _ => 0,
        };
        (size_of::<EntryKey>() + size_of::<KeptRow>()) as u64 + OVERHEAD_BYTES + own_bytes
    }
}

/// What is kept of a file system.
#[derive(Debug)]
pub(crate) struct Kept {
    inodes: Cache<Ino, Inode, ByBytes, DefaultHashBuilder>,
    entries: Cache<EntryKey, KeptRow, ByBytes, DefaultHashBuilder>,
}

impl Default for Kept {
    fn default() -> Kept {
        Kept {
            inodes: Cache::with_weighter(EXPECTED, INODES_BYTES_MAX, ByBytes),
            entries: Cache::with_weighter(EXPECTED, ENTRIES_BYTES_MAX, ByBytes),
        }
    }
}

impl Kept {
    /// An inode; `read` reads it from the tables.
    pub(crate) fn inode(
        &self,
        ino: Ino,
        read: impl FnOnce() -> Result<Option<Inode>>,
    ) -> Result<Option<Inode>> {
        match self.inodes.get_value_or_guard(&ino, NEVER) {
            GuardResult::Value(inode) => Ok(Some(inode)),
            GuardResult::Guard(guard) => {
                let found = read()?;
                if let Some(inode) = found {
                    // Refused: it was changed meanwhile.
                    let _ = guard.insert(inode);
                }
                Ok(found)
            }
            GuardResult::Timeout => read(),
        }
    }

    /// The row of an entry; `read` reads it from the tables.
    pub(crate) fn entry(
        &self,
        directory: Ino,
        cookie: u64,
        read: impl FnOnce() -> Result<KeptRow>,
    ) -> Result<KeptRow> {
        match self.entries.get_value_or_guard(&(directory, cookie), NEVER) {
            GuardResult::Value(row) => Ok(row),
            GuardResult::Guard(guard) => {
                let found = read()?;
                let _ = guard.insert(found.clone());
                Ok(found)
            }
            GuardResult::Timeout => read(),
        }
    }

    /// An inode was changed, or is gone.
    pub(crate) fn changed_inode(&self, ino: Ino, inode: Option<&Inode>) {
        match inode {
            Some(inode) => self.inodes.insert(ino, *inode),
            None => drop(self.inodes.remove(&ino)),
        }
    }

    /// An entry was changed, or is gone; `is_last`: none with the same hash comes after it.
    pub(crate) fn changed_entry(&self, directory: Ino, cookie: u64, row: Option<&[u8]>, is_last: bool) {
        let kept = row.map_or(KeptRow::None, |row| KeptRow::of(row, is_last));
        self.entries.insert((directory, cookie), kept);
        if row.is_some() && !cookie.is_multiple_of(CHAIN_MAX) {
            // The one before it may have been the last.
            self.entries.remove(&(directory, cookie - 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::FsError;

    fn row(number: u64) -> KeptRow {
        KeptRow::of(&number.to_le_bytes(), false)
    }

    #[test]
    fn rows_of_all_lengths_come_back() {
        for len in 0..SHORT_BYTES_MAX + 3 {
            let bytes = vec![7; len];
            for is_last in [false, true] {
                let row = KeptRow::of(&bytes, is_last);
                assert_eq!((row.bytes(), row.is_last()), (Some(&bytes[..]), is_last));
            }
        }
        assert_eq!(KeptRow::default().bytes(), None);
    }

    #[test]
    fn what_was_read_before_a_change_is_not_kept_after_it() {
        let (kept, key) = (Kept::default(), (Ino(1), 256));
        let read = kept.entry(key.0, key.1, || {
            kept.changed_entry(key.0, key.1, Some(&2_u64.to_le_bytes()), true);
            Ok(row(1))
        });
        assert_eq!(read.unwrap().bytes(), row(1).bytes());
        let unread = || -> Result<KeptRow> { panic!("it is kept") };
        assert_eq!(kept.entry(key.0, key.1, unread).unwrap().bytes(), row(2).bytes());
    }

    #[test]
    fn a_row_is_not_the_last_once_another_comes_after_it() {
        let kept = Kept::default();
        kept.changed_entry(Ino(1), 256, Some(b"one"), true);
        kept.changed_entry(Ino(1), 257, Some(b"two"), true);
        let of = |cookie| kept.entry(Ino(1), cookie, || Ok(KeptRow::of(b"read", false))).unwrap();
        assert_eq!((of(256).is_last(), of(257).is_last()), (false, true));
        kept.changed_entry(Ino(1), 512, Some(b"of another chain"), true);
        assert!(of(257).is_last());
    }

    #[test]
    fn a_removal_during_a_read_leaves_nothing() {
        let kept = Kept::default();
        let inode = crate::inode::tests_inode();
        let read = kept.inode(Ino(5), || {
            kept.changed_inode(Ino(5), None);
            Ok(Some(inode))
        });
        assert_eq!(read.unwrap(), Some(inode));
        assert_eq!(kept.inode(Ino(5), || Ok(None)).unwrap(), None);
    }

    #[test]
    fn a_read_that_fails_keeps_nothing() {
        let kept = Kept::default();
        assert!(kept.entry(Ino(1), 256, || Err(FsError::NotFound)).is_err());
        assert_eq!(kept.entry(Ino(1), 256, || Ok(row(3))).unwrap().bytes(), row(3).bytes());
    }

    #[test]
    fn memory_is_bounded() {
        let kept = Kept { entries: Cache::with_weighter(64, 64 << 10, ByBytes), ..Kept::default() };
        for number in 0..100_000 {
            kept.changed_entry(Ino(1), number << 8, Some(&[1; 200]), true);
        }
        assert!(kept.entries.weight() <= 64 << 10);
        assert!(kept.entries.len() > 100);
    }
}
