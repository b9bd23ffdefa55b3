//! Media of tests: a region and a disk that lose their power together, and an origin on the disk.
#![allow(dead_code, reason = "each test uses a part")]

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use fastness_blkdev::{BlockDevice, MemImage};
use fastness_pmem::{AnyRange, ReadError, View};
use fastness_remote::OpenError;
use fastness_testkit::media::{Bank, Disk, Event, Power};
use fastness_testkit::{Rng, SeededEntropy};
use fastness_wcache::*;

pub(crate) type TestCache = Cache<AnyRange>;

/// Reads a bank while its ranges belong to others.
struct BankView(Bank);

impl View for BankView {
    fn read(&self, region_offset: u64, dst: &mut [u8]) -> Result<(), ReadError> {
        let at = region_offset as usize;
        dst.copy_from_slice(&self.0.image()[at..at + dst.len()]);
        Ok(())
    }
}

/// The disk as an origin. Its mark is changed in one step.
pub(crate) struct DiskOrigin {
    pub(crate) disk: Disk,
    pub(crate) mark: Arc<Mutex<Option<Mark>>>,
    pub(crate) power: Arc<Power>,
    pub(crate) can_be_marked: bool,
    pub(crate) refuses_marks: Arc<AtomicBool>,
    pub(crate) number: Arc<AtomicU64>,
    pub(crate) is_device: bool,
}

impl Origin for DiskOrigin {
    fn open(&self) -> Result<Arc<dyn BlockDevice>, OpenError> {
        self.disk.reopen(1);
        Ok(Arc::new(self.disk.clone()))
    }

    fn number(&self) -> io::Result<(u64, u64)> {
        let number = self.number.load(Ordering::Relaxed);
        Ok((number, if self.is_device { 0 } else { 8 }))
    }

    fn path(&self) -> Vec<u8> {
        self.disk.path.clone().into_bytes()
    }

    fn mark(&self) -> io::Result<Option<Mark>> {
        match self.can_be_marked {
            true => Ok(*self.mark.lock().unwrap()),
            false => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn set_mark(&self, mark: Option<Mark>) -> io::Result<()> {
        if !self.can_be_marked {
            return Err(io::ErrorKind::Unsupported.into());
        }
        if self.refuses_marks.load(Ordering::Relaxed) {
            return Err(io::Error::from_raw_os_error(5));
        }
        match self.power.event() {
            Event::On => *self.mark.lock().unwrap() = mark,
            Event::Last => {
                *self.mark.lock().unwrap() = mark;
                return Err(io::Error::from_raw_os_error(5));
            }
            Event::Off => return Err(io::Error::from_raw_os_error(5)),
        }
        Ok(())
    }
}

fn empty_bank(chunks: usize, chunk_bytes: usize, rng: &mut Rng, power: &Arc<Power>) -> Bank {
    let bank = Bank::new(chunks, chunk_bytes, rng, power);
    // Only a region that holds nothing is taken.
    let mut image = bank.image();
    [0, 12288].into_iter().for_each(|at| image[at..at + 4096].fill(0));
    bank.with(image)
}

/// All that outlives a process.
pub(crate) struct Media {
    pub(crate) power: Arc<Power>,
    pub(crate) bank: Bank,
    /// The second side of a mirror.
    pub(crate) second: Option<Bank>,
    pub(crate) disk: Disk,
    pub(crate) mark: Arc<Mutex<Option<Mark>>>,
    pub(crate) geometry: Geometry,
    pub(crate) can_be_marked: bool,
    /// Changes of the mark fail.
    pub(crate) refuses_marks: Arc<AtomicBool>,
    /// What the disk is recognised by.
    pub(crate) number: Arc<AtomicU64>,
    pub(crate) is_device: bool,
    openings: u64,
}

impl Media {
    pub(crate) fn new(chunks: usize, chunk_bytes: usize, origin_bytes: u64, rng: &mut Rng) -> Media {
        Media::powered(Arc::new(Power::default()), chunks, chunk_bytes, origin_bytes, rng)
    }

    pub(crate) fn powered(
        power: Arc<Power>,
        chunks: usize,
        chunk_bytes: usize,
        origin_bytes: u64,
        rng: &mut Rng,
    ) -> Media {
        let bank = empty_bank(chunks, chunk_bytes, rng, &power);
        let disk = Disk::new("disk", MemImage::zeroed(origin_bytes), &power, rng.next());
        let geometry = Geometry::dividing(bank.len_bytes as u64, Some(chunk_bytes as u64)).unwrap();
        let can_be_marked = rng.one_in(2);
        Media {
            power,
            bank,
            second: None,
            disk,
            mark: Arc::default(),
            geometry,
            can_be_marked,
            refuses_marks: Arc::default(),
            number: Arc::new(AtomicU64::new(7)),
            is_device: false,
            openings: 0,
        }
    }

    /// A mirror.
    pub(crate) fn mirrored(chunks: usize, chunk_bytes: usize, origin_bytes: u64, rng: &mut Rng) -> Media {
        let media = Media::new(chunks, chunk_bytes, origin_bytes, rng);
        let second = Some(empty_bank(chunks, chunk_bytes, rng, &media.power));
        Media { second, ..media }
    }

    pub(crate) fn side(&self, side: usize) -> &Bank {
        if side == 0 { &self.bank } else { self.second.as_ref().unwrap() }
    }

    pub(crate) fn side_mut(&mut self, side: usize) -> &mut Bank {
        if side == 0 { &mut self.bank } else { self.second.as_mut().unwrap() }
    }

    pub(crate) fn sides(&self) -> Sides<AnyRange> {
        self.sides_from(0, true)
    }

    /// The side that is named first, and the other one, unless that is lost.
    pub(crate) fn sides_from(&self, first: usize, with_other: bool) -> Sides<AnyRange> {
        if self.second.is_none() {
            return self.parts().into();
        }
        let is_whole = |side: usize| !self.side(side).is_cut();
        let gone = || Err("it is gone".to_owned());
        // A region that is too short is found out before.
        let (first, other) = if is_whole(first) { (first, 1 - first) } else { (1 - first, first) };
        let second = if with_other && is_whole(other) { Ok(self.parts_of(other)) } else { gone() };
        Sides::pair(self.parts_of(first), second)
    }

    pub(crate) fn parts(&self) -> Parts<AnyRange> {
        self.parts_of(0)
    }

    pub(crate) fn parts_of(&self, side: usize) -> Parts<AnyRange> {
        let bank = self.side(side);
        let parts = bank.parts();
        let view = Box::new(BankView(bank.clone()));
        Parts {
            geometry: self.geometry,
            front: parts.front,
            chunks: parts.chunks,
            view,
            path: ["a", "b"][side].into(),
        }
    }

    pub(crate) fn origin(&self) -> Box<DiskOrigin> {
        let (disk, mark, power) = (self.disk.clone(), self.mark.clone(), self.power.clone());
        let number = self.number.clone();
        Box::new(DiskOrigin {
            disk,
            mark,
            power,
            can_be_marked: self.can_be_marked,
            refuses_marks: self.refuses_marks.clone(),
            number,
            is_device: self.is_device,
        })
    }

    /// Options with other random numbers each time.
    pub(crate) fn options(&mut self) -> Options {
        self.openings += 1;
        Options::new().entropy(SeededEntropy::new(self.openings)).paced(false).when_full(WhenFull::Fail)
    }

    pub(crate) fn create(&mut self) -> Result<TestCache, Error> {
        let options = self.options().committers(1 + self.openings as u32 % 3);
        Cache::create(self.sides(), self.origin(), &options)
    }

    pub(crate) fn open(&mut self) -> Result<(TestCache, Replayed), Error> {
        let options = self.options().committers(1 + self.openings as u32 % 3);
        Cache::open(self.sides(), self.origin(), &options)
    }

    /// The same with one side first, and perhaps without the other.
    pub(crate) fn open_from(
        &mut self,
        first: usize,
        with_other: bool,
        is_degraded: bool,
    ) -> Result<(TestCache, Replayed), Error> {
        let options = self.options().committers(1 + self.openings as u32 % 3).degraded(is_degraded);
        Cache::open(self.sides_from(first, with_other), self.origin(), &options)
    }

    /// What a power cut leaves; the power is back.
    pub(crate) fn cut(&mut self, rng: &mut Rng) {
        self.power.turn_off();
        self.bank = self.bank.crashed(rng);
        self.second = self.second.take().map(|bank| bank.crashed(rng));
        self.disk = self.disk.crashed(rng.next());
        self.power.turn_on();
    }
}
