//! The thread of a queue, and its helpers.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use fastness_sync::lock;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::retry_on_intr;

use crate::buffer::Buffer;
use crate::poll::{Poller, Polling};
use crate::queue::{Job, Queue};
use crate::ring::RingError;

/// Most requests of a queue that are in work at once.
const HELPERS_MAX: usize = 16;
/// A driver is called after so many answers, even if there is more to do.
const ANSWERS_MAX: usize = 16;

/// What is told of a queue that had to be stopped.
pub(crate) type Note = Arc<dyn Fn(String) + Send + Sync>;

/// A queue with its threads.
pub(crate) struct Running {
    pub(crate) queue: Arc<Queue>,
    stop: Arc<Stop>,
    thread: JoinHandle<()>,
}

struct Stop {
    is_wanted: AtomicBool,
    event: OwnedFd,
}

impl Stop {
    fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }
}

impl Running {
    /// Serves the queue; first the chains of `again`. `kick` is readable when there is something new.
    pub(crate) fn start(
        queue: Queue,
        again: Vec<u16>,
        kick: OwnedFd,
        polling: Polling,
        note: Note,
    ) -> io::Result<Running> {
        let queue = Arc::new(queue);
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let stop = Arc::new(Stop { is_wanted: AtomicBool::new(false), event });
        let worker =
            Worker { queue: queue.clone(), stop: stop.clone(), helpers: Vec::new(), note: note.clone() };
        let thread = std::thread::Builder::new().name("vhost-queue".to_owned()).spawn(move || {
            if let Err(error) = worker.run(&again, &kick, polling) {
                note(format!("a queue of a virtual machine was stopped: {error}"));
            }
        })?;
        Ok(Running { queue, stop, thread })
    }

    /// Ends after the requests in work; returns the number of the next available entry.
    pub(crate) fn stop(self) -> u16 {
        self.stop.is_wanted.store(true, Ordering::SeqCst);
        // A counter of 1 cannot be full.
        let _ = rustix::io::write(&self.stop.event, &1_u64.to_ne_bytes());
        // A panic of the thread was reported.
        let _ = self.thread.join();
        self.queue.next()
    }
}

struct Worker {
    queue: Arc<Queue>,
    stop: Arc<Stop>,
    helpers: Vec<JoinHandle<()>>,
    note: Note,
}

impl Drop for Worker {
    fn drop(&mut self) {
        lock(&self.queue.jobs).is_over = true;
        self.queue.wake.notify_all();
        for helper in self.helpers.drain(..) {
            let _ = helper.join();
        }
    }
}

impl Worker {
    fn run(mut self, again: &[u16], kick: &OwnedFd, polling: Polling) -> Result<(), RingError> {
        let (mut buffer, mut poller) = (Buffer::default(), Poller::new(polling));
        for head in again {
            let request = self.queue.read(*head, &mut buffer)?;
            let job = Job { head: *head, timer: self.queue.counters.start(request.kind) };
            self.queue.carry_out(job, request, &mut buffer)?;
        }
        // What a process before this one has answered may not have been told.
        self.queue.call()?;
        self.queue.want_kick(false)?;
        while !self.stop.is_wanted() {
            self.take_all(&mut buffer)?;
            let (queue, stop) = (&self.queue, &self.stop);
            let find = || Ok::<_, RingError>(queue.has_next()? || stop.is_wanted());
            if poller.look(find)? {
                continue;
            }
            queue.want_kick(true)?;
            if !queue.has_next()? {
                self.sleep(kick);
            }
            self.queue.want_kick(false)?;
        }
        Ok(())
    }

    /// Carries out what there is.
    fn take_all(&mut self, buffer: &mut Buffer) -> Result<(), RingError> {
        let mut answers = 0;
        while !self.stop.is_wanted() {
            let Some(head) = self.queue.take()? else { break };
            let request = self.queue.read(head, buffer)?;
            let job = Job { head, timer: self.queue.counters.start(request.kind) };
            if self.queue.pace.is_slow(request.kind) && self.queue.has_next()? {
                self.hand_over(job);
                continue;
            }
            self.queue.carry_out(job, request, buffer)?;
            answers += 1;
            if answers == ANSWERS_MAX {
                self.queue.call()?;
                answers = 0;
            }
        }
        self.queue.call()
    }

    /// Lets a helper carry out a chain.
    fn hand_over(&mut self, job: Job) {
        let is_short = {
            let mut jobs = lock(&self.queue.jobs);
            jobs.waiting.push_back(job);
            jobs.idle < jobs.waiting.len()
        };
        if is_short && self.helpers.len() < HELPERS_MAX {
            let (queue, note) = (self.queue.clone(), self.note.clone());
            let spawned = std::thread::Builder::new().name("vhost-helper".to_owned()).spawn(move || {
                if let Err(error) = help(&queue) {
                    note(format!("a request of a virtual machine has no answer: {error}"));
                }
            });
            self.helpers.extend(spawned.ok());
        }
        if self.helpers.is_empty() {
            // No thread can be had: what is queued is done here.
            let _ = help_once(&self.queue);
        }
        self.queue.wake.notify_one();
    }

    fn sleep(&self, kick: &OwnedFd) {
        let mut both = [
            PollFd::new(kick, PollFlags::IN),
            PollFd::from_borrowed_fd(self.stop.event.as_fd(), PollFlags::IN),
        ];
        // A failure is a wake-up too many.
        let _ = retry_on_intr(|| poll(&mut both, None));
        let _ = rustix::io::read(kick, &mut [0; 8]);
    }
}

fn help_once(queue: &Queue) -> Result<(), RingError> {
    let Some(job) = lock(&queue.jobs).waiting.pop_front() else { return Ok(()) };
    let mut buffer = Buffer::default();
    let request = queue.read(job.head, &mut buffer)?;
    queue.carry_out(job, request, &mut buffer)?;
    queue.call()
}

/// Carries out chains that were handed over, until the queue ends.
fn help(queue: &Queue) -> Result<(), RingError> {
    let mut buffer = Buffer::default();
    loop {
        let mut jobs = lock(&queue.jobs);
        let job = loop {
            if let Some(job) = jobs.waiting.pop_front() {
                break job;
            }
            if jobs.is_over {
                return Ok(());
            }
            jobs.idle += 1;
            jobs = fastness_sync::wait(&queue.wake, jobs);
            jobs.idle -= 1;
        };
        drop(jobs);
        let request = queue.read(job.head, &mut buffer)?;
        queue.carry_out(job, request, &mut buffer)?;
        queue.call()?;
    }
}
