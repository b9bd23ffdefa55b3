//! Flushing and acknowledging, in the order of the chain.
//!
//! A flush serves all blocks that were written without a gap when it began. Threads whose blocks are written
//! during it begin another one, up to [`Options::flushes_max`](crate::Options::flushes_max) at a time; beyond
//! that they wait, and when a flush ends, one of them flushes for all. A block without waiters is part of the
//! next flush.
//!
//! Each flush covers all devices with unacknowledged blocks, whether another flush of them is in progress or
//! not: so its success alone acknowledges all blocks that it began with, whatever happens to the others.

use fastness_sync::atomic::Ordering;
use fastness_sync::{MutexGuard, lock, now};

use crate::error::CommitError;
use crate::ids::BlockSeq;
use crate::log::index::{Index, State};
use crate::log::unwind::OnPanic;
use crate::log::{Counters, Log};
use crate::space::Space;

impl<S: Space> Log<S> {
    /// Flushes what can be flushed and acknowledges it. The lock is released meanwhile.
    pub(super) fn lead_flush<'a>(&'a self, mut index: MutexGuard<'a, Index>) -> MutexGuard<'a, Index> {
        let (from, to) = (index.flushed.next(), index.flushable());
        let mut devices = std::mem::take(&mut index.devices);
        devices.clear();
        for seq in from.0..=to.0 {
            let device = index.block(BlockSeq(seq)).expect("a written block").extent.place.device;
            if !devices.contains(&device) {
                devices.push(device);
            }
        }
        index.covered = to;
        index.flushes += 1;
        drop(index);
        let _told = OnPanic { log: self, from };

        // PERSIST: the acknowledgement of the blocks relies on it. Their writes, and those of all earlier
        // blocks, had returned when it began; without it a crash could leave the old contents of any of them,
        // and replay would stop there, before records whose commits had returned success.
        let result = self.space.flush(&devices);

        let mut index = lock(&self.index);
        index.flushes -= 1;
        index.devices = devices;
        Counters::add(&self.counters.flushes, 1);
        match result {
            Ok(()) => self.acknowledge(&mut index, to),
            Err(source) => {
                // Another flush may have acknowledged some; the space would have failed that one as well if
                // it had been affected.
                let from = from.max(index.flushed.next());
                if index.bring_down(CommitError::Flush { seq: from, source }, from) {
                    Counters::add(&self.counters.downs, 1);
                }
            }
        }
        // Blocks written during the flush, whose waiters could not flush.
        index.nudge();
        index
    }

    fn acknowledge(&self, index: &mut Index, to: BlockSeq) {
        let now = now();
        // Excludes what another flush failed to make durable, and what another one has acknowledged.
        let to = to.min(index.flushable());
        for seq in index.flushed.0 + 1..=to.0 {
            let block = index.block(BlockSeq(seq)).expect("a written block");
            block.state = State::Flushed;
            if block.waiters > 0 {
                block.wake.notify_all();
            }
            // Under the index lock, so that no thread sees a number without its block.
            self.durable.fetch_max(block.last_whole.0, Ordering::AcqRel);
            // A witness waits for the next flush by other threads.
            let took = block.issued_at.filter(|_| !block.is_witness).map(|issued_at| now - issued_at);
            if let Some(took) = took {
                index.latency.note(took);
            }
        }
        index.flushed = index.flushed.max(to);
    }
}
