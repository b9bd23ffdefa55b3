//! Flushing and acknowledging, in the order of the chain.
//!
//! A flush serves all blocks that were written without a gap when it began. Threads whose blocks are written
//! during it begin another one, up to as many as do not slow each other (`pace`); beyond that they wait, and
//! when a flush ends, one of them flushes for all. A block without waiters is part of the next flush.
//!
//! Each flush covers all devices with unacknowledged blocks, whether another flush of them is in progress or
//! not: so its success alone acknowledges all blocks that it began with, whatever happens to the others.

use std::time::Instant;

use fastness_sync::atomic::Ordering;
use fastness_sync::{MutexGuard, lock, now};

use crate::error::CommitError;
use crate::ids::BlockSeq;
use crate::log::index::{Index, State};
use crate::log::pace::{Begun, Gather};
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
        let begun = Begun::new(now(), index.flushes, index.begun);
        index.flushes += 1;
        index.begun += 1;
        index.gather = None;
        drop(index);
        let _told = OnPanic { log: self, from };

        // PERSIST: the acknowledgement of the blocks relies on it. Their writes, and those of all earlier
        // blocks, had returned when it began; without it a crash could leave the old contents of any of them,
        // and replay would stop there, before records whose commits had returned success.
        let result = self.space.flush(&devices);

        let mut index = lock(&self.index);
        index.flushes -= 1;
        let (ended, count) = (now(), index.begun);
        index.pace.note(begun, ended, count);
        index.devices = devices;
        Counters::add(&self.counters.flushes, 1);
        match result {
            Ok(()) => {
                let woken = self.acknowledge(&mut index, to);
                self.gather(&mut index, ended, woken);
            }
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

    /// Threads that a flush has woken commit again soon, as a rule: the next flush waits for them a moment,
    /// if flushes slow each other.
    fn gather(&self, index: &mut Index, ended: Instant, woken: u32) {
        let is_last = index.flushes == 0;
        index.gather = index.pace.gather_time().filter(|_| is_last).map(|time| Gather {
            commits: self.counters.commits.load(Ordering::Relaxed) + u64::from(woken),
            until: ended + time,
        });
    }

    /// Returns how many threads waited for it, the caller among them.
    fn acknowledge(&self, index: &mut Index, to: BlockSeq) -> u32 {
        let now = now();
        let mut woken = 1;
        // Excludes what another flush failed to make durable, and what another one has acknowledged.
        let to = to.min(index.flushable());
        for seq in index.flushed.0 + 1..=to.0 {
            let block = index.block(BlockSeq(seq)).expect("a written block");
            block.state = State::Flushed;
            woken += block.waiters;
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
        woken
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fastness_blkdev::{BlockDevice, MemDevice};

    use super::*;
    use crate::DeviceSpace;
    use crate::ids::Txg;
    use crate::log::Options;

    const BYTES: u64 = 1 << 20;

    fn log() -> Log<DeviceSpace<MemDevice>> {
        let space = DeviceSpace::new(MemDevice::new("disk", BYTES), 0..BYTES).unwrap();
        let log = Log::new(space, Txg(1), Options::default());
        log.start();
        let _header = log.sync_header(Txg(2));
        log.synced(Txg(2));
        log
    }

    /// The next flush waits for so many commits, or so long.
    fn gather(log: &Log<DeviceSpace<MemDevice>>, commits: u64, time: Duration) {
        let commits = log.status().commits + commits;
        lock(&log.index).gather = Some(Gather { commits, until: Instant::now() + time });
    }

    fn commit(log: &Log<DeviceSpace<MemDevice>>) {
        log.commit(log.append(Txg(3), b"record")).unwrap();
    }

    #[test]
    fn a_flush_waits_for_those_that_are_about_to_commit() {
        let log = log();
        gather(&log, 3, Duration::from_secs(60));
        let since = Instant::now();
        std::thread::scope(|scope| {
            (0..3).for_each(|_| drop(scope.spawn(|| commit(&log))));
        });
        assert!(since.elapsed() < Duration::from_secs(40), "all are here: nobody waits longer");
        assert_eq!((log.status().commits, log.status().flushes), (3, 1));
        commit(&log);
        assert_eq!(log.status().flushes, 2, "and nobody waits for them again");
    }

    #[test]
    fn who_does_not_come_is_not_waited_for_for_ever() {
        let log = log();
        gather(&log, 2, Duration::from_millis(30));
        commit(&log);
        assert_eq!(log.status().flushes, 1);
        assert!(log.space().device().stats().of(fastness_blkdev::Operation::Flush).ops > 0);
    }
}
