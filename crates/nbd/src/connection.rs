//! The transmission phase of one connection.
//!
//! The reader thread executes a request itself if it expects that to be quicker than a hand-over, and hands
//! the others to the pool. Expected times are learned per kind of request. Replies to requests that arrived
//! together are sent together, before the reader waits for anything.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::budget::{Budget, Permit};
use crate::error::{ConnectionError, Errno};
use crate::execute::execute;
use crate::input::{Filled, Input, Patience};
use crate::options::Session;
use crate::output::Output;
use crate::pool::Pool;
use crate::reply::{Frame, Replier};
use crate::rules::Command;
use crate::socket::Socket;
use crate::wire::{PAYLOAD_BYTES_MAX, RequestHeader};

/// Longest payload of a request that the reader executes itself while others wait.
const SMALL_BYTES_MAX: u32 = 64 << 10;
/// With nothing else in flight, a request that takes up to this long gains nothing from a hand-over.
const ALONE_NS_MAX: u64 = 200_000;
/// The same with others in flight: about the cost of a hand-over.
const BUSY_NS_MAX: u64 = 10_000;
/// Expected time of a kind of request not seen yet: long enough for a hand-over.
const UNKNOWN_NS: u64 = 1_000_000;
/// Maximum number of replies held back to share one system call.
const HELD_BACK_MAX: usize = 16;
/// Maximum bytes of replies held back.
const HELD_BACK_BYTES_MAX: usize = 64 << 10;
/// Longest refused payload that is skipped; a client that sends more is disconnected.
const SKIP_BYTES_MAX: u64 = 2 * PAYLOAD_BYTES_MAX as u64;

pub(crate) struct Connection {
    pub(crate) id: u64,
    pub(crate) socket: Arc<Socket>,
    pub(crate) session: Session,
    pub(crate) budget: Arc<Budget>,
    pub(crate) output: Output,
    pub(crate) expected: Expected,
    pub(crate) is_draining: Arc<AtomicBool>,
}

/// Time-outs of the transmission phase.
pub(crate) struct Patiences {
    pub(crate) request: Duration,
    pub(crate) write: Duration,
    pub(crate) idle: Option<Duration>,
}

/// A request with its payload accounted for.
struct Request {
    command: Command,
    replier: Replier,
    permit: Permit,
}

impl Connection {
    /// Serves requests until the client disconnects, then waits for those in flight.
    pub(crate) fn run(
        self: &Arc<Self>,
        input: &mut Input,
        pool: &Pool,
        patience: &Patiences,
    ) -> Result<(), ConnectionError> {
        input.set_patience(Patience::PerRequest(patience.request));
        self.socket.set_receive_timeout(patience.idle.unwrap_or(patience.request).min(patience.request))?;
        self.socket.set_send_timeout(patience.write)?;
        std::thread::scope(|scope| {
            let writer = std::thread::Builder::new().name("nbd-writer".to_owned()).stack_size(128 << 10);
            let started = writer.spawn_scoped(scope, || self.output.write(&self.socket));
            let ended = match started {
                Ok(_) => Reader { connection: self, input, pool, frames: Vec::new(), held: 0, held_bytes: 0 }
                    .run(patience.idle),
                Err(error) => Err(ConnectionError::Lost(error)),
            };
            // Replies held back when the reader failed are still in flight.
            self.output.flush(&self.socket, false);
            if ended.is_err() {
                // The client is gone: there is nothing to wait for.
                self.socket.close();
            }
            self.budget.wait_idle();
            self.output.finish();
            if ended.is_ok() {
                self.socket.finish();
            }
            self.socket.close();
            ended.and_then(|()| self.output.check())
        })
    }

    /// Executes a request and queues its reply.
    fn execute(&self, request: Request, payload: &[u8], frames: &mut Vec<Frame>) {
        let Request { command, replier, permit } = request;
        let began = Instant::now();
        execute(&*self.session.export, &self.session.rules, command, payload, replier, frames);
        self.expected.note(command, began.elapsed());
        frames.last_mut().expect("every request is answered").permit = Some(permit);
    }
}

/// The reader thread.
struct Reader<'a> {
    connection: &'a Arc<Connection>,
    input: &'a mut Input,
    pool: &'a Pool,
    /// Kept for its capacity.
    frames: Vec<Frame>,
    /// Replies that are queued but not sent.
    held: usize,
    held_bytes: usize,
}

impl Reader<'_> {
    fn run(&mut self, idle: Option<Duration>) -> Result<(), ConnectionError> {
        let header_bytes = self.connection.session.rules.mode.request_bytes();
        let mut last_request = Instant::now();
        loop {
            if self.input.buffered() < header_bytes {
                self.send_held(false);
            }
            match self.input.fill(header_bytes)? {
                Filled::Ready => {}
                Filled::Closed => return Ok(()),
                Filled::Idle => {
                    let is_idle = self.connection.budget.is_idle();
                    if idle.is_some_and(|longest| is_idle && last_request.elapsed() >= longest) {
                        return Err(ConnectionError::TimedOut { what: "send a request" });
                    }
                    continue;
                }
            }
            if idle.is_some() {
                last_request = Instant::now();
            }
            let header =
                RequestHeader::decode(self.input.peek(header_bytes), self.connection.session.rules.mode);
            let Some(header) = header else {
                return Err(ConnectionError::Protocol { what: "wrong magic of a request" });
            };
            self.input.consume(header_bytes);
            if !self.request(&header)? {
                self.send_held(false);
                return Ok(());
            }
        }
    }

    /// Handles a request; returns whether to continue.
    fn request(&mut self, header: &RequestHeader) -> Result<bool, ConnectionError> {
        let rules = &self.connection.session.rules;
        let verdict = rules.judge(header);
        let replier = Replier::new(rules.mode, header);
        let refusal = match verdict.outcome {
            Ok(Command::Disconnect) => return Ok(false),
            Err(refusal) => Some((refusal.errno, refusal.why)),
            Ok(_) if self.connection.is_draining.load(Ordering::Relaxed) => {
                Some((Errno::Eshutdown, "the server is shutting down"))
            }
            Ok(_) => None,
        };
        if let Some((errno, why)) = refusal {
            if verdict.payload_bytes > SKIP_BYTES_MAX {
                return Err(ConnectionError::Protocol { what: "payload far too long" });
            }
            let permit = self.permit(0);
            if verdict.payload_bytes > 0 {
                self.send_held(false);
                self.input.skip(verdict.payload_bytes)?;
            }
            let mut frame = replier.error(errno, why);
            frame.permit = Some(permit);
            self.frames.push(frame);
            self.hold(false);
            return Ok(true);
        }
        let command = verdict.outcome.expect("refusals were answered");
        let permit = self.permit(memory_bytes(command));
        self.dispatch(Request { command, replier, permit }, verdict.payload_bytes as usize)?;
        Ok(true)
    }

    /// Sends the held replies before it waits: they may hold what it waits for.
    fn permit(&mut self, bytes: u64) -> Permit {
        if let Some(permit) = self.connection.budget.try_acquire(bytes) {
            return permit;
        }
        self.send_held(false);
        self.connection.budget.acquire(bytes)
    }

    fn dispatch(&mut self, request: Request, payload_bytes: usize) -> Result<(), ConnectionError> {
        if payload_bytes <= SMALL_BYTES_MAX as usize && payload_bytes <= self.input.capacity() {
            if self.input.buffered() < payload_bytes {
                self.send_held(false);
                self.input.fill_rest(payload_bytes)?;
            }
            let is_alone = request.permit.is_alone() && self.input.buffered() == payload_bytes;
            if self.connection.expected.is_quick(request.command, is_alone) {
                let payload = self.input.peek(payload_bytes);
                self.connection.execute(request, payload, &mut self.frames);
                self.input.consume(payload_bytes);
                self.hold(is_alone);
                return Ok(());
            }
        }
        let mut payload = vec![0; payload_bytes];
        if self.input.buffered() < payload_bytes {
            self.send_held(false);
        }
        self.input.take(&mut payload)?;
        let connection = self.connection.clone();
        let job = move || {
            let mut frames = Vec::new();
            connection.execute(request, &payload, &mut frames);
            connection.output.push(&mut frames);
            connection.output.flush(&connection.socket, false);
        };
        // Held-back replies must not wait for a possibly long job; they are sent before the reader waits.
        self.pool.submit(self.connection.id, Box::new(job));
        Ok(())
    }

    /// Queues the reply; sends it at once if the client waits for nothing else.
    fn hold(&mut self, is_alone: bool) {
        self.held += 1;
        self.held_bytes += self.frames.iter().map(Frame::bytes).sum::<usize>();
        self.connection.output.push(&mut self.frames);
        if is_alone || self.held >= HELD_BACK_MAX || self.held_bytes >= HELD_BACK_BYTES_MAX {
            self.send_held(is_alone);
        }
    }

    fn send_held(&mut self, may_wait: bool) {
        if self.held > 0 {
            (self.held, self.held_bytes) = (0, 0);
            self.connection.output.flush(&self.connection.socket, may_wait);
        }
    }
}

/// Payload that the request keeps in memory.
fn memory_bytes(command: Command) -> u64 {
    match command {
        Command::Read { length, .. } | Command::Write { length, .. } => u64::from(length),
        Command::Disconnect
        | Command::Flush
        | Command::Trim { .. }
        | Command::Cache { .. }
        | Command::WriteZeroes { .. }
        | Command::BlockStatus { .. } => 0,
    }
}

/// Recent duration of small requests, by kind, in ns.
pub(crate) struct Expected([AtomicU64; 8]);

impl Default for Expected {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(UNKNOWN_NS)))
    }
}

impl Expected {
    fn is_quick(&self, command: Command, is_alone: bool) -> bool {
        let limit_ns = if is_alone { ALONE_NS_MAX } else { BUSY_NS_MAX };
        class(command).is_some_and(|class| self.0[class].load(Ordering::Relaxed) <= limit_ns)
    }

    /// A race can lose an update, which does not matter.
    fn note(&self, command: Command, took: Duration) {
        let Some(class) = class(command) else { return };
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).min(UNKNOWN_NS);
        let average_ns = self.0[class].load(Ordering::Relaxed);
        self.0[class].store((3 * average_ns + took_ns) / 4, Ordering::Relaxed);
    }
}

/// Requests of a class take about the same time; `None`: could take any time.
fn class(command: Command) -> Option<usize> {
    let small = u64::from(SMALL_BYTES_MAX);
    match command {
        Command::Read { length, .. } if length <= SMALL_BYTES_MAX => Some(0),
        Command::Write { length, fua: false, .. } if length <= SMALL_BYTES_MAX => Some(1),
        Command::Write { length, fua: true, .. } if length <= SMALL_BYTES_MAX => Some(2),
        Command::Flush => Some(3),
        Command::Trim { length, .. } if length <= small => Some(4),
        Command::WriteZeroes { length, .. } if length <= small => Some(5),
        Command::Cache { length, .. } if length <= small => Some(6),
        Command::BlockStatus { length, .. } if length <= small => Some(7),
        _ => None,
    }
}
