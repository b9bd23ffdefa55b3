//! Ranges of files: allocating, punching, zeroing, finding holes, copying.

use fastness_store::record::{Record, Truncate, Zeroes};
use fastness_store::{Itx, Object, PoolError, Tx};

use crate::attributes::FILE_BYTES_MAX;
use crate::data::WriteHow;
use crate::error::{FsError, Result};
use crate::file_system::FileSystem;
use crate::ino::Ino;

/// Bytes that a copy reads at once.
const COPY_BYTES: usize = 1 << 20;
/// Segments that a search for data looks at in one step.
const SEGMENTS_MAX: usize = 64;

/// What is to happen to a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allocate {
    /// The file is to be at least that long, unless `keeps_size`. Nothing is reserved: a copy-on-write store
    /// could not keep that promise; but a range that does not fit into the pool is refused.
    Reserve {
        /// The size stays.
        keeps_size: bool,
    },
    /// It reads as zeroes, and its space is freed; the size stays.
    Punch,
    /// It reads as zeroes; the file grows if needed, unless `keeps_size`.
    Zero {
        /// The size stays.
        keeps_size: bool,
    },
}

/// What is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seek {
    /// Bytes that are stored.
    Data,
    /// Bytes that are not, or the end of the file.
    Hole,
}

impl FileSystem {
    /// Allocates, punches or zeroes a range.
    ///
    /// # Errors
    /// [`NoSpace`](fastness_store::PoolError::NoSpace); [`FsError::TooLarge`]; [`FsError::Invalid`] for an
    /// empty range; as [`write`](Self::write).
    pub fn allocate(&self, ino: Ino, offset: u64, len_bytes: u64, what: Allocate) -> Result<()> {
        let end = offset.checked_add(len_bytes).filter(|end| *end <= FILE_BYTES_MAX);
        let end = end.ok_or(FsError::TooLarge)?;
        if len_bytes == 0 {
            return Err(FsError::Invalid("the range is empty"));
        }
        let _guard = self.locks.one(ino);
        let mut inode = self.file(ino)?;
        let object = self.object(ino)?;
        let size_bytes = object.as_ref().map_or(0, Object::size_bytes);
        let grows = match what {
            Allocate::Reserve { keeps_size } | Allocate::Zero { keeps_size } => {
                !keeps_size && end > size_bytes
            }
            Allocate::Punch => false,
        };
        if self.dataset().is_read_only() {
            return Err(PoolError::ReadOnly(self.dataset().name()).into());
        }
        if let Allocate::Reserve { .. } = what {
            self.check_room(len_bytes)?;
        }
        let punched = match what {
            Allocate::Reserve { .. } => 0,
            _ => end.min(size_bytes).saturating_sub(offset),
        };
        let now = self.now();
        (inode.mtime, inode.ctime) = (now, now);
        if !grows && punched == 0 {
            // Its times change all the same, as on other file systems.
            let mut edit = self.edit();
            edit.set_inode(ino, inode);
            return self.carry_out(&edit, |_| ());
        }
        let change = |tx: &Tx, object: &Object| {
            if punched > 0 {
                object.punch(tx, offset, punched)?;
            }
            if grows { object.truncate(tx, end) } else { Ok(()) }
        };
        let is_discard = what == Allocate::Punch;
        let zeroes = Zeroes { offset, len_bytes: punched, is_discard };
        let cut = Truncate { offset: end, len_bytes: u64::MAX };
        let itxs = [(punched > 0, Record::Zeroes(zeroes)), (grows, Record::Truncate(cut))];
        let itxs = itxs.into_iter().filter(|(is_made, _)| *is_made);
        let itxs = itxs.map(|(_, record)| Itx::unordered(ino.logged(), &record));
        self.change_data(ino, inode, self.block_bytes_for(end), change, itxs)
    }

    /// Where data or a hole begins, from `offset` on.
    ///
    /// # Errors
    /// [`FsError::NoData`]: `offset` is not before the end, or there is no more data.
    pub fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        self.file(ino)?;
        let object = self.object(ino)?.ok_or(FsError::NoData)?;
        let size_bytes = object.size_bytes();
        if offset >= size_bytes {
            return Err(FsError::NoData);
        }
        let (mut at, mut segments) = (offset, Vec::new());
        while at < size_bytes {
            segments.clear();
            object.segments(at, size_bytes - at, SEGMENTS_MAX, &mut segments)?;
            if segments.is_empty() {
                break;
            }
            for segment in &segments {
                if segment.is_hole == (what == Seek::Hole) {
                    return Ok(at);
                }
                at += segment.len_bytes;
            }
        }
        if what == Seek::Hole { Ok(size_bytes) } else { Err(FsError::NoData) }
    }

    /// Copies bytes from one file to another, or within one; holes stay holes where whole blocks allow it.
    /// Returns how many bytes there were.
    ///
    /// # Errors
    /// [`FsError::Invalid`]: the ranges overlap; those of reading and writing: some may then be copied.
    pub fn copy(&self, from: (Ino, u64), to: (Ino, u64), len_bytes: u64) -> Result<u64> {
        self.file(to.0)?;
        self.file(from.0)?;
        let size_bytes = self.object(from.0)?.map_or(0, |object| object.size_bytes());
        let len_bytes = len_bytes.min(size_bytes.saturating_sub(from.1));
        if to.1.checked_add(len_bytes).is_none_or(|end| end > FILE_BYTES_MAX) {
            return Err(FsError::TooLarge);
        }
        if from.0 == to.0 && from.1 < to.1 + len_bytes && to.1 < from.1 + len_bytes {
            return Err(FsError::Invalid("the ranges overlap"));
        }
        let mut buffer = vec![0; COPY_BYTES.min(len_bytes as usize)];
        let mut done = 0;
        while done < len_bytes {
            let part = ((len_bytes - done) as usize).min(COPY_BYTES);
            let len = self.read(from.0, from.1 + done, &mut buffer[..part])?;
            if len == 0 {
                break;
            }
            self.write(to.0, to.1 + done, &buffer[..len], WriteHow::default())?;
            done += len as u64;
        }
        Ok(done)
    }
}
