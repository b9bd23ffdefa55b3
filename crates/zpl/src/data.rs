//! Bytes of files: reading and writing.
//!
//! A long write is made in parts, a transaction each, because a transaction holds its txg open. The object
//! with a file's bytes is created by the first write, with blocks as large as that write, up to the dataset's
//! `recordsize`: what is written in small pieces is mostly changed in small pieces later.
//!
//! The record of a write that must be durable on return goes to the log from within its transaction,
//! straight from the caller's bytes, when nothing is kept that a commit of the file would write before it;
//! otherwise it is kept, and a commit follows.

use fastness_store::record::{Record, TimedWrite, Truncate, attribute};
use fastness_store::{
    Dataset, Itx, Object, Operation, Origin, PoolError, PoolResult, Property, Records, SyncMode, Tx,
};

use crate::attributes::{FILE_BYTES_MAX, attributes_itx, clear_set_id};
use crate::error::{FsError, Result};
use crate::file_system::FileSystem;
use crate::ino::Ino;
use crate::inode::Inode;
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
    /// With `is_sync`: so are its times, as `O_SYNC` demands and `O_DSYNC` does not.
    pub keeps_times: bool,
    /// The bits that run a program as another user or group are cleared.
    pub clears_set_id: bool,
}

/// Block size for an object whose first bytes end at `end`.
pub(crate) fn block_bytes_for(dataset: &Dataset, end: u64) -> u32 {
    let max = dataset.get(Property::RecordSize).0 as u32;
    let wanted = u32::try_from(end).unwrap_or(u32::MAX).checked_next_power_of_two().unwrap_or(max);
    wanted.max(BLOCK_BYTES_MIN).min(max)
}

/// How a write is made, and its record.
#[derive(Debug, Clone, Copy)]
struct Logging<'a> {
    /// A commit follows at once.
    commits: bool,
    /// A record that waits for it has a copy of the bytes.
    is_copied: bool,
    /// The times are to be as durable as the bytes.
    keeps_times: bool,
    /// What the bytes were copied from.
    origin: Option<&'a Origin>,
}

impl Logging<'_> {
    fn new(commits: bool, len_bytes: usize, keeps_times: bool) -> Logging<'static> {
        let is_copied = commits && len_bytes <= COPIED_BYTES_MAX;
        Logging { commits, is_copied, keeps_times: commits && keeps_times, origin: None }
    }

    fn put(self, tx: &Tx, object: &Object, write: &TimedWrite<'_>) -> PoolResult<()> {
        match self.origin {
            Some(origin) => object.write_copy(tx, write.offset, write.data, origin),
            None => object.write(tx, write.offset, write.data),
        }
    }

    /// Logs a write that was made: at once, or with the next commit.
    fn log(self, records: &Records<'_>, ino: Ino, write: TimedWrite<'_>) -> Logged {
        let TimedWrite { offset, time, data } = write;
        let at_once = self.commits.then(|| records.write_at_once(ino.object(), offset, data, time));
        self.keep_unless(at_once.flatten(), records, ino, write)
    }

    /// Keeps the record of a write, unless the log was given it `at_once`.
    fn keep_unless(
        self,
        at_once: Option<bool>,
        records: &Records<'_>,
        ino: Ino,
        write: TimedWrite<'_>,
    ) -> Logged {
        if let Some(is_durable) = at_once {
            return Logged { is_durable, is_timed: true };
        }
        records.assign(match self.is_copied {
            true => Itx::unordered(ino.object(), &Record::TimedWrite(write)),
            false => Itx::need_copy(ino.object(), write.offset, write.data.len() as u64, false),
        });
        Logged { is_durable: false, is_timed: self.is_copied }
    }
}

/// What became of the record of a write.
#[derive(Debug, Clone, Copy, Default)]
struct Logged {
    /// A commit of the file has nothing left to do.
    is_durable: bool,
    /// The log has the time, or will have it with the next commit.
    is_timed: bool,
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

    /// Writes `data` at `offset`, and returns how much of it; the file grows if needed.
    ///
    /// Persistence: with `is_sync` or `sync=always` durable on return; otherwise with the next
    /// [`sync_file`](Self::sync_file), or with its txg.
    ///
    /// # Errors
    /// [`NoSpace`](PoolError::NoSpace): nothing is written (if others take the room during a write of more
    /// than 128 KiB, as much as was written before is returned, and no error); [`FsError::TooLarge`];
    /// [`FsError::IsADirectory`], [`FsError::Invalid`] for what is no file; those of a commit.
    pub fn write(&self, ino: Ino, offset: u64, data: &[u8], how: WriteHow) -> Result<usize> {
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
            if data.len() > TX_BYTES_MAX {
                // Before the first part is made.
                self.check_room(data.len() as u64)?;
            }
            let (mut done, mut is_durable) = (0, true);
            let logging = Logging::new(commits, data.len(), how.keeps_times);
            for part in data.chunks(TX_BYTES_MAX) {
                let _guard = self.locks.one(ino);
                match self.write_locked(ino, offset + done as u64, part, how, logging) {
                    Ok(is_logged) => is_durable &= is_logged,
                    // What was written is there, and a program is told how much that is.
                    Err(_) if done > 0 => break,
                    Err(error) => return Err(error),
                }
                done += part.len();
            }
            if commits && !is_durable {
                self.open.commit(Some(ino.object()))?;
            }
            Ok(done)
        })
    }

    /// Writes at the end of a file, and returns where that was. If a commit fails, the bytes are there all
    /// the same: it is no request for [`Attached::run`](fastness_store::Attached::run), which may try again.
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
        let logging = Logging::new(commits, data.len(), how.keeps_times);
        let is_durable = self.write_locked(ino, offset, data, how, logging)?;
        drop(guard);
        if commits && !is_durable {
            self.open.commit(Some(ino.object()))?;
        }
        Ok(offset)
    }

    /// Writes to a locked file, in one transaction; durable as a write that is not synchronous is.
    /// What was read from `origin` shares its blocks, where it can.
    pub(crate) fn write_kept(&self, ino: Ino, offset: u64, data: &[u8], origin: &Origin) -> Result<()> {
        let logging = Logging { origin: Some(origin), ..Logging::new(false, data.len(), false) };
        self.write_locked(ino, offset, data, WriteHow::default(), logging).map(drop)
    }

    /// Writes to a locked file, in one transaction. Returns whether a commit of the file has nothing left to
    /// do.
    fn write_locked(
        &self,
        ino: Ino,
        offset: u64,
        data: &[u8],
        how: WriteHow,
        logging: Logging<'_>,
    ) -> Result<bool> {
        let now = self.now();
        let write = TimedWrite { offset, time: now, data };
        let known = self.late.get(ino).filter(|known| !(how.clears_set_id && known.has_set_id));
        if let (Some(known), Some(object)) = (known, self.objects.get(&ino)) {
            let logged = self.write_known((ino, &object), known, write, logging)?;
            if logged.is_timed && logging.keeps_times {
                self.late.logged_write(ino, now);
            }
            return Ok(logged.is_durable);
        }
        let mut inode = self.file(ino)?;
        let mode = inode.mode;
        if how.clears_set_id {
            clear_set_id(&mut inode, false);
        }
        (inode.mtime, inode.ctime) = (now, now);
        let cleared = (inode.mode != mode).then(|| attributes_itx(ino, &inode, attribute::MODE));
        let block_bytes = self.block_bytes_for(offset + data.len() as u64);
        let put = |tx: &Tx, object: &Object| logging.put(tx, object, &write);
        let has_cleared = cleared.is_some();
        let mut logged = Logged::default();
        self.change_data(self.edit(), (ino, inode), block_bytes, put, |records| {
            // Before the bytes: no crash may leave what another user wrote with these bits.
            cleared.into_iter().for_each(|itx| records.assign(itx));
            logged = logging.log(&records, ino, write);
        })?;
        if logged.is_timed {
            self.late.logged_write(ino, now);
        }
        Ok(logged.is_durable && !has_cleared)
    }

    /// Writes to a file whose object is open, and whose inode this txg may have stored already. Unless it
    /// `keeps_times`, it is then not stored again.
    fn write_known(
        &self,
        (ino, object): (Ino, &Object),
        known: Known,
        write: TimedWrite<'_>,
        logging: Logging<'_>,
    ) -> Result<Logged> {
        let now = write.time;
        let times = Times { mtime: now, ctime: now, ..known.times };
        let (txg, logged) = self.open.transact_with(|tx, records| {
            let txg = tx.txg();
            if logging.keeps_times || txg != known.stored {
                self.store_times(tx, ino, times)?;
            }
            // What has no name is not logged.
            let records = records.filter(|_| known.has_name);
            let at_once = match &records {
                Some(records) if logging.commits => {
                    records.put_at_once(tx, object, write.offset, write.data, now)?
                }
                _ => logging.put(tx, object, &write).map(|()| None)?,
            };
            let keep = |records| logging.keep_unless(at_once, &records, ino, write);
            Ok((txg, records.map_or(Logged::default(), keep)))
        })?;
        let is_late = !logging.keeps_times && known.stored == txg;
        self.late.set(ino, Known { stored: txg, times, is_late, ..known });
        Ok(logged)
    }

    /// Stores an inode with these times.
    fn store_times(&self, tx: &Tx, ino: Ino, times: Times) -> PoolResult<()> {
        match self.tables.inode(ino) {
            Ok(Some(mut inode)) => {
                times.put(&mut inode);
                self.tables.inodes.put(tx, &ino.key(), &inode.encode())?;
                self.tables.changed_inode(ino, Some(&inode));
                Ok(())
            }
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
            itxs.push(Itx::sync(ino.object(), &Record::Truncate(cut), &[]));
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
                    itxs.push(Itx::need_copy(ino.object(), at, segment.len_bytes, true));
                }
                at += segment.len_bytes;
            }
        }
        Ok(())
    }
}
