//! Looking names up, and listing them.

use std::ops::{Bound, ControlFlow};

use crate::attributes::Attributes;
use crate::error::{FsError, Result};
use crate::file_system::FileSystem;
use crate::ino::Ino;
use crate::inode::mode;
use crate::names::{self, Entry};
use crate::tables::TARGETS;

/// Cookie of `.`.
const SELF_COOKIE: u64 = 1;
/// Cookie of `..`.
const PARENT_COOKIE: u64 = 2;

/// A name in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed<'a> {
    /// The name; `.` and `..` come first.
    pub name: &'a [u8],
    /// Of which file.
    pub ino: Ino,
    /// Its type, as bits of a mode.
    pub file_type: u32,
    /// A listing that goes on after this cookie goes on after this name, whatever has changed.
    pub cookie: u64,
}

impl FileSystem {
    /// Attributes of the file with a name. `.` and `..` are names, too.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::NotADirectory`], [`FsError::NameTooLong`].
    pub fn lookup(&self, directory: Ino, name: &[u8]) -> Result<Attributes> {
        let ino = match name {
            b"." => directory,
            b".." => self.edit().directory(directory)?.parent,
            _ => self.find(directory, name)?,
        };
        match self.attributes(ino) {
            // Between the two, its last name was removed.
            Err(FsError::Stale(_)) => Err(FsError::NotFound),
            found => found,
        }
    }

    /// The number of the file with a name, other than `.` and `..`.
    ///
    /// # Errors
    /// As [`lookup`](Self::lookup).
    pub fn find(&self, directory: Ino, name: &[u8]) -> Result<Ino> {
        names::check(name)?;
        let edit = self.edit();
        match edit.find(directory, name)? {
            Some(found) => Ok(found.ino),
            None => {
                edit.directory(directory)?;
                Err(FsError::NotFound)
            }
        }
    }

    /// Shows the names of a directory that come after a cookie (0: all), until `show` breaks. `.` and `..`
    /// come first, the others in an order that stays the same.
    ///
    /// Concurrency: a name that is there throughout is shown once; one that comes or goes meanwhile, once or
    /// not at all. No lock is held while `show` runs.
    ///
    /// # Errors
    /// [`FsError::NotADirectory`]; those of reading the tables: some names may have been shown.
    pub fn list(
        &self,
        directory: Ino,
        after: u64,
        mut show: impl FnMut(Listed<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let inode = self.inode(directory)?;
        if !inode.is_directory() {
            return Err(FsError::NotADirectory);
        }
        let special: [(u64, &[u8], Ino); 2] =
            [(SELF_COOKIE, b".", directory), (PARENT_COOKIE, b"..", inode.parent)];
        for (cookie, name, ino) in special {
            if after < cookie && show(Listed { name, ino, file_type: mode::DIRECTORY, cookie }).is_break() {
                return Ok(());
            }
        }
        let (from, to) = (names::key(directory, after), names::key(directory, u64::MAX));
        let mut damaged = None;
        self.tables.entries.scan((Bound::Excluded(&from), Bound::Included(&to)), |key, row| {
            let cookie = key.get(8..).and_then(|key| key.first_chunk()).map(|key| u64::from_be_bytes(*key));
            match (cookie, Entry::decode(directory, row)) {
                (Some(cookie), Ok(Some(Entry { file_type, ino, name }))) => {
                    show(Listed { name, ino, file_type, cookie })
                }
                (Some(_), Ok(None)) => ControlFlow::Continue(()),
                (_, decoded) => {
                    damaged = decoded.err();
                    ControlFlow::Break(())
                }
            }
        })?;
        damaged.map_or(Ok(()), Err)
    }

    /// The target of a symlink.
    ///
    /// # Errors
    /// [`FsError::Invalid`]: it is none.
    pub fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        if self.inode(ino)?.file_type() != mode::SYMLINK {
            return Err(FsError::Invalid("it is no symlink"));
        }
        let target = self.tables.look(&self.tables.table(TARGETS), &ino.key(), |row| Ok(row.to_vec()))?;
        target.ok_or(FsError::Damaged { ino, what: "the symlink has no target" })
    }
}
