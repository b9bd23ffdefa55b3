//! A queue in use: requests are taken from it, carried out, and answered.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use arc_swap::{ArcSwap, ArcSwapOption};
use fastness_sync::{Condvar, Mutex, lock};

use crate::buffer::Buffer;
use crate::disk::Disk;
use crate::inflight::Table;
use crate::memory::{Memory, Place};
use crate::pace::Pace;
use crate::request::Request;
use crate::ring::{Ring, RingError};
use crate::stats::Counters;

/// What the queues of a session share.
pub(crate) struct Shared {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) memory: ArcSwap<Memory>,
    /// Whether each write is durable when it is answered.
    pub(crate) is_write_through: AtomicBool,
}

/// How far the queue was taken and answered.
struct Progress {
    ring: Ring,
    table: Option<Table>,
}

/// A chain whose request was taken and counted.
#[derive(Clone, Copy)]
pub(crate) struct Job {
    pub(crate) head: u16,
    /// Since when, if it is timed.
    pub(crate) timer: Option<Instant>,
}

/// Chains that helpers are to carry out.
#[derive(Default)]
pub(crate) struct Jobs {
    pub(crate) waiting: VecDeque<Job>,
    /// Helpers that wait for one.
    pub(crate) idle: usize,
    pub(crate) is_over: bool,
}

/// Concurrency: its own thread takes requests, and helpers carry some of them out.
pub(crate) struct Queue {
    pub(crate) shared: Arc<Shared>,
    progress: Mutex<Progress>,
    descriptors: Place,
    size: u16,
    /// Written to when the driver wants to be called.
    pub(crate) call: ArcSwapOption<OwnedFd>,
    pub(crate) pace: Pace,
    pub(crate) counters: Arc<Counters>,
    pub(crate) jobs: Mutex<Jobs>,
    pub(crate) wake: Condvar,
}

impl Queue {
    /// A queue, and the chains to carry out again, oldest first.
    pub(crate) fn new(
        shared: Arc<Shared>,
        mut ring: Ring,
        mut table: Option<Table>,
        counters: Arc<Counters>,
    ) -> Result<(Queue, Vec<u16>), RingError> {
        let mut again = Vec::new();
        if let Some(table) = &mut table {
            let used = ring.used_index()?;
            again = table.resume(used)?;
            // What was taken is what was answered and what was not.
            ring.set_next(used.wrapping_add(again.len() as u16));
        }
        let (descriptors, size) = (ring.descriptors().clone(), ring.size());
        let queue = Queue {
            shared,
            progress: Mutex::new(Progress { ring, table }),
            descriptors,
            size,
            call: ArcSwapOption::empty(),
            pace: Pace::default(),
            counters,
            jobs: Mutex::default(),
            wake: Condvar::new(),
        };
        Ok((queue, again))
    }

    /// The number of the available entry that would be taken next.
    pub(crate) fn next(&self) -> u16 {
        lock(&self.progress).ring.next()
    }

    pub(crate) fn has_next(&self) -> Result<bool, RingError> {
        lock(&self.progress).ring.has_next()
    }

    pub(crate) fn want_kick(&self, is_wanted: bool) -> Result<(), RingError> {
        lock(&self.progress).ring.want_kick(is_wanted)
    }

    /// Takes the next chain. From here on a process after this one would carry it out again.
    pub(crate) fn take(&self) -> Result<Option<u16>, RingError> {
        let Progress { ring, table } = &mut *lock(&self.progress);
        let Some(head) = ring.peek()? else { return Ok(None) };
        if let Some(table) = table {
            table.begin(head)?;
        }
        ring.take();
        Ok(Some(head))
    }

    /// Reads the chain into `buffer`.
    pub(crate) fn read(&self, head: u16, buffer: &mut Buffer) -> Result<Request, RingError> {
        let memory = self.shared.memory.load();
        buffer.chain.read(&memory, &self.descriptors, self.size, head)?;
        Request::of(&memory, buffer)
    }

    /// Carries out the request whose chain is in `buffer`, and answers it.
    pub(crate) fn carry_out(
        &self,
        Job { head, timer }: Job,
        request: Request,
        buffer: &mut Buffer,
    ) -> Result<(), RingError> {
        let Shared { disk, memory, is_write_through } = &*self.shared;
        let memory = memory.load();
        let is_write_through = is_write_through.load(Ordering::Relaxed);
        let done =
            self.pace.time(request.kind, || request.carry_out(&**disk, &memory, buffer, is_write_through))?;
        if memory.is_lost() {
            return Err(RingError::Lost);
        }
        self.counters.end(request.kind, timer, &done);
        let Progress { ring, table } = &mut *lock(&self.progress);
        if let Some(table) = table {
            table.answer(head)?;
        }
        ring.put(head, done.len)?;
        if let Some(table) = table {
            table.answered(head, ring.used_index()?)?;
        }
        Ok(())
    }

    /// Calls the driver if it wants to know of what was answered.
    pub(crate) fn call(&self) -> Result<(), RingError> {
        if lock(&self.progress).ring.wants_call()?
            && let Some(call) = &*self.call.load()
        {
            // A full counter has not been read yet: the driver will look anyway.
            let _ = rustix::io::write(&**call, &1_u64.to_ne_bytes());
        }
        Ok(())
    }
}
