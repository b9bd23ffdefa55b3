//! The protocol PMAL: a write is made in place under a journal, then given to the backing store at once.
//!
//! What is changed in place has no other copy in PM, so the backing store must have the bytes of before,
//! durably: a chunk that is dirty is flushed before it is written to again. Over a store that is PM itself
//! each write is durable there at once; over a disk a second write to a chunk waits for a sync.
//!
//! Crash cases:
//! 1. Before pj_commit is set: nothing has changed but chunks that were clean.
//! 2. While it is set: the recovery gives up the chunks of the write; the backing store has what was there.
//! 3. After it is cleared: the write is there, and dirty until a sync.
//!
//! The bytes are given to the backing store under the locks of their slots: a flush of later bytes must not
//! be overtaken by earlier ones. If it does not take them, the next flush tries again, and reports it.
//!
//! Source: the dissertation's chapter III, sections 3.2.3 and 3.2.4.

use fastness_sync::atomic::Ordering;
use fastness_sync::{lock, number_of_thread};

use crate::error::Error;
use crate::file::File;
use crate::journal::{Changed, Journal};
use crate::medium::CacheMedium;
use crate::operation::OPERATION_CHUNKS;
use crate::tag::{Status, Tag};

use super::fr::{Plan, Write};
use super::load::Loads;
use super::locked::Locked;
use super::melo::overlay;
use super::{ChunkStore, FEW_GROUPS, Run};

impl<M: CacheMedium> ChunkStore<M> {
    pub(super) fn write_journalled(
        &self,
        file: &File,
        offset: u64,
        data: &[u8],
        size: u64,
    ) -> Result<usize, Error> {
        let write = self.part(file, offset, data, size, OPERATION_CHUNKS);
        self.with_room::<OPERATION_CHUNKS, FEW_GROUPS>(file, &write, |locked, plans, loads| {
            // After the groups: whoever has a journal waits for nothing.
            let mut journal = lock(&self.journals[number_of_thread() as usize % self.journals.len()]);
            self.make_journalled(&mut journal, locked, file, &write, (plans, loads))?;
            drop(journal);
            self.give(file, &write);
            Ok(())
        })?;
        Ok(write.data.len())
    }

    fn make_journalled(
        &self,
        journal: &mut Journal<M>,
        locked: &mut Locked<'_, M, FEW_GROUPS>,
        file: &File,
        write: &Write<'_>,
        (plans, loads): (&[Plan], &Loads),
    ) -> Result<(), Error> {
        let timestamp = self.timestamp(file);
        let places =
            plans.iter().enumerate().fold(0, |places, (at, plan)| places | (place(plan) as u16 & 1) << at);
        if plans.iter().any(|plan| plan.replaces) {
            for (at, plan) in plans.iter().enumerate().filter(|(_, plan)| plan.replaces) {
                // Case 3: it is clean, so a recovery gives it up, whatever its bytes are.
                locked.at(self.slot(file.key, write.first + at as u64)).0.invalidate(plan.into)?;
            }
            // PERSIST: the chunks are invalid before anything can fail and let another thread have them.
            // Excludes that its fences do not cover these stores.
            locked.fence()?;
        }
        for (at, plan) in plans.iter().enumerate().filter(|(_, plan)| !plan.overwrites) {
            let group = locked.at(self.slot(file.key, write.first + at as u64)).0;
            self.fill_chunk(group, file, write, (at, plan), (loads, None))?;
        }
        let changed = Changed { slot: write.run.slot, chunks: plans.len() as u16, places };
        journal.begin(changed)?;
        if let Err(error) = self.change(locked, file, write, plans, timestamp) {
            // A line of PM cannot be read: the backing store has what was there.
            self.give_up_changed(journal, locked, changed)?;
            return Err(error);
        }
        // PERSIST: the write is made before it commits. Excludes a part of it that counts.
        locked.fence()?;
        journal.end()?;
        file.modified_ns().fetch_max(timestamp, Ordering::Relaxed);
        Ok(())
    }

    /// Changes the chunks in place.
    fn change(
        &self,
        locked: &mut Locked<'_, M, FEW_GROUPS>,
        file: &File,
        write: &Write<'_>,
        plans: &[Plan],
        timestamp: u64,
    ) -> Result<(), Error> {
        for (at, plan) in plans.iter().enumerate() {
            let index = write.first + at as u64;
            let (group, _) = locked.at(self.slot(file.key, index));
            if plan.overwrites {
                let start = self.geometry.offset_of(index);
                let (from, to) =
                    (write.offset.max(start), write.end().min(start + self.geometry.chunk_bytes));
                let part = &write.data[(from - write.offset) as usize..(to - write.offset) as usize];
                overlay(group, place(plan), (from - start) as usize, part)?;
            }
            let tag = Tag {
                status: Status::VALID.with(Status::NEW).with(Status::DIRTY),
                key: file.key,
                index,
                file: file.id,
                size: write.size,
                timestamp,
                chunks: 0,
                sum: 0,
            };
            group.set_tag(place(plan), &tag.sealed(self.seed));
            plan.count(group);
        }
        Ok(())
    }

    fn give_up_changed(
        &self,
        journal: &mut Journal<M>,
        locked: &mut Locked<'_, M, FEW_GROUPS>,
        Changed { slot, chunks, places }: Changed,
    ) -> Result<(), Error> {
        for at in 0..u64::from(chunks) {
            let (group, slot) = locked.at((slot + at) % self.geometry.slots);
            // The whole tag: a crash may have torn it.
            group.set_tag(2 * slot + usize::from(places >> at & 1), &Tag::default());
        }
        // PERSIST: the chunks are given up before pj_commit is cleared. Excludes a part of the write.
        locked.fence()?;
        journal.end()
    }

    /// Gives a write to the backing store, byte by byte; it is durable there with the next flush.
    fn give(&self, file: &File, write: &Write<'_>) {
        file.times.begin(&*file.backing);
        let given = file.backing.write_at(write.offset, write.data);
        // As with the bytes: a flush sets it again.
        let is_set = given.is_ok() && self.gives_times && file.restore_time().is_ok();
        file.times.set_settled(is_set);
        file.times.end(&*file.backing, file.modified_ns().load(Ordering::Relaxed));
    }

    /// Gives up the chunks of writes that had not committed, before any tag is looked at.
    ///
    /// Persistence: durable on return. A crash inside leaves them to be given up.
    pub(super) fn give_up_uncommitted(&self) -> Result<u64, Error> {
        let mut count = 0;
        for journal in &self.journals {
            let mut journal = lock(journal);
            let Some(changed) = journal.interrupted()? else { continue };
            let (slot, chunks) = (changed.slot, usize::from(changed.chunks));
            let most = OPERATION_CHUNKS.min(self.geometry.slots as usize);
            if slot >= self.geometry.slots || !(1..=most).contains(&chunks) {
                return Err(journal.damaged());
            }
            let mut locked = Locked::<M, FEW_GROUPS>::new(self, Run { slot, chunks })?;
            self.give_up_changed(&mut journal, &mut locked, changed)?;
            count += 1;
        }
        Ok(count)
    }
}

/// The chunk that is changed.
fn place(plan: &Plan) -> usize {
    if plan.overwrites { plan.into ^ 1 } else { plan.into }
}
