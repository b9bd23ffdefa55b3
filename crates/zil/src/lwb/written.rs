//! Which logs were written recently: what commits tell the thread that watches for idle ones (`lwb::idle`).
//!
//! A commit notifies the thread by setting a flag that is nearly always set already.

use std::sync::Arc;
use std::time::Duration;

use fastness_sync::atomic::{AtomicBool, Ordering};
use fastness_sync::{Condvar, Mutex, lock, now, wait, wait_for};

use fastness_base::DatasetId;

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

    /// What is acknowledged from now on notifies the thread again.
    pub(super) fn clear(&self) {
        self.is_noted.store(false, Ordering::SeqCst);
    }
}

impl Written {
    /// The thread must end.
    pub(super) fn end(&self) {
        lock(&self.state).is_over = true;
        self.changed.notify_all();
    }

    /// Sleeps until a log is written, and then for `period`; `None`: the thread must end.
    pub(super) fn next(&self, period: Duration) -> Option<Vec<DatasetId>> {
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
