//! The threads that execute requests of all connections, in turns.
//!
//! A connection with many waiting requests gets one thread after another, but each time it queues up after
//! the other waiting connections, so that none starves.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::{io, thread};

use fastness_sync::{Condvar, Mutex, lock};

/// Work of a connection.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

pub(crate) struct Pool {
    queues: Arc<Queues>,
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
}

#[derive(Default)]
struct Queues {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Connections with jobs, in turn.
    turns: VecDeque<u64>,
    jobs: HashMap<u64, VecDeque<Job>>,
    idle_threads: usize,
    is_stopped: bool,
}

impl Pool {
    pub(crate) fn start(workers: usize) -> io::Result<Self> {
        let pool = Self { queues: Arc::default(), threads: Mutex::default() };
        for index in 0..workers {
            let queues = pool.queues.clone();
            let name = format!("nbd-worker-{index}");
            let started = thread::Builder::new().name(name).spawn(move || queues.work());
            match started {
                Ok(thread) => lock(&pool.threads).push(thread),
                Err(error) => {
                    pool.stop();
                    return Err(error);
                }
            }
        }
        Ok(pool)
    }

    /// Queues a job for `connection`. The number of its jobs is bounded by its permits.
    pub(crate) fn submit(&self, connection: u64, job: Job) {
        let mut state = lock(&self.queues.state);
        let State { jobs, turns, .. } = &mut *state;
        let queue = jobs.entry(connection).or_default();
        if queue.is_empty() {
            turns.push_back(connection);
        }
        queue.push_back(job);
        let is_awaited = state.idle_threads > 0;
        drop(state);
        if is_awaited {
            self.queues.changed.notify_one();
        }
    }

    /// Ends the threads after the queued jobs.
    pub(crate) fn stop(&self) {
        lock(&self.queues.state).is_stopped = true;
        self.queues.changed.notify_all();
        for thread in std::mem::take(&mut *lock(&self.threads)) {
            // Jobs do not panic: the export's panics are caught, and our own are bugs that were already
            // reported.
            let _ = thread.join();
        }
    }
}

impl Queues {
    fn work(&self) {
        while let Some(job) = self.next() {
            job();
        }
    }

    fn next(&self) -> Option<Job> {
        let mut state = lock(&self.state);
        loop {
            if let Some(connection) = state.turns.pop_front() {
                let queue = state.jobs.get_mut(&connection).expect("a connection in turn has a queue");
                let job = queue.pop_front().expect("a connection in turn has a job");
                if queue.is_empty() {
                    state.jobs.remove(&connection);
                } else {
                    state.turns.push_back(connection);
                }
                return Some(job);
            }
            if state.is_stopped {
                return None;
            }
            state.idle_threads += 1;
            state = fastness_sync::wait(&self.changed, state);
            state.idle_threads -= 1;
        }
    }
}
