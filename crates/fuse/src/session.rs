//! A session with the kernel: its threads, and how it begins and ends.
//!
//! Threads belong to queues. All threads of `/dev/fuse` read one descriptor, and the kernel gives each
//! request to one of them; over rings (`rings`) there is one queue more for each CPU. A thread that takes a
//! request while no other waits for one in its queue starts another thread, up to a bound: requests may wait
//! for long (a device that is slow), and INTERRUPT and FORGET must be read meanwhile. Threads that are too
//! many end, unless a place in a ring needs them. What may wait for ever holds no thread of these
//! (`waiting`).
//!
//! The end: once the mount is gone, waiting for requests fails in all threads, and [`Files::ended`] is
//! called.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use fastness_sync::{Condvar, Mutex, lock, wait_for};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::answer::Answer;
use crate::channel::Channel;
use crate::device::DeviceChannel;
use crate::files::Files;
use crate::handshake::{SessionError, handshake};
use crate::request::{EarlyInterrupts, RequestState};
use crate::rings::{self, Affinity, NoRings, Nudges, Ring, RingChannel};
use crate::slot::Slot;
use crate::stats::{Counters, OperationStats};
use crate::waiting::WaitingRequests;
use crate::wire::REQUEST_BYTES_MAX;

/// Between two attempts at what must succeed.
const PAUSE: Duration = Duration::from_millis(50);

/// How requests come from the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Transport {
    /// Each is read from `/dev/fuse`.
    #[default]
    Device,
    /// Over io_uring, if the kernel can (Linux 6.14), and is allowed to.
    Rings,
}

impl Transport {
    /// Rings, unless `FASTNESS_FUSE_TRANSPORT` tells this process something else: `device`.
    pub fn told() -> Transport {
        let told = std::env::var_os("FASTNESS_FUSE_TRANSPORT");
        if told.is_some_and(|told| told == "device") { Transport::Device } else { Transport::Rings }
    }
}

/// Settings of a session.
#[derive(Debug, Clone, Copy)]
pub struct SessionOptions {
    /// Threads that carry out requests, or wait for some. Over rings there is one for each CPU in any
    /// case, and one
    /// for each request that was put off and answered.
    pub threads_max: usize,
    /// Threads that wait for requests on `/dev/fuse` when there are none.
    pub threads_idle: usize,
    /// What is wanted.
    pub transport: Transport,
}

impl Default for SessionOptions {
    fn default() -> SessionOptions {
        let cpus = std::thread::available_parallelism().map_or(4, std::num::NonZero::get);
        // Each program has more requests under way than one: RELEASE and FORGET are answered beside its next
        // call. Threads that end after each of them would take longer to begin again than what they do.
        let threads_idle = (4 * cpus).clamp(8, 16);
        SessionOptions { threads_max: 64, threads_idle, transport: Transport::default() }
    }
}

#[derive(Default)]
pub(crate) struct Threads {
    /// Those that take requests.
    readers: usize,
    /// All of them, with those that wait.
    pub(crate) states: Vec<Arc<RequestState>>,
    pub(crate) waiting: WaitingRequests,
    /// Places whose answers the kernel does not have yet; a thread is being started for each.
    answered: Vec<Slot>,
    pub(crate) panics: u64,
}

pub(crate) struct Shared {
    pub(crate) device: OwnedFd,
    pub(crate) files: Arc<dyn Files>,
    options: SessionOptions,
    /// Threads that wait for a request: of `/dev/fuse`, then of the queue of each CPU.
    idle: Box<[AtomicUsize]>,
    pub(crate) threads: Mutex<Threads>,
    pub(crate) early: EarlyInterrupts,
    affinity: Affinity,
    pub(crate) nudges: Nudges,
    ended: Condvar,
    pub(crate) counters: Counters,
}

/// Where a thread takes requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Queue {
    Device,
    /// That of this CPU.
    Ring(u16),
}

impl Queue {
    fn index(self) -> usize {
        match self {
            Queue::Device => 0,
            Queue::Ring(cpu) => 1 + usize::from(cpu),
        }
    }
}

/// A session that runs.
pub struct Session {
    shared: Arc<Shared>,
    no_rings: Option<NoRings>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Session")
    }
}

impl Session {
    /// Begins a session over the descriptor of a mount, and serves it in threads of its own.
    ///
    /// # Errors
    /// [`SessionError`].
    pub fn start(
        device: OwnedFd,
        files: Arc<dyn Files>,
        options: SessionOptions,
    ) -> Result<Session, SessionError> {
        let queues = match options.transport {
            Transport::Device => None,
            Transport::Rings => Some(rings::queues()),
        };
        Session::start_over(queues, device, files, options)
    }

    fn start_over(
        queues: Option<Result<usize, NoRings>>,
        device: OwnedFd,
        files: Arc<dyn Files>,
        options: SessionOptions,
    ) -> Result<Session, SessionError> {
        let (mut buffer, mut answer) = (vec![0; REQUEST_BYTES_MAX], Answer::default());
        let agreed = loop {
            let offers_rings = matches!(queues, Some(Ok(_)));
            if let Some(agreed) = handshake(&device, &mut buffer, &mut answer, offers_rings)? {
                break agreed;
            }
        };
        let rings = match queues {
            Some(Ok(_)) if !agreed.are_rings_used => Some(Err(NoRings::NotOffered)),
            queues => queues,
        };
        let queues = rings.as_ref().and_then(|queues| queues.as_ref().ok().copied()).unwrap_or(0);
        let shared = Arc::new(Shared {
            device,
            files,
            options,
            idle: (0..=queues).map(|_| AtomicUsize::new(0)).collect(),
            threads: Mutex::default(),
            early: EarlyInterrupts::default(),
            affinity: Affinity::of_caller(),
            nudges: Nudges::default(),
            ended: Condvar::new(),
            counters: Counters::default(),
        });
        shared.start_thread(Queue::Device).map_err(SessionError::Thread)?;
        let no_rings = match rings {
            None => None,
            Some(rings) => rings.and_then(|queues| shared.start_rings(queues)).err(),
        };
        Ok(Session { shared, no_rings })
    }

    /// Why requests do not come over rings, if that was wanted.
    pub fn no_rings(&self) -> Option<&NoRings> {
        self.no_rings.as_ref()
    }

    /// Waits until the mount is gone and all requests are answered; `false`: not within this time.
    pub fn wait(&self, timeout: Option<Duration>) -> bool {
        let end = timeout.map(|timeout| Instant::now() + timeout);
        let mut threads = lock(&self.shared.threads);
        while !threads.states.is_empty() {
            let ended = &self.shared.ended;
            threads = match end.map(|end| end.saturating_duration_since(Instant::now())) {
                Some(Duration::ZERO) => return false,
                Some(rest) => wait_for(ended, threads, rest),
                None => fastness_sync::wait(ended, threads),
            };
        }
        true
    }

    /// Whether the mount is gone; requests may still be under way ([`Session::wait`]).
    pub fn has_ended(&self) -> bool {
        // The kernel knows at once, and threads learn it later.
        let mut device = [PollFd::new(&self.shared.device, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut device, Some(&now)).is_ok() && device[0].revents().contains(PollFlags::ERR)
    }

    /// Requests that were put off, and that no thread waits with.
    pub fn waiting(&self) -> usize {
        lock(&self.shared.threads).waiting.len()
    }

    /// Counters of the operations that there were.
    pub fn stats(&self) -> Vec<OperationStats> {
        self.shared.counters.snapshot()
    }

    /// How many operations have panicked, and were answered with EIO.
    pub fn panics(&self) -> u64 {
        lock(&self.shared.threads).panics
    }
}

impl Shared {
    /// Starts one thread for each queue of the rings. The kernel sends no requests before all have a place.
    fn start_rings(self: &Arc<Shared>, queues: usize) -> Result<(), NoRings> {
        let (said, hear) = channel();
        let started = (0..queues).try_for_each(|cpu| {
            let said = said.clone();
            let queue = cpu as u16;
            self.start_reader(&mut lock(&self.threads), move |shared, state| {
                shared.affinity.pin(cpu);
                let opened = RingChannel::new(&shared.device, queue).and_then(|mut channel| {
                    channel.prepare()?;
                    Ok(channel)
                });
                let (channel, outcome) = match opened {
                    Ok(channel) => (Some(channel), Ok(())),
                    Err(error) => (None, Err(error)),
                };
                // Its receiver waits for all of them, or has given up.
                let _ = said.send(outcome);
                drop(said);
                if let Some(channel) = channel {
                    shared.take_requests(state, Queue::Ring(queue), channel);
                }
            })
        });
        drop(said);
        let placed = started.and_then(|()| hear.iter().collect::<std::io::Result<()>>());
        placed.map_err(|error| {
            // Then requests come over `/dev/fuse`. If this fails, too, the kernel has been told already.
            let _ = rings::refuse(&self.device);
            NoRings::NoPlace(error)
        })
    }

    /// Starts a thread that takes requests, unless there are enough.
    pub(crate) fn start_thread(self: &Arc<Shared>, queue: Queue) -> std::io::Result<()> {
        let mut threads = lock(&self.threads);
        if threads.readers >= self.options.threads_max {
            return Ok(());
        }
        self.start_reader(&mut threads, move |shared, state| match queue {
            Queue::Device => {
                shared.affinity.unpin();
                shared.take_requests(state, queue, DeviceChannel::new(&shared.device));
            }
            Queue::Ring(cpu) => {
                shared.affinity.pin(usize::from(cpu));
                // Without one more place requests wait for longer; they are not lost.
                if let Ok(channel) = RingChannel::new(&shared.device, cpu) {
                    shared.take_requests(state, queue, channel);
                }
            }
        })
    }

    fn start_reader(
        self: &Arc<Shared>,
        threads: &mut Threads,
        work: impl FnOnce(&Arc<Shared>, &RequestState) + Send + 'static,
    ) -> std::io::Result<()> {
        self.spawn(threads, move |shared, state| {
            work(shared, state);
            lock(&shared.threads).readers -= 1;
        })?;
        threads.readers += 1;
        Ok(())
    }

    pub(crate) fn spawn(
        self: &Arc<Shared>,
        threads: &mut Threads,
        work: impl FnOnce(&Arc<Shared>, &RequestState) + Send + 'static,
    ) -> std::io::Result<()> {
        let state = Arc::new(RequestState::default());
        let (shared, own) = (self.clone(), state.clone());
        let work = move || {
            work(&shared, &own);
            shared.leave(&own);
        };
        std::thread::Builder::new().name("fuse".to_owned()).spawn(work)?;
        threads.states.push(state);
        Ok(())
    }

    /// A thread ends.
    fn leave(&self, state: &Arc<RequestState>) {
        let mut threads = lock(&self.threads);
        threads.states.retain(|other| !Arc::ptr_eq(other, state));
        let is_last = threads.states.is_empty();
        drop(threads);
        if is_last {
            self.files.ended();
            self.ended.notify_all();
        }
    }

    /// Counts the calling thread as one that waits in its queue; `false`: there are enough.
    pub(crate) fn begin_idle(&self, queue: Queue, may_end: bool) -> bool {
        let enough = match queue {
            Queue::Device => self.options.threads_idle,
            Queue::Ring(_) => 1,
        };
        // In one step: a thread that takes a request meanwhile must not count on one that ends.
        let begin = |idle| (idle < enough || !may_end).then_some(idle + 1);
        self.idle[queue.index()].fetch_update(Ordering::SeqCst, Ordering::SeqCst, begin).is_ok()
    }

    /// The opposite; whether no thread waits in this queue now.
    pub(crate) fn end_idle(&self, queue: Queue) -> bool {
        self.idle[queue.index()].fetch_sub(1, Ordering::SeqCst) == 1
    }

    /// Gives the kernel an answer in a place of a ring, in a new thread, which then takes requests from
    /// there.
    pub(crate) fn commit(self: &Arc<Shared>, slot: Slot) {
        lock(&self.threads).answered.push(slot);
        // Not bounded: the answer must get there, and the place then needs a thread.
        while self.start_reader(&mut lock(&self.threads), Shared::take_requests_of_answered).is_err() {
            if self.is_over_after_a_pause() {
                return;
            }
        }
    }

    fn take_requests_of_answered(self: &Arc<Shared>, state: &RequestState) {
        let ring = loop {
            match Ring::new() {
                Ok(ring) => break ring,
                // Out of memory or of descriptors.
                Err(_) if self.is_over_after_a_pause() => return,
                Err(_) => {}
            }
        };
        let Some(slot) = lock(&self.threads).answered.pop() else { return };
        let queue = slot.queue;
        self.affinity.pin(usize::from(queue));
        let channel = RingChannel::with_answer(&self.device, ring, slot);
        self.take_requests(state, Queue::Ring(queue), channel);
    }

    /// Waits until something that failed may be tried again; whether the mount is gone by then.
    pub(crate) fn is_over_after_a_pause(&self) -> bool {
        std::thread::sleep(PAUSE);
        lock(&self.threads).waiting.is_over()
    }

    /// A thread that waits for others than the programs of one CPU.
    pub(crate) fn unpin(&self) {
        self.affinity.unpin();
    }
}

#[cfg(test)]
mod tests;
