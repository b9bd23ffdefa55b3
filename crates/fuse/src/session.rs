//! A session with the kernel: what both can do, and threads that read requests and answer them.
//!
//! All threads read one descriptor; the kernel gives each request to one of them. A thread that takes a
//! request while no other waits for one starts another thread, up to a bound: requests may wait for long (a
//! suspended pool), and INTERRUPT and FORGET must be read meanwhile. Threads that are too many end.
//!
//! The end: once the mount is gone, reading fails with ENODEV in all threads, and [`Files::ended`] is called.

use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::answer::Answer;
use crate::dispatch::dispatch;
use crate::files::{Caller, Files};
use crate::stats::{Counters, OperationStats};
use crate::wire::{self, Head, Input, init};

/// Longest write in one request.
const WRITE_BYTES_MAX: u32 = 1 << 20;
/// A request that writes: its head and arguments, then the bytes.
const REQUEST_BYTES_MAX: usize = WRITE_BYTES_MAX as usize + 4096;
const PAGE_BYTES: u32 = 4096;

/// Settings of a session.
#[derive(Debug, Clone, Copy)]
pub struct SessionOptions {
    /// Threads that may wait at one time, in operations or for requests.
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

/// Why a session could not begin.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The kernel's side cannot be read or written.
    #[error("the kernel's side of the mount failed")]
    Device(#[source] Errno),
    /// The kernel speaks another version.
    #[error("the kernel speaks FUSE {major}.{minor}; {}.{} is needed", wire::MAJOR, wire::MINOR_MIN)]
    Version {
        /// Its version.
        major: u32,
        /// Its revision.
        minor: u32,
    },
    /// No thread could be started.
    #[error("no thread could be started")]
    Thread(#[source] std::io::Error),
}

/// A request that a thread is carrying out.
#[derive(Debug, Default)]
struct Slot {
    unique: AtomicU64,
    is_interrupted: AtomicBool,
}

#[derive(Default)]
struct Threads {
    count: usize,
    slots: Vec<Arc<Slot>>,
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

/// Reads one request; `None`: the mount is gone.
fn receive(device: &OwnedFd, buffer: &mut [u8]) -> Result<Option<usize>, Errno> {
    loop {
        match rustix::io::read(device, &mut *buffer) {
            Ok(0) | Err(Errno::NODEV) => return Ok(None),
            Ok(len) => return Ok(Some(len)),
            // Taken back by the kernel; interrupted; taken by another thread.
            Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(error),
        }
    }
}

/// What is wanted of the kernel. Not that `open` truncates: the kernel would send it before it has looked
/// whether the file is being executed, and so must not be written.
fn wanted() -> u64 {
    init::ASYNC_READ
        | init::EXPORT_SUPPORT
        | init::BIG_WRITES
        | init::DONT_MASK
        | init::DO_READDIRPLUS
        | init::READDIRPLUS_AUTO
        | init::ASYNC_DIO
        | init::PARALLEL_DIROPS
        | init::POSIX_ACL
        | init::MAX_PAGES
        | init::CACHE_SYMLINKS
        | init::HANDLE_KILLPRIV_V2
        | init::SETXATTR_EXT
        | init::INIT_EXT
        | init::DIRECT_IO_ALLOW_MMAP
}

/// Answers INIT, the first request. Returns whether that was it; an older kernel's other requests are
/// refused.
fn handshake(device: &OwnedFd, buffer: &mut [u8], answer: &mut Answer) -> Result<bool, SessionError> {
    let len = receive(device, buffer).map_err(SessionError::Device)?;
    let len = len.ok_or(SessionError::Device(Errno::NODEV))?;
    let broken = SessionError::Device(Errno::PROTO);
    let Some((head, mut input)) = Input::request(&buffer[..len]) else { return Err(broken) };
    let mut word = || input.u32().map_err(SessionError::Device);
    if head.opcode != wire::INIT {
        return Err(broken);
    }
    let (major, minor, readahead, low) = (word()?, word()?, word()?, word()?);
    answer.start();
    if major > wire::MAJOR {
        // The kernel asks again, in our version.
        answer.u32(wire::MAJOR).u32(wire::MINOR).zeroes(56);
        send(device, answer.finish(head.unique, Ok(()))).map_err(SessionError::Device)?;
        return Ok(false);
    }
    if major < wire::MAJOR || minor < wire::MINOR_MIN {
        let refusal = answer.finish(head.unique, Err(Errno::PROTO));
        send(device, refusal).map_err(SessionError::Device)?;
        return Err(SessionError::Version { major, minor });
    }
    let offered = u64::from(low);
    let high = if offered & init::INIT_EXT != 0 { word().unwrap_or(0) } else { 0 };
    let flags = wanted() & (offered | u64::from(high) << 32);
    answer.u32(wire::MAJOR).u32(minor.min(wire::MINOR)).u32(readahead).u32(flags as u32);
    // Requests in the background, and from how many on the kernel slows writers down.
    answer.u16(64).u16(48);
    let pages = (WRITE_BYTES_MAX / PAGE_BYTES) as u16;
    answer.u32(WRITE_BYTES_MAX).u32(1).u16(pages).u16(0).u32((flags >> 32) as u32).zeroes(28);
    send(device, answer.finish(head.unique, Ok(()))).map_err(SessionError::Device)?;
    Ok(true)
}

fn send(device: &OwnedFd, answer: &[u8]) -> Result<(), Errno> {
    match rustix::io::write(device, answer) {
        Ok(len) if len == answer.len() => Ok(()),
        Ok(_) => Err(Errno::IO),
        Err(error) => Err(error),
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
        while threads.count > 0 {
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
        lock(&self.0.threads).count == 0
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
    /// Starts a thread, unless there are enough.
    fn start_thread(self: &Arc<Shared>) -> std::io::Result<()> {
        let mut threads = lock(&self.threads);
        if threads.count >= self.options.threads_max {
            return Ok(());
        }
        let slot = Arc::new(Slot::default());
        let shared = self.clone();
        let own = slot.clone();
        std::thread::Builder::new().name("fuse".to_owned()).spawn(move || shared.work(&own))?;
        threads.count += 1;
        threads.slots.push(slot);
        Ok(())
    }

    fn work(self: Arc<Shared>, slot: &Arc<Slot>) {
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
            let Ok(Some(len)) = received else { break };
            self.serve(slot, &buffer[..len], &mut answer);
        }
        let mut threads = lock(&self.threads);
        threads.slots.retain(|other| !Arc::ptr_eq(other, slot));
        threads.count -= 1;
        let is_last = threads.count == 0;
        drop(threads);
        if is_last {
            self.files.ended();
            self.ended.notify_all();
        }
    }

    fn serve(&self, slot: &Slot, request: &[u8], answer: &mut Answer) {
        // What is no request cannot be answered.
        let Some((head, mut input)) = Input::request(request) else { return };
        if head.opcode == wire::INTERRUPT {
            if !input.u64().is_ok_and(|unique| self.interrupt(unique)) {
                // It has not begun yet: the kernel sends the interrupt again. If it is over, this is ignored.
                let _ = send(&self.device, answer.start().finish(head.unique, Err(Errno::AGAIN)));
            }
            return;
        }
        slot.is_interrupted.store(false, Ordering::Relaxed);
        slot.unique.store(head.unique, Ordering::SeqCst);
        let started = Instant::now();
        let outcome = self.carry_out(slot, &head, input, answer);
        slot.unique.store(0, Ordering::SeqCst);
        let error = outcome.and_then(Result::err);
        if let Some(result) = outcome {
            match send(&self.device, answer.finish(head.unique, result)) {
                // Nobody waits for it any more, or the mount is gone: the next read tells.
                Ok(()) | Err(Errno::NOENT | Errno::NODEV) => {}
                // The kernel does not like the answer; the program must not wait for ever.
                Err(_) => {
                    let _ = send(&self.device, answer.start().finish(head.unique, Err(Errno::IO)));
                }
            }
        }
        self.counters.add(head.opcode, started.elapsed(), error);
    }

    fn carry_out(
        &self,
        slot: &Slot,
        head: &Head,
        input: Input<'_>,
        answer: &mut Answer,
    ) -> Option<Result<(), Errno>> {
        let Head { uid, gid, pid, .. } = *head;
        let caller = Caller { uid, gid, pid, interrupted: &slot.is_interrupted };
        answer.start();
        let carry_out = || dispatch(&*self.files, caller, head, input, answer);
        catch_unwind(AssertUnwindSafe(carry_out)).unwrap_or_else(|_| {
            lock(&self.threads).panics += 1;
            Some(Err(Errno::IO))
        })
    }

    /// Tells the thread that carries out a request that its program was interrupted.
    fn interrupt(&self, unique: u64) -> bool {
        let threads = lock(&self.threads);
        let slot = threads.slots.iter().find(|slot| slot.unique.load(Ordering::SeqCst) == unique);
        slot.inspect(|slot| slot.is_interrupted.store(true, Ordering::SeqCst)).is_some()
    }
}
