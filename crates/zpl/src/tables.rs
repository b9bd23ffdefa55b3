//! The tables of a file system.
//!
//! | table | key | value |
//! |---|---|---|
//! | 1 | `super` | version (1), seed of the names' hashes (8) |
//! | 2 | inode | [`Inode`] |
//! | 3 | directory, cookie | [`Entry`](crate::names::Entry) |
//! | 4 | inode | empty: it has no name and goes when nothing uses it any more |
//! | 128 | inode, name | value of an extended attribute |
//! | 129 | inode | target of a symlink |
//!
//! Numbers in keys are big endian, so that they sort. Rows of inodes and entries that were read or changed
//! are kept in memory ([`Kept`]).

use std::cell::RefCell;
use std::ops::{Bound, ControlFlow};

use fastness_store::{Dataset, Table, TableId};

use crate::error::{FsError, Result};
use crate::ino::Ino;
use crate::inode::Inode;
use crate::kept::{Kept, KeptRow};
use crate::names;

pub(crate) const SUPER: TableId = TableId(1);
pub(crate) const INODES: TableId = TableId(2);
pub(crate) const ENTRIES: TableId = TableId(3);
pub(crate) const ORPHANS: TableId = TableId(4);
pub(crate) const ATTRIBUTES: TableId = TableId(128);
pub(crate) const TARGETS: TableId = TableId(129);

const SUPER_KEY: &[u8] = b"super";
const VERSION: u8 = 1;

thread_local! {
    /// The value that a lookup has found.
    static VALUE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The tables of a file system, open.
#[derive(Debug)]
pub(crate) struct Tables {
    dataset: Dataset,
    pub(crate) inodes: Table,
    pub(crate) entries: Table,
    /// Seed of the names' hashes.
    pub(crate) seed: u64,
    kept: Kept,
}

/// The row of a new file system.
pub(crate) fn super_row(seed: u64) -> (TableId, Vec<u8>, Vec<u8>) {
    let mut value = vec![VERSION];
    value.extend_from_slice(&seed.to_le_bytes());
    (SUPER, SUPER_KEY.to_vec(), value)
}

impl Tables {
    /// Opens the tables of a dataset.
    ///
    /// # Errors
    /// [`FsError::NotAFileSystem`], [`FsError::OtherVersion`].
    pub(crate) fn open(dataset: &Dataset) -> Result<Tables> {
        let mut row = Vec::new();
        let name = || dataset.name();
        if !dataset.table(SUPER).get(SUPER_KEY, &mut row)? {
            return Err(FsError::NotAFileSystem { name: name() });
        }
        match row[..] {
            [VERSION, ref seed @ ..] if seed.len() == 8 => {
                let seed = u64::from_le_bytes(std::array::from_fn(|at| seed[at]));
                Ok(Tables::with_seed(dataset, seed))
            }
            [found, ..] if found > VERSION => {
                Err(FsError::OtherVersion { name: name(), found, known: VERSION })
            }
            _ => Err(FsError::Damaged { ino: Ino::ROOT, what: "the row of the file system is damaged" }),
        }
    }

    pub(crate) fn with_seed(dataset: &Dataset, seed: u64) -> Tables {
        let (inodes, entries) = (dataset.table(INODES), dataset.table(ENTRIES));
        Tables { dataset: dataset.clone(), inodes, entries, seed, kept: Kept::default() }
    }

    pub(crate) fn dataset(&self) -> &Dataset {
        &self.dataset
    }

    pub(crate) fn table(&self, id: TableId) -> Table {
        self.dataset.table(id)
    }

    /// Shows the value under a key, if there is one. `show` must not look anything up.
    pub(crate) fn look<T>(
        &self,
        table: &Table,
        key: &[u8],
        show: impl FnOnce(&[u8]) -> Result<T>,
    ) -> Result<Option<T>> {
        VALUE.with_borrow_mut(|value| match table.get(key, value)? {
            true => show(value).map(Some),
            false => Ok(None),
        })
    }

    /// An inode; `None` if there is none.
    pub(crate) fn inode(&self, ino: Ino) -> Result<Option<Inode>> {
        self.kept.inode(ino, || self.look(&self.inodes, &ino.key(), |row| Inode::decode(ino, row)))
    }

    /// The row of an entry.
    pub(crate) fn entry(&self, directory: Ino, cookie: u64) -> Result<KeptRow> {
        self.kept.entry(directory, cookie, || {
            let row = self.look(&self.entries, &names::key(directory, cookie), |row| {
                // What comes after it was not read.
                Ok(KeptRow::of(row, false))
            })?;
            Ok(row.unwrap_or_default())
        })
    }

    /// The row of an inode was changed, in the transaction that ends after this call; `None`: it was removed.
    /// The caller has locked the inode.
    pub(crate) fn changed_inode(&self, ino: Ino, inode: Option<&Inode>) {
        self.kept.changed_inode(ino, inode);
    }

    /// The row of an entry was changed; otherwise as [`changed_inode`](Self::changed_inode).
    /// `is_last`: none with the same hash comes after it.
    pub(crate) fn changed_entry(&self, key: &[u8], value: Option<&[u8]>, is_last: bool) {
        let (directory, cookie) = names::of_key(key);
        self.kept.changed_entry(directory, cookie, value, is_last);
    }

    /// Shows the rows whose keys begin with an inode's number: the rest of the key, and the value.
    pub(crate) fn of_inode(
        &self,
        table: TableId,
        ino: Ino,
        mut show: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        let (from, to) = (ino.key(), Ino(ino.0 + 1).key());
        let bounds = (Bound::Included(&from[..]), Bound::Excluded(&to[..]));
        Ok(self.table(table).scan(bounds, |key, value| show(&key[8..], value))?)
    }
}

/// The inode that a key begins with; the key has come from a medium.
pub(crate) fn ino_of(key: &[u8]) -> Option<Ino> {
    Some(Ino(u64::from_be_bytes(*key.first_chunk()?)))
}
