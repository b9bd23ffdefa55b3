//! What the tests of the cache share: recorded PM and a power supply.

#![allow(dead_code, unreachable_pub)] // Each test binary uses its part.

pub mod death;
pub mod history;
pub mod possible;
pub mod world;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fastness_pm_model::{RecordStyle, Recorder, RecordingRange};
use fastness_pmem::{Medium, NoSum, PersistError, ReadError, ReadErrorKind, SidesFailed, Summer};
use fastness_responder::*;

/// A count of what changes media, and a cut at any of it.
#[derive(Debug, Default)]
pub struct Power {
    events: AtomicU64,
    cut_at: AtomicU64,
    is_off: AtomicBool,
    /// Region offset of a byte that cannot be read; 0: there is none.
    poisoned: AtomicU64,
}

impl Power {
    /// It fails at the `nth` event from now on.
    pub fn cut_in(&self, nth: u64) {
        self.cut_at.store(self.events.load(Ordering::SeqCst) + nth, Ordering::SeqCst);
    }

    /// A byte of the region cannot be read from now on.
    pub fn poison(&self, region_offset: u64) {
        self.poisoned.store(region_offset, Ordering::SeqCst);
    }

    pub fn is_off(&self) -> bool {
        self.is_off.load(Ordering::SeqCst)
    }

    pub fn turn_on(&self) {
        self.cut_at.store(0, Ordering::SeqCst);
        self.is_off.store(false, Ordering::SeqCst);
    }

    /// One more; false if there is no power for it.
    pub fn event(&self) -> bool {
        if !self.is_off()
            && self.events.fetch_add(1, Ordering::SeqCst) + 1 == self.cut_at.load(Ordering::SeqCst)
        {
            self.is_off.store(true, Ordering::SeqCst);
        }
        !self.is_off()
    }
}

/// A part of recorded PM.
#[derive(Debug)]
pub struct Pm {
    range: RecordingRange,
    power: Arc<Power>,
}

impl Pm {
    /// All of it.
    pub fn whole(recorder: &Recorder, power: &Arc<Power>) -> Pm {
        Pm { range: recorder.range(0, recorder.image().len()), power: power.clone() }
    }
}

impl CacheMedium for Pm {
    fn divide(self, offset: usize) -> (Pm, Pm) {
        let (low, high) = self.range.split(offset);
        (Pm { range: low, power: self.power.clone() }, Pm { range: high, power: self.power })
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
        if self.power.event() {
            self.range.copy(offset, src, extent_bytes, summer);
            // A store of whole lines heals them.
            let start = self.region_offset() + offset as u64;
            let is_stored = |poisoned: u64| (start..start + extent_bytes as u64).contains(&poisoned);
            let healed = |poisoned| is_stored(poisoned).then_some(0);
            let _ = self.power.poisoned.fetch_update(Ordering::SeqCst, Ordering::SeqCst, healed);
        }
    }

    fn write_back(&mut self, offset: usize, len_bytes: usize) {
        if !self.power.is_off() {
            self.range.write_back(offset, len_bytes);
        }
    }

    fn fence(&mut self) -> Result<(), PersistError> {
        if self.power.event() { self.range.fence() } else { Err(self.dead()) }
    }

    fn fence_both(&mut self, other: &mut Pm) -> Result<(), Box<SidesFailed>> {
        if self.power.event() {
            self.range.fence_both(&mut other.range)
        } else {
            SidesFailed::of(Err(self.dead()), Ok(()))
        }
    }

    fn read(&self, offset: usize, dst: &mut [u8]) -> Result<(), ReadError> {
        let (start, poisoned) =
            (self.region_offset() + offset as u64, self.power.poisoned.load(Ordering::SeqCst));
        if poisoned != 0 && (start..start + dst.len() as u64).contains(&poisoned) {
            return Err(ReadError { region_offset: poisoned, kind: ReadErrorKind::Poison });
        }
        self.range.read(offset, dst)
    }

    fn copy_side(&mut self, _side: usize, offset: usize, src: &[u8], extent_bytes: usize) {
        self.copy(offset, src, extent_bytes, &mut NoSum);
    }
}

impl Pm {
    fn dead(&self) -> PersistError {
        let start = self.region_offset();
        let source = std::io::Error::from_raw_os_error(19);
        PersistError { start, end: start + self.len_bytes() as u64, source }
    }
}

thread_local! {
    static PROTOCOL: std::cell::Cell<ProtocolKind> = const { std::cell::Cell::new(ProtocolKind::Fr) };
    static IS_SHARED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// The protocol of the caches that this thread makes.
pub fn protocol() -> ProtocolKind {
    PROTOCOL.get()
}

/// Whether it changes chunks in place.
pub fn is_in_place() -> bool {
    protocol() != ProtocolKind::Fr
}

pub fn set_protocol(protocol: ProtocolKind) {
    PROTOCOL.set(protocol);
}

/// Whether the caches that this thread makes are for several processes.
pub fn set_shared(is_shared: bool) {
    IS_SHARED.set(is_shared);
}

/// Bytes of the log of names.
pub const NAMES_BYTES: usize = 8192;

/// Bytes of a region with so many slots.
pub fn region_bytes(slots: usize, chunk_bytes: usize) -> usize {
    if protocol() == ProtocolKind::Log {
        // Chunks of the log, of 1 KiB up to 127 of them.
        return 16384 + 16384 + slots * 1024 + NAMES_BYTES;
    }
    let logs = if is_in_place() { 8 * (128 + 16 * chunk_bytes) } else { 0 };
    16384 + 4096 + slots * 2 * (64 + chunk_bytes) + logs + NAMES_BYTES
}

pub fn recorder(slots: usize, chunk_bytes: usize) -> Recorder {
    Recorder::new(vec![0xa5; region_bytes(slots, chunk_bytes)], RecordStyle::NonTemporal)
}

static TIME: AtomicU64 = AtomicU64::new(1 << 40);

/// A clock that stands still, so that only the order of writes makes timestamps differ.
pub fn clock() -> u64 {
    TIME.load(Ordering::SeqCst)
}

pub fn options(chunk_bytes: u64) -> Options {
    let options = Options::new().clock(clock).chunk_bytes(chunk_bytes).names_bytes(NAMES_BYTES as u64);
    options.protocol(protocol()).shared(IS_SHARED.get())
}

/// A new cache in front of a new directory.
pub struct World {
    pub recorder: Recorder,
    pub backing: MemoryBacking,
    pub cache: Option<Cache<Pm>>,
    pub chunk_bytes: u64,
}

impl World {
    pub fn new(slots: usize, chunk_bytes: u64) -> World {
        let recorder = recorder(slots, chunk_bytes as usize);
        let backing = MemoryBacking::default();
        let power = Arc::new(Power::default());
        let cache =
            Cache::create(Pm::whole(&recorder, &power), Arc::new(backing.clone()), &options(chunk_bytes));
        let cache = Some(cache.unwrap());
        let world = World { recorder, backing, cache, chunk_bytes };
        let status = world.cache().status().unwrap();
        assert_eq!(status.slots, slots as u64, "the region has as many slots as asked for");
        world
    }

    pub fn cache(&self) -> &Cache<Pm> {
        self.cache.as_ref().unwrap()
    }

    /// Closes the cache as the end of the process does, and opens it again.
    pub fn reopen(&mut self) -> Recovered {
        self.try_reopen().unwrap()
    }

    pub fn try_reopen(&mut self) -> Result<Recovered, Error> {
        self.reopen_with(&options(self.chunk_bytes))
    }

    /// After the region or the directory was put back as it was earlier.
    pub fn try_reopen_older(&mut self) -> Result<Recovered, Error> {
        self.reopen_with(&options(self.chunk_bytes).pair_anew(true))
    }

    fn reopen_with(&mut self, options: &Options) -> Result<Recovered, Error> {
        self.cache = None;
        let power = Arc::new(Power::default());
        let region = Pm::whole(&self.recorder, &power);
        let (cache, recovered) = Cache::open(region, Arc::new(self.backing.clone()), options)?;
        self.cache = Some(cache);
        Ok(recovered)
    }

    /// A file that is made if it is not there.
    pub fn open(&self, name: &str) -> Handle {
        self.cache().open_file(Path::new(name), Some(0o600), 0).unwrap()
    }

    pub fn write(&self, handle: &Handle, offset: u64, data: &[u8]) {
        assert_eq!(self.cache().write(handle, offset, data).unwrap(), data.len());
    }

    pub fn content(&self, handle: &Handle) -> Vec<u8> {
        content(self.cache(), handle).unwrap()
    }

    /// The file as a program without the cache reads it.
    pub fn below(&self, name: &str) -> Vec<u8> {
        self.backing.contents()[Path::new(name)].clone()
    }
}

/// All of a file, as the cache has it.
pub fn content(cache: &Cache<Pm>, handle: &Handle) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; cache.stat(handle)?.size as usize];
    let len = cache.read(handle, 0, &mut bytes)?;
    assert_eq!(len, bytes.len(), "a read inside of the file is not short");
    Ok(bytes)
}
