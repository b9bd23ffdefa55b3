//! The mapping that all ranges of a region share: its memory, its lock and its health.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};

use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};

use crate::counters::{Label, RegionNumber};
use crate::error::RegionPoisoned;
use crate::info::RegionInfo;
use crate::medium::PersistError;
use crate::options::MsyncHook;
use crate::pkeys::Key;
use crate::sigbus::{self, Watched};

/// Mapped memory; unmapped when dropped.
///
/// Stores to it survive the loss of its medium: see [`Watched`].
#[derive(Debug)]
pub(crate) struct RawMap {
    base: NonNull<u8>,
    len_bytes: usize,
    watched: &'static Watched,
}

impl RawMap {
    /// Maps the first `len_bytes` of `file`, shared.
    pub(crate) fn of_file(file: &File, len_bytes: usize, flags: MapFlags) -> io::Result<RawMap> {
        RawMap::of_part(file, 0, len_bytes, flags)
    }

    /// Maps `len_bytes` of `file` from `offset` on, shared.
    pub(crate) fn of_part(file: &File, offset: u64, len_bytes: usize, flags: MapFlags) -> io::Result<RawMap> {
        // SAFETY: the kernel chooses an address that is free, so no object of ours is mapped over. Nothing in
        // this crate makes a Rust reference into the mapping, hence foreign writes cannot break one.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
                file,
                offset,
            )?
        };
        Ok(RawMap::own(base.cast(), len_bytes))
    }

    /// Maps a file that is mapped already once more, only to read it.
    fn to_read(file: &File, len_bytes: usize) -> io::Result<RawMap> {
        // SAFETY: as in `of_file`.
        let base = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), len_bytes, ProtFlags::READ, MapFlags::SHARED, file, 0)?
        };
        Ok(RawMap::own(base.cast(), len_bytes))
    }

    /// Maps `len_bytes` of zeroes that belong to this process.
    pub(crate) fn anonymous(len_bytes: usize) -> io::Result<RawMap> {
        // SAFETY: as in `of_file`.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                len_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )?
        };
        Ok(RawMap::own(base.cast(), len_bytes))
    }

    fn own(base: *mut u8, len_bytes: usize) -> RawMap {
        sigbus::prepare();
        let base = NonNull::new(base).expect("mmap returned no address zero");
        let watched = sigbus::watch(base.as_ptr().expose_provenance(), len_bytes);
        RawMap { base, len_bytes, watched }
    }

    /// Makes every page of a file's mapping present and writable.
    pub(crate) fn populate(&self) -> io::Result<()> {
        let advise = |advice| {
            // SAFETY: the mapping is ours; the advice changes no byte of it.
            unsafe { rustix::mm::madvise(self.base.as_ptr().cast(), self.len_bytes, advice) }
        };
        // A read maps 16 pages at once, those of a file in memory as writable ones; a write maps one. Both
        // together take half of the time that the second alone does.
        let _ = advise(rustix::mm::Advice::LinuxPopulateRead);
        Ok(advise(rustix::mm::Advice::LinuxPopulateWrite)?)
    }

    /// Start of the mapping, page-aligned.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(crate) fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// What became of it.
    pub(crate) fn watched(&self) -> &'static Watched {
        self.watched
    }
}

impl Drop for RawMap {
    fn drop(&mut self) {
        // Before the addresses are anybody else's.
        self.watched.forget();
        // SAFETY: the mapping is ours, and every range into it holds an Arc on its owner.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len_bytes) };
    }
}

/// A region's memory, shared by its ranges.
///
/// Fields are dropped in order: the memory before the key that guards it, the file, and the lock with it,
/// last.
pub(crate) struct Mapping {
    pub(crate) map: RawMap,
    pub(crate) key: Option<Key>,
    pub(crate) info: RegionInfo,
    pub(crate) msync_hook: Option<MsyncHook>,
    /// What its copies are counted under.
    pub(crate) number: RegionNumber,
    poisoned: AtomicBool,
    /// Taken around `msync`: the kernel reports a lost write to one caller only, the first. In
    /// turn, that caller poisons the region before the next one can mistake silence for success.
    msync_turn: Mutex<()>,
    /// The region again, to read what is left of it once it is lost; `None` if it cannot be had.
    left: OnceLock<Option<RawMap>>,
    file: Option<File>,
}

// SAFETY: the memory is reached through PmRange only, whose byte ranges never overlap; the rest is Send.
unsafe impl Send for Mapping {}
// SAFETY: as above; shared state is atomic or behind the mutex.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(crate) fn new(
        map: RawMap,
        key: Option<Key>,
        info: RegionInfo,
        file: Option<File>,
        msync_hook: Option<MsyncHook>,
    ) -> Mapping {
        Mapping {
            map,
            key,
            info,
            msync_hook,
            number: RegionNumber::next(),
            poisoned: AtomicBool::new(false),
            msync_turn: Mutex::new(()),
            left: OnceLock::new(),
            file,
        }
    }

    /// What is mapped.
    pub(crate) fn file(&self) -> Option<&File> {
        self.file.as_ref()
    }

    /// Which region it is, for those who count.
    #[cold]
    pub(crate) fn label(&self) -> Label {
        let found = self.file.as_ref().and_then(|file| rustix::fs::fstat(file).ok());
        Label {
            kind: self.info.kind,
            device: found.as_ref().map_or(0, |found| found.st_dev),
            inode: found.as_ref().map_or(0, |found| found.st_ino),
            len_bytes: self.info.len_bytes,
            numa_node: self.info.numa_node,
            path: self.info.path.clone(),
        }
    }

    /// Whether a fence has failed since the region was opened, or the next one will.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire) || self.map.watched().is_lost()
    }

    /// The error of a fence of a region that is lost.
    #[cold]
    pub(crate) fn check_lost(&self, blame: &Range<u64>) -> Result<(), PersistError> {
        let error =
            |lost| PersistError { start: blame.start, end: blame.end, source: io::Error::other(lost) };
        self.map.watched().loss().map_or(Ok(()), |lost| Err(error(lost)))
    }

    /// The error that a fence of bytes in `blame` would have.
    pub(crate) fn check(&self, blame: Range<u64>) -> Result<(), PersistError> {
        self.check_lost(&blame)?;
        if !self.is_poisoned() {
            return Ok(());
        }
        let source = io::Error::other(RegionPoisoned);
        Err(PersistError { start: blame.start, end: blame.end, source })
    }

    /// The memory to read a lost region in: what was put in its place has other bytes than the medium.
    #[cold]
    pub(crate) fn left(&self) -> Option<&RawMap> {
        let map = |file| RawMap::to_read(file, self.map.len_bytes()).ok();
        self.left.get_or_init(|| self.file.as_ref().and_then(map)).as_ref()
    }

    /// Makes a span of the mapping durable with `msync`, page-rounded.
    ///
    /// An error poisons the whole region: the kernel marks pages clean that it failed to write, so that a
    /// second call would succeed without having written them.
    #[cold]
    pub(crate) fn persist(&self, span: Range<usize>, blame: Range<u64>) -> Result<(), PersistError> {
        let error = |source| PersistError { start: blame.start, end: blame.end, source };
        let _turn = self.msync_turn.lock().unwrap_or_else(|broken| broken.into_inner());
        if self.poisoned.load(Ordering::Acquire) {
            return Err(error(io::Error::other(RegionPoisoned)));
        }
        if !span.is_empty() {
            self.msync(span).map_err(|source| {
                self.poisoned.store(true, Ordering::Release);
                error(source)
            })?;
        }
        // After the call: what stands in for a lost region syncs without an error.
        self.check_lost(&blame)
    }

    fn msync(&self, span: Range<usize>) -> io::Result<()> {
        if let Some(hook) = &self.msync_hook {
            hook(span.start as u64..span.end as u64)?;
        }
        assert!(span.end <= self.map.len_bytes(), "span ends in the mapping");
        let start = span.start - span.start % rustix::param::page_size();
        // SAFETY: the span is inside of the mapping; msync changes no byte of it.
        unsafe {
            // PERSIST: the kernel writes the span's pages to the medium, and flushes the medium's cache,
            // before any later store of the caller; excludes a commit mark on the medium without what it
            // vouches for.
            let address = self.map.base().as_ptr().add(start).cast();
            rustix::mm::msync(address, span.end - start, MsyncFlags::SYNC)?;
        }
        Ok(())
    }
}
