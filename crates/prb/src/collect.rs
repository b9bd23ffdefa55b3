//! Emptying chunks whose entries are all obsolete.
//!
//! Source: zil-pmem thesis, 5.11.

use fastness_pmem::{Medium, PersistError};
use fastness_sync::atomic::Ordering;
use fastness_sync::lock;

use crate::chunk::{Chunk, Collected};
use crate::error::{CollectError, Misuse};
use crate::ids::Txg;
use crate::lists::Obsolete;
use crate::prb::Prb;

impl<M: Medium + Sync> Prb<M> {
    /// Empties the chunks whose entries are all obsolete because `synced` and everything before it is durable
    /// elsewhere, and wakes writers that wait for a chunk.
    ///
    /// Call it after each txg sync, with the txg whose header updates are durable too. Persistence: the
    /// chunks are durably empty on return. Concurrency: may run in parallel to writers; it briefly borrows
    /// the free commit slots.
    ///
    /// # Errors
    /// [`Misuse::ClaimingNotOver`], with nothing touched; a failed fence closes the PRB for writers.
    pub fn collect(&self, synced: Txg) -> Result<Collected, CollectError> {
        {
            let lists = lock(&self.lists);
            if lists.roster.claiming {
                return Err(Misuse::ClaimingNotOver { unclaimed: lists.roster.unclaimed }.into());
            }
        }
        self.synced.fetch_max(synced.0, Ordering::Relaxed);
        self.retire_obsolete_open_chunks(synced);
        let Obsolete { full, replayed } = lock(&self.lists).take_obsolete(synced);
        let mut collected = Collected::default();
        let mut buffer = Vec::new();
        for chunk in full {
            let fault = if self.config.verify_collected { chunk.verify(&mut buffer).err() } else { None };
            match fault {
                Some(found) if found.is_only_copy => {
                    self.retire_faulty(chunk);
                    collected.faults.push(found.fault);
                }
                fault => {
                    if let Some(found) = &fault {
                        self.side_faults[found.side].fetch_add(1, Ordering::Relaxed);
                    }
                    collected.side_faults.extend(fault);
                    collected.chunks += self.free(chunk)?;
                }
            }
        }
        for chunk in replayed {
            collected.chunks += self.free(chunk)?;
        }
        Ok(collected)
    }

    /// Takes chunks with only obsolete entries out of the free commit slots.
    ///
    /// Otherwise an open chunk would stay there until a writer finds it full, and an owner that never waits
    /// could be refused space in a log that holds no needed entry at all.
    fn retire_obsolete_open_chunks(&self, synced: Txg) {
        let mut slots: Vec<_> = std::iter::from_fn(|| self.slots.try_acquire()).collect();
        for slot in &mut slots {
            if let Some(chunk) = slot.take_if(|chunk| !chunk.is_empty() && chunk.max_txg <= synced) {
                lock(&self.lists).retire(chunk);
            }
        }
    }

    fn free(&self, mut chunk: Chunk<M>) -> Result<usize, PersistError> {
        let emptied = chunk.make_empty(self.config.random_epoch());
        match chunk.medium().lost_side() {
            // Its entries are obsolete, so it does no harm that the lost side still has them; see `mirror`.
            Some(side) if emptied.is_ok() => drop(self.note_lost(side)),
            _ => {}
        }
        if emptied.is_err() {
            self.fail();
        }
        let mut lists = lock(&self.lists);
        lists.free.push_back(chunk);
        self.fill.note(&lists);
        drop(lists);
        self.chunks_collected.fetch_add(1, Ordering::Relaxed);
        self.chunk_freed.notify_all();
        emptied.map(|()| 1)
    }

    fn retire_faulty(&self, chunk: Chunk<M>) {
        let mut lists = lock(&self.lists);
        lists.usable -= 1;
        lists.faulty.push(chunk);
        drop(lists);
        self.media_faults.fetch_add(1, Ordering::Relaxed);
        self.chunk_freed.notify_all();
    }
}
