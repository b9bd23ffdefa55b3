//! Writes dirty chunks to the backing store.

use std::sync::Arc;

use fastness_sync::atomic::Ordering;
use fastness_sync::lock;

use crate::error::Error;
use crate::file::File;
use crate::medium::CacheMedium;
use crate::tag::{Status, Tag};

use super::ChunkStore;

/// Chunks that follow each other are written at once, up to so many bytes.
const RUN_BYTES: usize = 1 << 20;

/// A file does not wait with more dirty bytes than that: it would take much room.
const WAITING_BYTES: u64 = 64 << 10;
/// Dirty chunks of files that wait are at most this part of the slots.
const WAITING_SHARE: u64 = 8;
/// Files that are written one after the other before the first of them is synced, and their chunks.
const BATCH_FILES: usize = 16;
const BATCH_CHUNKS: usize = 1024;

/// A chunk that was given to the backing store, and how it was tagged then.
struct Written {
    group: usize,
    chunk: usize,
    tag: Tag,
}

/// Chunks that were given to the backing store, and the first that PM does not give: the others go on.
struct CopiedOut {
    written: Vec<Written>,
    unreadable: Result<(), Error>,
}

impl<M: CacheMedium> ChunkStore<M> {
    /// Which chunks are dirty: keys and indices, in order. The groups that have none are no longer noted.
    fn dirty_chunks(&self, only: Option<u64>) -> Result<Vec<(u64, u64)>, Error> {
        let mut found = Vec::new();
        for number in 0..self.groups.len() {
            let (word, bit) = (self.dirty_word(number), 1 << (number % 64));
            if word.load(Ordering::Relaxed) & bit == 0 {
                continue;
            }
            let group = self.hold(number)?;
            if group.dirty == 0 {
                word.fetch_and(!bit, Ordering::Relaxed);
            }
            for chunk in (0..group.len()).filter(|chunk| group.dirty >> chunk & 1 == 1) {
                let tag = group.tag(chunk)?;
                found.extend(only.is_none_or(|key| key == tag.key).then_some((tag.key, tag.index)));
            }
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    /// Which chunks are dirty of a file that ends at `size`. Of a short one only its own slots are looked at.
    pub(super) fn dirty_before(&self, file: &File, size: u64) -> Result<Vec<u64>, Error> {
        let chunks = size.div_ceil(self.geometry.chunk_bytes);
        if chunks > self.groups.len() as u64 {
            let dirty = self.dirty_chunks(Some(file.key))?;
            return Ok(dirty.into_iter().map(|(_, index)| index).collect());
        }
        let mut indices = Vec::new();
        for index in 0..chunks {
            let (number, slot) = self.place(file.key, index);
            let found = self.hold(number)?.find(slot, file.key, index)?;
            indices.extend(found.filter(|(_, tag)| tag.is_dirty()).map(|_| index));
        }
        Ok(indices)
    }

    pub(super) fn flush_dirty(&self, file: Option<&File>) -> Result<(), Error> {
        let dirty = self.dirty_chunks(file.map(|file| file.key))?;
        if let Some(file) = file.filter(|_| dirty.is_empty()) {
            file.failure.store(0, Ordering::Relaxed);
        }
        self.flush_files(&dirty, |_, _| true)
    }

    /// Flushes what is dirty, but for small files that may wait, as long as there is much room.
    pub(super) fn flush_due(&self, may_wait: &dyn Fn(&File) -> bool) -> Result<(), Error> {
        let dirty = self.dirty_chunks(None)?;
        let mut waiting = 0;
        self.flush_files(&dirty, |file, chunks| {
            let is_small = chunks * self.geometry.chunk_bytes <= WAITING_BYTES;
            let has_room = (waiting + chunks) * WAITING_SHARE <= self.geometry.slots;
            // Under a journal, the next write to a dirty chunk would wait for its flush.
            let waits = is_small && has_room && self.journals.is_empty() && may_wait(file);
            waiting += if waits { chunks } else { 0 };
            !waits
        })
    }

    /// Flushes those files of which `is_due` says so, told how many dirty chunks they have.
    fn flush_files(
        &self,
        dirty: &[(u64, u64)],
        mut is_due: impl FnMut(&File, u64) -> bool,
    ) -> Result<(), Error> {
        let (mut batch, mut chunks, mut result) = (Vec::new(), 0, Ok(()));
        for of_one in dirty.chunk_by(|(first, _), (second, _)| first == second) {
            // What belongs to no file stays where it is; the status counts it.
            let file = self.file_by_key(of_one[0].0);
            let Some(file) = file.filter(|file| is_due(file, of_one.len() as u64)) else { continue };
            if batch.len() == BATCH_FILES || chunks + of_one.len() > BATCH_CHUNKS {
                result = result.and(self.flush_batch(&std::mem::take(&mut batch)));
                chunks = 0;
            }
            batch.push((file, of_one.iter().map(|&(_, index)| index).collect()));
            chunks += of_one.len();
        }
        result.and(self.flush_batch(&batch))
    }

    fn file_by_key(&self, key: u64) -> Option<Arc<File>> {
        self.files.as_ref().and_then(|files| files.by_key(key))
    }

    /// Makes room where a write needs it.
    pub(super) fn flush_one(&self, tag: &Tag) -> Result<(), Error> {
        let file = self.file_by_key(tag.key).ok_or(Error::Orphan { inode: tag.file.inode })?;
        self.flush_chunks(&file, &[tag.index])
    }

    pub(super) fn flush_chunks(&self, file: &File, indices: &[u64]) -> Result<(), Error> {
        let _flush = lock(&file.flush);
        self.begin_flush(file);
        self.end_flush(file, self.write_out(file, indices, false))
    }

    /// Flushes several files: all are written before the first is synced, so that the backing store can make
    /// one transaction of them.
    fn flush_batch(&self, batch: &[(Arc<File>, Vec<u64>)]) -> Result<(), Error> {
        // Until they are synced: a sync of another thread that fails would make the backing store forget what
        // was written, and that of this one would not tell. In the order of their keys: no two threads wait
        // for each other.
        let _held: Vec<_> = batch.iter().map(|(file, _)| lock(&file.flush)).collect();
        let write = |(file, indices): &(Arc<File>, Vec<u64>)| {
            self.begin_flush(file);
            self.write_out(file, indices, batch.len() > 1)
        };
        let written: Vec<_> = batch.iter().map(write).collect();
        let mut result = Ok(());
        for ((file, _), written) in batch.iter().zip(written) {
            result = result.and(self.end_flush(file, written));
        }
        result
    }

    fn begin_flush(&self, file: &File) {
        file.flushing_since_ns.store((self.clock)().max(1), Ordering::Relaxed);
    }

    /// Syncs what was written. The caller holds `flush` of the file, and did while it was written.
    fn end_flush(&self, file: &File, copied: Result<CopiedOut, Error>) -> Result<(), Error> {
        let result = copied.and_then(|CopiedOut { written, unreadable }| {
            if !written.is_empty() {
                file.backing.sync().map_err(Error::backing("sync a file"))?;
            }
            self.mark_clean(&written)?;
            unreadable
        });
        let place = match &result {
            Err(Error::Read(error)) => error.region_offset,
            _ => 0,
        };
        file.unreadable_at.store(place, Ordering::Relaxed);
        file.flushing_since_ns.store(0, Ordering::Relaxed);
        if let Some(files) = self.files.as_ref().filter(|_| result.is_err()) {
            files.note_trouble();
        }
        file.failure.store(result.as_ref().err().map_or(0, Error::errno), Ordering::Relaxed);
        result
    }

    /// Writes chunks of a file; `is_one_of_many`: others are written before it is synced.
    fn write_out(&self, file: &File, indices: &[u64], is_one_of_many: bool) -> Result<CopiedOut, Error> {
        file.times.begin(&*file.backing);
        let copied = self.copy_out(file, indices, |offset, data| {
            file.backing.write_at(offset, data)?;
            if is_one_of_many {
                file.backing.begin_sync(offset, data.len() as u64);
            }
            Ok(())
        });
        let last_ns = |copied: &CopiedOut| copied.written.iter().map(|written| written.tag.timestamp).max();
        let last_ns = copied.as_ref().ok().and_then(last_ns);
        // Also if it has failed after a part: that has moved the time.
        let restored = file.restore_time();
        file.times.set_settled(restored.is_ok());
        file.times.end(&*file.backing, last_ns.unwrap_or(0));
        restored.and(copied)
    }

    /// Gives the backing store what only PM has of a file that has lost its last name. None of that is ever
    /// durable. The caller holds `flush` of the file.
    pub(crate) fn leave(&self, file: &File, size: u64) -> Result<(), Error> {
        let indices = self.dirty_before(file, size)?;
        self.copy_out(file, &indices, |offset, data| file.backing.write_at(offset, data))?.unreadable
    }

    /// Copies dirty chunks of a file, all that can be read.
    fn copy_out(
        &self,
        file: &File,
        indices: &[u64],
        write: impl Fn(u64, &[u8]) -> std::io::Result<()>,
    ) -> Result<CopiedOut, Error> {
        let (mut written, mut run, mut start) = (Vec::with_capacity(indices.len()), Vec::new(), 0);
        let mut unreadable = Ok(());
        for &index in indices {
            let (number, slot) = self.place(file.key, index);
            let offset = self.geometry.offset_of(index);
            if start + run.len() as u64 != offset || run.len() >= RUN_BYTES {
                write_run(start, &mut run, &write)?;
                start = offset;
            }
            let group = self.hold(number)?;
            let found = group.find(slot, file.key, index)?.filter(|(_, tag)| tag.is_dirty());
            let Some((chunk, tag)) = found else { continue };
            let at = run.len();
            run.resize(at + self.valid_bytes(index, tag.size), 0);
            match group.read_chunk(chunk, 0, &mut run[at..]) {
                Ok(()) => written.push(Written { group: number, chunk, tag }),
                Err(error) => {
                    run.truncate(at);
                    unreadable = unreadable.and(Err(error));
                }
            }
        }
        write_run(start, &mut run, &write)?;
        Ok(CopiedOut { written, unreadable })
    }

    /// Says of chunks that the backing store has them, unless they have changed since.
    fn mark_clean(&self, written: &[Written]) -> Result<(), Error> {
        for of_one in written.chunk_by(|first, second| first.group == second.group) {
            let mut group = self.hold(of_one[0].group)?;
            for Written { chunk, tag, .. } in of_one {
                let now = group.tag(*chunk)?;
                if now.is_dirty() && now.timestamp == tag.timestamp && now.holds(tag.key, tag.index) {
                    if group.tag(chunk ^ 1)?.is_superseded_by(&now) {
                        group.invalidate(chunk ^ 1)?;
                        // PERSIST: the older copy, which a crash has left valid, is invalid before the newer
                        // one is clean. Excludes that a recovery gives up the newer one and takes the older.
                        group.fence()?;
                    }
                    group.set_tag(*chunk, &now.with_status(now.status.without(Status::DIRTY)));
                    group.counts.flushed += 1;
                }
            }
            // PERSIST: what this thread stored to the group is complete before another thread has it. A crash
            // before that costs another flush of the same bytes.
            group.fence()?;
        }
        Ok(())
    }
}

fn write_run(
    start: u64,
    run: &mut Vec<u8>,
    write: impl Fn(u64, &[u8]) -> std::io::Result<()>,
) -> Result<(), Error> {
    if !run.is_empty() {
        write(start, run).map_err(Error::backing("write to a file"))?;
        run.clear();
    }
    Ok(())
}
