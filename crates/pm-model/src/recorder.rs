//! Records what a PM structure does to its memory.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fastness_pmem::LINE_BYTES;

use crate::op::{FlushKind, Op};
use crate::trace::Trace;

mod range;

pub use range::RecordingRange;

/// Instructions by which a recorded copy writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordStyle {
    /// Non-temporal stores.
    NonTemporal,
    /// Cached stores, and a flush after each line.
    StoreFlush(FlushKind),
    /// Cached stores without flushes; only right on [`Persistence::Eadr`](crate::Persistence::Eadr).
    PlainEadr,
}

/// Stands in for a PM region, and records every operation on it.
///
/// Concurrency: clones are handles of the same recorder; operations are recorded in the order in which
/// they take the lock, as one program.
#[derive(Debug, Clone)]
pub struct Recorder(Arc<Mutex<Recording>>);

#[derive(Debug)]
struct Recording {
    style: RecordStyle,
    store_bytes: usize,
    initial: Vec<u8>,
    /// What loads see.
    image: Vec<u8>,
    ops: Vec<Op>,
    /// Parts of the region that live [`RecordingRange`]s own.
    lent: Vec<Range<usize>>,
    /// A fence has failed: the region refuses further ones.
    refuses_fences: bool,
}

impl Recorder {
    /// Records on top of `initial`, with stores of a whole line (the weakest: any 8-byte pieces of a line
    /// can be missing).
    ///
    /// # Panics
    /// If the length of `initial` is not a multiple of 64.
    pub fn new(initial: Vec<u8>, style: RecordStyle) -> Self {
        Self::with_store_bytes(initial, style, LINE_BYTES)
    }

    /// As [`Recorder::new`], with stores of `store_bytes`: 8 (`movnti`, `mov`), 16, 32 or 64 (vector
    /// registers). Smaller stores have fewer crash images, because stores to a line keep their order.
    ///
    /// # Panics
    /// If the length of `initial` is not a multiple of 64, or `store_bytes` is another number.
    pub fn with_store_bytes(initial: Vec<u8>, style: RecordStyle, store_bytes: usize) -> Self {
        assert!(initial.len().is_multiple_of(LINE_BYTES), "a region consists of whole lines");
        assert!(matches!(store_bytes, 8 | 16 | 32 | 64), "no store instruction of {store_bytes} bytes");
        let image = initial.clone();
        let (ops, lent) = (Vec::new(), Vec::new());
        let recording = Recording { style, store_bytes, initial, image, ops, lent, refuses_fences: false };
        Self(Arc::new(Mutex::new(recording)))
    }

    fn lock(&self) -> MutexGuard<'_, Recording> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a promise, for example an acknowledgement.
    pub fn mark(&self, mark: u64) {
        self.lock().ops.push(Op::Mark(mark));
    }

    /// Records any other operation and performs it on the current image; for code that does not write
    /// through a range.
    ///
    /// # Panics
    /// If it writes outside of the region.
    pub fn record(&self, op: Op) {
        let mut recording = self.lock();
        if let Op::Store { addr, data, .. } | Op::Rmw { addr, data } = &op {
            let start = *addr as usize;
            recording.image[start..start + data.len()].copy_from_slice(data);
        }
        recording.ops.push(op);
    }

    /// What has been recorded so far.
    pub fn trace(&self) -> Trace {
        let recording = self.lock();
        Trace { initial: recording.initial.clone(), ops: recording.ops.clone() }
    }

    /// What loads see now.
    pub fn image(&self) -> Vec<u8> {
        self.lock().image.clone()
    }

    /// What loads see of `dst.len()` bytes from region offset `offset` on.
    ///
    /// # Panics
    /// If they are not in the region.
    pub fn load(&self, offset: usize, dst: &mut [u8]) {
        dst.copy_from_slice(&self.lock().image[offset..offset + dst.len()]);
    }

    /// Number of operations recorded so far.
    pub fn op_count(&self) -> usize {
        self.lock().ops.len()
    }

    /// Takes back the refusal of fences after a failed one, as opening the region again does. What was
    /// written before stays as weakly persistent as it was.
    pub fn reopen(&self) {
        self.lock().refuses_fences = false;
    }

    /// An exclusive range of the region.
    ///
    /// # Panics
    /// If the range is not made of whole lines of the region, or overlaps another live range.
    pub fn range(&self, offset: usize, len_bytes: usize) -> RecordingRange {
        let wanted = offset..offset + len_bytes;
        let whole = offset.is_multiple_of(LINE_BYTES) && len_bytes.is_multiple_of(LINE_BYTES);
        assert!(whole, "a range consists of whole lines: {wanted:?}");
        let mut recording = self.lock();
        assert!(wanted.end <= recording.image.len(), "outside of the region: {wanted:?}");
        recording.lend(wanted.clone());
        drop(recording);
        RecordingRange::new(self.clone(), wanted)
    }
}

impl Recording {
    /// Notes a live range.
    fn lend(&mut self, wanted: Range<usize>) {
        let is_clear = self.lent.iter().all(|have| have.end <= wanted.start || wanted.end <= have.start);
        assert!(is_clear || wanted.is_empty(), "overlaps a live range: {wanted:?}");
        self.lent.push(wanted);
    }

    /// Forgets a live range.
    fn give_back(&mut self, range: &Range<usize>) {
        if let Some(index) = self.lent.iter().position(|have| have == range) {
            self.lent.swap_remove(index);
        }
    }

    /// Records a copy of `src` to region offset `start`, with zeroes up to `end`.
    fn copy(&mut self, start: usize, src: &[u8], end: usize) {
        self.image[start..start + src.len()].copy_from_slice(src);
        self.image[start + src.len()..end].fill(0);
        for line in (start..end).step_by(LINE_BYTES) {
            for at in (line..line + LINE_BYTES).step_by(self.store_bytes) {
                let data = self.image[at..at + self.store_bytes].to_vec();
                let nt = self.style == RecordStyle::NonTemporal;
                self.ops.push(Op::Store { addr: at as u64, data, nt, atomic64: false });
            }
            if let RecordStyle::StoreFlush(kind) = self.style {
                self.ops.push(Op::Flush { kind, addr: line as u64 });
            }
        }
    }

    /// Records an `sfence`.
    fn fence(&mut self) {
        self.ops.push(Op::sfence());
    }
}
