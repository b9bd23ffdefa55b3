//! Commits of one dataset: appends records to the chain in an order that replay may see, then commits the
//! chain up to the last record needed.
//!
//! A chain has one order, and after a crash a prefix of it is there. So only the order of *appending*
//! matters: an entry may be appended once everything that it depends on has been, by whichever thread.
//! Durability is up to the chain: a commit makes everything durable that was appended before its own last
//! record.
//!
//! 1. A thread takes a run of entries (`graph`), each of which depends only on what has been appended or
//!    comes before it in the run. It reads back and appends without a lock; a thread that needs one of these
//!    entries sleeps until the run is appended. If there is much to read back, whatever can be stored in the
//!    pool instead is stored first, all of it with one flush.
//! 2. *A read-back fails*: the entry goes back into the queue with everything after it in the run; so nothing
//!    that depends on it gets into the chain until its txg has synced or a later commit reads it back. Of a
//!    write with some pieces already appended, only the rest is left: a retry appends nothing twice, so
//!    memory is bounded by what is dirty. The commit, and any other that needs the entry, waits for the txg.
//! 3. *A chain fails*: this is not handled here. Appended records that are not durable go into the next
//!    chain, in order and before anything that is appended later (`fastness_lwb`). A commit that fails with
//!    the chain waits for the newest txg of everything appended so far, which includes what it needs.
//! 4. *A chain is down*: nothing is appended to it or read back for it, entries stay in the queue, commits
//!    wait for txgs.
//!
//! Why nothing acknowledged is missing: a commit returns success when its entries have left the graph, which
//! happens only once they are appended or their txg has synced, and the chain has made durable everything
//! appended by then.

use std::collections::VecDeque;

use fastness_lwb::{Lsn, RECORD_BYTES_MAX, Space};
use fastness_sync::{MutexGuard, lock, wait};

use crate::error::{LogCause, NotPersisted};
use crate::graph::Job;
use crate::header::KindId;
use crate::kind::{Entry, Kind, Payload, Persisted, ReadBack};
use crate::lwb::data::{Data, run_bytes, stored_of};
use crate::lwb::log::{Commits, LwbLog};
use crate::pool::StoredData;
use crate::record::Head;
use fastness_base::{LogPlace, ObjectId, Txg};

/// How much of a run was appended.
struct Appended {
    /// Entries, from the front.
    entries: usize,
    last: Lsn,
    failed: Option<LogCause>,
}

impl<S: Space> Kind for LwbLog<S> {
    fn id(&self) -> KindId {
        KindId::Lwb
    }

    fn record_bytes_max(&self) -> usize {
        RECORD_BYTES_MAX
    }

    fn writes_alone(&self) -> bool {
        false
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
        let mut done = Persisted::default();
        let (upto, txg) = self.append_needed(object, horizon, source, &mut done)?;
        match self.log.commit(upto) {
            Ok(()) => {
                self.noted.note(self.dataset);
                Ok(done)
            }
            Err(error) => Err(NotPersisted { txg, cause: self.note_error(error) }),
        }
    }

    fn log_alone(&self, txg: Txg, record: [&[u8]; 2]) -> Result<Option<LogPlace>, NotPersisted> {
        if let Some(cause) = self.refusal() {
            return Err(NotPersisted { txg, cause });
        }
        let lsn = self.log.append(txg, &record.concat());
        self.log.commit(lsn).map_err(|error| NotPersisted { txg, cause: self.note_error(error) })?;
        self.noted.note(self.dataset);
        Ok(None)
    }

    fn log_next(&self, _: Txg, _: ObjectId, _: [&[u8]; 2]) -> Result<(bool, Option<LogPlace>), NotPersisted> {
        // Several commits share a block of the chain; this would take one for each record.
        Ok((false, None))
    }

    fn order(&self, _is_forced: bool) -> Result<(), LogCause> {
        // The chain has one order.
        self.refusal().map_or(Ok(()), Err)
    }

    fn txg_synced(&self, txg: Txg) {
        let mut commits = lock(&self.commits);
        commits.graph.forget_synced(txg);
        self.notify(&commits);
    }
}

impl<S: Space> LwbLog<S> {
    /// Makes sure that everything a commit needs is appended. Returns up to where the chain must be durable,
    /// and the newest txg of what is appended up to there.
    fn append_needed(
        &self,
        object: ObjectId,
        horizon: u64,
        source: &dyn ReadBack,
        done: &mut Persisted,
    ) -> Result<(Lsn, Txg), NotPersisted> {
        let mut buffer = Vec::new();
        let mut commits = lock(&self.commits);
        let mut needed = commits.graph.needed(object, horizon);
        let run_bytes = run_bytes(source);
        loop {
            commits.graph.trim(&mut needed);
            if needed.is_empty() {
                return Ok((commits.last, commits.newest));
            }
            if let Some(cause) = self.refusal() {
                // Perhaps no new chain has been requested yet.
                self.log.start();
                return Err(not_persisted(&commits, &needed, cause));
            }
            let mut run = commits.graph.begin_run(&needed, run_bytes);
            if run.is_empty() {
                done.waits += 1;
                commits = self.wait_for_others(commits);
                continue;
            }
            drop(commits);
            let appended = self.append_run(&mut run, source, &mut buffer, done);
            commits = lock(&self.commits);
            self.finish_run(&mut commits, run, &appended);
            if let Some(cause) = appended.failed {
                return Err(not_persisted(&commits, &needed, cause));
            }
        }
    }

    /// Appends the records of a run, in order, up to the first one that cannot be read back. Holds none of
    /// this log's locks.
    fn append_run(
        &self,
        run: &mut [Job],
        source: &dyn ReadBack,
        buffer: &mut Vec<u8>,
        done: &mut Persisted,
    ) -> Appended {
        let mut appended = Appended { entries: 0, last: Lsn(0), failed: None };
        let stored = match stored_of(run, source) {
            Ok(stored) => stored,
            Err(cause) => return Appended { failed: Some(cause), ..appended },
        };
        for (job, stored) in run.iter_mut().zip(stored) {
            match self.append_job(job, &stored, source, buffer, done) {
                Ok(last) => appended.last = appended.last.max(last),
                Err(cause) => {
                    appended.failed = Some(cause);
                    break;
                }
            }
            appended.entries += 1;
        }
        appended
    }

    /// Appends the records of an entry; returns the number of the last one, 0 if it has none.
    fn append_job(
        &self,
        job: &mut Job,
        stored: &[StoredData],
        source: &dyn ReadBack,
        buffer: &mut Vec<u8>,
        done: &mut Persisted,
    ) -> Result<Lsn, LogCause> {
        let mut append = |record: &[u8]| {
            done.records += 1;
            done.bytes += record.len() as u64;
            self.log.append(job.txg, record)
        };
        match &mut job.payload {
            Payload::Record(record) => {
                Head::set_number(record, job.number);
                Ok(append(record))
            }
            Payload::NeedCopy { offset, len_bytes } => {
                let head = Head { txg: job.txg, number: job.number, object: job.object };
                let mut data = Data { head, offset, len_bytes, source, buffer };
                let last = data.append(stored, &mut append)?;
                done.indirect += stored.len() as u64;
                done.indirect_bytes += stored.iter().map(|stored| stored.written_bytes).sum::<u64>();
                Ok(last)
            }
            // For the other kind only.
            Payload::Written => Err(LogCause::Bug),
        }
    }

    /// What was appended leaves the graph, the rest goes back into the queue.
    fn finish_run(&self, commits: &mut Commits, run: Vec<Job>, appended: &Appended) {
        commits.last = commits.last.max(appended.last);
        for (index, job) in run.into_iter().enumerate() {
            if index < appended.entries {
                commits.newest = commits.newest.max(job.txg);
                commits.graph.finish(job.number);
            } else {
                commits.graph.put_back(job);
            }
        }
        self.notify(commits);
    }

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
}

/// What a commit must wait for: its entries that are left, and those that are appended but may not be
/// durable.
fn not_persisted(commits: &Commits, needed: &VecDeque<u64>, cause: LogCause) -> NotPersisted {
    let left = commits.graph.newest_txg(needed).unwrap_or_default();
    NotPersisted { txg: left.max(commits.newest), cause }
}
