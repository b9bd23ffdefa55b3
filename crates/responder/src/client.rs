//! A process that uses files of a cache directly, which another one serves.

use std::io;
use std::sync::Arc;

use fastness_pmem::SharedWords;
use fastness_sync::atomic::Ordering;

use crate::backing::{BackingFile, FileId, Stat, check_longest};
use crate::board::{Board, SharedFile};
use crate::chunks::ChunkStore;
use crate::error::Error;
use crate::file::File;
use crate::geometry::TAGS_OFFSET;
use crate::kind::ProtocolKind;
use crate::lease::Lease;
use crate::length::HeldLength;
use crate::medium::CacheMedium;
use crate::options::Options;
use crate::protocol::Protocol;
use crate::superblock::Superblock;

/// The cache in a process that has leases.
///
/// Persistence: as [`Cache`](crate::Cache). If the process ends inside a call, the one that serves undoes
/// what was not complete ([`Cache::reap`](crate::Cache::reap)).
/// Concurrency: any number of threads; none of them ends, or forks, inside a call.
#[derive(Debug)]
pub struct Client<M> {
    store: ChunkStore<M>,
    board: Arc<Board>,
}

/// A file that a process has a lease of.
#[derive(Debug)]
pub struct LeasedFile {
    file: File,
    generation: u32,
}

impl LeasedFile {
    /// Which file it is.
    pub fn id(&self) -> FileId {
        self.file.id
    }
}

/// Where a write goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// To this offset.
    At(u64),
    /// To the end of the file, wherever that is.
    End,
}

/// What a write has done.
#[derive(Debug)]
pub struct Written {
    /// Where.
    pub offset: u64,
    /// How much of it is durable.
    pub len: usize,
    /// Why it is not all.
    pub stopped: Option<Denied>,
}

/// Why a process cannot do something by itself.
#[derive(Debug, thiserror::Error)]
pub enum Denied {
    /// The lease has ended.
    #[error("the lease has ended")]
    Ended,
    /// A slot has no room: [`Cache::make_room`](crate::Cache::make_room).
    #[error("a slot has no room")]
    NoRoom,
    /// It failed.
    #[error(transparent)]
    Failed(Error),
}

impl From<Error> for Denied {
    fn from(error: Error) -> Denied {
        match error {
            Error::NoRoom => Denied::NoRoom,
            error => Denied::Failed(error),
        }
    }
}

/// The file of the directory, to read what is not in PM. It may have been opened for reading alone.
#[derive(Debug)]
struct ReadOnly(Arc<std::fs::File>);

fn refused<T>() -> io::Result<T> {
    Err(io::ErrorKind::PermissionDenied.into())
}

impl BackingFile for ReadOnly {
    fn stat(&self) -> io::Result<Stat> {
        self.0.metadata().map(|metadata| Stat::from(&metadata))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            // Not the C library's: a thread that is cancelled must not end in it, with locks.
            match rustix::io::pread(&*self.0, &mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(done)
    }

    fn check_size(&self, size: u64) -> io::Result<()> {
        check_longest(&self.0, size)
    }

    fn write_some(&self, _: u64, _: &[u8]) -> io::Result<usize> {
        refused()
    }

    fn truncate(&self, _: u64) -> io::Result<()> {
        refused()
    }

    fn set_modified(&self, _: u64) -> io::Result<()> {
        refused()
    }

    fn sync(&self) -> io::Result<()> {
        refused()
    }
}

impl<M: CacheMedium> Client<M> {
    /// Joins the cache of `region`, with the memory that its processes share. `me` is the number that the
    /// process that serves has given to this one; `is_served` says whether that one still runs.
    ///
    /// # Errors
    /// [`Error`]: the region holds no such cache.
    pub fn join(
        region: M,
        shared: SharedWords,
        me: u32,
        is_served: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Result<Client<M>, Error> {
        let Superblock { protocol, geometry, cache, .. } = Superblock::read(&region)?;
        if geometry.region_bytes > region.len_bytes() as u64 || protocol != ProtocolKind::Fr {
            return Err(Error::Geometry("the cache is not one that processes can share"));
        }
        let counts = (geometry.groups(), geometry.slots as usize);
        let board = Arc::new(Board::join(shared, counts, me, Box::new(is_served))?);
        let (_, rest) = region.divide(TAGS_OFFSET);
        let clock = Options::new().clock;
        Ok(Client {
            store: ChunkStore::new(protocol, (geometry, cache), rest, None, clock, Some(board.clone())),
            board,
        })
    }

    /// A file that this process has a lease of; `backing` is the file of the directory. `None`: there is no
    /// such place.
    pub fn file(&self, lease: &Lease, backing: Arc<std::fs::File>) -> Option<LeasedFile> {
        let shared = SharedFile::new(self.board.clone(), lease.slot as usize)?;
        let backing = Arc::new(ReadOnly(backing));
        let file = File::new(lease.file, lease.key, 0, backing, (0, 0), Some(shared));
        Some(LeasedFile { file, generation: lease.generation })
    }

    /// Whether a lease counts now: whatever was written to its file before the call is durable. Takes no
    /// lock.
    pub fn has_lease(&self, slot: u32, generation: u32) -> bool {
        self.board.check_served().is_ok() && self.board.is_usable(slot as usize, generation)
    }

    fn hold<'a>(&self, leased: &'a LeasedFile) -> Result<HeldLength<'a>, Denied> {
        self.board.check_served()?;
        let length = leased.file.size.hold()?;
        match leased.file.size.shared().is_some_and(|shared| shared.is_usable(leased.generation)) {
            true => Ok(length),
            false => Err(Denied::Ended),
        }
    }

    /// Writes `data`; as [`Cache::write`](crate::Cache::write) and [`append`](crate::Cache::append).
    ///
    /// Persistence: what it says was written is durable on return.
    pub fn write(&self, leased: &LeasedFile, position: Position, data: &[u8]) -> Written {
        let mut done = 0;
        let mut length = match self.hold(leased) {
            Ok(length) => length,
            Err(denied) => return Written { offset: 0, len: 0, stopped: Some(denied) },
        };
        let offset = match position {
            Position::At(offset) => offset,
            Position::End => *length,
        };
        let mut stopped = None;
        if offset.checked_add(data.len() as u64).is_none_or(|end| end > i64::MAX as u64) {
            stopped = Some(Denied::Ended);
        } else if leased.file.check_fits(*length, offset + data.len() as u64).is_err() {
            // The mount says why.
            stopped = Some(Denied::Ended);
        }
        while done < data.len() && stopped.is_none() {
            match self.store.write(&leased.file, offset + done as u64, &data[done..], *length) {
                Ok(more) => {
                    done += more;
                    *length = (*length).max(offset + done as u64);
                }
                Err(error) => stopped = Some(error.into()),
            }
        }
        if let Some(shared) = leased.file.size.shared() {
            shared.count_write(done);
        }
        Written { offset, len: done, stopped }
    }

    /// Reads from `offset` on, up to the end of the file; returns how many bytes.
    ///
    /// # Errors
    /// [`Denied`]; what is in `buffer` then counts for nothing.
    pub fn read(&self, leased: &LeasedFile, offset: u64, buffer: &mut [u8]) -> Result<usize, Denied> {
        let length = self.hold(leased)?;
        let len = buffer.len().min(usize::try_from(length.saturating_sub(offset)).unwrap_or(usize::MAX));
        if len > 0 {
            self.store.read(&leased.file, offset, &mut buffer[..len])?;
        }
        if let Some(shared) = leased.file.size.shared() {
            shared.count_read(len);
        }
        Ok(len)
    }

    /// Length in bytes, and time of the last write in ns since 1970.
    ///
    /// # Errors
    /// [`Denied`].
    pub fn current(&self, leased: &LeasedFile) -> Result<(u64, u64), Denied> {
        let length = self.hold(leased)?;
        Ok((*length, leased.file.modified_ns().load(Ordering::Relaxed)))
    }
}
