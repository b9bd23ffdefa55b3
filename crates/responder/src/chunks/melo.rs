//! The protocol MeLo@V: a write is logged with its data, then made in place in the chunks.
//!
//! Crash cases:
//! 1. Before COMMIT is set: chunks that were loaded for the write are not valid, and nothing else has
//!    changed.
//! 2. While it is set: the recovery makes the write again, from the log alone, whatever the chunks hold.
//! 3. After it is cleared: the write is there.
//!
//! Performance: a write is copied twice; four fences.

use fastness_sync::{lock, number_of_thread};

use crate::error::Error;
use crate::file::File;
use crate::group::Group;
use crate::medium::CacheMedium;
use crate::operation::{OPERATION_CHUNKS, Operation, OperationLog};
use crate::tag::{LINE, Status, Tag};

use super::fr::{Plan, Write};
use super::load::Loads;
use super::locked::Locked;
use super::{ChunkStore, FEW_GROUPS, Run};

impl<M: CacheMedium> ChunkStore<M> {
    pub(super) fn write_in_place(
        &self,
        file: &File,
        offset: u64,
        data: &[u8],
        size: u64,
    ) -> Result<usize, Error> {
        let write = self.part(file, offset, data, size, OPERATION_CHUNKS);
        self.with_room::<OPERATION_CHUNKS, FEW_GROUPS>(file, &write, |locked, plans, loads| {
            // After the groups: whoever has a log waits for nothing, the backing store least of all.
            let mut log = lock(&self.operations[number_of_thread() as usize % self.operations.len()]);
            self.make_in_place(&mut log, locked, file, &write, (plans, loads))
        })?;
        Ok(write.data.len())
    }

    fn make_in_place(
        &self,
        log: &mut OperationLog<M>,
        locked: &mut Locked<'_, M, FEW_GROUPS>,
        file: &File,
        write: &Write<'_>,
        (plans, loads): (&[Plan], &Loads),
    ) -> Result<(), Error> {
        let timestamp = self.timestamp(file);
        let mut places = 0;
        for (at, plan) in plans.iter().enumerate() {
            let group = locked.at(self.slot(file.key, write.first + at as u64)).0;
            if plan.overwrites {
                places |= ((plan.into as u16 ^ 1) & 1) << at;
                group.counts.overwritten += 1;
            } else {
                places |= (plan.into as u16 & 1) << at;
                if plan.replaces {
                    // Case 3: it is clean, so a recovery gives it up, whatever its bytes are.
                    group.invalidate(plan.into)?;
                }
                self.fill_chunk(group, file, write, (at, plan), (loads, None))?;
                plan.count(group);
            }
        }
        // PERSIST: what was loaded is durable before the operation is to be made again: then it is not
        // loaded. Excludes a chunk with bytes of another one around those of the write.
        locked.fence()?;
        let operation = Operation {
            key: file.key,
            file: file.id,
            offset: write.offset,
            size: write.size,
            timestamp,
            places,
        };
        log.commit(&operation, write.data)?;
        self.apply(locked, &operation, write.data, write.run)?;
        // PERSIST: the write is made before COMMIT is cleared. Excludes a part of one that is not made again.
        locked.fence()?;
        log.end()?;
        file.modified_ns().fetch_max(timestamp, fastness_sync::atomic::Ordering::Relaxed);
        Ok(())
    }

    /// Makes an operation, again perhaps: the same bytes, the same tags.
    fn apply(
        &self,
        locked: &mut Locked<'_, M, FEW_GROUPS>,
        operation: &Operation,
        data: &[u8],
        run: Run,
    ) -> Result<(), Error> {
        let first = self.geometry.index_of(operation.offset);
        let (mut here, mut rest) = (operation.offset, data);
        for at in 0..run.chunks {
            let index = first + at as u64;
            let start = self.geometry.offset_of(index);
            let (group, slot) = locked.at(self.slot(operation.key, index));
            let chunk = 2 * slot + usize::from(operation.places >> at & 1);
            let len = rest.len().min((start + self.geometry.chunk_bytes - here) as usize);
            let part;
            (part, rest) = rest.split_at(len);
            overlay(group, chunk, (here - start) as usize, part)?;
            let tag = Tag {
                status: Status::VALID.with(Status::NEW).with(Status::DIRTY),
                key: operation.key,
                index,
                file: operation.file,
                size: operation.size,
                timestamp: operation.timestamp,
                chunks: 0,
                sum: 0,
            };
            group.set_tag(chunk, &tag.sealed(self.seed));
            here += len as u64;
        }
        Ok(())
    }

    /// Makes the operations again that a crash has interrupted, before any tag is looked at.
    ///
    /// Persistence: durable on return. A crash inside leaves them to be made again.
    pub(super) fn redo(&self) -> Result<u64, Error> {
        let mut made = 0;
        for log in &self.operations {
            let mut log = lock(log);
            let Some((operation, data)) = log.interrupted()? else { continue };
            let end = operation.offset.checked_add(data.len() as u64).filter(|&end| end <= i64::MAX as u64);
            let first = self.geometry.index_of(operation.offset);
            let last = end.map(|end| self.geometry.index_of(end - 1));
            let chunks = last.map_or(usize::MAX, |last| (last - first + 1) as usize);
            if chunks > OPERATION_CHUNKS.min(self.geometry.slots as usize) {
                return Err(log.damaged());
            }
            let run = Run { slot: self.slot(operation.key, first), chunks };
            let mut locked = Locked::new(self, run)?;
            self.apply(&mut locked, &operation, &data, run)?;
            // PERSIST: as in the write: it is made before COMMIT is cleared.
            locked.fence()?;
            log.end()?;
            made += 1;
        }
        Ok(made)
    }
}

/// Copies bytes into a chunk; what is in front of them and after them in their lines stays.
pub(super) fn overlay<M: CacheMedium>(
    group: &mut Group<M>,
    chunk: usize,
    at: usize,
    bytes: &[u8],
) -> Result<(), Error> {
    let mut buffer = [0; 4096];
    let end = at + bytes.len();
    let mut line = at - at % LINE;
    while line < end {
        let len = buffer.len().min(end.next_multiple_of(LINE) - line);
        let (from, to) = (at.max(line), end.min(line + len));
        if from == line && to == line + len {
            group.copy_chunk(chunk, line, &bytes[from - at..to - at]);
        } else {
            group.read_chunk(chunk, line, &mut buffer[..len])?;
            buffer[from - line..to - line].copy_from_slice(&bytes[from - at..to - at]);
            group.copy_chunk(chunk, line, &buffer[..len]);
        }
        line += len;
    }
    Ok(())
}
