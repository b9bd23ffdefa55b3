//! Recoveries in parallel, with results in the order of the images.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::extract::Extract;
use super::state::State;
use crate::Result;
use crate::generate::Contents;

/// An image to be recovered.
struct Job {
    number: u64,
    /// The crash comes before this event.
    event: u64,
    contents: Contents,
}

/// A state, or none if no recovery may begin any more.
type Done = std::thread::Result<Result<Option<State>>>;

/// Threads that recover images; they end with it.
pub(crate) struct Workers {
    jobs: Sender<Job>,
    results: Receiver<(u64, Done)>,
    /// Results that came before others.
    early: BTreeMap<u64, Done>,
    next: u64,
}

impl Workers {
    /// Runs `body` with `threads` of them. None begins a recovery after `deadline`. `told` hears of each
    /// state at once, with the event after its crash.
    pub(crate) fn run<E: Extract, R>(
        extract: &E,
        threads: usize,
        deadline: Option<Instant>,
        told: &(dyn Fn(u64, &State) + Sync),
        body: impl FnOnce(Workers) -> R,
    ) -> R {
        let (jobs, taken) = channel::<Job>();
        let taken = &Mutex::new(taken);
        std::thread::scope(|scope| {
            let (done, results) = channel();
            for _ in 0..threads.max(1) {
                let done = done.clone();
                scope.spawn(move || work(extract, taken, deadline, told, &done));
            }
            // Threads end once `body` has dropped the other end of their jobs.
            body(Workers { jobs, results, early: BTreeMap::new(), next: 0 })
        })
    }

    /// Hands an image over; its number is for [`wait`](Self::wait).
    pub(super) fn submit(&mut self, event: u64, contents: Contents) -> u64 {
        let number = self.next;
        self.next += 1;
        // If all threads are gone, what ended them is among the results.
        let _ = self.jobs.send(Job { number, event, contents });
        number
    }

    /// The state of an image; each can be asked for once.
    ///
    /// # Errors
    /// Those of the recovery.
    pub(super) fn wait(&mut self, number: u64) -> Result<Option<State>> {
        loop {
            if let Some(done) = self.early.remove(&number) {
                return done.unwrap_or_else(|panic| resume_unwind(panic));
            }
            match self.results.recv() {
                // A thread that has ended may have taken jobs with it.
                Ok((_, done @ (Err(_) | Ok(Err(_))))) => {
                    return done.unwrap_or_else(|panic| resume_unwind(panic));
                }
                Ok((other, done)) => drop(self.early.insert(other, done)),
                Err(_) => unreachable!("threads live as long as there can be jobs"),
            }
        }
    }
}

fn work<E: Extract>(
    extract: &E,
    jobs: &Mutex<Receiver<Job>>,
    deadline: Option<Instant>,
    told: &(dyn Fn(u64, &State) + Sync),
    done: &Sender<(u64, Done)>,
) {
    let mut place = None;
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else { return };
        let result = catch_unwind(AssertUnwindSafe(|| {
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(None);
            }
            if place.is_none() {
                place = Some(extract.place()?);
            }
            let Some(place) = place.as_mut() else { return Ok(None) };
            let state = extract.extract(place, &job.contents)?;
            told(job.event, &state);
            Ok(Some(state))
        }));
        let result = result.map_err(|panic: Box<dyn Any + Send>| panic);
        // Nobody waits any more if another one has failed.
        if done.send((job.number, result)).is_err() {
            return;
        }
    }
}
