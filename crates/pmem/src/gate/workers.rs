//! A bounded set of threads that write for others.
//!
//! The caller of a write sleeps until a worker has made it. What a worker runs borrows from the caller's
//! stack: the caller does not go on, whatever happens, before the worker has let go of it.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, Thread};

use fastness_sync::{Condvar, Mutex, lock, wait};
use rustix::thread::{CpuSet, sched_setaffinity};

use super::error::GateError;

/// The threads; they end when this is dropped.
#[derive(Debug)]
pub(super) struct Workers {
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    is_there: Condvar,
    taken: AtomicU64,
}

/// In the order in which they came. No longer than there are callers.
#[derive(Debug, Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    is_over: bool,
}

/// A job on the stack of a caller that waits for it.
#[derive(Debug)]
struct Job(*mut (dyn Call + 'static));

// SAFETY: what it points to is `Send` (`Workers::run`), and reached by one worker, while the caller waits.
unsafe impl Send for Job {}

trait Call {
    /// Runs the job, then lets the caller go on. Nothing of the job may be touched after that.
    fn call(&mut self);
}

struct OnStack<F, R> {
    work: Option<F>,
    result: Option<Result<R, Box<dyn Any + Send>>>,
    caller: Thread,
    is_done: AtomicBool,
}

impl<F: FnOnce() -> R, R> Call for OnStack<F, R> {
    fn call(&mut self) {
        if let Some(work) = self.work.take() {
            self.result = Some(catch_unwind(AssertUnwindSafe(work)));
        }
        // The caller may return as soon as it sees the flag, and this is on its stack: its handle is cloned
        // before.
        let caller = self.caller.clone();
        self.is_done.store(true, Ordering::Release);
        caller.unpark();
    }
}

impl Workers {
    /// Starts so many workers, on these CPUs, or on any.
    pub(super) fn start(count: u32, cpus: &[usize]) -> Result<Workers, GateError> {
        let mut workers = Workers { queue: Arc::default(), threads: Vec::new() };
        for number in 0..count {
            let (queue, cpus) = (workers.queue.clone(), cpus.to_vec());
            let (says, hears) = std::sync::mpsc::channel();
            let work = move || {
                let pinned = pin(&cpus);
                let is_pinned = pinned.is_ok();
                // The starter waits for it.
                let _ = says.send(pinned);
                if is_pinned {
                    queue.work();
                }
            };
            let thread = std::thread::Builder::new().name(format!("pm-writer-{number}"));
            workers.threads.push(thread.spawn(work).map_err(GateError::Worker)?);
            hears.recv().unwrap_or(Ok(()))?;
        }
        Ok(workers)
    }

    /// Has a worker do it, and waits off the CPU until it is done. A panic of the job is the caller's.
    pub(super) fn run<F: FnOnce() -> R + Send, R: Send>(&self, work: F) -> R {
        let mut job = OnStack {
            work: Some(work),
            result: None,
            caller: std::thread::current(),
            is_done: AtomicBool::new(false),
        };
        let job: *mut OnStack<F, R> = &raw mut job;
        let erased: *mut (dyn Call + '_) = job;
        // SAFETY: only the lifetime changes. The pointer is used by one worker, before it sets the flag, and
        // this function neither returns nor unwinds before that: nothing between here and the loop panics,
        // and the queue drops no job (`Queue::work` runs what is there before it ends).
        let erased =
            unsafe { std::mem::transmute::<*mut (dyn Call + '_), *mut (dyn Call + 'static)>(erased) };
        lock(&self.queue.waiting).jobs.push_back(Job(erased));
        self.queue.is_there.notify_one();
        // SAFETY: the flag is atomic, and the job lives in this frame.
        while !unsafe { (*job).is_done.load(Ordering::Acquire) } {
            std::thread::park();
        }
        // SAFETY: the worker has let go of it (acquire, after its release).
        let result = unsafe { (*job).result.take() };
        match result {
            Some(Ok(result)) => result,
            Some(Err(panic)) => resume_unwind(panic),
            None => unreachable!("a worker runs a job before it reports"),
        }
    }

    /// Jobs that were run.
    pub(super) fn count(&self) -> u64 {
        self.queue.taken.load(Ordering::Relaxed)
    }
}

impl Queue {
    fn work(&self) {
        let mut waiting = lock(&self.waiting);
        loop {
            if let Some(Job(job)) = waiting.jobs.pop_front() {
                drop(waiting);
                self.taken.fetch_add(1, Ordering::Relaxed);
                // SAFETY: the caller waits for the job to report, and this worker alone has taken it.
                unsafe { (*job).call() };
                waiting = lock(&self.waiting);
            } else if waiting.is_over {
                return;
            } else {
                waiting = wait(&self.is_there, waiting);
            }
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        lock(&self.queue.waiting).is_over = true;
        self.queue.is_there.notify_all();
        for thread in self.threads.drain(..) {
            // Jobs do not panic out of it.
            let _ = thread.join();
        }
    }
}

/// Keeps the calling thread on these CPUs; none: it stays where it is.
fn pin(cpus: &[usize]) -> Result<(), GateError> {
    if cpus.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    for &cpu in cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU) {
        set.set(cpu);
    }
    sched_setaffinity(None, &set)
        .map_err(|errno| GateError::Cpus { cpus: cpus.to_vec(), source: errno.into() })
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
