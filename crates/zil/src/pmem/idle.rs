//! A thread that watches logs: when one falls idle, the thread writes an entry without a body, which counts
//! the entries before it (`fastness_prb::Hdl::witness`). Without this thread, nothing else changes.
//!
//! Writers do nothing for it. The thread looks at the PRB's own counters, and only if these have changed at
//! the logs; while nothing is written it looks less often.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fastness_base::DatasetId;
use fastness_pmem::Medium;
use fastness_prb::{EntryId, Prb};
use fastness_sync::thread::{Builder, JoinHandle};
use fastness_sync::{Condvar, Mutex, RwLock, lock, now, read, wait_for, write};

use crate::pmem::log::PmemLog;

pub(super) type LogMap<M> = Arc<RwLock<BTreeMap<DatasetId, Arc<PmemLog<M>>>>>;

/// How much less often the thread looks while nothing is written.
const AT_REST: u32 = 4;

impl<M: Medium + Sync> PmemLog<M> {
    /// What an idle log must do: counts on the medium what was written last. Returns whether it did.
    ///
    /// Errors are those that the next record would meet, and are noted as such.
    pub fn witness(&self) -> bool {
        if self.refusal().is_some() {
            return false;
        }
        let mut hdl = write(&self.hdl);
        // And again under the lock, see `suspend`.
        if self.refusal().is_some() {
            return false;
        }
        match hdl.witness() {
            Ok(written) => written.is_some(),
            Err(error) => {
                self.note_error(error);
                false
            }
        }
    }

    /// Whether a [witness](Self::witness) would say something.
    pub fn witness_is_due(&self) -> bool {
        self.unwitnessed().is_some()
    }

    fn unwitnessed(&self) -> Option<EntryId> {
        if self.refusal().is_some() { None } else { read(&self.hdl).unwitnessed() }
    }
}

/// What the thread has seen.
#[derive(Debug, Default)]
struct Seen {
    entries: u64,
    /// Logs whose last entry nothing counts yet.
    last: BTreeMap<DatasetId, EntryId>,
}

impl Seen {
    /// Looks at all logs if anything was written; returns whether there is more to do soon.
    fn look<M: Medium + Sync>(&mut self, prb: &Prb<M>, logs: &LogMap<M>) -> bool {
        let entries = prb.entries_written();
        if entries == self.entries && self.last.is_empty() {
            return false;
        }
        self.entries = entries;
        let logs: Vec<_> = read(logs).iter().map(|(id, log)| (*id, Arc::clone(log))).collect();
        let earlier = std::mem::take(&mut self.last);
        for (dataset, log) in logs {
            let Some(last) = log.unwitnessed() else { continue };
            if earlier.get(&dataset) != Some(&last) || !log.witness() {
                self.last.insert(dataset, last);
            }
        }
        true
    }
}

/// The thread; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Watcher {
    is_over: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    /// Looks every `period`, or every four of them while nothing is written. If the system cannot start a
    /// thread, there are no witnesses.
    pub(super) fn start<M>(prb: Arc<Prb<M>>, logs: LogMap<M>, period: Duration) -> Watcher
    where
        M: Medium + Send + Sync + 'static,
    {
        let is_over = Arc::new((Mutex::new(false), Condvar::new()));
        let its = Arc::clone(&is_over);
        let run = move || {
            let mut seen = Seen::default();
            let mut pause = period;
            while sleep(&its, pause) {
                pause = if seen.look(&prb, &logs) { period } else { period * AT_REST };
            }
        };
        Watcher { is_over, thread: Builder::new().name("log-witness".into()).spawn(run).ok() }
    }
}

/// Sleeps; false: the thread must end.
fn sleep((is_over, changed): &(Mutex<bool>, Condvar), pause: Duration) -> bool {
    let until = now() + pause;
    let mut over = lock(is_over);
    loop {
        let rest = until.saturating_duration_since(now());
        if *over || rest.is_zero() {
            return !*over;
        }
        over = wait_for(changed, over, rest);
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        *lock(&self.is_over.0) = true;
        self.is_over.1.notify_all();
        if let Some(thread) = self.thread.take() {
            // If it has panicked, there are no witnesses; nothing else depends on it.
            let _ = thread.join();
        }
    }
}
