//! Making files durable, and what the file system says of its space.

use fastness_store::record::attribute;
use fastness_store::{Operation, PoolError, Txg};

use crate::attributes::attributes_itx;
use crate::error::{FsError, Result};
use crate::file_system::FileSystem;
use crate::ino::Ino;
use crate::inode::Inode;
use crate::late::Known;

/// After this many seconds a read changes the time of access, whatever the others are.
const ACCESS_SECONDS: i64 = 24 * 60 * 60;
const TIMES: u32 = attribute::ATIME | attribute::MTIME | attribute::EXTRA;

/// Space, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// What the file system has and could have.
    pub total_bytes: u64,
    /// What it could still have.
    pub free_bytes: u64,
}

impl FileSystem {
    /// Makes a file durable, with all changes of names that came before; `is_data_alone`: without times that
    /// only writes have changed. Does nothing while `sync=disabled`.
    ///
    /// Persistence: on return, in the log or through the txg.
    ///
    /// # Errors
    /// Those of a commit; nothing is then known to be durable.
    pub fn sync_file(&self, ino: Ino, is_data_alone: bool) -> Result<()> {
        self.count(Operation::Flush, 0, || {
            if !is_data_alone {
                self.log_times(ino)?;
            }
            Ok(self.open.commit(Some(ino.object()))?)
        })
    }

    /// Makes all files durable.
    ///
    /// # Errors
    /// As [`sync_file`](Self::sync_file).
    pub fn sync_all(&self) -> Result<()> {
        for ino in self.late.unlogged() {
            self.log_times(ino)?;
        }
        Ok(self.open.commit(None)?)
    }

    /// Stores and logs the times of a file that writes have changed.
    fn log_times(&self, ino: Ino) -> Result<()> {
        let is_logged = |known: &Known| known.logged == Some(known.times) || !known.has_name;
        if self.late.get(ino).is_none_or(|known| is_logged(&known)) {
            return Ok(());
        }
        let _guard = self.locks.one(ino);
        let Some(known) = self.late.get(ino).filter(|known| !is_logged(known)) else { return Ok(()) };
        let mut edit = self.edit();
        let inode = match edit.inode(ino) {
            Err(FsError::Stale(_)) => return Ok(()),
            inode => inode?,
        };
        if known.is_late {
            edit.set_inode(ino, inode);
        }
        // A full pool is no reason not to make durable what it has taken.
        edit.frees();
        self.carry_out(&edit, |records| records.assign(attributes_itx(ino, &inode, TIMES)))?;
        self.late.logged(ino);
        Ok(())
    }

    /// A file is not written any more: its times are stored.
    ///
    /// # Errors
    /// Those of changing the tables.
    pub fn settle(&self, ino: Ino) -> Result<()> {
        if self.late.get(ino).is_none_or(|known| !known.is_late) {
            return Ok(());
        }
        let _guard = self.locks.one(ino);
        let mut edit = self.edit();
        edit.frees();
        match edit.inode(ino) {
            Ok(inode) => edit.set_inode(ino, inode),
            Err(FsError::Stale(_)) => return Ok(()),
            Err(error) => return Err(error),
        }
        self.carry_out(&edit, |_| ())
    }

    /// The same for all files.
    ///
    /// # Errors
    /// Those of changing the tables.
    pub fn settle_all(&self) -> Result<()> {
        self.late.unlogged().into_iter().try_for_each(|ino| self.settle(ino))
    }

    /// A file was read: its time of access changes if it is older than its others, or than a day. Does
    /// nothing if the file system is read-only.
    ///
    /// # Errors
    /// Those of reading the tables.
    pub fn touch(&self, ino: Ino) -> Result<()> {
        if self.dataset().is_read_only() {
            return Ok(());
        }
        let now = self.now();
        let is_old = |inode: &Inode| {
            inode.atime <= inode.mtime
                || inode.atime <= inode.ctime
                || now.seconds.saturating_sub(inode.atime.seconds) >= ACCESS_SECONDS
        };
        if !is_old(&self.inode(ino)?) {
            return Ok(());
        }
        let _guard = self.locks.one(ino);
        let mut inode = self.inode(ino)?;
        if is_old(&inode) {
            inode.atime = now;
            let known = self.late.get(ino);
            let stored = known.map_or(Txg(0), |known| known.stored);
            let logged = known.and_then(|known| known.logged);
            self.late.set(ino, Known { is_late: true, logged, ..Known::of(&inode, stored) });
        }
        Ok(())
    }

    /// Its space. What reservations of others keep, and what quotas do not allow, it could not have. A
    /// snapshot has what it shows, and no room.
    pub fn space(&self) -> Space {
        if self.dataset().snapshot_of().is_some() {
            return Space { total_bytes: self.dataset().shown_bytes().unwrap_or(0), free_bytes: 0 };
        }
        let (free_bytes, _) = self.dataset().available_bytes();
        let total_bytes = self.dataset().referenced_bytes().saturating_add(free_bytes);
        Space { total_bytes, free_bytes }
    }

    /// Refuses what does not fit, once what txgs free is there. The caller holds no transaction.
    pub(crate) fn check_room(&self, wanted_bytes: u64) -> Result<()> {
        let has_room = || match self.dataset().available_bytes() {
            (free_bytes, is_quota) if free_bytes < wanted_bytes => {
                Err(PoolError::NoSpace { wanted_bytes, free_bytes, is_quota })
            }
            _ => Ok(()),
        };
        match has_room() {
            Ok(()) => Ok(()),
            // Begins a transaction for each attempt, and makes no change.
            Err(_) => Ok(self.open.transact(|_| has_room(), |_, ()| ())?),
        }
    }
}
