//! The protocol FR (First Responder): a write goes into the other chunk of its slot.
//!
//! A write never changes a chunk that counts. It goes into the other chunk of the slot; one word of the tag
//! makes that the valid and new one, and the old one is invalidated afterwards.
//!
//! Crash cases:
//! 1. Before a tag is set: the chunk is not valid, and its predecessor is.
//! 2. After it, before the predecessor is invalid: both hold the same chunk of the file; the one that is new
//!    counts. No step of the recovery is needed: everything here knows that state.
//! 3. In a write of several chunks before its first tag is complete: the recovery undoes the chunks of the
//!    write, from the last to the first, which has the mark until then.
//! 4. After that: the write is there.
//!
//! Performance: a chunk costs one copy, three fences, and nothing else in PM but two tags; one fence less if
//! it overwrites nothing. The copy is of the lines in which the two chunks will differ and, where that is not
//! known, of the whole chunk (`difference`). No allocation; a system call only for what PM does not have.
//!
//! Source: "First Responder" in the dissertation, chapter V, figures 15 and 16. Where this differs, and why:
//! `docs/adr/2026-11-25-responder.md`.

use fastness_sync::atomic::Ordering;

use crate::error::Error;
use crate::file::File;
use crate::group::{Group, which_holds};
use crate::medium::CacheMedium;
use crate::tag::{Status, Tag};

use super::load::Loads;
use super::locked::Locked;
use super::{ChunkStore, FEW_CHUNKS, FEW_GROUPS, Run, WRITE_CHUNKS_MAX, WRITE_GROUPS_MAX};

/// A write as far as it is made at once.
#[derive(Debug, Clone, Copy)]
pub(super) struct Write<'a> {
    pub(super) offset: u64,
    pub(super) data: &'a [u8],
    pub(super) first: u64,
    pub(super) run: Run,
    /// Length of the file before it, and with it.
    pub(super) size_before: u64,
    pub(super) size: u64,
}

impl Write<'_> {
    /// Where it ends in the file.
    pub(super) fn end(&self) -> u64 {
        self.offset + self.data.len() as u64
    }
}

/// What becomes of a slot.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Plan {
    /// The chunk that is written to; the other one of the slot is `into ^ 1`.
    pub(super) into: usize,
    /// Tag of the other one.
    pub(super) other: Tag,
    /// The other chunk holds what is overwritten.
    pub(super) overwrites: bool,
    /// `into` is valid, and gives way.
    pub(super) replaces: bool,
    /// Checksum of the tag that it gets.
    sum: u32,
}

impl Plan {
    fn new(into: usize, other: Tag, overwrites: bool, replaces: bool) -> Plan {
        Plan { into, other, overwrites, replaces, sum: 0 }
    }
}

/// A chunk that stands in the way and that the backing store does not have.
#[derive(Debug, Clone, Copy)]
struct InTheWay(Tag);

impl Plan {
    pub(super) fn count<M>(&self, group: &mut Group<M>) {
        group.counts.replaced += u64::from(self.replaces);
        let count = match (self.overwrites, self.other.is_valid()) {
            (true, _) => &mut group.counts.overwritten,
            (false, true) => &mut group.counts.placed_beside,
            (false, false) => &mut group.counts.placed,
        };
        *count += 1;
    }
}

impl<M: CacheMedium> ChunkStore<M> {
    pub(super) fn write_file(
        &self,
        file: &File,
        offset: u64,
        data: &[u8],
        size: u64,
    ) -> Result<usize, Error> {
        let write = self.part(file, offset, data, size, WRITE_CHUNKS_MAX);
        let chunks = write.run.chunks;
        if chunks == 1 {
            self.write_chunks::<1, 1>(file, &write)?;
        } else if chunks <= FEW_CHUNKS {
            self.write_chunks::<FEW_CHUNKS, FEW_GROUPS>(file, &write)?;
        } else {
            self.write_chunks::<WRITE_CHUNKS_MAX, WRITE_GROUPS_MAX>(file, &write)?;
        }
        Ok(write.data.len())
    }

    /// As much of a write as can be made at once, in at most so many chunks.
    pub(super) fn part<'a>(
        &self,
        file: &File,
        offset: u64,
        data: &'a [u8],
        size: u64,
        most: usize,
    ) -> Write<'a> {
        let first = self.geometry.index_of(offset);
        let last = self.geometry.index_of(offset + data.len() as u64 - 1);
        let chunks = (last - first + 1).min(most as u64).min(self.geometry.slots) as usize;
        let end = self.geometry.offset_of(first + chunks as u64).min(offset + data.len() as u64);
        let data = &data[..(end - offset) as usize];
        let run = Run { slot: self.slot(file.key, first), chunks };
        Write { offset, data, first, run, size_before: size, size: size.max(end) }
    }

    fn write_chunks<const N: usize, const G: usize>(
        &self,
        file: &File,
        write: &Write<'_>,
    ) -> Result<(), Error> {
        self.with_room::<N, G>(file, write, |locked, plans, loads| {
            self.perform(locked, file, write, plans, loads)
        })
    }

    /// Makes room for a write that another process makes; `false`: it could not, since chunks of no file
    /// are in its way.
    pub(crate) fn make_room(&self, file: &File, offset: u64, len: u64) -> Result<bool, Error> {
        let first = self.geometry.index_of(offset);
        let last = self.geometry.index_of(offset.saturating_add(len - 1));
        let chunks = (last - first + 1).min(WRITE_CHUNKS_MAX as u64).min(self.geometry.slots) as usize;
        for index in first..first + chunks as u64 {
            let (number, slot) = self.place(file.key, index);
            let group = self.hold(number)?;
            let tags = group.tags(slot)?;
            drop(group);
            for tag in tags.iter().filter(|tag| tag.is_dirty() && !tag.holds(file.key, index)) {
                if self.is_orphan(tag.key) {
                    return Ok(false);
                }
                self.forced_flushes.fetch_add(1, Ordering::Relaxed);
                self.flush_one(tag)?;
            }
        }
        Ok(true)
    }

    /// Makes a write once all its slots have room, and what it needs of the backing store is loaded.
    pub(super) fn with_room<const N: usize, const G: usize>(
        &self,
        file: &File,
        write: &Write<'_>,
        mut make: impl FnMut(&mut Locked<'_, M, G>, &mut [Plan], &Loads) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut loads = Loads::default();
        loop {
            let mut locked = Locked::<M, G>::new(self, write.run)?;
            let mut plans = [Plan::default(); N];
            let plans = &mut plans[..write.run.chunks];
            match self.plan(&mut locked, file, write, plans)? {
                None => {
                    if let Some(lacking) = self.lacks(&mut locked, file, write, plans, &mut loads)? {
                        drop(locked);
                        self.load(file, write, lacking, &mut loads)?;
                        continue;
                    }
                    let done = make(&mut locked, plans, &loads);
                    locked.report(self);
                    return done;
                }
                Some(InTheWay(tag)) => {
                    // A flush locks the file before the slots.
                    drop(locked);
                    if self.files.is_none() {
                        return Err(Error::NoRoom);
                    }
                    self.forced_flushes.fetch_add(1, Ordering::Relaxed);
                    self.flush_one(&tag)?;
                }
            }
        }
    }

    /// Finds the case of each slot; nothing is changed.
    fn plan<const G: usize>(
        &self,
        locked: &mut Locked<'_, M, G>,
        file: &File,
        write: &Write<'_>,
        plans: &mut [Plan],
    ) -> Result<Option<InTheWay>, Error> {
        for (at, plan) in plans.iter_mut().enumerate() {
            let index = write.first + at as u64;
            let (group, slot) = locked.at(self.slot(file.key, index));
            let tags = group.tags(slot)?;
            let holds = which_holds(&tags, file.key, index);
            if let Some(which) = holds.filter(|_| self.is_in_place()) {
                // What is changed in place needs no room. Under a journal the backing store must have it.
                if tags[which].is_dirty() && !self.journals.is_empty() {
                    return Ok(Some(InTheWay(tags[which])));
                }
                let into = 2 * slot + (which ^ 1);
                *plan = Plan::new(into, tags[which], true, false);
                continue;
            }
            let which = match holds {
                // Cases 2-1, 3-1, 3-2: the other one of what is overwritten.
                Some(which) => which ^ 1,
                // Cases 1, 2-2: one that is free. Case 3-3: the older one.
                None => (0..2)
                    .min_by_key(|&which: &usize| {
                        let tag = &tags[which];
                        (tag.is_valid(), tag.status.has(Status::NEW), tag.timestamp)
                    })
                    .expect("two chunks"),
            };
            let is_in_the_way =
                |which: usize| tags[which].is_dirty() && !tags[which].is_superseded_by(&tags[which ^ 1]);
            // A chunk that no file of the directory takes stays. What is beside it makes room, even if it
            // holds what is overwritten: once it is clean, the backing store has that.
            let is_stuck = |which: usize| is_in_the_way(which) && self.is_orphan(tags[which].key);
            let which = if is_stuck(which) { which ^ 1 } else { which };
            if is_in_the_way(which) {
                return Ok(Some(InTheWay(tags[which])));
            }
            let other = tags[which ^ 1];
            let overwrites = other.holds(file.key, index);
            *plan = Plan::new(2 * slot + which, other, overwrites, tags[which].is_valid());
        }
        Ok(None)
    }

    fn perform<const G: usize>(
        &self,
        locked: &mut Locked<'_, M, G>,
        file: &File,
        write: &Write<'_>,
        plans: &mut [Plan],
        loads: &Loads,
    ) -> Result<(), Error> {
        let timestamp = self.timestamp(file);
        let slot = |at: usize| self.slot(file.key, write.first + at as u64);
        let count = plans.len() as u32;
        let tag = |at: usize, status: Status, sum: u32| Tag {
            status,
            key: file.key,
            index: write.first + at as u64,
            file: file.id,
            size: write.size,
            timestamp,
            chunks: if at == 0 { count } else { 0 },
            sum,
        };
        for (at, plan) in plans.iter_mut().enumerate() {
            plan.sum = tag(at, Status::INVALID, 0).sealed(self.seed).sum;
        }
        let plans = &*plans;
        let tag = |at: usize, status: Status| tag(at, status, plans[at].sum);
        // Case 3: what gives way is clean, or an older copy.
        if plans.iter().any(|plan| plan.replaces) {
            for (at, plan) in plans.iter().enumerate().filter(|(_, plan)| plan.replaces) {
                locked.at(slot(at)).0.invalidate(plan.into)?;
            }
            // PERSIST: the chunk is invalid before its bytes and the other words of its tag change. Excludes
            // a valid tag with words of two, and an older copy that counts with bytes of another write.
            locked.fence()?;
        }
        for (at, plan) in plans.iter().enumerate() {
            // Before anything is stored to the chunk.
            let differ = self.take_difference(slot(at), &plan.other).filter(|_| plan.overwrites);
            let group = locked.at(slot(at)).0;
            self.fill_chunk(group, file, write, (at, plan), (loads, differ))?;
            let other = &plan.other;
            // Steps 1 of cases 2-1 and 2-2.
            if other.is_valid() && other.status.has(Status::NEW) {
                group.set_tag(plan.into ^ 1, &other.with_status(other.status.without(Status::NEW)));
            }
            group.set_tag(plan.into, &tag(at, Status::INVALID));
            plan.count(group);
        }
        // PERSIST: the data, all words of the tag but the status, and that the other chunk is not new, are
        // durable before the chunk is valid. Excludes a valid chunk with torn data, a valid tag that is torn,
        // and two new chunks of which the older one is taken.
        locked.fence()?;
        self.commit(locked, write, plans, &slot, &tag)?;
        if plans.iter().any(|plan| plan.overwrites) {
            for (at, plan) in plans.iter().enumerate().filter(|(_, plan)| plan.overwrites) {
                let old = plan.other.with_status(Status::INVALID);
                locked.at(slot(at)).0.set_tag(plan.into ^ 1, &old);
            }
            // PERSIST: what was overwritten is invalid before anything relies on that: the acknowledgement,
            // the flush after which the new chunk may go, the next write into the old one. Excludes that the
            // old one counts again.
            locked.fence()?;
            for (at, _) in plans.iter().enumerate().filter(|(_, plan)| plan.overwrites) {
                let start = self.geometry.offset_of(write.first + at as u64);
                let bytes = write.bytes_in(start, self.geometry.chunk_bytes as usize);
                self.note_difference(slot(at), timestamp, &bytes);
            }
        }
        file.modified_ns().fetch_max(timestamp, Ordering::Relaxed);
        Ok(())
    }

    /// Makes the new chunks valid: all of them or, after a crash and its recovery, none.
    fn commit<const G: usize>(
        &self,
        locked: &mut Locked<'_, M, G>,
        write: &Write<'_>,
        plans: &[Plan],
        slot: &dyn Fn(usize) -> u64,
        tag: &dyn Fn(usize, Status) -> Tag,
    ) -> Result<(), Error> {
        const COMPLETE: Status = Status::VALID.with(Status::NEW).with(Status::DIRTY);
        let set = |locked: &mut Locked<'_, M, G>, at: usize, status: Status| {
            locked.at(slot(at)).0.set_tag(plans[at].into, &tag(at, status));
        };
        if write.run.chunks > 1 {
            set(locked, 0, COMPLETE.with(Status::NOT_COMPLETE));
            // PERSIST: the first chunk says that the write is not complete before any other one is valid.
            // Excludes a part of a write that no recovery knows of.
            locked.fence()?;
            (1..plans.len()).for_each(|at| set(locked, at, COMPLETE));
            // PERSIST: all others are valid before the first one says that the write is complete. Excludes a
            // complete write that lacks a part.
            locked.fence()?;
            locked.at(slot(0)).0.counts.multi_chunk_writes += 1;
        }
        set(locked, 0, COMPLETE);
        // PERSIST: the chunk is valid before what it replaces is invalid, and before the write is
        // acknowledged. Excludes that neither counts.
        locked.fence()
    }
}
