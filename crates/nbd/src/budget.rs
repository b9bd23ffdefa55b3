//! Limits what a client may have in flight: back-pressure by not reading from its socket.
//!
//! A request holds a [`Permit`] from when its header is read until its reply is handed to the kernel. The
//! bytes of a permit come from the connection's own floor, so that small requests never wait for other
//! clients; or from the server's budget, in order of arrival, so that large requests do not starve.
//!
//! No deadlock: a request takes its whole permit at once, and a request that holds one (executing, sending)
//! never waits for another.

use std::collections::VecDeque;
use std::sync::Arc;

use fastness_sync::{Condvar, Mutex, MutexGuard, lock};

/// Bytes for all connections.
pub(crate) struct ServerBudget {
    bytes_max: u64,
    state: Mutex<ServerState>,
    changed: Condvar,
}

#[derive(Default)]
struct ServerState {
    bytes: u64,
    next_ticket: u64,
    waiting: VecDeque<u64>,
}

impl ServerBudget {
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self { bytes_max, state: Mutex::default(), changed: Condvar::new() }
    }

    fn try_acquire(&self, bytes: u64) -> bool {
        let mut state = lock(&self.state);
        let fits = state.waiting.is_empty() && state.bytes + bytes <= self.bytes_max;
        if fits {
            state.bytes += bytes;
        }
        fits
    }

    fn acquire(&self, bytes: u64) {
        let mut state = lock(&self.state);
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.waiting.push_back(ticket);
        while state.waiting.front() != Some(&ticket) || state.bytes + bytes > self.bytes_max {
            state = fastness_sync::wait(&self.changed, state);
        }
        state.waiting.pop_front();
        state.bytes += bytes;
        self.changed.notify_all();
    }

    fn release(&self, bytes: u64) {
        if bytes > 0 {
            let mut state = lock(&self.state);
            state.bytes -= bytes;
            let is_awaited = !state.waiting.is_empty();
            drop(state);
            if is_awaited {
                self.changed.notify_all();
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        lock(&self.state).bytes
    }
}

/// Requests and bytes of one connection.
pub(crate) struct Budget {
    requests_max: usize,
    bytes_max: u64,
    floor_bytes: u64,
    server: Arc<ServerBudget>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    requests: usize,
    /// Of these, `floor` bytes do not count against the server's budget.
    bytes: u64,
    floor: u64,
    /// Waiting threads; a wakeup without any would cost a needless system call.
    waiting: usize,
}

/// Source of a permit's bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Floor,
    Server,
}

impl Budget {
    pub(crate) fn new(
        requests_max: usize,
        bytes_max: u64,
        floor_bytes: u64,
        server: Arc<ServerBudget>,
    ) -> Self {
        Self {
            requests_max,
            bytes_max,
            floor_bytes,
            server,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// A permit, if one is available without waiting.
    pub(crate) fn try_acquire(self: &Arc<Self>, bytes: u64) -> Option<Permit> {
        let mut state = lock(&self.state);
        if !self.fits(&state, bytes) {
            return None;
        }
        let source = if state.floor + bytes <= self.floor_bytes { Source::Floor } else { Source::Server };
        if source == Source::Server && !self.server.try_acquire(bytes) {
            return None;
        }
        Some(self.grant(&mut state, bytes, source))
    }

    /// A permit; waits for it if necessary.
    pub(crate) fn acquire(self: &Arc<Self>, bytes: u64) -> Permit {
        let mut state = lock(&self.state);
        loop {
            let fits = self.fits(&state, bytes);
            if fits && state.floor + bytes <= self.floor_bytes {
                return self.grant(&mut state, bytes, Source::Floor);
            }
            // A small request waits only for its own connection: whatever holds the floor will return it.
            let is_small = bytes <= self.floor_bytes;
            if fits && is_small && self.server.try_acquire(bytes) {
                return self.grant(&mut state, bytes, Source::Server);
            }
            if fits && !is_small {
                break;
            }
            state = self.wait(state);
        }
        // Only the reader acquires: what fits now still fits while the lock is released.
        drop(state);
        self.server.acquire(bytes);
        self.grant(&mut lock(&self.state), bytes, Source::Server)
    }

    fn fits(&self, state: &State, bytes: u64) -> bool {
        state.requests < self.requests_max && state.bytes + bytes <= self.bytes_max
    }

    fn grant(self: &Arc<Self>, state: &mut State, bytes: u64, source: Source) -> Permit {
        state.requests += 1;
        state.bytes += bytes;
        if source == Source::Floor {
            state.floor += bytes;
        }
        Permit { budget: self.clone(), bytes, source, is_alone: state.requests == 1 }
    }

    /// Waits until nothing is in flight.
    pub(crate) fn wait_idle(&self) {
        let mut state = lock(&self.state);
        while state.requests > 0 {
            state = self.wait(state);
        }
    }

    fn wait<'a>(&self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.waiting += 1;
        state = fastness_sync::wait(&self.changed, state);
        state.waiting -= 1;
        state
    }

    pub(crate) fn is_idle(&self) -> bool {
        lock(&self.state).requests == 0
    }
}

/// The right of one request to be in flight; returned when dropped.
pub(crate) struct Permit {
    budget: Arc<Budget>,
    bytes: u64,
    source: Source,
    is_alone: bool,
}

impl Permit {
    /// Whether nothing else was in flight when it was granted.
    pub(crate) fn is_alone(&self) -> bool {
        self.is_alone
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = lock(&self.budget.state);
        state.requests -= 1;
        state.bytes -= self.bytes;
        if self.source == Source::Floor {
            state.floor -= self.bytes;
        }
        let is_awaited = state.waiting > 0;
        drop(state);
        if is_awaited {
            self.budget.changed.notify_all();
        }
        if self.source == Source::Server {
            self.budget.server.release(self.bytes);
        }
    }
}
