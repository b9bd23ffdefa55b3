//! Ranges of files: allocating, punching, zeroing, finding holes, copying.

use std::ops::Range;

use fastness_store::record::{Record, Truncate, Zeroes};
use fastness_store::{Itx, Object, PoolError, Tx};

use crate::attributes::FILE_BYTES_MAX;
use crate::error::{FsError, Result};
use crate::file_system::FileSystem;
use crate::ino::Ino;
use crate::inode::Inode;

/// Bytes that a copy changes in one transaction, unless blocks are longer.
const COPY_BYTES: u64 = 128 << 10;
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
        let size_bytes = object.as_deref().map_or(0, Object::size_bytes);
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
            self.check_room(len_bytes - stored_bytes(object.as_deref(), offset..end)?)?;
        }
        let punched = match what {
            Allocate::Reserve { .. } => 0,
            _ => end.min(size_bytes).saturating_sub(offset),
        };
        if !grows && punched == 0 {
            // Its times change all the same, as on other file systems.
            let now = self.now();
            (inode.mtime, inode.ctime) = (now, now);
            let mut edit = self.edit();
            edit.set_inode(ino, inode);
            return self.carry_out(&edit, |_| ());
        }
        self.clear(ino, inode, (offset, punched), grows.then_some(end), what == Allocate::Punch)
    }

    /// A range of a locked file reads as zeroes; the file grows if needed.
    fn clear_locked(&self, ino: Ino, offset: u64, len_bytes: u64) -> Result<()> {
        let inode = self.file(ino)?;
        let size_bytes = self.object(ino)?.map_or(0, |object| object.size_bytes());
        let end = offset + len_bytes;
        let punched = end.min(size_bytes).saturating_sub(offset);
        self.clear(ino, inode, (offset, punched), (end > size_bytes).then_some(end), false)
    }

    /// Clears a range within a locked file, and gives it a new size: one change.
    fn clear(
        &self,
        ino: Ino,
        mut inode: Inode,
        (offset, punched): (u64, u64),
        new_size: Option<u64>,
        is_discard: bool,
    ) -> Result<()> {
        let now = self.now();
        (inode.mtime, inode.ctime) = (now, now);
        let change = |tx: &Tx, object: &Object| {
            if punched > 0 {
                object.punch(tx, offset, punched)?;
            }
            new_size.map_or(Ok(()), |end| object.truncate(tx, end))
        };
        let (grows, end) = (new_size.is_some(), new_size.unwrap_or(offset + punched));
        let zeroes = Zeroes { offset, len_bytes: punched, is_discard };
        let cut = Truncate { offset: end, len_bytes: u64::MAX };
        let itxs = [(punched > 0, Record::Zeroes(zeroes)), (grows, Record::Truncate(cut))];
        let itxs = itxs.into_iter().filter(|(is_made, _)| *is_made);
        let itxs = itxs.map(|(_, record)| Itx::unordered(ino.object(), &record));
        let block_bytes = self.block_bytes_for(end);
        self.change_data(self.edit(), (ino, inode), block_bytes, change, |records| {
            itxs.for_each(|itx| records.assign(itx));
        })
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
    /// Returns how many bytes there were. Each part of 128 KiB, or of one longer block, is one change:
    /// nothing changes the bytes while it is read and written. Whole blocks that a txg has stored are shared,
    /// if both files have blocks of one size and the ranges begin at the same place within a block.
    ///
    /// Persistence: as for [`write`](Self::write) without `is_sync`.
    ///
    /// # Errors
    /// [`FsError::Invalid`]: the ranges overlap; [`NoSpace`](PoolError::NoSpace) and those of reading and
    /// writing: nothing is copied then. If there is an error after some parts, these are what is returned.
    pub fn copy_range(
        &self,
        from: Ino,
        from_offset: u64,
        to: Ino,
        to_offset: u64,
        len_bytes: u64,
    ) -> Result<u64> {
        self.file(to)?;
        self.file(from)?;
        let source = self.object(from)?;
        let size_bytes = source.as_ref().map_or(0, |object| object.size_bytes());
        // Parts of whole blocks can share them.
        let part_max = source.map_or(0, |object| u64::from(object.block_bytes())).max(COPY_BYTES);
        let len_bytes = len_bytes.min(size_bytes.saturating_sub(from_offset));
        if to_offset.checked_add(len_bytes).is_none_or(|end| end > FILE_BYTES_MAX) {
            return Err(FsError::TooLarge);
        }
        if from == to && from_offset < to_offset + len_bytes && to_offset < from_offset + len_bytes {
            return Err(FsError::Invalid("the ranges overlap"));
        }
        let mut buffer = vec![0; part_max.min(len_bytes) as usize];
        let mut done = 0;
        while done < len_bytes {
            let part_bytes = (len_bytes - done).min(part_max - (from_offset + done) % part_max);
            let (start, at) = ((from, from_offset + done), (to, to_offset + done));
            match self.copy_part(start, at, part_bytes, &mut buffer) {
                Ok(0) => break,
                Ok(copied) => done += copied,
                // What was copied is there, and a program is told how much that is.
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        if done > 0 {
            self.commit_if_always()?;
        }
        Ok(done)
    }

    /// Copies what comes first, data or a hole. Returns how many bytes; 0 at the end of the source.
    fn copy_part(
        &self,
        (from, from_offset): (Ino, u64),
        (to, to_offset): (Ino, u64),
        len_bytes: u64,
        buffer: &mut [u8],
    ) -> Result<u64> {
        let _guard = self.locks.all(&[from, to]);
        let Some(source) = self.object(from)? else { return Ok(0) };
        let len_bytes = len_bytes.min(source.size_bytes().saturating_sub(from_offset));
        if len_bytes == 0 {
            return Ok(0);
        }
        let mut segments = Vec::new();
        source.segments(from_offset, len_bytes, 1, &mut segments)?;
        if let Some(hole) = segments.first().filter(|segment| segment.is_hole) {
            let len_bytes = hole.len_bytes.min(len_bytes);
            self.clear_locked(to, to_offset, len_bytes)?;
            return Ok(len_bytes);
        }
        let len_bytes = segments.first().map_or(len_bytes, |data| data.len_bytes.min(len_bytes));
        let (len, origin) = source.read_to_copy(from_offset, &mut buffer[..len_bytes as usize])?;
        self.write_kept(to, to_offset, &buffer[..len], &origin)?;
        Ok(len as u64)
    }
}

/// Bytes of a range that are stored.
fn stored_bytes(object: Option<&Object>, range: Range<u64>) -> Result<u64> {
    let Some(object) = object else { return Ok(0) };
    let (mut at, end) = (range.start, range.end.min(object.size_bytes()));
    let (mut stored_bytes, mut segments) = (0, Vec::new());
    while at < end {
        segments.clear();
        object.segments(at, end - at, SEGMENTS_MAX, &mut segments)?;
        if segments.is_empty() {
            break;
        }
        for segment in &segments {
            let len_bytes = segment.len_bytes.min(end - at);
            stored_bytes += if segment.is_hole { 0 } else { len_bytes };
            at += len_bytes;
        }
    }
    Ok(stored_bytes)
}
