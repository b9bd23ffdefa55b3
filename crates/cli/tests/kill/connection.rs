//! A connection that does what its program says, and keeps what happened.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use fastness_history::stamp::{self, Place};
use fastness_history::{Clock, End, Operation, SECTOR_BYTES, What, WriteId};
use fastness_nbd::wire::{HeaderMode, command};
use fastness_nbd::{Client, ClientError, Receiver, Reply, Request, Sender};

use crate::program::{Program, Step};

/// Payloads in flight.
const BYTES_MAX: u64 = 16 << 20;
/// A request that takes longer hangs.
const TIMEOUT: Duration = Duration::from_secs(90);

#[derive(Default)]
struct State {
    operations: Vec<Operation>,
    in_flight: usize,
    bytes_in_flight: u64,
    is_over: bool,
}

struct Shared {
    clock: Arc<Clock>,
    place: Place,
    state: Mutex<State>,
    changed: Condvar,
}

/// A connection of two threads; ends with the server, or by itself.
pub struct Connection {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

fn cookie(number: usize) -> u64 {
    number as u64 + 1
}

impl Connection {
    /// `None`: the server has gone.
    pub fn start(
        socket: &Path,
        export: &str,
        (clock, place): (&Arc<Clock>, Place),
        connection: u32,
        program: Program,
        is_sync_always: bool,
    ) -> Option<Connection> {
        let stream = UnixStream::connect(socket).ok()?;
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(TIMEOUT)).unwrap();
        let client = Client::handshake(stream, export, HeaderMode::Structured).ok()?;
        let (sender, receiver) = client.split();
        let state = Mutex::default();
        let shared = Arc::new(Shared { clock: clock.clone(), place, state, changed: Condvar::new() });
        let (sending, receiving) = (shared.clone(), shared.clone());
        let threads = vec![
            std::thread::spawn(move || sending.send(sender, connection, program, is_sync_always)),
            std::thread::spawn(move || receiving.receive(receiver)),
        ];
        Some(Connection { shared, threads })
    }

    /// Waits for the end of the connection; what was done. A request without a reply is open.
    pub fn join(self) -> Vec<Operation> {
        for thread in self.threads {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
        std::mem::take(&mut self.shared.state.lock().unwrap().operations)
    }
}

impl Shared {
    fn send(&self, mut sender: Sender, connection: u32, mut program: Program, is_sync_always: bool) {
        let mut payload = Vec::new();
        for number in 0..program.steps_max {
            let step = program.step();
            std::thread::sleep(step.pause);
            let id = WriteId { connection, number: number as u32 };
            payload.clear();
            if step.command == command::WRITE {
                payload.resize(step.len_bytes() as usize, 0);
                stamp::fill(&mut payload, id, Place { sector: step.sectors.start, ..self.place });
            }
            if !self.call(&step, id, is_sync_always, program.depth) {
                return;
            }
            let (kind, flags) = (step.command, step.flags());
            let (offset, length) = (step.offset(), step.len_bytes());
            match sender.send(&Request { kind, flags, offset, length, payload: &payload }) {
                Ok(sent) => assert_eq!(sent, cookie(number)),
                Err(error) => return assert_gone(&error),
            }
        }
        sender.hang_up();
    }

    /// Waits until another request may be in flight, and takes note of it; false if the connection is over.
    fn call(&self, step: &Step, id: WriteId, is_sync_always: bool, depth: usize) -> bool {
        let is_full = |state: &mut State| {
            let is_much = state.in_flight > 0 && state.bytes_in_flight + step.len_bytes() > BYTES_MAX;
            !state.is_over && (state.in_flight >= depth || is_much)
        };
        let state = self.state.lock().unwrap();
        let mut state = self.changed.wait_while(state, is_full).unwrap();
        if state.is_over {
            return false;
        }
        state.in_flight += 1;
        state.bytes_in_flight += step.len_bytes();
        let what = match step.command {
            command::WRITE => What::Write,
            command::WRITE_ZEROES => What::Zeroes,
            command::TRIM => What::Trim,
            command::FLUSH => What::Flush,
            _ => What::Read(Vec::new()),
        };
        let (sectors, call) = (step.sectors.clone(), self.clock.tick());
        let is_sync = step.is_fua || is_sync_always;
        state.operations.push(Operation { id, what, sectors, is_sync, call, end: End::Open });
        true
    }

    fn receive(&self, mut receiver: Receiver) {
        let mut replies: BTreeMap<u64, Reply> = BTreeMap::new();
        loop {
            let chunk = match receiver.receive_chunk(|_| 0) {
                Ok(chunk) => chunk,
                Err(ClientError::Io(error)) if error.kind() == ErrorKind::WouldBlock => {
                    let state = self.state.lock().unwrap();
                    assert_eq!(state.in_flight, 0, "no reply for {TIMEOUT:?}: {:?}", state.operations.last());
                    continue;
                }
                Err(error) => {
                    assert_gone(&error);
                    self.state.lock().unwrap().is_over = true;
                    self.changed.notify_all();
                    return;
                }
            };
            let (cookie, is_done) = (chunk.cookie, chunk.is_done);
            let sectors = self.state.lock().unwrap().operations[cookie as usize - 1].sectors.clone();
            let len_bytes = sectors.len() as u64 * SECTOR_BYTES as u64;
            let reply = replies.entry(cookie).or_default();
            let offset = u64::from(sectors.start) * SECTOR_BYTES as u64;
            reply.add(chunk, offset, len_bytes).expect("a reply as the protocol has it");
            if is_done {
                let reply = replies.remove(&cookie).expect("just added to");
                self.done(cookie as usize - 1, &reply, len_bytes);
            }
        }
    }

    fn done(&self, number: usize, reply: &Reply, len_bytes: u64) {
        let reply_tick = self.clock.tick();
        let first = self.state.lock().unwrap().operations[number].sectors.start;
        let is_read = !reply.data.is_empty();
        let sectors = (first..).zip(reply.data.chunks(SECTOR_BYTES));
        let seen: Vec<_> =
            sectors.map(|(sector, bytes)| stamp::read(bytes, Place { sector, ..self.place })).collect();
        let mut state = self.state.lock().unwrap();
        let operation = &mut state.operations[number];
        operation.end = if reply.error == 0 { End::Acknowledged(reply_tick) } else { End::Over(reply_tick) };
        if is_read {
            operation.what = What::Read(seen);
        }
        state.in_flight -= 1;
        state.bytes_in_flight -= len_bytes;
        self.changed.notify_all();
    }
}

/// A connection may end, and nothing else may happen to it.
fn assert_gone(error: &ClientError) {
    use ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    let is_gone = matches!(error, ClientError::Io(error)
        if matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof));
    assert!(is_gone, "a connection ended with {error:?}");
}
