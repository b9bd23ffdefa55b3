//! PM on which several threads write at once, and the crash images that their interleaving allows.
//!
//! The recorder takes the operations of all threads as one program, in which a fence would cover the stores
//! of all. A real fence covers those of its CPU. So each operation is noted with its thread, and a crash
//! behind the first *k* operations is modelled exactly: what a thread issued before its own last fence is
//! durable, what it issued behind it is pending, and any part of that, of all threads together, is there.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use fastness_pm_model::{Config as Model, Machine, Op as PmOp, RecordStyle, Recorder, RecordingRange};
use fastness_pmem::{Medium, NoSum, PersistError, ReadError, Summer};
use fastness_sync::Mutex;
use fastness_sync::thread::{self, ThreadId};

/// Notes which thread each operation is of, and mixes the threads.
#[derive(Debug, Clone)]
pub struct Threads(Arc<Mutex<Notes>>);

#[derive(Debug)]
struct Notes {
    of: Vec<ThreadId>,
    seed: u64,
}

/// A recorded range whose operations are noted with their threads.
#[derive(Debug)]
pub struct TaggedRange {
    range: RecordingRange,
    threads: Threads,
}

impl Threads {
    /// Lets another thread go first now and then.
    fn mix(&self) {
        let turn = {
            let mut notes = self.0.lock().unwrap();
            notes.seed = notes.seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            notes.seed >> 60
        };
        match turn {
            0..8 => thread::yield_now(),
            8..11 => thread::sleep(std::time::Duration::from_micros(20)),
            _ => {}
        }
    }

    /// Performs operations of this thread; nobody else's come between them.
    pub fn noted<T>(&self, recorder: &Recorder, act: impl FnOnce() -> T) -> T {
        self.mix();
        let mut notes = self.0.lock().unwrap();
        let done = act();
        notes.of.resize(recorder.op_count(), thread::current().id());
        drop(notes);
        self.mix();
        done
    }

    /// Marks the trace.
    pub fn mark(&self, recorder: &Recorder, mark: u64) {
        self.noted(recorder, || recorder.mark(mark));
    }
}

/// Recorded PM, as chunks, and the notes.
pub fn tagged(chunk_bytes: usize, count: usize, seed: u64) -> (Recorder, Threads, Vec<TaggedRange>) {
    let recorder = Recorder::with_store_bytes(vec![0; chunk_bytes * count], RecordStyle::NonTemporal, 8);
    let threads = Threads(Arc::new(Mutex::new(Notes { of: Vec::new(), seed })));
    let ranges = (0..count)
        .map(|i| TaggedRange {
            range: recorder.range(i * chunk_bytes, chunk_bytes),
            threads: threads.clone(),
        })
        .collect();
    (recorder, threads, ranges)
}

impl Medium for TaggedRange {
    fn len_bytes(&self) -> usize {
        self.range.len_bytes()
    }

    fn region_offset(&self) -> u64 {
        self.range.region_offset()
    }

    fn copy<S: Summer>(&mut self, offset: usize, src: &[u8], extent_bytes: usize, summer: &mut S) {
        let recorder = self.range.recorder().clone();
        self.threads.noted(&recorder, || self.range.copy(offset, src, extent_bytes, summer));
    }

    fn write_back(&mut self, offset: usize, len_bytes: usize) {
        let recorder = self.range.recorder().clone();
        self.threads.noted(&recorder, || self.range.write_back(offset, len_bytes));
    }

    fn fence(&mut self) -> Result<(), PersistError> {
        let recorder = self.range.recorder().clone();
        // PERSIST: of this thread's stores only; that is what the notes are for.
        self.threads.noted(&recorder, || self.range.fence())
    }

    fn read(&self, offset: usize, dst: &mut [u8]) -> Result<(), ReadError> {
        self.range.read(offset, dst)
    }

    fn copy_side(&mut self, side: usize, offset: usize, src: &[u8], extent_bytes: usize) {
        assert_eq!(side, 0, "there is one side");
        self.copy(offset, src, extent_bytes, &mut NoSum);
    }
}

/// Takes the marks before a crash and what it left.
pub type Visit<'a> = dyn FnMut(&[u64], &[u8]) -> ControlFlow<()> + 'a;

/// How much was looked at.
#[derive(Debug, Clone, Copy, Default)]
pub struct Looked {
    pub points: usize,
    pub images: usize,
    pub sampled: usize,
    /// Crash points at which more than one thread had stores pending.
    pub overlapping: usize,
}

impl Looked {
    pub fn add(&mut self, other: Looked) {
        self.points += other.points;
        self.images += other.images;
        self.sampled += other.sampled;
        self.overlapping += other.overlapping;
    }
}

/// Hands every crash image of every crash point behind operation `from` to `visit`, with the marks before it;
/// points with more than `limit` images are sampled.
pub fn every_image(
    recorder: &Recorder,
    threads: &Threads,
    from: usize,
    limit: usize,
    visit: &mut Visit<'_>,
) -> Looked {
    let trace = recorder.trace();
    let of = threads.0.lock().unwrap().of.clone();
    assert_eq!(of.len(), trace.ops.len(), "every operation has its thread");
    let mut looked = Looked::default();
    // Before each fence and each mark, and at the end: in between, images only become more.
    let is_point =
        |&k: &usize| k == trace.ops.len() || trace.ops[k].is_fence() || matches!(trace.ops[k], PmOp::Mark(_));
    for k in (from..=trace.ops.len()).filter(is_point) {
        let mut last_fence = HashMap::new();
        for at in (0..k).filter(|&at| trace.ops[at].is_fence()) {
            last_fence.insert(of[at], at);
        }
        let is_store = |at: &usize| matches!(trace.ops[*at], PmOp::Store { .. });
        let is_pending = |at: &usize| last_fence.get(&of[*at]).is_none_or(|fence| at > fence);
        let (pending, durable): (Vec<usize>, Vec<usize>) = (0..k).filter(is_store).partition(is_pending);
        let mut machine = Machine::new(trace.initial.clone(), Model::default());
        durable.iter().for_each(|&at| machine.apply(&trace.ops[at]).unwrap());
        machine.apply(&PmOp::sfence()).unwrap();
        pending.iter().for_each(|&at| machine.apply(&trace.ops[at]).unwrap());
        let writers: HashSet<_> = pending.iter().map(|&at| of[at]).collect();
        looked.overlapping += usize::from(writers.len() > 1);
        let mark = |op: &PmOp| if let PmOp::Mark(mark) = op { Some(*mark) } else { None };
        let marks: Vec<u64> = trace.ops[..k].iter().filter_map(mark).collect();
        looked.points += 1;
        let mut is_stopped = false;
        let mut each = |image: &[u8]| {
            looked.images += 1;
            let flow = visit(&marks, image);
            is_stopped |= flow.is_break();
            flow
        };
        if machine.for_each_crash_image(limit, &mut each).is_err() {
            looked.sampled += 1;
            machine.sample_crash_images(k as u64, 150, &mut each);
        }
        if is_stopped {
            break;
        }
    }
    looked
}
