//! A thread that watches logs written recently: when one falls idle, the thread records on the medium what
//! was acknowledged last (`fastness_lwb::Log::witness_idle`). Without this thread, nothing else changes.
//!
//! A commit notifies the thread by setting a flag that is nearly always set already.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fastness_lwb::Space;
use fastness_sync::atomic::{AtomicBool, Ordering};
use fastness_sync::thread::{Builder, JoinHandle};
use fastness_sync::{Condvar, Mutex, RwLock, lock, now, read, wait, wait_for};

use crate::lwb::log::LwbLog;
use fastness_base::DatasetId;

pub(super) type LogMap<S> = Arc<RwLock<BTreeMap<DatasetId, Arc<LwbLog<S>>>>>;

#[derive(Debug, Default)]
struct State {
    /// Logs written since they were last checked.
    written: Vec<DatasetId>,
    is_over: bool,
}

/// What commits tell the thread.
#[derive(Debug, Default)]
pub(super) struct Written {
    state: Mutex<State>,
    changed: Condvar,
}

/// For one log: whether it is on the thread's list.
#[derive(Debug)]
pub(super) struct Noted {
    is_noted: AtomicBool,
    written: Arc<Written>,
}

impl Noted {
    pub(super) fn new(written: Arc<Written>) -> Noted {
        Noted { is_noted: AtomicBool::new(false), written }
    }

    /// Something was acknowledged.
    pub(super) fn note(&self, dataset: DatasetId) {
        if !self.is_noted.load(Ordering::Relaxed) && !self.is_noted.swap(true, Ordering::AcqRel) {
            lock(&self.written.state).written.push(dataset);
            self.written.changed.notify_one();
        }
    }
}

impl Written {
    /// Sleeps until a log is written, and then for `period`; `None`: the thread must end.
    fn next(&self, period: Duration) -> Option<Vec<DatasetId>> {
        let mut state = lock(&self.state);
        while state.written.is_empty() && !state.is_over {
            state = wait(&self.changed, state);
        }
        let until = now() + period;
        loop {
            let rest = until.saturating_duration_since(now());
            if state.is_over {
                return None;
            }
            if rest.is_zero() {
                return Some(std::mem::take(&mut state.written));
            }
            state = wait_for(&self.changed, state, rest);
        }
    }
}

/// The thread; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Watcher {
    written: Arc<Written>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    /// Checks each log every `period` until it is idle. If the system cannot start a thread, there are no
    /// witnesses.
    pub(super) fn start<S: Space + 'static>(
        written: Arc<Written>,
        logs: LogMap<S>,
        period: Duration,
    ) -> Watcher {
        let its = Arc::clone(&written);
        let run = move || {
            while let Some(datasets) = its.next(period) {
                datasets.into_iter().for_each(|dataset| look(&logs, dataset));
            }
        };
        Watcher { written, thread: Builder::new().name("log-witness".into()).spawn(run).ok() }
    }
}

fn look<S: Space>(logs: &LogMap<S>, dataset: DatasetId) {
    let Some(log) = read(logs).get(&dataset).cloned() else { return };
    // Before the check: a commit during it notifies us again.
    log.noted.is_noted.store(false, Ordering::SeqCst);
    if log.chain().witness_idle() {
        log.noted.note(dataset);
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        lock(&self.written.state).is_over = true;
        self.written.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // If it has panicked, there are no witnesses; nothing else depends on it.
            let _ = thread.join();
        }
    }
}
