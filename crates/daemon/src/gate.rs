//! Requests of clients that wait while the pool is suspended (`failmode=wait`).
//!
//! Nothing below waits: a volume of a suspended pool fails at once. It is here that a request which failed
//! for that is kept, off the CPU, and made again when the pool goes on. That is sound because none of these
//! requests was answered: what it did before it failed is in no order to other requests that were under way,
//! and doing it again leaves the same bytes. Nothing that waits is ever reported as done.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};

use fastness_error::ErrorKind;
use fastness_pool::{DatasetId, FailMode, Pool};
use fastness_zvol::{Volume, VolumeError};

use crate::lock;

#[derive(Debug, Default)]
struct State {
    /// How often the pool went on.
    cleared: u64,
    waiting: usize,
}

/// Where they wait; one for a node.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

impl Gate {
    fn cleared(&self) -> u64 {
        lock(&self.state).cleared
    }

    /// Waits until the pool has gone on since `seen`; false if `is_ended` came first.
    fn wait(&self, seen: u64, is_ended: &AtomicBool) -> bool {
        let mut state = lock(&self.state);
        state.waiting += 1;
        while state.cleared == seen && !is_ended.load(Ordering::SeqCst) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.waiting -= 1;
        state.cleared != seen
    }

    /// The pool goes on: all make their requests again.
    pub(crate) fn open(&self) {
        lock(&self.state).cleared += 1;
        self.changed.notify_all();
    }

    /// Lets those look who may have to end.
    fn wake(&self) {
        // Under the lock, so that nobody who has looked already misses it.
        let _state = lock(&self.state);
        self.changed.notify_all();
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        lock(&self.state).waiting
    }
}

/// A volume of a certain import of its pool.
struct Opened {
    pool: Arc<Pool>,
    volume: Arc<Volume>,
}

/// What a request came to.
pub(crate) enum Outcome {
    Done(Result<(), VolumeError>),
    /// The server ends.
    Ended,
}

/// A volume that is served, whichever import of its pool it belongs to.
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

    /// The volume; `None` while the pool is imported again.
    pub(crate) fn volume(&self) -> Option<Arc<Volume>> {
        let opened = self.opened.read().unwrap_or_else(PoisonError::into_inner);
        opened.as_ref().map(|opened| opened.volume.clone())
    }

    /// Its name now, or when it was served first.
    pub(crate) fn name(&self) -> String {
        self.volume().map_or_else(|| self.name.clone(), |volume| volume.name())
    }

    /// Carries a request out; while the pool is suspended and its `failmode` says so, waits and does it
    /// again.
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

    /// Waits until no request uses the volume, and lets go of it: those that come wait.
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

/// Whether a request failed for no other reason than that the pool is suspended.
fn waits(pool: &Pool, error: &VolumeError) -> bool {
    pool.fail_mode() == FailMode::Wait
        && matches!(error.kind(), ErrorKind::Closed | ErrorKind::MediaFailed)
        && pool.is_suspended()
}
