//! Names that are removed, and files that go with their last one.
//!
//! A file that loses its last name may still be open. Its inode is then on the list of those without a name,
//! until [`FileSystem::reap`] says that nothing uses it. After a crash nothing does; replay, too, erases at
//! once.

use std::ops::{Bound, ControlFlow};

use fastness_store::Itx;
use fastness_store::record::{Record, Remove, Time};

use crate::edit::{Edit, Found};
use crate::error::{FsError, Result};
use crate::file_system::FileSystem;
use crate::ino::Ino;
use crate::inode::mode;
use crate::names;
use crate::tables::{ORPHANS, ino_of};

/// What becomes of a file without a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It may be in use.
    Stays,
    /// Nothing uses it.
    Goes,
}

/// Takes a name away from a file; it goes, or stays without one, if that was its last. A directory must be
/// empty. The entry itself is the caller's.
pub(crate) fn drop_name(edit: &mut Edit<'_>, ino: Ino, now: Time, fate: Fate) -> Result<bool> {
    let mut inode = edit.inode(ino)?;
    if inode.is_directory() {
        if inode.entries > 0 {
            return Err(FsError::NotEmpty);
        }
        inode.links = 0;
    } else {
        inode.links = inode.links.saturating_sub(1);
    }
    inode.ctime = now;
    edit.set_inode(ino, inode);
    edit.frees();
    let is_last = inode.links == 0;
    match fate {
        Fate::Goes if is_last => edit.erase(ino)?,
        Fate::Stays if is_last => edit.put(ORPHANS, ino.key(), Some(Vec::new())),
        _ => {}
    }
    Ok(is_last)
}

/// Removes a name from a directory; returns the file, and whether that was its last name.
pub(crate) fn remove(
    edit: &mut Edit<'_>,
    directory: Ino,
    name: &[u8],
    is_directory: bool,
    now: Time,
    fate: Fate,
) -> Result<(Ino, bool)> {
    edit.directory(directory)?;
    let Found { cookie, ino, file_type } = edit.must_find(directory, name)?;
    match (is_directory, file_type == mode::DIRECTORY) {
        (true, false) => return Err(FsError::NotADirectory),
        (false, true) => return Err(FsError::IsADirectory),
        _ => {}
    }
    let is_last = drop_name(edit, ino, now, fate)?;
    edit.remove(directory, cookie)?;
    edit.change(directory, now, |parent| {
        parent.mtime = now;
        parent.links -= u32::from(is_directory);
    })?;
    Ok((ino, is_last))
}

impl FileSystem {
    /// Removes a name of what is no directory. Returns the file if that was its last name: it stays until
    /// [`reap`](Self::reap).
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::IsADirectory`], [`FsError::NotADirectory`].
    pub fn unlink(&self, directory: Ino, name: &[u8]) -> Result<Option<Ino>> {
        self.remove_name(directory, name, false)
    }

    /// Removes an empty directory; it stays without a name until [`reap`](Self::reap).
    ///
    /// # Errors
    /// [`FsError::NotEmpty`]; as [`unlink`](Self::unlink).
    pub fn remove_directory(&self, directory: Ino, name: &[u8]) -> Result<Option<Ino>> {
        self.remove_name(directory, name, true)
    }

    fn remove_name(&self, directory: Ino, name: &[u8], is_directory: bool) -> Result<Option<Ino>> {
        names::check(name)?;
        loop {
            let found = self.edit().must_find(directory, name)?;
            let _guard = self.locks.all(&[directory, found.ino]);
            let mut edit = self.edit();
            if edit.must_find(directory, name)?.ino != found.ino {
                continue;
            }
            let (ino, is_last) = remove(&mut edit, directory, name, is_directory, self.now(), Fate::Stays)?;
            let record = Record::Remove(Remove { is_directory, name });
            let itx = Itx::sync(directory.object(), &record, &[ino.object()]);
            self.carry_out(&edit, |records| {
                records.assign(itx);
                // Not before: a commit in between would cover neither its records nor its end.
                if is_last {
                    records.forget(ino.object());
                }
            })?;
            return Ok(is_last.then_some(ino));
        }
    }

    /// Erases a file that has no name, when nothing uses it any more. Does nothing if it has one, or is gone.
    ///
    /// # Errors
    /// Those of changing the tables.
    pub fn reap(&self, ino: Ino) -> Result<()> {
        self.reap_unless(ino, || false)
    }

    /// The same, unless something has begun to use it: `is_used` is asked when nothing else can remove it.
    ///
    /// # Errors
    /// As [`reap`](Self::reap).
    pub fn reap_unless(&self, ino: Ino, is_used: impl Fn() -> bool) -> Result<()> {
        let _guard = self.locks.one(ino);
        if is_used() {
            return Ok(());
        }
        let mut edit = self.edit();
        match edit.inode(ino) {
            Ok(inode) if inode.links == 0 => {}
            Ok(_) | Err(FsError::Stale(_)) => return Ok(()),
            Err(error) => return Err(error),
        }
        edit.erase(ino)?;
        self.open.keep_bytes(ino.object());
        self.carry_out(&edit, |_| ())?;
        self.late.forget(ino);
        self.objects.remove(&ino);
        Ok(())
    }

    /// Erases all files without a name except those in use: what was open at a crash. Returns how many.
    ///
    /// # Errors
    /// Those of reading and changing the tables.
    pub fn reap_all(&self, is_used: impl Fn(Ino) -> bool) -> Result<u64> {
        let mut unused = Vec::new();
        self.tables.table(ORPHANS).scan((Bound::Unbounded, Bound::Unbounded), |key, _| {
            unused.extend(ino_of(key).filter(|ino| !is_used(*ino)));
            ControlFlow::Continue(())
        })?;
        unused.iter().try_for_each(|ino| self.reap(*ino))?;
        Ok(unused.len() as u64)
    }
}
