//! Bytes of files: reading and writing.
//!
//! A long write is made in parts, a transaction each, because a transaction holds its txg open. The object
//! with a file's bytes is created by the first write, with blocks as large as that write, up to the dataset's
//! `recordsize`: what is written in small pieces is mostly changed in small pieces later.

use fastness_store::record::{Record, Truncate, Write, WriteData, attribute};
use fastness_store::{Dataset, Itx, Object, Operation, PoolError, PoolResult, Property, SyncMode, Tx};

use crate::attributes::{FILE_BYTES_MAX, attributes_itx, clear_set_id};
use crate::error::{FsError, Result};
use crate::file_system::FileSystem;
use crate::ino::Ino;
use crate::inode::{INODE_BYTES, Inode};
use crate::late::{Known, Times};

/// Smallest block of a file.
const BLOCK_BYTES_MIN: u32 = 4 << 10;
/// Bytes that one transaction writes.
const TX_BYTES_MAX: usize = 128 << 10;
/// Longest write whose bytes are copied into its record: a commit follows at once. Those of others are read
/// back, if a commit comes before their txg has synced.
const COPIED_BYTES_MAX: usize = 64 << 10;

/// Segments of a file that are looked at in one step.
const SEGMENTS_MAX: usize = 1024;

/// How a write is to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriteHow {
    /// Durable on return: the file was opened with `O_SYNC` or `O_DSYNC`.
    pub is_sync: bool,
    /// The bits that run a program as another user or group are cleared.
    pub clears_set_id: bool,
}

/// Block size for an object whose first bytes end at `end`.
pub(crate) fn block_bytes_for(dataset: &Dataset, end: u64) -> u32 {
    let max = dataset.get(Property::RecordSize).0 as u32;
    let wanted = u32::try_from(end).unwrap_or(u32::MAX).checked_next_power_of_two().unwrap_or(max);
    wanted.max(BLOCK_BYTES_MIN).min(max)
}

impl FileSystem {
    /// The same, in use.
    pub(crate) fn block_bytes_for(&self, end: u64) -> u32 {
        block_bytes_for(self.dataset(), end)
    }

    /// Fills `buffer` from `offset` on, and returns how many bytes there were.
    ///
    /// # Errors
    /// [`FsError::IsADirectory`]; [`DamagedBlock`](PoolError::DamagedBlock): wrong data is never returned.
    pub fn read(&self, ino: Ino, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.count(Operation::Read, buffer.len() as u64, || match self.object(ino)? {
            Some(object) => Ok(object.read(offset, buffer)?),
            None if self.inode(ino)?.is_directory() => Err(FsError::IsADirectory),
            None => Ok(0),
        })
    }

    /// Writes `data` at `offset`; the file grows if needed.
    ///
    /// Persistence: with `is_sync` or `sync=always` durable on return; otherwise with the next
    /// [`sync_file`](Self::sync_file), or with its txg.
    ///
    /// # Errors
    /// [`NoSpace`](PoolError::NoSpace): parts of a long write may be made; [`FsError::TooLarge`];
    /// [`FsError::IsADirectory`], [`FsError::Invalid`] for what is no file; those of a commit.
    pub fn write(&self, ino: Ino, offset: u64, data: &[u8], how: WriteHow) -> Result<()> {
        if offset.checked_add(data.len() as u64).is_none_or(|end| end > FILE_BYTES_MAX) {
            return Err(FsError::TooLarge);
        }
        let commits = match self.dataset().sync_mode() {
            SyncMode::Disabled => false,
            SyncMode::Always => true,
            SyncMode::Standard => how.is_sync,
        };
        let operation = if commits { Operation::SyncWrite } else { Operation::Write };
        self.count(operation, data.len() as u64, || {
            let mut at = offset;
            for part in data.chunks(TX_BYTES_MAX) {
                self.write_part(ino, at, part, how, commits && data.len() <= COPIED_BYTES_MAX)?;
                at += part.len() as u64;
            }
            if commits {
                self.open.commit(Some(ino.object()))?;
            }
            Ok(())
        })
    }

    /// Writes at the end of a file, and returns where that was.
    ///
    /// # Errors
    /// As [`write`](Self::write); if it does not fit into one transaction, [`FsError::Invalid`].
    pub fn append(&self, ino: Ino, data: &[u8], how: WriteHow) -> Result<u64> {
        if data.len() > TX_BYTES_MAX {
            return Err(FsError::Invalid("an append is made in one transaction"));
        }
        let guard = self.locks.one(ino);
        let offset = self.object(ino)?.map_or(0, |object| object.size_bytes());
        let commits = how.is_sync || self.dataset().sync_mode() == SyncMode::Always;
        self.write_locked(ino, offset, data, how, commits)?;
        drop(guard);
        if commits {
            self.open.commit(Some(ino.object()))?;
        }
        Ok(offset)
    }

    fn write_part(&self, ino: Ino, offset: u64, data: &[u8], how: WriteHow, is_copied: bool) -> Result<()> {
        let _guard = self.locks.one(ino);
        self.write_locked(ino, offset, data, how, is_copied)
    }

    fn write_locked(&self, ino: Ino, offset: u64, data: &[u8], how: WriteHow, is_copied: bool) -> Result<()> {
        let itx = || match is_copied {
            true => {
                let write = Write { offset, data: WriteData::Inline(data) };
                Itx::unordered(ino.logged(), &Record::Write(write))
            }
            false => Itx::need_copy(ino.logged(), offset, data.len() as u64, false),
        };
        let known = if how.clears_set_id { None } else { self.late.get(ino) };
        if let (Some(known), Some(object)) = (known, self.objects.get(&ino)) {
            return self.write_known(ino, &object, known, offset, data, itx);
        }
        let mut inode = self.file(ino)?;
        let mode = inode.mode;
        if how.clears_set_id {
            clear_set_id(&mut inode);
        }
        let now = self.now();
        (inode.mtime, inode.ctime) = (now, now);
        let cleared = (inode.mode != mode).then(|| attributes_itx(ino, &inode, attribute::MODE));
        let block_bytes = self.block_bytes_for(offset + data.len() as u64);
        let write = |tx: &Tx, object: &Object| object.write(tx, offset, data);
        // Before the bytes: a crash between the two must not leave what another user wrote with these bits.
        self.change_data(ino, inode, block_bytes, write, cleared.into_iter().chain([itx()]))
    }

    /// Writes to a file whose object is open, and whose inode this txg may have stored already.
    fn write_known(
        &self,
        ino: Ino,
        object: &Object,
        known: Known,
        offset: u64,
        data: &[u8],
        itx: impl FnOnce() -> Itx,
    ) -> Result<()> {
        let now = self.now();
        let times = Times { mtime: now, ctime: now, ..known.times };
        let write = |tx: &Tx| {
            let txg = tx.txg();
            if txg != known.stored {
                self.store_times(tx, ino, times)?;
            }
            object.write(tx, offset, data)?;
            Ok(txg)
        };
        let txg = self.open.transact(write, |records, _| {
            if known.has_name {
                records.assign(itx());
            }
        })?;
        let is_late = known.stored == txg;
        self.late.set(ino, Known { stored: txg, times, is_late, ..known });
        Ok(())
    }

    /// Stores an inode with these times.
    fn store_times(&self, tx: &Tx, ino: Ino, times: Times) -> PoolResult<()> {
        let mut row = [0; INODE_BYTES];
        let found = self.tables.look(&self.tables.inodes, &ino.key(), |stored| {
            let mut inode = Inode::decode(ino, stored)?;
            times.put(&mut inode);
            row = inode.encode();
            Ok(())
        });
        match found {
            Ok(Some(())) => self.tables.inodes.put(tx, &ino.key(), &row),
            Ok(None) => Err(PoolError::NoObject { dataset: self.dataset().id(), object: ino.object() }),
            Err(FsError::Pool(error)) => Err(error),
            Err(_) => Err(PoolError::invalid("row of an inode", ino)),
        }
    }

    /// The inode of a regular file.
    pub(crate) fn file(&self, ino: Ino) -> Result<Inode> {
        let inode = self.inode(ino)?;
        match inode {
            _ if inode.is_directory() => Err(FsError::IsADirectory),
            _ if !inode.is_file() => Err(FsError::Invalid("it is no regular file")),
            _ => Ok(inode),
        }
    }

    /// Records of all bytes that a file has, which keep their place: whoever finds its name finds them. They
    /// are read back.
    pub(crate) fn whole_data(&self, ino: Ino, object: &Object, itxs: &mut Vec<Itx>) -> Result<()> {
        let size_bytes = object.size_bytes();
        // First everything goes: a txg may have had bytes where there is a hole now.
        for offset in [0, size_bytes] {
            let cut = Truncate { offset, len_bytes: u64::MAX };
            itxs.push(Itx::sync(ino.logged(), &Record::Truncate(cut), &[]));
        }
        let (mut at, mut segments) = (0, Vec::new());
        while at < size_bytes {
            segments.clear();
            object.segments(at, size_bytes - at, SEGMENTS_MAX, &mut segments)?;
            if segments.is_empty() {
                break;
            }
            for segment in &segments {
                if !segment.is_hole {
                    itxs.push(Itx::need_copy(ino.logged(), at, segment.len_bytes, true));
                }
                at += segment.len_bytes;
            }
        }
        Ok(())
    }
}
