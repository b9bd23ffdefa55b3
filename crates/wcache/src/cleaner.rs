//! Writes generations back, oldest first, as fast as the origin takes them.

use std::sync::Arc;
use std::time::Duration;

use fastness_pmem::Medium;
use fastness_sync::atomic::Ordering;
use fastness_sync::{lock, thread, wait_for};

use fastness_base::chain;
use fastness_prb::Txg;

use crate::cache::{Cache, add};
use crate::error::Error;
use crate::slot::Slot;
use crate::status::Status;

/// Write-backs in a second: what one of them frees comes at once.
const BATCHES: u64 = 10;
/// Between two attempts on an origin that fails, at first and at most.
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(2);

impl<M: Medium + Sync> Cache<M> {
    /// Writes the oldest closed generations back, as many as the origin takes in a tenth of a second; false:
    /// there is none.
    ///
    /// Persistence: what was written back is durable on the origin, and its space in the log is free.
    ///
    /// # Errors
    /// Of the origin: everything is in the log still. Of the region: the cache acknowledges nothing any more.
    pub fn tend(&self) -> Result<bool, Error> {
        let capacity = self.superblock.geometry.capacity_bytes();
        let most = (self.throttle.rate() / BATCHES).clamp(capacity / 32, capacity / 8);
        let mut write_back = lock(&self.write_back);
        self.try_to_settle_loss()?;
        let (mut until, mut bytes) = (None, 0);
        for (txg, of_generation) in &lock(&self.closed).queue {
            if until.is_some() && bytes + of_generation > most {
                break;
            }
            (until, bytes) = (Some(*txg), bytes + of_generation);
        }
        // What a failed attempt was about is a part of the next one.
        let Some(until) = until.map(|until| until.max(write_back.until)) else { return Ok(false) };
        let began = fastness_sync::now();
        lock(&self.closed).since = Some(began);
        let written = write_back.run(&self.blocks, &self.target, until);
        let result = match written {
            Ok(written) => {
                add(&self.counts.written_back_bytes, written.bytes);
                add(&self.counts.written_back_runs, written.writes);
                self.blocks.retire(&std::mem::take(&mut write_back.blocks), until);
                self.retire(until).map_err(|error| self.note_region(error))
            }
            Err(error) => Err(error),
        };
        if result.is_ok() {
            self.throttle.note(bytes, fastness_sync::now().saturating_duration_since(began));
        }
        add(if result.is_ok() { &self.counts.write_backs } else { &self.counts.failed_write_backs }, 1);
        let mut closed = lock(&self.closed);
        closed.since = None;
        closed.failure = result.as_ref().err().map(|error| chain(error));
        drop(closed);
        self.room.notify_all();
        result.map(|()| true)
    }

    /// Frees the space of generations that the origin has.
    fn retire(&self, until: u64) -> Result<(), Error> {
        let mut front = lock(&self.front);
        // The slot first: its fence orders it before the chunks are emptied. The other way round, a crash
        // could find a log of which a part is gone that the slot still asks for.
        let slot = Slot { synced: until, ..front.slot().clone() };
        front.update(slot)?;
        // Before chunks are emptied, too: a side that did not get the slot still asks for them.
        self.record_loss(&mut front)?;
        drop(front);
        self.prb.collect(Txg(until))?;
        let mut closed = lock(&self.closed);
        closed.synced = until;
        while closed.queue.front().is_some_and(|(txg, _)| *txg <= until) {
            closed.queue.pop_front();
        }
        Ok(())
    }

    /// Writes everything back that was changed before the call.
    ///
    /// Persistence: on success the origin alone has all of it.
    ///
    /// # Errors
    /// As [`tend`](Self::tend).
    pub fn flush(&self) -> Result<(), Error> {
        self.close_generation(1);
        let last = lock(&self.closed).queue.back().map(|(txg, _)| *txg);
        while last.is_some_and(|last| lock(&self.closed).synced < last) {
            self.tend()?;
        }
        Ok(())
    }

    /// What the cache is like now.
    pub fn status(&self) -> Status {
        let count = |counter: &fastness_sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let open = count(&self.open_bytes);
        let closed = lock(&self.closed);
        let (delays, delay_ns) = self.throttle.delays();
        let waiting = closed.since.map(|since| fastness_sync::now().saturating_duration_since(since));
        Status {
            blocks: self.blocks.index.len() as u64,
            zero_ranges: self.blocks.ranges() as u64,
            log_bytes: open + closed.queue.iter().map(|(_, bytes)| bytes).sum::<u64>(),
            capacity_bytes: self.superblock.geometry.capacity_bytes(),
            used_per_1024: self.prb.used_per_1024(),
            generations: closed.queue.len() as u64 + u64::from(open > 0),
            synced: closed.synced,
            failure: closed.failure.clone(),
            write_back_ms: waiting.map_or(0, |waiting| waiting.as_millis() as u64),
            is_region_failed: self.is_region_failed.load(Ordering::SeqCst),
            sides: self.sides(),
            writes: count(&self.counts.writes),
            written_bytes: count(&self.counts.written_bytes),
            reads: count(&self.counts.reads),
            log_read_bytes: count(&self.counts.log_read_bytes),
            origin_read_bytes: count(&self.counts.origin_read_bytes),
            written_back_bytes: count(&self.counts.written_back_bytes),
            written_back_runs: count(&self.counts.written_back_runs),
            write_backs: count(&self.counts.write_backs),
            failed_write_backs: count(&self.counts.failed_write_backs),
            rate: self.throttle.rate(),
            delays,
            delay_ns,
            stops: count(&self.counts.stops),
            write_ns_max: count(&self.counts.write_ns_max),
        }
    }
}

/// A thread that writes back until it is dropped; then it is done with what it was doing, and no more.
#[derive(Debug)]
pub struct Cleaner {
    stop: Box<dyn Stop>,
    thread: Option<thread::JoinHandle<()>>,
}

/// A cache of any medium, to be told that its cleaner stops.
trait Stop: Send + Sync + std::fmt::Debug {
    fn stop(&self);
}

impl<M: Medium + Sync + std::fmt::Debug> Stop for Arc<Cache<M>> {
    fn stop(&self) {
        let closed = lock(&self.closed);
        self.has_cleaner.store(false, Ordering::SeqCst);
        drop(closed);
        self.work.notify_all();
    }
}

impl Cleaner {
    /// Starts the thread. A cache has one at a time.
    pub fn start<M: Medium + Sync + std::fmt::Debug + 'static>(cache: &Arc<Cache<M>>) -> Cleaner {
        cache.has_cleaner.store(true, Ordering::SeqCst);
        let cleaned = Arc::clone(cache);
        let thread = thread::spawn(move || clean(&cleaned));
        Cleaner { stop: Box::new(Arc::clone(cache)), thread: Some(thread) }
    }
}

fn clean<M: Medium + Sync>(cache: &Cache<M>) {
    let mut retry = RETRY_FIRST;
    while cache.has_cleaner.load(Ordering::SeqCst) {
        match cache.tend() {
            Ok(true) => retry = RETRY_FIRST,
            Ok(false) => {
                // Nothing is closed: what is open is closed once the period is over.
                pause(cache, cache.options.period, true);
                if lock(&cache.closed).queue.is_empty() {
                    cache.close_generation(1);
                }
            }
            // The origin has what it took; the region takes nothing more.
            Err(error) if error.is_of_region() => return,
            Err(_) => {
                pause(cache, retry, false);
                retry = (retry * 2).min(RETRY_MAX);
            }
        }
    }
}

/// Waits until the cleaner is to stop, or, `for_work`, a generation is closed; for at most `rest`.
fn pause<M: Medium + Sync>(cache: &Cache<M>, rest: Duration, for_work: bool) {
    let end = fastness_sync::now() + rest;
    let mut closed = lock(&cache.closed);
    while (!for_work || closed.queue.is_empty()) && cache.has_cleaner.load(Ordering::SeqCst) {
        let left = end.saturating_duration_since(fastness_sync::now());
        if left.is_zero() {
            return;
        }
        closed = wait_for(&cache.work, closed, left);
    }
}

impl Drop for Cleaner {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported by itself.
            let _ = thread.join();
        }
    }
}
