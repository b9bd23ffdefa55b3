//! Committing: makes sure that the records are in blocks, and waits for the block with the last of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fastness_sync::atomic::Ordering;
use fastness_sync::{MutexGuard, lock, now, wait, wait_for};

use crate::error::CommitError;
use crate::ids::{BlockSeq, Lsn};
use crate::log::index::{Down, Index, State};
use crate::log::{Counters, Log};
use crate::space::Space;

/// What a waiter has to do next.
enum Step {
    Done(Result<(), CommitError>),
    /// The records went back to the queue: there is a new chain.
    Again,
    /// The block has been open for too long.
    Close(BlockSeq),
}

impl<S: Space> Log<S> {
    /// Makes all records up to `upto` durable. A number past the last record means the last record.
    ///
    /// Persistence: on success each of the records, with all earlier ones, is durable in the log, or its txg
    /// has synced. A crash before that leaves a prefix of what was appended.
    ///
    /// Concurrency: any number of threads; the one that finds records in the queue assigns all of them to
    /// blocks.
    ///
    /// # Errors
    /// [`CommitError`]: the records may become part of the log or not; wait until their txgs have synced. A
    /// failed commit also makes the log start a chain with the next txg that allows it.
    pub fn commit(&self, upto: Lsn) -> Result<(), CommitError> {
        Counters::add(&self.counters.commits, 1);
        let result = self.run_commit(upto);
        if result.is_err() {
            Counters::add(&self.counters.failed_commits, 1);
            lock(&self.index).is_wanted = true;
        }
        result
    }

    fn run_commit(&self, mut upto: Lsn) -> Result<(), CommitError> {
        // Whether this thread has written blocks that others may wait for, and woken none of them because it
        // was about to flush itself.
        let mut owes_flush = false;
        loop {
            if self.durable.load(Ordering::Acquire) >= upto.0 && !owes_flush {
                return Ok(());
            }
            if self.assigned.load(Ordering::Acquire) < upto.0 {
                upto = upto.min(lock(&self.queue).last());
                owes_flush |= self.take_care_of(upto);
            }
            match self.wait(upto, &mut owes_flush) {
                Step::Done(result) => return result,
                Step::Again => {}
                Step::Close(seq) => owes_flush |= self.close_late(seq, upto),
            }
        }
    }

    /// Assigns the queued records to blocks, unless another thread does, and writes the closed blocks.
    /// Returns whether the caller owes a flush.
    fn take_care_of(&self, upto: Lsn) -> bool {
        let mut work = lock(&self.spares).work();
        {
            let mut issuer = lock(&self.issuer);
            // The previous holder of the lock may have assigned our records.
            if self.assigned.load(Ordering::Acquire) < upto.0 {
                self.assign(&mut issuer, &mut work);
            }
        }
        self.issue(work, upto)
    }

    /// Closes and writes a block whose timeout has passed, unless another thread did. Returns whether the
    /// caller owes a flush.
    fn close_late(&self, seq: BlockSeq, upto: Lsn) -> bool {
        let mut work = lock(&self.spares).work();
        {
            let mut issuer = lock(&self.issuer);
            let is_open = issuer.open.as_ref().is_some_and(|open| open.seq == seq && !open.is_empty());
            if is_open && lock(&self.index).down.is_none() {
                Counters::add(&self.counters.timeouts, 1);
                issuer.bursts.end();
                self.close(&mut issuer, 0, &mut work);
            }
        }
        self.issue(work, upto)
    }

    /// Waits for the block with the last record up to `upto`; flushes for all waiters if it is our turn.
    ///
    /// A thread that returns without the flush that it owes, because its own records no longer need one or
    /// have failed, wakes another one to do it.
    fn wait(&self, upto: Lsn, owes_flush: &mut bool) -> Step {
        let mut index = lock(&self.index);
        let mut deadline: Option<(BlockSeq, Instant)> = None;
        let step = loop {
            let (seq, state) = match self.target_of(&mut index, upto) {
                Ok(target) => target,
                Err(step) => break step,
            };
            let company = index.gathers(self.counters.commits.load(Ordering::Relaxed));
            // What they have committed goes into the flush that waited for them.
            if company.is_none()
                && index.gather.take().is_some()
                && let Some(opened) = index.opened()
            {
                break Step::Close(opened);
            }
            let is_to_flush = index.is_to_flush(seq);
            if is_to_flush && company.is_none() {
                index = self.lead_flush(index);
                *owes_flush = false;
                continue;
            }
            let rest = if state == State::Opened {
                let until = match deadline {
                    Some((of, until)) if of == seq => until,
                    _ => now() + index.timeout(self.options.timeout_percent),
                };
                deadline = Some((seq, until));
                let rest = until.saturating_duration_since(now());
                if rest.is_zero() {
                    break Step::Close(seq);
                }
                Some(company.map_or(rest, |company| rest.min(company)))
            } else {
                company.filter(|_| is_to_flush)
            };
            index = sleep(index, seq, rest);
        };
        if std::mem::take(owes_flush) {
            index.nudge();
        }
        step
    }

    /// The block to wait for, or to flush; the error is what to do instead.
    fn target_of(&self, index: &mut Index, upto: Lsn) -> Result<(BlockSeq, State), Step> {
        if self.durable.load(Ordering::Acquire) >= upto.0 {
            return Err(Step::Done(Ok(())));
        }
        let failed = |down: &Down| Step::Done(Err(down.error.clone()));
        if self.assigned.load(Ordering::Acquire) < upto.0 {
            return Err(index.down.as_ref().map_or(Step::Again, failed));
        }
        match index.target(upto).map(|block| (block.seq, block.state)) {
            // In no remaining block: flushed and released, or never assigned to one because its txg had
            // synced.
            None | Some((_, State::Flushed)) => Err(Step::Done(Ok(()))),
            Some((seq, state)) => match index.down.as_ref().filter(|down| seq >= down.from) {
                Some(down) => Err(failed(down)),
                None => Ok((seq, state)),
            },
        }
    }
}

/// Sleeps until the waiters of a block are woken, or for at most `rest`.
fn sleep(mut index: MutexGuard<'_, Index>, seq: BlockSeq, rest: Option<Duration>) -> MutexGuard<'_, Index> {
    let Some(block) = index.block(seq) else { return index };
    block.waiters += 1;
    let wake = Arc::clone(&block.wake);
    let mut index = match rest {
        Some(rest) => wait_for(&wake, index, rest),
        None => wait(&wake, index),
    };
    // The block may have been released in the meantime.
    if let Some(block) = index.block(seq) {
        block.waiters -= 1;
    }
    index
}
