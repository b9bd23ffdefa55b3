//! Requests of clients that wait while the pool is suspended (`failmode=wait`).
//!
//! No layer below waits: a volume of a suspended pool fails at once. This module blocks such a failed request
//! and retries it after the pool is resumed. That is sound because the request has not been answered: what it
//! did before it failed is unordered with respect to other requests in flight, and repeating it leaves the
//! same bytes. A waiting request is never reported as done.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};

use fastness_error::ErrorKind;
use fastness_pool::{DatasetId, FailMode, Pool};
use fastness_zvol::{Volume, VolumeError};

use crate::lock;

#[derive(Debug, Default)]
struct State {
    /// How often the pool was resumed.
    cleared: u64,
    waiting: usize,
}

/// Where requests wait; one per node.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

impl Gate {
    fn cleared(&self) -> u64 {
        lock(&self.state).cleared
    }

    /// Waits until the pool has been resumed since `seen`; false if `is_ended` was set first.
    fn wait(&self, seen: u64, is_ended: &AtomicBool) -> bool {
        let mut state = lock(&self.state);
        state.waiting += 1;
        while state.cleared == seen && !is_ended.load(Ordering::SeqCst) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.waiting -= 1;
        state.cleared != seen
    }

    /// The pool is resumed: all waiting requests are retried.
    pub(crate) fn open(&self) {
        lock(&self.state).cleared += 1;
        self.changed.notify_all();
    }

    /// Wakes the waiting threads so that they check whether to end.
    fn wake(&self) {
        // Under the lock, so that a thread that has just checked does not miss the wakeup.
        let _state = lock(&self.state);
        self.changed.notify_all();
    }

    /// Number of waiting requests.
    pub(crate) fn waiting(&self) -> usize {
        lock(&self.state).waiting
    }
}

/// A volume, and the import of the pool that it belongs to.
struct Opened {
    pool: Arc<Pool>,
    volume: Arc<Volume>,
}

/// The outcome of a request.
pub(crate) enum Outcome {
    Done(Result<(), VolumeError>),
    /// The server is stopping.
    Ended,
}

/// A served volume, across imports of its pool.
pub(crate) struct Slot {
    gate: Arc<Gate>,
    /// Held shared by each request; `None` between two imports.
    opened: RwLock<Option<Opened>>,
    is_ended: AtomicBool,
    pub(crate) id: DatasetId,
    name: String,
}

impl Slot {
    pub(crate) fn new(gate: &Arc<Gate>, pool: Arc<Pool>, volume: Arc<Volume>) -> Slot {
        Slot {
            gate: gate.clone(),
            id: volume.dataset().id(),
            name: volume.name(),
            opened: RwLock::new(Some(Opened { pool, volume })),
            is_ended: AtomicBool::new(false),
        }
    }

    /// The volume; `None` while the pool is being imported again.
    pub(crate) fn volume(&self) -> Option<Arc<Volume>> {
        let opened = self.opened.read().unwrap_or_else(PoisonError::into_inner);
        opened.as_ref().map(|opened| opened.volume.clone())
    }

    /// Its current name, or the one it was first served under.
    pub(crate) fn name(&self) -> String {
        self.volume().map_or_else(|| self.name.clone(), |volume| volume.name())
    }

    /// Carries out a request; if the pool is suspended and its `failmode` says to wait, waits and retries.
    pub(crate) fn run(&self, mut request: impl FnMut(&Volume) -> Result<(), VolumeError>) -> Outcome {
        loop {
            let seen = self.gate.cleared();
            {
                let opened = self.opened.read().unwrap_or_else(PoisonError::into_inner);
                if let Some(Opened { pool, volume }) = &*opened {
                    match request(volume) {
                        Err(error) if waits(pool, &error) => {}
                        result => return Outcome::Done(result),
                    }
                }
            }
            if !self.gate.wait(seen, &self.is_ended) {
                return Outcome::Ended;
            }
        }
    }

    /// Waits until no request uses the volume, and drops it; new requests wait.
    pub(crate) fn let_go(&self) {
        *self.opened.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The volume of the next import.
    pub(crate) fn take_up(&self, pool: Arc<Pool>, volume: Arc<Volume>) {
        *self.opened.write().unwrap_or_else(PoisonError::into_inner) = Some(Opened { pool, volume });
    }

    /// Ends all waiting, now and later.
    pub(crate) fn end(&self) {
        self.is_ended.store(true, Ordering::SeqCst);
        self.gate.wake();
    }
}

/// Whether a request failed only because the pool is suspended.
fn waits(pool: &Pool, error: &VolumeError) -> bool {
    pool.fail_mode() == FailMode::Wait
        && matches!(error.kind(), ErrorKind::Closed | ErrorKind::MediaFailed)
        && pool.is_suspended()
}
