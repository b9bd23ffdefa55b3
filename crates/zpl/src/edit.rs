//! What an operation changes, before it changes anything.
//!
//! An operation reads inodes and entries through its [`Edit`], and puts its changes there: what it reads
//! afterwards has them. Nothing is changed until [`Edit::apply`], which changes all rows in one step, or
//! none; so an operation that is refused half-way has done nothing. Operations in use and their replay make
//! the same edits.

use std::ops::ControlFlow;

use fastness_store::record::Time;
use fastness_store::{PoolResult, RowChange, TableId, Tx};

use crate::error::{FsError, Result};
use crate::ino::Ino;
use crate::inode::{Inode, is_no_object};
use crate::late::Late;
use crate::names::{self, CHAIN_MAX, Entry};
use crate::tables::{ATTRIBUTES, ENTRIES, INODES, ORPHANS, TARGETS, Tables, ino_of};

#[derive(Debug)]
struct Row {
    table: TableId,
    key: Vec<u8>,
    value: Option<Vec<u8>>,
    /// Of an entry: none with the same hash comes after it.
    is_last: bool,
}

/// An entry that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) cookie: u64,
    pub(crate) ino: Ino,
    /// As bits of a mode.
    pub(crate) file_type: u32,
}

/// Where a name that is not there would be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Free {
    /// The first cookie that it may have.
    first: u64,
    /// The one that it gets; `None`: too many names have its hash.
    place: Option<u64>,
    /// No row with the same hash comes after that.
    is_last: bool,
}

impl Free {
    /// Whether a name with this cookie has the same hash.
    pub(crate) fn is_beside(&self, cookie: u64) -> bool {
        (self.first..self.first + CHAIN_MAX).contains(&cookie)
    }
}

/// What a lookup of a name has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sought {
    Found(Found),
    Free(Free),
}

impl Sought {
    pub(crate) fn found(self) -> Option<Found> {
        match self {
            Sought::Found(found) => Some(found),
            Sought::Free(_) => None,
        }
    }
}

/// Changes of rows that belong together.
#[derive(Debug)]
pub(crate) struct Edit<'a> {
    tables: &'a Tables,
    /// Times that are newer than the rows; none in replay.
    late: Option<&'a Late>,
    inodes: Vec<(Ino, Inode)>,
    rows: Vec<Row>,
    /// Objects whose bytes are not needed any more.
    destroyed: Vec<Ino>,
    /// Whether it must succeed in a full pool, because it leads to space being freed.
    frees: bool,
}

impl<'a> Edit<'a> {
    pub(crate) fn new(tables: &'a Tables, late: Option<&'a Late>) -> Edit<'a> {
        Edit { tables, late, inodes: Vec::new(), rows: Vec::new(), destroyed: Vec::new(), frees: false }
    }

    pub(crate) fn tables(&self) -> &'a Tables {
        self.tables
    }

    /// It leads to space being freed: room that is kept from other changes may be used.
    pub(crate) fn frees(&mut self) {
        self.frees = true;
    }

    /// An inode, as this edit leaves it.
    ///
    /// # Errors
    /// [`FsError::Stale`]: there is none.
    pub(crate) fn inode(&self, ino: Ino) -> Result<Inode> {
        if let Some((_, inode)) = self.inodes.iter().find(|(of, _)| *of == ino) {
            return Ok(*inode);
        }
        let mut inode = self.tables.inode(ino)?.ok_or(FsError::Stale(ino))?;
        if let Some(late) = self.late {
            late.show(ino, &mut inode);
        }
        Ok(inode)
    }

    /// A directory that has a name.
    pub(crate) fn directory(&self, ino: Ino) -> Result<Inode> {
        let inode = self.inode(ino)?;
        match inode {
            Inode { links: 0, .. } => Err(FsError::NotFound),
            _ if !inode.is_directory() => Err(FsError::NotADirectory),
            _ => Ok(inode),
        }
    }

    /// Stores an inode.
    pub(crate) fn set_inode(&mut self, ino: Ino, inode: Inode) {
        match self.inodes.iter_mut().find(|(of, _)| *of == ino) {
            Some((_, known)) => *known = inode,
            None => self.inodes.push((ino, inode)),
        }
    }

    /// Changes an inode, and its time of change.
    pub(crate) fn change(&mut self, ino: Ino, now: Time, change: impl FnOnce(&mut Inode)) -> Result<()> {
        let mut inode = self.inode(ino)?;
        change(&mut inode);
        inode.ctime = now;
        self.set_inode(ino, inode);
        Ok(())
    }

    /// Stores a row, or removes it.
    pub(crate) fn put(&mut self, table: TableId, key: impl Into<Vec<u8>>, value: Option<Vec<u8>>) {
        self.rows.push(Row { table, key: key.into(), value, is_last: false });
    }

    /// The row of an entry, if this edit has changed it.
    fn put_entry(&self, key: &[u8]) -> Option<&Row> {
        self.rows.iter().rev().find(|row| row.table == ENTRIES && row.key == key)
    }

    fn entry<T>(
        &self,
        directory: Ino,
        cookie: u64,
        show: impl FnOnce(Option<Entry<'_>>) -> Result<T>,
    ) -> Result<Option<T>> {
        let show = |row: &[u8]| show(Entry::decode(directory, row)?);
        match self.put_entry(&names::key(directory, cookie)) {
            Some(row) => row.value.as_deref().map(show).transpose(),
            None => self.tables.entry(directory, cookie)?.bytes().map(show).transpose(),
        }
    }

    /// Looks a name up in a directory. The name has been checked.
    pub(crate) fn seek(&self, directory: Ino, name: &[u8]) -> Result<Sought> {
        let first = names::first_cookie(self.tables.seed, name);
        let mut hole = None;
        for cookie in first..first + CHAIN_MAX {
            let matches = |entry: Option<Entry<'_>>| {
                let found = |entry: &Entry<'_>| Found { cookie, ino: entry.ino, file_type: entry.file_type };
                Ok(entry.map(|entry| (entry.name == name).then(|| found(&entry))))
            };
            match self.entry(directory, cookie, matches)? {
                None => {
                    let place = hole.unwrap_or(cookie);
                    return Ok(Sought::Free(Free { first, place: Some(place), is_last: hole.is_none() }));
                }
                Some(Some(Some(found))) => return Ok(Sought::Found(found)),
                Some(Some(None)) => {}
                Some(None) => hole = hole.or(Some(cookie)),
            }
        }
        Ok(Sought::Free(Free { first, place: hole, is_last: false }))
    }

    /// Finds a name in a directory. The name has been checked.
    pub(crate) fn find(&self, directory: Ino, name: &[u8]) -> Result<Option<Found>> {
        Ok(self.seek(directory, name)?.found())
    }

    /// The same, if it must be there.
    pub(crate) fn must_find(&self, directory: Ino, name: &[u8]) -> Result<Found> {
        self.find(directory, name)?.ok_or(FsError::NotFound)
    }

    /// Where a name is to go that the directory must not have.
    ///
    /// # Errors
    /// [`FsError::Exists`].
    pub(crate) fn must_be_free(&self, directory: Ino, name: &[u8]) -> Result<Free> {
        match self.seek(directory, name)? {
            Sought::Found(_) => Err(FsError::Exists),
            Sought::Free(free) => Ok(free),
        }
    }

    /// Adds a name where it was not found; no name with its hash was added to the directory or removed since.
    pub(crate) fn add(&mut self, directory: Ino, free: Free, entry: &Entry<'_>) -> Result<()> {
        let cookie = free.place.ok_or(FsError::Collisions)?;
        let (key, value) = (names::key(directory, cookie).into(), Some(entry.encode()));
        self.rows.push(Row { table: ENTRIES, key, value, is_last: free.is_last });
        let mut inode = self.inode(directory)?;
        inode.entries += 1;
        self.set_inode(directory, inode);
        Ok(())
    }

    /// Stores an entry in the place of what is there.
    pub(crate) fn set_entry(&mut self, directory: Ino, cookie: u64, entry: &Entry<'_>) {
        self.put(ENTRIES, names::key(directory, cookie), Some(entry.encode()));
    }

    /// Removes an entry.
    pub(crate) fn remove(&mut self, directory: Ino, cookie: u64) -> Result<()> {
        let mut inode = self.inode(directory)?;
        inode.entries = inode.entries.saturating_sub(1);
        self.set_inode(directory, inode);
        if self.has_next(directory, cookie)? {
            self.put(ENTRIES, names::key(directory, cookie), Some(Vec::new()));
            return Ok(());
        }
        self.put(ENTRIES, names::key(directory, cookie), None);
        // Empty rows before it have nothing to hold together any more.
        for before in (cookie - cookie % CHAIN_MAX..cookie).rev() {
            if self.entry(directory, before, |entry| Ok(entry.is_some()))? != Some(false) {
                break;
            }
            self.put(ENTRIES, names::key(directory, before), None);
        }
        Ok(())
    }

    /// Whether there is a row after an entry, with the same hash.
    fn has_next(&self, directory: Ino, cookie: u64) -> Result<bool> {
        let next = cookie + 1;
        if next.is_multiple_of(CHAIN_MAX) {
            return Ok(false);
        }
        match self.put_entry(&names::key(directory, next)) {
            Some(row) => Ok(row.value.is_some()),
            None if self.tables.entry(directory, cookie)?.is_last() => Ok(false),
            None => Ok(self.tables.entry(directory, next)?.bytes().is_some()),
        }
    }

    /// Replay creates an inode. If it is there, without a name (it had none in a txg that has synced, and
    /// then got one), it is returned, and what belongs to it is removed, but for its object: the records
    /// after this one have all of it.
    ///
    /// # Errors
    /// [`FsError::Exists`]: it has a name.
    pub(crate) fn renew(&mut self, ino: Ino) -> Result<Option<Inode>> {
        match self.tables.inode(ino)? {
            None => Ok(None),
            Some(inode) if inode.links > 0 => Err(FsError::Exists),
            Some(inode) => {
                self.put(ORPHANS, ino.key(), None);
                self.remove_attributes(ino)?;
                Ok(Some(inode))
            }
        }
    }

    fn remove_attributes(&mut self, ino: Ino) -> Result<()> {
        let mut keys = Vec::new();
        self.tables.of_inode(ATTRIBUTES, ino, |name, _| {
            keys.push([&ino.key(), name].concat());
            ControlFlow::Continue(())
        })?;
        keys.into_iter().for_each(|key| self.put(ATTRIBUTES, key, None));
        Ok(())
    }

    /// Removes everything that there is of an inode.
    pub(crate) fn erase(&mut self, ino: Ino) -> Result<()> {
        let inode = self.inode(ino)?;
        self.frees = true;
        self.inodes.retain(|(of, _)| *of != ino);
        self.put(INODES, ino.key(), None);
        // What has no name is on the list of such files.
        let was_unnamed = self.tables.inode(ino)?.is_some_and(|stored| stored.links == 0);
        if was_unnamed || self.rows.iter().any(|row| row.table == ORPHANS) {
            self.put(ORPHANS, ino.key(), None);
        }
        if inode.file_type() == crate::inode::mode::SYMLINK {
            self.put(TARGETS, ino.key(), None);
        }
        if !inode.is_bare {
            self.remove_attributes(ino)?;
        }
        if inode.block_bytes > 0 {
            self.destroyed.push(ino);
        }
        Ok(())
    }

    /// Makes the changes. Nothing is changed if it fails.
    ///
    /// # Errors
    /// Those of changing rows and of destroying objects.
    pub(crate) fn apply(&self, tx: &Tx) -> PoolResult<()> {
        self.apply_after(tx, || Ok(()))
    }

    /// The same, after another change in the transaction: both, or neither.
    ///
    /// # Errors
    /// As [`apply`](Self::apply), and those of the other change.
    pub(crate) fn apply_after<T>(&self, tx: &Tx, first: impl FnOnce() -> PoolResult<T>) -> PoolResult<T> {
        let encoded: Vec<_> = self.inodes.iter().map(|(ino, inode)| (ino.key(), inode.encode())).collect();
        let inodes = encoded.iter().map(|(key, row)| RowChange { table: INODES, key, value: Some(row) });
        let rows = self.rows.iter().map(|row| RowChange {
            table: row.table,
            key: &row.key,
            value: row.value.as_deref(),
        });
        let changes: Vec<_> = inodes.chain(rows).collect();
        let dataset = self.tables.dataset();
        for ino in &self.destroyed {
            // First: an inode without its object can be erased again, an object without its inode cannot.
            match dataset.destroy_object(tx, ino.object()) {
                Err(error) if is_no_object(&error) => {}
                destroyed => destroyed?,
            }
        }
        let made = dataset.change_rows_after(tx, &changes, self.frees, first)?;
        self.inodes.iter().for_each(|(ino, inode)| self.tables.changed_inode(*ino, Some(inode)));
        for row in &self.rows {
            match (row.table, ino_of(&row.key)) {
                (ENTRIES, _) => self.tables.changed_entry(&row.key, row.value.as_deref(), row.is_last),
                (INODES, Some(ino)) => self.tables.changed_inode(ino, None),
                _ => {}
            }
        }
        Ok(made)
    }

    /// Inodes that it changes.
    pub(crate) fn changed(&self) -> impl Iterator<Item = &(Ino, Inode)> {
        self.inodes.iter()
    }
}

#[cfg(test)]
mod tests;
