//! Regions of persistent memory: recorded stores, a power supply that they share, files that are cut short in
//! use.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use fastness_pm_model::{Config, FlushKind, Machine, RecordStyle, Recorder, RecordingRange, Trace};
use fastness_pmem::{
    AnyRange, Medium, NoSum, PersistError, ReadError, ReadErrorKind, Region, RegionInfo, Summer, View,
};
use fastness_store::{FRONT_BYTES, RegionParts};

use super::power::{Event, Power};
use crate::Rng;

/// A region of persistent memory.
#[derive(Debug, Clone)]
pub struct Bank {
    recorder: Recorder,
    /// Its length in bytes.
    pub len_bytes: usize,
    chunk_bytes: usize,
    style: RecordStyle,
    power: Arc<Power>,
    cut: Arc<Cut>,
}

/// Where the file behind a region ends before its time.
#[derive(Debug)]
struct Cut {
    /// Region offset.
    end: AtomicUsize,
    /// Something was stored behind it, and is lost: no fence succeeds any more.
    is_missed: AtomicBool,
}

impl Cut {
    fn none() -> Arc<Cut> {
        Arc::new(Cut { end: AtomicUsize::new(usize::MAX), is_missed: AtomicBool::new(false) })
    }
}

impl Bank {
    /// A region in which anything may have been before.
    pub fn new(chunks: usize, chunk_bytes: usize, rng: &mut Rng, power: &Arc<Power>) -> Bank {
        let style = rng.pick(&[RecordStyle::NonTemporal, RecordStyle::StoreFlush(FlushKind::Clwb)]);
        let len_bytes = FRONT_BYTES + chunks * chunk_bytes;
        let recorder = Recorder::new(vec![rng.below(3) as u8 * 85; len_bytes], style);
        Bank { recorder, len_bytes, chunk_bytes, style, power: power.clone(), cut: Cut::none() }
    }

    /// Its parts, of which there may be one set at a time. A file that is cut short has fewer chunks.
    pub fn parts(&self) -> RegionParts {
        let len = self.len_bytes.min(self.cut.end.load(Ordering::SeqCst));
        let pm = |at, len| {
            let range = self.recorder.range(at, len);
            AnyRange::stand_in(Pm { range, power: self.power.clone(), cut: self.cut.clone() })
        };
        let ends = (FRONT_BYTES..).step_by(self.chunk_bytes).take_while(|at| at + self.chunk_bytes <= len);
        let chunks = ends.map(|at| pm(at, self.chunk_bytes));
        let view = Arc::new(Seen {
            recorder: self.recorder.clone(),
            len_bytes: self.len_bytes,
            cut: self.cut.clone(),
        });
        RegionParts { info: info(), front: pm(0, FRONT_BYTES), chunks: chunks.collect(), view: Some(view) }
    }

    /// What a reader sees now.
    pub fn image(&self) -> Vec<u8> {
        self.recorder.image()
    }

    /// The same region with other contents, and whole.
    pub fn with(&self, image: Vec<u8>) -> Bank {
        let recorder = Recorder::new(image, self.style);
        Bank { recorder, power: self.power.clone(), cut: Cut::none(), ..*self }
    }

    /// A copy of what it has now, under another power supply.
    pub fn powered_by(&self, power: &Arc<Power>) -> Bank {
        Bank { power: power.clone(), ..self.with(self.image()) }
    }

    /// What was stored since it was last opened or crashed, and in which order.
    pub fn trace(&self) -> Trace {
        self.recorder.trace()
    }

    /// Puts a mark between what was stored so far and what comes.
    pub fn mark(&self, mark: u64) {
        self.recorder.mark(mark);
    }

    /// How many stores, write-backs and fences these are.
    pub fn op_count(&self) -> usize {
        self.recorder.op_count()
    }

    /// As the power cut leaves it: one of the states that the model allows.
    pub fn crashed(&self, rng: &mut Rng) -> Bank {
        let (strict_nt, nth, seed) = (rng.one_in(2), 1 + rng.index(8), rng.next());
        if self.recorder.op_count() == 0 {
            return self.clone();
        }
        let trace = self.recorder.trace();
        let mut machine = Machine::new(trace.initial, Config { strict_nt, ..Config::default() });
        trace.ops.iter().for_each(|op| machine.apply(op).unwrap());
        // The first two are the least and the most; behind them they lean four ways.
        let (mut seen, mut image) = (0, Vec::new());
        machine.sample_crash_images(seed, nth, &mut |found| {
            seen += 1;
            if seen == nth {
                image = found.to_vec();
            }
            std::ops::ControlFlow::Continue(())
        });
        Bank {
            recorder: Recorder::new(image, self.style),
            cut: self.cut.clone(),
            power: self.power.clone(),
            ..*self
        }
    }

    /// The file behind it ends at a region offset from now on: what is behind is gone for those who have it
    /// mapped.
    pub fn cut_at(&self, end: usize) {
        self.cut.end.fetch_min(end, Ordering::SeqCst);
    }

    /// Whether it is shorter than it was made.
    pub fn is_cut(&self) -> bool {
        self.cut.end.load(Ordering::SeqCst) != usize::MAX
    }

    /// Opened again, as short as it is.
    pub fn reopen(&mut self) {
        let end = AtomicUsize::new(self.cut.end.load(Ordering::SeqCst));
        self.cut = Arc::new(Cut { end, is_missed: AtomicBool::new(false) });
    }

    /// The file is whole again, for those who open it now.
    pub fn mend(&mut self) {
        self.cut = Cut::none();
    }
}

fn info() -> RegionInfo {
    static INFO: OnceLock<RegionInfo> = OnceLock::new();
    INFO.get_or_init(|| Region::anonymous(4096).unwrap().info().clone()).clone()
}

/// All of a region, to read it.
struct Seen {
    recorder: Recorder,
    len_bytes: usize,
    cut: Arc<Cut>,
}

impl View for Seen {
    fn read(&self, region_offset: u64, dst: &mut [u8]) -> Result<(), ReadError> {
        let offset = region_offset as usize;
        let end = self.len_bytes.min(self.cut.end.load(Ordering::SeqCst));
        if offset + dst.len() > end {
            let region_offset = region_offset.max(end as u64);
            return Err(ReadError { region_offset, kind: ReadErrorKind::Poison });
        }
        self.recorder.load(offset, dst);
        Ok(())
    }
}

/// A part of a region.
#[derive(Debug)]
struct Pm {
    range: RecordingRange,
    power: Arc<Power>,
    cut: Arc<Cut>,
}

impl Pm {
    /// How many of `len` bytes at `offset` are in front of the cut.
    fn there(&self, offset: usize, len: usize) -> usize {
        let start = self.range.region_offset() as usize + offset;
        self.cut.end.load(Ordering::SeqCst).saturating_sub(start).min(len)
    }

    fn failed(&self, errno: i32) -> PersistError {
        let start = self.region_offset();
        let source = io::Error::from_raw_os_error(errno);
        PersistError { start, end: start + self.len_bytes() as u64, source }
    }
}

impl Medium for Pm {
    fn len_bytes(&self) -> usize {
        self.range.len_bytes()
    }

    fn region_offset(&self) -> u64 {
        self.range.region_offset()
    }

    fn copy<S: Summer>(&mut self, offset: usize, src: &[u8], extent_bytes: usize, summer: &mut S) {
        match self.power.event() {
            // Of stores that no fence has completed any part may be there.
            Event::On | Event::Last if self.there(offset, extent_bytes) == extent_bytes => {
                self.range.copy(offset, src, extent_bytes, summer);
            }
            event => {
                self.cut.is_missed.fetch_or(!matches!(event, Event::Off), Ordering::SeqCst);
                src.chunks(S::BLOCK_BYTES).for_each(|block| summer.update(block));
            }
        }
    }

    fn write_back(&mut self, offset: usize, len_bytes: usize) {
        if !self.power.is_off() {
            // PERSIST: what it covers is what the code under test asked for.
            self.range.write_back(offset, len_bytes);
        }
    }

    fn fence(&mut self) -> Result<(), PersistError> {
        match self.power.event() {
            Event::On if self.cut.is_missed.load(Ordering::SeqCst) => Err(self.failed(5)),
            // PERSIST: what it completes is what the code under test asked for.
            Event::On => self.range.fence(),
            Event::Last | Event::Off => Err(self.failed(19)),
        }
    }

    fn read(&self, offset: usize, dst: &mut [u8]) -> Result<(), ReadError> {
        let there = self.there(offset, dst.len());
        if there < dst.len() {
            let region_offset = self.region_offset() + (offset + there) as u64;
            return Err(ReadError { region_offset, kind: ReadErrorKind::Poison });
        }
        self.range.read(offset, dst)
    }

    fn copy_side(&mut self, side: usize, offset: usize, src: &[u8], extent_bytes: usize) {
        assert_eq!(side, 0, "there is one side");
        self.copy(offset, src, extent_bytes, &mut NoSum);
    }
}
