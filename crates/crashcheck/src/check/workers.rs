//! Recoveries in parallel, with results in the order of the images.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::extract::{Extract, WorkDir};
use super::in_recovery::{Beyond, Explorer, Here};
use super::state::State;
use crate::Result;
use crate::generate::Contents;

/// An image to be recovered.
struct Job {
    number: u64,
    /// The crash comes before this event.
    event: u64,
    contents: Contents,
    task: Task,
}

/// What is done with an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Task {
    Recover,
    /// Whatever is known of it.
    RecoverAgain,
    /// Its recovery crashes.
    Explore,
}

/// What comes of it.
enum Product {
    /// None if no recovery may begin any more.
    State(Option<Arc<State>>),
    Beyond(Arc<[Beyond]>),
}

type Done = std::thread::Result<Result<Product>>;

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
    /// state at once, with the event after its crash. What the explorer knows is not recovered again.
    pub(crate) fn run<E: Extract, R>(
        extract: &E,
        explorer: Option<&Explorer<'_>>,
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
                scope.spawn(move || {
                    let with = With { extract, explorer, deadline, told };
                    with.work(taken, &done);
                });
            }
            // Threads end once `body` has dropped the other end of their jobs.
            body(Workers { jobs, results, early: BTreeMap::new(), next: 0 })
        })
    }

    /// Hands an image over; its number is for [`state`](Self::state) or [`beyond`](Self::beyond).
    pub(super) fn submit(&mut self, event: u64, contents: Contents, task: Task) -> u64 {
        let number = self.next;
        self.next += 1;
        // If all threads are gone, what ended them is among the results.
        let _ = self.jobs.send(Job { number, event, contents, task });
        number
    }

    /// The state of an image; each can be asked for once.
    ///
    /// # Errors
    /// Those of the recovery.
    pub(super) fn state(&mut self, number: u64) -> Result<Option<Arc<State>>> {
        match self.wait(number)? {
            Product::State(state) => Ok(state),
            Product::Beyond(_) => unreachable!("this image was to be recovered"),
        }
    }

    /// What crashes in the recovery of an image lead to; each can be asked for once.
    ///
    /// # Errors
    /// Those of recoveries, and of tracing them.
    pub(super) fn beyond(&mut self, number: u64) -> Result<Arc<[Beyond]>> {
        match self.wait(number)? {
            Product::Beyond(beyond) => Ok(beyond),
            Product::State(_) => unreachable!("the recovery of this image was to crash"),
        }
    }

    fn wait(&mut self, number: u64) -> Result<Product> {
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

/// What a thread works with.
struct With<'a, E> {
    extract: &'a E,
    explorer: Option<&'a Explorer<'a>>,
    deadline: Option<Instant>,
    told: &'a (dyn Fn(u64, &State) + Sync),
}

/// Where it works, once it has begun.
struct Places<P> {
    recovery: P,
    /// Of traces of recoveries.
    traces: Option<WorkDir>,
}

impl<E: Extract> With<'_, E> {
    fn work(&self, jobs: &Mutex<Receiver<Job>>, done: &Sender<(u64, Done)>) {
        let mut places = None;
        loop {
            let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(job) = job else { return };
            let result = catch_unwind(AssertUnwindSafe(|| self.run(&job, &mut places)));
            let result = result.map_err(|panic: Box<dyn Any + Send>| panic);
            // Nobody waits any more if another one has failed.
            if done.send((job.number, result)).is_err() {
                return;
            }
        }
    }

    fn run(&self, job: &Job, places: &mut Option<Places<E::Place>>) -> Result<Product> {
        let is_over = || self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        if job.task != Task::Explore && is_over() {
            return Ok(Product::State(None));
        }
        let places = match places {
            Some(places) => places,
            none => none.insert(Places {
                recovery: self.extract.place()?,
                traces: self.explorer.map(Explorer::work).transpose()?,
            }),
        };
        let told = |state: &State| (self.told)(job.event, state);
        if let (Some(explorer), Some(traces), false) =
            (self.explorer, &places.traces, job.task == Task::RecoverAgain)
        {
            let place = &mut places.recovery;
            let mut here = Here { extract: self.extract, place, work: traces.path(), told: &told };
            return match job.task {
                Task::Explore => explorer.explore(&mut here, &job.contents).map(Product::Beyond),
                _ => explorer.state(&mut here, &job.contents).map(Product::State),
            };
        }
        let state = self.extract.extract(&mut places.recovery, &job.contents)?;
        told(&state);
        Ok(Product::State(Some(Arc::new(state))))
    }
}
