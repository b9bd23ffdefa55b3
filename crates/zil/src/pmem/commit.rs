//! Parallel commits of one dataset.
//!
//! Which entries may be written in parallel, and which share a generation, is argued in
//! `docs/adr/2026-11-22-parallel-commits.md`. In short: an entry is written once everything that it depends
//! on is durable, so a crash never leaves it without these; and it starts a new generation if an entry that
//! it depends on is in the current one, so that a later loss of that entry is noticed.

use fastness_pmem::Medium;
use fastness_prb::{Hdl, Wait, WriteError};
use fastness_sync::{MutexGuard, RwLockReadGuard, lock, read, wait, write};

use crate::error::{LogCause, NotPersisted};
use crate::graph::Job;
use crate::header::KindId;
use crate::kind::{Entry, Kind, Payload, Persisted, ReadBack};
use crate::kind::{KEYS_MAX, Keys};
use crate::pieces::Pieces;
use crate::pmem::log::{Commits, PmemLog};
use crate::record::Head;
use fastness_base::{LogPlace, ObjectId, Txg};

impl<M: Medium + Sync> Kind for PmemLog<M> {
    fn id(&self) -> KindId {
        KindId::Pmem
    }

    fn record_bytes_max(&self) -> usize {
        self.prb.body_bytes_max()
    }

    fn writes_alone(&self) -> bool {
        true
    }

    fn submit(&self, entries: Vec<Entry>) -> u64 {
        let mut commits = lock(&self.commits);
        entries.into_iter().for_each(|entry| commits.graph.add(entry));
        commits.graph.last_number()
    }

    fn persist(
        &self,
        object: ObjectId,
        horizon: u64,
        source: &dyn ReadBack,
    ) -> Result<Persisted, NotPersisted> {
        let (mut done, mut buffer) = (Persisted::default(), Vec::new());
        let mut commits = lock(&self.commits);
        let mut needed = commits.graph.needed(object, horizon);
        loop {
            commits.graph.trim(&mut needed);
            if needed.is_empty() {
                return Ok(done);
            }
            if let Some(cause) = self.refusal() {
                let txg = commits.graph.newest_txg(&needed).expect("the first of them is left");
                return Err(NotPersisted { txg, cause });
            }
            let Some(mut job) = commits.graph.begin(&needed) else {
                done.waits += 1;
                commits = self.wait_for_others(commits);
                continue;
            };
            drop(commits);
            let written = self.write_job(&mut job, source, &mut buffer, &mut done);
            commits = lock(&self.commits);
            match written {
                Ok(()) => commits.graph.finish(job.number),
                Err(cause) => {
                    // The entry stays, and whatever depends on it stays out of the log, until its txg has
                    // synced or another attempt to write it succeeds.
                    let txg = commits.graph.newest_txg(&needed).unwrap_or(job.txg);
                    commits.graph.put_back(job);
                    self.notify(&commits);
                    return Err(NotPersisted { txg, cause });
                }
            }
            self.notify(&commits);
        }
    }

    #[inline]
    fn log_alone(&self, txg: Txg, record: [&[u8]; 2]) -> Result<Option<LogPlace>, NotPersisted> {
        // Before locking: the lock's holder may be waiting for a txg, and the caller holds one open.
        if let Some(cause) = self.refusal() {
            return Err(NotPersisted { txg, cause });
        }
        let hdl = read(&self.hdl);
        // And again under the lock, see `suspend`.
        if let Some(cause) = self.refusal() {
            return Err(NotPersisted { txg, cause });
        }
        match hdl.place_entry(txg, record, Wait::Fail) {
            Ok(placed) => Ok(placed.and_then(|placed| self.prb.place_of(&placed))),
            Err(error) => Err(NotPersisted { txg, cause: self.note_error(error) }),
        }
    }

    #[inline]
    fn log_next(
        &self,
        txg: Txg,
        object: ObjectId,
        record: [&[u8]; 2],
    ) -> Result<(bool, Option<LogPlace>), NotPersisted> {
        // Before locking, as above.
        if let Some(cause) = self.refusal() {
            return Err(NotPersisted { txg, cause });
        }
        let commits = lock(&self.commits);
        if commits.graph.needs(object) {
            return Ok((false, None));
        }
        let mut keys = [ObjectId::NONE; KEYS_MAX];
        keys[0] = object;
        let entered = self.enter_locked(commits, &keys, true);
        let hdl = entered.map_err(|cause| NotPersisted { txg, cause })?;
        match hdl.place_entry(txg, record, Wait::Fail) {
            Ok(placed) => Ok((true, placed.and_then(|placed| self.prb.place_of(&placed)))),
            Err(error) => Err(NotPersisted { txg, cause: self.note_error(error) }),
        }
    }

    fn order(&self, is_forced: bool) -> Result<(), LogCause> {
        if let Some(cause) = self.refusal() {
            return Err(cause);
        }
        let mut hdl = if is_forced {
            write(&self.hdl)
        } else {
            match self.hdl.try_write() {
                Ok(hdl) => hdl,
                Err(_) => return Ok(()),
            }
        };
        hdl.start_generation().map_err(|_| self.refusal().unwrap_or(LogCause::Bug))
    }

    fn txg_synced(&self, txg: Txg) {
        let mut commits = lock(&self.commits);
        commits.graph.forget_synced(txg);
        self.notify(&commits);
    }
}

impl<M: Medium + Sync> PmemLog<M> {
    fn wait_for_others<'a>(&'a self, mut commits: MutexGuard<'a, Commits>) -> MutexGuard<'a, Commits> {
        commits.waiters += 1;
        let mut commits = wait(&self.changed, commits);
        commits.waiters -= 1;
        commits
    }

    fn notify(&self, commits: &Commits) {
        if commits.waiters > 0 {
            self.changed.notify_all();
        }
    }

    /// Writes all records of an entry. Holds no lock while it reads back.
    fn write_job(
        &self,
        job: &mut Job,
        source: &dyn ReadBack,
        buffer: &mut Vec<u8>,
        done: &mut Persisted,
    ) -> Result<(), LogCause> {
        let number = job.number;
        match &mut job.payload {
            Payload::Record(record) => {
                Head::set_number(record, number);
                let written = self.enter(&job.keys, true)?.write_entry(job.txg, record, Wait::Fail);
                let (bytes, is_there) = (record.len(), matches!(written, Err(WriteError::OnOneSide { .. })));
                if is_there {
                    // If written again, it would be replayed twice.
                    job.payload = Payload::Written;
                }
                self.count(written.map(drop), bytes, done)
            }
            Payload::Written => match self.prb.lost_side() {
                None => Ok(()),
                Some(_) => Err(LogCause::SideLost),
            },
            &mut Payload::NeedCopy { offset, len_bytes } => {
                let mut pieces = Pieces::new(buffer, self.record_bytes_max(), offset, len_bytes)?;
                let head = Head { txg: job.txg, number, object: job.object };
                let mut is_first = true;
                while let Some(record) = pieces.next(head, source)? {
                    // A single write may be torn: its records do not depend on each other.
                    let hdl = self.enter(&job.keys, is_first)?;
                    let written = hdl.write_entry(job.txg, record, Wait::Fail);
                    drop(hdl);
                    self.count(written.map(drop), record.len(), done)?;
                    is_first = false;
                }
                Ok(())
            }
        }
    }

    fn count(
        &self,
        written: Result<(), WriteError>,
        bytes: usize,
        done: &mut Persisted,
    ) -> Result<(), LogCause> {
        written.map_err(|error| self.note_error(error))?;
        done.records += 1;
        done.bytes += bytes as u64;
        Ok(())
    }

    /// The log, in the generation that the next record of these objects belongs to.
    fn enter(&self, keys: &Keys, is_first: bool) -> Result<RwLockReadGuard<'_, Hdl<M>>, LogCause> {
        self.enter_locked(lock(&self.commits), keys, is_first)
    }

    #[inline]
    fn enter_locked(
        &self,
        mut commits: MutexGuard<'_, Commits>,
        keys: &Keys,
        is_first: bool,
    ) -> Result<RwLockReadGuard<'_, Hdl<M>>, LogCause> {
        let starts = if is_first {
            commits.graph.enter(keys)
        } else {
            commits.graph.enter_again(keys);
            false
        };
        // Still under the lock: between a generation's start in the graph and in the log, no thread may
        // write. A thread that is writing now needs no lock to finish its record, so this waits for one
        // record at most.
        if starts {
            // In any other state, the write that follows reports it.
            let _ = write(&self.hdl).start_generation();
        }
        // In between, a flush of a volume may start one more generation; that orders no less.
        let hdl = read(&self.hdl);
        // Under the lock, see `suspend`.
        self.refusal().map_or(Ok(hdl), Err)
    }
}
