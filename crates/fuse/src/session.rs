//! A session with the kernel: threads that read requests and answer them.
//!
//! All threads read one descriptor; the kernel gives each request to one of them. A thread that takes a
//! request while no other waits for one starts another thread, up to a bound: requests may wait for long (a
//! device that is slow), and INTERRUPT and FORGET must be read meanwhile. Threads that are too many end. What
//! may wait for ever holds no thread of these (`waiting`).
//!
//! The end: once the mount is gone, reading fails with ENODEV in all threads, and [`Files::ended`] is called.

use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::answer::Answer;
use crate::device::{receive, send};
use crate::dispatch::dispatch;
use crate::files::{Caller, Files, Reply};
use crate::handshake::{REQUEST_BYTES_MAX, SessionError, handshake};
use crate::request::{PutOff, RequestState};
use crate::stats::{Counters, OperationStats};
use crate::waiting::{Left, Waiting, WaitingRequests};
use crate::wire::{self, Head, Input, OUT_HEADER_BYTES};

/// Settings of a session.
#[derive(Debug, Clone, Copy)]
pub struct SessionOptions {
    /// Threads that carry out requests, or wait for some.
    pub threads_max: usize,
    /// Threads that wait for requests when there are none.
    pub threads_idle: usize,
}

impl Default for SessionOptions {
    fn default() -> SessionOptions {
        let cpus = std::thread::available_parallelism().map_or(4, std::num::NonZero::get);
        SessionOptions { threads_max: 64, threads_idle: cpus.clamp(2, 16) }
    }
}

#[derive(Default)]
struct Threads {
    /// Those that read requests.
    readers: usize,
    /// All of them, with those that wait.
    states: Vec<Arc<RequestState>>,
    waiting: WaitingRequests,
    panics: u64,
}

struct Shared {
    device: OwnedFd,
    files: Arc<dyn Files>,
    options: SessionOptions,
    /// Threads that wait for a request.
    idle: AtomicUsize,
    threads: Mutex<Threads>,
    ended: Condvar,
    counters: Counters,
}

/// A session that runs.
pub struct Session(Arc<Shared>);

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Session")
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
        let (mut buffer, mut answer) = (vec![0; REQUEST_BYTES_MAX], Answer::default());
        while !handshake(&device, &mut buffer, &mut answer)? {}
        let shared = Arc::new(Shared {
            device,
            files,
            options,
            idle: AtomicUsize::new(0),
            threads: Mutex::default(),
            ended: Condvar::new(),
            counters: Counters::default(),
        });
        shared.start_thread().map_err(SessionError::Thread)?;
        Ok(Session(shared))
    }

    /// Waits until the mount is gone and all requests are answered; `false`: not within this time.
    pub fn wait(&self, timeout: Option<Duration>) -> bool {
        let end = timeout.map(|timeout| Instant::now() + timeout);
        let mut threads = lock(&self.0.threads);
        while !threads.states.is_empty() {
            threads = match end.map(|end| end.saturating_duration_since(Instant::now())) {
                Some(Duration::ZERO) => return false,
                Some(rest) => {
                    self.0.ended.wait_timeout(threads, rest).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.0.ended.wait(threads).unwrap_or_else(PoisonError::into_inner),
            };
        }
        true
    }

    /// Whether the mount is gone.
    pub fn has_ended(&self) -> bool {
        lock(&self.0.threads).states.is_empty()
    }

    /// Requests that were put off, and that no thread waits with.
    pub fn waiting(&self) -> usize {
        lock(&self.0.threads).waiting.len()
    }

    /// Counters of the operations that there were.
    pub fn stats(&self) -> Vec<OperationStats> {
        self.0.counters.snapshot()
    }

    /// How many operations have panicked, and were answered with EIO.
    pub fn panics(&self) -> u64 {
        lock(&self.0.threads).panics
    }
}

impl Shared {
    /// Starts a thread that reads requests, unless there are enough.
    fn start_thread(self: &Arc<Shared>) -> std::io::Result<()> {
        let mut threads = lock(&self.threads);
        if threads.readers >= self.options.threads_max {
            return Ok(());
        }
        self.spawn(&mut threads, |shared, state| shared.read_requests(state))?;
        threads.readers += 1;
        Ok(())
    }

    fn spawn(
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

    fn read_requests(self: &Arc<Shared>, state: &RequestState) {
        let (mut buffer, mut answer) = (vec![0; REQUEST_BYTES_MAX], Answer::default());
        loop {
            if self.idle.fetch_add(1, Ordering::SeqCst) >= self.options.threads_idle {
                self.idle.fetch_sub(1, Ordering::SeqCst);
                break;
            }
            let received = receive(&self.device, &mut buffer);
            if self.idle.fetch_sub(1, Ordering::SeqCst) == 1 && matches!(received, Ok(Some(_))) {
                // Without one more thread requests wait for longer; they are not lost.
                let _ = self.start_thread();
            }
            let Ok(Some(len)) = received else {
                self.end_waiting();
                break;
            };
            self.serve(state, &buffer[..len], &mut answer);
        }
        lock(&self.threads).readers -= 1;
    }

    fn serve(self: &Arc<Shared>, state: &RequestState, request: &[u8], answer: &mut Answer) {
        // What is no request cannot be answered.
        let Some((head, mut input)) = Input::request(request) else { return };
        if head.opcode == wire::INTERRUPT {
            if !input.u64().is_ok_and(|unique| self.interrupt(unique, answer)) {
                // It has not begun yet: the kernel sends the interrupt again. If it is over, this is ignored.
                let _ = send(&self.device, answer.start().finish(head.unique, Err(Errno::AGAIN)));
            }
            return;
        }
        state.begin(head.unique, false);
        let started = Instant::now();
        answer.start();
        let outcome =
            self.guarded(state, &head, |caller| dispatch(&*self.files, caller, &head, input, answer));
        let left = match (state.put_off_now(), &outcome) {
            (PutOff::Whole, Some(Err(_))) => Some(Left::Request(request.into())),
            (PutOff::Rest, Some(Ok(()))) => Some(Left::Answer(answer.so_far().into())),
            _ => None,
        };
        if let Some(what) = left {
            return self.put_off(state, Waiting { head, what }, answer);
        }
        state.end();
        self.reply(&head, outcome, answer);
        self.counters.add(head.opcode, started.elapsed(), outcome.and_then(Result::err));
    }

    /// Calls the file system; a panic is EIO.
    fn guarded(
        &self,
        state: &RequestState,
        head: &Head,
        call: impl FnOnce(Caller<'_>) -> Option<Reply<()>>,
    ) -> Option<Reply<()>> {
        let Head { uid, gid, pid, .. } = *head;
        let caller = Caller { uid, gid, pid, state };
        catch_unwind(AssertUnwindSafe(|| call(caller))).unwrap_or_else(|_| {
            lock(&self.threads).panics += 1;
            Some(Err(Errno::IO))
        })
    }

    fn reply(&self, head: &Head, outcome: Option<Reply<()>>, answer: &mut Answer) {
        let Some(result) = outcome else { return };
        match send(&self.device, answer.finish(head.unique, result)) {
            Ok(()) => {}
            // No program waits for it any more, or the mount is gone: the next read tells.
            Err(Errno::NOENT | Errno::NODEV) => self.take_back(head, result, answer),
            // The kernel does not like the answer; the program must not wait for ever.
            Err(_) => {
                self.take_back(head, result, answer);
                let _ = send(&self.device, answer.start().finish(head.unique, Err(Errno::IO)));
            }
        }
    }

    /// The kernel was not told of a file after all.
    fn take_back(&self, head: &Head, result: Reply<()>, answer: &Answer) {
        let node = answer.so_far().get(OUT_HEADER_BYTES..).and_then(|body| body.first_chunk());
        if let (Ok(()), true, Some(node)) = (result, wire::tells_of_a_file(head.opcode), node) {
            self.files.forget(u64::from_ne_bytes(*node), 1);
        }
    }

    /// Sets a request aside, for a thread that may wait.
    fn put_off(self: &Arc<Shared>, state: &RequestState, waiting: Waiting, answer: &mut Answer) {
        let mut threads = lock(&self.threads);
        match threads.waiting.push(waiting, state) {
            Ok(false) => {}
            Ok(true) => {
                if self.spawn(&mut threads, |shared, state| shared.wait_with_requests(state)).is_err() {
                    // Then this one waits.
                    drop(threads);
                    self.wait_with_requests(state);
                }
            }
            Err(refused) => {
                drop(threads);
                state.end();
                self.refuse(refused, answer);
            }
        }
    }

    /// Carries out requests that were put off, one after the other, and waits with each.
    fn wait_with_requests(&self, state: &RequestState) {
        let mut answer = Answer::default();
        loop {
            let Some(Waiting { head, what }) = lock(&self.threads).waiting.next(state) else { return };
            let started = Instant::now();
            let outcome = self.guarded(state, &head, |caller| match &what {
                Left::Request(request) => {
                    let (_, input) = Input::request(request)?;
                    dispatch(&*self.files, caller, &head, input, answer.start())
                }
                Left::Answer(done) => {
                    answer.go_on(done);
                    Some(self.files.complete(caller))
                }
            });
            state.end();
            if let (Left::Answer(_), Some(Err(_))) = (&what, &outcome) {
                self.take_back(&head, Ok(()), &answer);
            }
            self.reply(&head, outcome, &mut answer);
            self.counters.add(head.opcode, started.elapsed(), outcome.and_then(Result::err));
        }
    }

    /// Answers a request that was interrupted while it waited.
    fn refuse(&self, waiting: Waiting, answer: &mut Answer) {
        if let Left::Answer(done) = &waiting.what {
            answer.go_on(done);
            self.take_back(&waiting.head, Ok(()), answer);
        }
        self.reply(&waiting.head, Some(Err(Errno::INTR)), answer.start());
        self.counters.add(waiting.head.opcode, Duration::ZERO, Some(Errno::INTR));
    }

    /// Tells the thread that carries out a request that its program was interrupted; one that waits ends.
    /// False: there is no such request.
    fn interrupt(&self, unique: u64, answer: &mut Answer) -> bool {
        let mut threads = lock(&self.threads);
        if let Some(state) = threads.states.iter().find(|state| state.is(unique)) {
            state.interrupt();
            return true;
        }
        let waiting = threads.waiting.remove(unique);
        drop(threads);
        waiting.map(|waiting| self.refuse(waiting, answer)).is_some()
    }

    /// The mount is gone: nothing has to wait for it.
    fn end_waiting(&self) {
        let mut threads = lock(&self.threads);
        threads.waiting.end();
        threads.states.iter().for_each(|state| state.interrupt());
    }
}
