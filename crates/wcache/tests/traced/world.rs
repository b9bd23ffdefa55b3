//! A cache whose stores are recorded, on one side or two, and an origin each change of which is a moment.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use fastness_blkdev::*;
use fastness_pm_model::{Fault, RecordStyle, Recorder, RecordingRange};
use fastness_pmem::{Medium, PersistError, ReadError, Summer, View};
use fastness_prb::Alignment;
use fastness_remote::OpenError;
use fastness_testkit::SeededEntropy;
use fastness_wcache::{Error, *};

pub(crate) const CHUNK_BYTES: usize = 2048;
pub(crate) const CHUNKS: usize = 3;
pub(crate) const REGION_BYTES: usize = DATA_OFFSET + CHUNKS * CHUNK_BYTES;
pub(crate) const ORIGIN_BYTES: usize = 96 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "each test uses a part")]
pub(crate) enum Step {
    /// First sector, and how many; more than two are more than one entry.
    Write(usize, usize),
    Zeroes(usize, usize),
    Discard(usize, usize),
    Tend,
    Flush,
    /// The process dies, and the next one opens the cache.
    Reopen,
    /// The same with one side, while the other is lost.
    ReopenAlone(usize),
    Detach,
    /// Another cache is made over this one.
    Overwrite,
    /// The second region becomes a side.
    Attach,
    /// And leaves again.
    DetachSide,
}

/// What the world outside of the region is like from one mark of the trace on.
#[derive(Clone)]
pub(crate) struct Moment {
    /// States that are allowed: from the last acknowledged one to the end of the step under way.
    pub(crate) states: std::ops::RangeInclusive<usize>,
    /// The same of an opening with a side that is alone.
    pub(crate) of_side: [Alone; 2],
    /// What the origin may have.
    pub(crate) images: Vec<MemImage>,
    pub(crate) mark: Option<Mark>,
    pub(crate) is_there: There,
}

/// What becomes of an opening with a side that is alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Alone {
    /// It succeeds.
    Current,
    /// It succeeds, or is refused.
    Perhaps,
    /// It is refused until the other side is one of the same mirror, and then succeeds or is refused.
    Joins,
    /// It is refused.
    Never,
}

/// Whether a crash leaves a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum There {
    Certainly,
    Perhaps,
    No,
}

pub(crate) struct World {
    pub(crate) recorder: Recorder,
    pub(crate) disk: Faulty<MemDevice>,
    pub(crate) mark: Mutex<Option<Mark>>,
    pub(crate) can_be_marked: bool,
    /// Copies that a side still takes, if it is one that goes away.
    pub(crate) left: [Option<Arc<AtomicU64>>; 2],
    /// Of the step under way.
    step: Mutex<(std::ops::RangeInclusive<usize>, There, [Alone; 2])>,
    pub(crate) moments: Mutex<Vec<Moment>>,
}

impl World {
    pub(crate) fn new(
        image: Vec<u8>,
        origin: MemImage,
        mark: Option<Mark>,
        style: RecordStyle,
        can_be_marked: bool,
    ) -> World {
        World {
            recorder: Recorder::with_store_bytes(image, style, 8),
            disk: Faulty::new(MemDevice::from_image("disk", origin, 512), FaultPlan::new(3)),
            mark: Mutex::new(mark),
            can_be_marked,
            left: [None, None],
            step: Mutex::new((0..=0, There::Perhaps, [Alone::Perhaps; 2])),
            moments: Mutex::default(),
        }
    }

    pub(crate) fn note(&self) {
        let mut images: Vec<MemImage> = Vec::new();
        for image in (0..3).map(|seed| self.disk.crash(seed).unwrap()).chain([self.disk.inner().image()]) {
            if !images.contains(&image) {
                images.push(image);
            }
        }
        let (states, is_there, of_side) = self.step.lock().unwrap().clone();
        let mut moments = self.moments.lock().unwrap();
        self.recorder.mark(moments.len() as u64);
        moments.push(Moment { states, of_side, images, mark: *self.mark.lock().unwrap(), is_there });
    }

    pub(crate) fn begin(
        &self,
        states: std::ops::RangeInclusive<usize>,
        is_there: There,
        of_side: [Alone; 2],
    ) {
        *self.step.lock().unwrap() = (states, is_there, of_side);
        self.note();
    }

    pub(crate) fn parts(&self, side: usize) -> Parts<Placed> {
        let base = side * REGION_BYTES;
        let range = |at, len| {
            let mut range = self.recorder.range(base + at, len);
            if let Some(left) = &self.left[side] {
                range.inject(Fault::GoesAway { after: left.clone() });
            }
            Placed { range, base: base as u64 }
        };
        let chunk = |index| range(DATA_OFFSET + index * CHUNK_BYTES, CHUNK_BYTES);
        let geometry = Geometry::dividing(REGION_BYTES as u64, Some(CHUNK_BYTES as u64)).unwrap();
        let view = Box::new(Image(self.recorder.clone(), base));
        let path = PathBuf::from(["a", "b"][side]);
        let (front, chunks) = (range(0, DATA_OFFSET), (0..CHUNKS).map(chunk).collect());
        Parts { geometry, front, chunks, view, path }
    }

    /// Regions for a new cache.
    pub(crate) fn new_sides(&self, count: usize) -> Sides<Placed> {
        if count == 1 { self.parts(0).into() } else { Sides::pair(self.parts(0), Ok(self.parts(1))) }
    }

    /// The region of a side, and the other one if the superblock says so and `with_other`.
    pub(crate) fn sides(&self, first: usize, with_other: bool) -> Sides<Placed> {
        let parts = self.parts(first);
        match Superblock::of(&parts.front) {
            Ok(Superblock { side: None, .. }) => parts.into(),
            Err(_) if !with_other => parts.into(),
            _ if !with_other => Sides::pair(parts, Err("it is lost".to_owned())),
            _ => Sides::pair(parts, Ok(self.parts(1 - first))),
        }
    }

    pub(crate) fn options(seed: u64) -> Options {
        let options = Options::new().committers(1).alignment(Alignment::Line).paced(false);
        options.when_full(WhenFull::Fail).entropy(SeededEntropy::new(seed))
    }

    pub(crate) fn open(self: &Arc<World>, seed: u64) -> Result<Cache<Placed>, Error> {
        self.open_with(self.sides(0, true), &World::options(seed))
    }

    pub(crate) fn open_with(
        self: &Arc<World>,
        sides: Sides<Placed>,
        options: &Options,
    ) -> Result<Cache<Placed>, Error> {
        let origin = Box::new(Tracked(self.clone()));
        Cache::open(sides, origin, options).map(|(cache, _)| cache)
    }
}

/// A range of one side of several on a recorder: its offsets are those of its region.
#[derive(Debug)]
pub(crate) struct Placed {
    range: RecordingRange,
    base: u64,
}

impl Medium for Placed {
    fn len_bytes(&self) -> usize {
        self.range.len_bytes()
    }
    fn region_offset(&self) -> u64 {
        self.range.region_offset() - self.base
    }
    fn copy<S: Summer>(&mut self, offset: usize, src: &[u8], extent_bytes: usize, summer: &mut S) {
        self.range.copy(offset, src, extent_bytes, summer);
    }
    fn write_back(&mut self, offset: usize, len_bytes: usize) {
        self.range.write_back(offset, len_bytes);
    }
    fn fence(&mut self) -> Result<(), PersistError> {
        self.range.fence()
    }
    fn fence_both(&mut self, other: &mut Placed) -> Result<(), Box<fastness_pmem::SidesFailed>> {
        self.range.fence_both(&mut other.range)
    }
    fn read(&self, offset: usize, dst: &mut [u8]) -> Result<(), ReadError> {
        self.range.read(offset, dst)
    }
    fn copy_side(&mut self, side: usize, offset: usize, src: &[u8], extent_bytes: usize) {
        self.range.copy_side(side, offset, src, extent_bytes);
    }
}

struct Image(Recorder, usize);

impl View for Image {
    fn read(&self, region_offset: u64, dst: &mut [u8]) -> Result<(), ReadError> {
        dst.copy_from_slice(&self.0.image()[self.1 + region_offset as usize..][..dst.len()]);
        Ok(())
    }
}

/// The origin; each change of it is a moment.
pub(crate) struct Tracked(pub(crate) Arc<World>);

impl Origin for Tracked {
    fn open(&self) -> Result<Arc<dyn BlockDevice>, OpenError> {
        Ok(Arc::new(Tracked(self.0.clone())))
    }
    fn number(&self) -> io::Result<(u64, u64)> {
        Ok((1, 2))
    }
    fn path(&self) -> Vec<u8> {
        b"disk".to_vec()
    }
    fn mark(&self) -> io::Result<Option<Mark>> {
        if !self.0.can_be_marked {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(*self.0.mark.lock().unwrap())
    }
    fn set_mark(&self, mark: Option<Mark>) -> io::Result<()> {
        if !self.0.can_be_marked {
            return Err(io::ErrorKind::Unsupported.into());
        }
        *self.0.mark.lock().unwrap() = mark;
        self.0.note();
        Ok(())
    }
}

impl BlockDevice for Tracked {
    fn info(&self) -> &DeviceInfo {
        self.0.disk.info()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), BlockError> {
        self.0.disk.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), BlockError> {
        self.0.disk.write_at(offset, data)?;
        self.0.note();
        Ok(())
    }
    fn write_fua(&self, _: u64, _: &[u8]) -> Result<(), BlockError> {
        unreachable!("write-backs are flushed together")
    }
    fn flush(&self) -> Result<(), BlockError> {
        self.0.disk.flush()?;
        self.0.note();
        Ok(())
    }
    fn discard(&self, offset: u64, len_bytes: u64) -> Result<(), BlockError> {
        self.0.disk.discard(offset, len_bytes)?;
        self.0.note();
        Ok(())
    }
    fn write_zeroes(&self, offset: u64, len_bytes: u64) -> Result<(), BlockError> {
        self.0.disk.write_zeroes(offset, len_bytes)?;
        self.0.note();
        Ok(())
    }
    fn stats(&self) -> StatsSnapshot {
        self.0.disk.stats()
    }
    fn is_poisoned(&self) -> bool {
        false
    }
}
