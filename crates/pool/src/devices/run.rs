//! Bulk writing: neighbours go into one request, and several requests are in flight while the next is filled.
//!
//! With threads, the caller packs and checksums while they wait for the devices. A thread hands over all
//! requests that wait, as one batch (io_uring, where the device has it), so several are in flight for each
//! thread. Requests start in the order in which they were filled; there is no order between them, and none is
//! needed: everything goes to places that nothing durable refers to, and is flushed before the uberblock.
//! Without threads the caller does all I/O itself, in order.

use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Mutex, PoisonError};

use fastness_blkdev::AlignedBuf;

use crate::devices::vdev::Vdevs;
use crate::error::{PoolError, Result};
use crate::ids::{Place, UNIT_BYTES};
use crate::panics::caught;
use fastness_sync::order::lock;

/// Longest request.
const RUN_BYTES_MAX: usize = 1 << 20;
/// Batches in flight. Fewer threads with longer batches were slower (`docs/benchmarks.md`, "Pool").
const THREADS: usize = 4;
/// Requests of a batch.
const BATCH_MAX: usize = 2;
/// Filled requests that wait for a thread.
const WAITING_MAX: usize = 6;
/// Fewer bytes are not worth starting threads for.
const THREADED_BYTES_MIN: u64 = 4 << 20;

/// A filled buffer on its way.
struct Request {
    start: Place,
    buf: AlignedBuf,
    len: usize,
}

/// The destination of filled buffers.
enum Sink {
    Caller,
    Threads { requests: SyncSender<Request>, emptied: Receiver<AlignedBuf> },
}

/// Collects adjacent units into one write.
pub(crate) struct Run<'a> {
    vdevs: &'a Vdevs,
    sink: Sink,
    start: Option<Place>,
    buf: AlignedBuf,
    len: usize,
}

impl<'a> Run<'a> {
    fn new(vdevs: &'a Vdevs, sink: Sink) -> Run<'a> {
        Run { vdevs, sink, start: None, buf: new_buf(), len: 0 }
    }

    /// Adds `data`, filled up with zeroes to whole units.
    pub(crate) fn push(&mut self, place: Place, data: &[u8]) -> Result<()> {
        let follows = self.start.is_some_and(|start| {
            start.vdev == place.vdev && start.unit + self.len as u64 / UNIT_BYTES == place.unit
        });
        let whole = data.len().next_multiple_of(UNIT_BYTES as usize);
        if !follows || self.len + whole > RUN_BYTES_MAX {
            self.write()?;
            self.start = Some(place);
        }
        let (filled, end) = (self.len + data.len(), self.len + whole);
        self.buf[self.len..filled].copy_from_slice(data);
        self.buf[filled..end].fill(0);
        self.len = end;
        Ok(())
    }

    fn write(&mut self) -> Result<()> {
        let Some(start) = self.start.take() else { return Ok(()) };
        let len = std::mem::take(&mut self.len);
        match &self.sink {
            Sink::Caller => self.vdevs.write(start, &self.buf[..len]),
            Sink::Threads { requests, emptied } => {
                let next = emptied.try_recv().unwrap_or_else(|_| new_buf());
                let buf = std::mem::replace(&mut self.buf, next);
                // The threads end when the sender is dropped.
                requests.send(Request { start, buf, len }).map_err(|_| PoolError::Closed)
            }
        }
    }
}

fn new_buf() -> AlignedBuf {
    AlignedBuf::zeroed(RUN_BYTES_MAX, UNIT_BYTES as usize)
}

/// Lets `fill` push about `bytes` into a run; on return everything is written, but not flushed.
///
/// # Errors
/// That of `fill`, or of the first write that failed.
pub(crate) fn write_all<T>(
    vdevs: &Vdevs,
    has_threads: bool,
    bytes: u64,
    fill: impl FnOnce(&mut Run<'_>) -> Result<T>,
) -> Result<T> {
    let to_end = |sink| {
        let mut run = Run::new(vdevs, sink);
        let result = fill(&mut run)?;
        run.write()?;
        Ok(result)
    };
    if !has_threads || bytes < THREADED_BYTES_MIN {
        return to_end(Sink::Caller);
    }
    let (requests, waiting) = sync_channel(WAITING_MAX);
    let (waiting, failed) = (Mutex::new(waiting), Mutex::new(None));
    let result = std::thread::scope(|scope| {
        let (empty, emptied) = channel();
        for _ in 0..THREADS {
            let (waiting, failed, empty) = (&waiting, &failed, empty.clone());
            scope.spawn(move || write_requests(vdevs, waiting, failed, &empty));
        }
        // The run, and with it the sender, is dropped inside: then the threads find the channel closed.
        to_end(Sink::Threads { requests, emptied })
    });
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => result,
    }
}

/// One thread: writes until the channel is closed.
fn write_requests(
    vdevs: &Vdevs,
    waiting: &Mutex<Receiver<Request>>,
    failed: &Mutex<Option<PoolError>>,
    empty: &Sender<AlignedBuf>,
) {
    loop {
        let batch = next_batch(waiting);
        if batch.is_empty() {
            return;
        }
        // After a failure the txg is lost; whatever is still sent is discarded.
        let has_failed = lock(failed).is_some();
        let writes: Vec<_> =
            batch.iter().map(|request| (request.start, &request.buf[..request.len])).collect();
        // The thread carries on after a panic: the sender must find a receiving thread.
        if !has_failed && let Err(error) = caught(|| vdevs.write_batch(&writes)) {
            lock(failed).get_or_insert(error);
        }
        // The run may have ended: then the buffers are not needed.
        batch.into_iter().for_each(|request| drop(empty.send(request.buf)));
    }
}

/// Waits for a request, and takes what else waits already; nothing if the channel is closed.
fn next_batch(waiting: &Mutex<Receiver<Request>>) -> Vec<Request> {
    let waiting = lock(waiting);
    let first = waiting.recv().into_iter();
    first.flat_map(|first| std::iter::once(first).chain(waiting.try_iter().take(BATCH_MAX - 1))).collect()
}
