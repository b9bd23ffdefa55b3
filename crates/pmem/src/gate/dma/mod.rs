//! Writes by a DMA engine: the CPU is free meanwhile.
//!
//! What the engine cannot do (a page that is not there, a full queue, a status that nobody expects), the CPU
//! does, or does again: the source is still there, and the same bytes can be stored twice. Only an engine
//! that does not answer at all cannot be mended: it may still store to the region, so the region is lost for
//! this process, its memory stays mapped, and so does the completion record.
//!
//! **Not run on hardware yet**: the engine of the tests is simulated (`model::SimulatedQueue`).
//!
//! Source: dissertation (2025), 5.1.3.

mod dsa;

use std::hint::spin_loop;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::queue::{Completion, Descriptor, PAGE_FAULT, SUCCESS, WorkQueue};
use super::store;
use crate::medium::{LINE_BYTES, Medium, NoSum, PersistError};

pub use dsa::DsaQueue;

/// How long an engine may take for a transfer.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// An answer comes within this many rounds of spinning, or it is slept for.
const SPINS: u32 = 200;
const NAP: Duration = Duration::from_micros(10);
/// How often a full queue is tried.
const TRIES: u32 = 64;

/// A DMA engine with its work queue.
#[derive(Debug)]
pub(super) struct Engine {
    queue: Arc<dyn WorkQueue>,
    answer_max: Duration,
    transfers: AtomicU64,
    redone: AtomicU64,
    /// It has not answered once: nothing is given to it any more.
    is_lost: AtomicBool,
}

/// How a transfer ended.
enum Transferred {
    /// All of it is there.
    All,
    /// So many bytes of it are; the CPU has to store the others.
    Part(usize),
    /// Nobody knows, and the engine may go on.
    Unknown,
}

impl Engine {
    pub(super) fn new(queue: Arc<dyn WorkQueue>) -> Engine {
        Engine {
            queue,
            answer_max: ANSWER_MAX,
            transfers: AtomicU64::new(0),
            redone: AtomicU64::new(0),
            is_lost: AtomicBool::new(false),
        }
    }

    /// Transfers, and those that the CPU had to complete.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.transfers.load(Ordering::Relaxed), self.redone.load(Ordering::Relaxed))
    }

    /// As `store`, by the engine; the end of the last line, and its zeroes, by the CPU.
    pub(super) fn write<M: Medium>(
        &self,
        range: &mut M,
        offset: usize,
        src: &[u8],
    ) -> Result<(), PersistError> {
        if self.is_lost.load(Ordering::Acquire) {
            return store(range, offset, src);
        }
        let (lines, rest) = src.split_at(src.len() - src.len() % LINE_BYTES);
        let mut done = 0;
        for piece in lines.chunks(self.queue.transfer_bytes_max().max(1)) {
            let Some(dst) = range.mapped(offset + done, piece.len()) else { break };
            match self.transfer(dst, piece) {
                Transferred::All => {}
                Transferred::Part(bytes) => {
                    let from = bytes.min(piece.len()) / LINE_BYTES * LINE_BYTES;
                    self.redone.fetch_add(1, Ordering::Relaxed);
                    range.copy(offset + done + from, &piece[from..], piece.len() - from, &mut NoSum);
                }
                Transferred::Unknown => {
                    self.is_lost.store(true, Ordering::Release);
                    range.lose(offset + done);
                    let start = range.region_offset() + offset as u64;
                    let source = io::Error::new(io::ErrorKind::TimedOut, "the DMA engine does not answer");
                    return Err(PersistError { start, end: start + src.len() as u64, source });
                }
            }
            done += piece.len();
        }
        // What the engine did not get: all of it, for a medium that is not mapped.
        if done < lines.len() {
            range.copy(offset + done, &lines[done..], lines.len() - done, &mut NoSum);
        }
        if !rest.is_empty() {
            range.copy(offset + lines.len(), rest, LINE_BYTES, &mut NoSum);
        }
        // PERSIST: what the engine stored has been read back, hence is with the memory controller; this
        // covers what the CPU stored, and what fences of the region do besides. Excludes the crash state with
        // a mark that the caller stores next and without the bytes.
        range.fence()
    }

    fn transfer(&self, dst: NonNull<u8>, src: &[u8]) -> Transferred {
        let completion = Box::new(Completion::default());
        let descriptor = Descriptor::copy(dst, src, NonNull::from(&*completion));
        self.transfers.fetch_add(1, Ordering::Relaxed);
        if !submit(&*self.queue, &descriptor) {
            return Transferred::Part(0);
        }
        match wait_for(&completion, self.answer_max) {
            Some((SUCCESS, _)) => Transferred::All,
            Some((PAGE_FAULT, bytes)) => Transferred::Part(bytes),
            Some(_) => Transferred::Part(0),
            None => {
                // The engine may still write to it.
                Box::leak(completion);
                Transferred::Unknown
            }
        }
    }
}

/// False: the queue stays full, or does not take it.
fn submit(queue: &dyn WorkQueue, descriptor: &Descriptor) -> bool {
    for _ in 0..TRIES {
        match queue.submit(descriptor) {
            Ok(()) => return true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::yield_now(),
            Err(_) => return false,
        }
    }
    false
}

/// The answer: soon by spinning, later by sleeping. A work queue has no way to wake a program.
fn wait_for(completion: &Completion, answer_max: Duration) -> Option<(u8, usize)> {
    for _ in 0..SPINS {
        if let Some(answer) = completion.answer() {
            return Some(answer);
        }
        spin_loop();
    }
    let begun = Instant::now();
    loop {
        std::thread::sleep(NAP);
        let answer = completion.answer();
        if answer.is_some() || begun.elapsed() > answer_max {
            return answer;
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
