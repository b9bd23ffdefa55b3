//! Mappings that may go away: which they are, and what stands in for one that did.
//!
//! The list is read by the signal handler only, so it is lock-free for readers: entries are
//! never freed, one that is not in use any more serves the next mapping, and a version tells a reader that it
//! was changed meanwhile. A thread that touches a mapping keeps it from being unmapped, so the entry that the
//! handler looks for on behalf of that thread never changes under it.
//!
//! Why the fence is the place to look: the handler notes the loss before it replaces the memory, and the
//! interrupted store is made after that, so a thread whose store went astray finds the note. A thread whose
//! store reached the old memory although another thread lost the region at that moment may find it as well;
//! it only learns more than it needs.

use std::ffi::c_int;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, PoisonError};

use rustix::mm::{MapFlags, ProtFlags};

use super::fault::Fault;
use crate::error::{LossCause, RegionLost};

/// `si_code`: an unaligned access. No memory of ours mends that.
const BUS_ADRALN: c_int = 1;

/// An entry of the list.
#[derive(Debug)]
pub(crate) struct Watched {
    /// Odd while the fields below change.
    version: AtomicUsize,
    base: AtomicUsize,
    /// 0 for an entry that is not in use.
    len_bytes: AtomicUsize,
    /// 0, or how the region was lost: offset of the fault, then a bit for a device that may store to it, one
    /// that is set, and one for a machine check.
    loss: AtomicU64,
    next: AtomicPtr<Watched>,
}

static FIRST: AtomicPtr<Watched> = AtomicPtr::new(std::ptr::null_mut());
/// Held while the list is changed, never by the handler.
static CHANGING: Mutex<()> = Mutex::new(());

const IS_LOST: u64 = 2;
const IS_MACHINE_CHECK: u64 = 1;
const IS_DEVICE: u64 = 4;
const OFFSET_SHIFT: u32 = 3;

impl Watched {
    const fn new() -> Watched {
        Watched {
            version: AtomicUsize::new(0),
            base: AtomicUsize::new(0),
            len_bytes: AtomicUsize::new(0),
            loss: AtomicU64::new(0),
            next: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// Whether the mapping was lost since it was made.
    #[inline(always)]
    pub(crate) fn is_lost(&self) -> bool {
        self.loss.load(Ordering::Acquire) != 0
    }

    /// How it was lost, if it was.
    pub(crate) fn loss(&self) -> Option<RegionLost> {
        let loss = self.loss.load(Ordering::Acquire);
        let cause = match (loss & IS_DEVICE != 0, loss & IS_MACHINE_CHECK != 0) {
            (true, _) => LossCause::Device,
            (false, true) => LossCause::MemoryError,
            (false, false) => LossCause::NoPage,
        };
        (loss != 0).then_some(RegionLost { region_offset: loss >> OFFSET_SHIFT, cause })
    }

    /// A device may store to the mapping whenever it likes. Nothing takes the place of the memory.
    pub(crate) fn lose_to_a_device(&self, offset: u64) {
        let loss = offset << OFFSET_SHIFT | IS_LOST | IS_DEVICE;
        let _ = self.loss.compare_exchange(0, loss, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Says what the entry is of; `len_bytes` 0: of nothing. Called under the lock.
    fn set(&self, base: usize, len_bytes: usize) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        self.base.store(base, Ordering::Relaxed);
        self.len_bytes.store(len_bytes, Ordering::Relaxed);
        self.loss.store(0, Ordering::Relaxed);
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }

    /// Start and length of the mapping that has the address.
    fn containing(&self, address: usize) -> Option<(usize, usize)> {
        let version = self.version.load(Ordering::Acquire);
        let (base, len_bytes) = (self.base.load(Ordering::Relaxed), self.len_bytes.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let is_whole = version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version;
        (is_whole && address.wrapping_sub(base) < len_bytes).then_some((base, len_bytes))
    }

    /// The mapping is about to be unmapped, and no longer in use.
    pub(crate) fn forget(&self) {
        let _changing = CHANGING.lock().unwrap_or_else(PoisonError::into_inner);
        self.set(0, 0);
    }
}

fn entries() -> impl Iterator<Item = &'static Watched> {
    let follow = |link: &AtomicPtr<Watched>| {
        // SAFETY: links are null or lead to entries that were leaked; these are changed through atomics only.
        unsafe { link.load(Ordering::Acquire).as_ref() }
    };
    std::iter::successors(follow(&FIRST), move |watched| follow(&watched.next))
}

/// Notes a mapping, before it is touched first.
pub(crate) fn watch(base: usize, len_bytes: usize) -> &'static Watched {
    let _changing = CHANGING.lock().unwrap_or_else(PoisonError::into_inner);
    let unused = entries().find(|watched| watched.len_bytes.load(Ordering::Relaxed) == 0);
    let watched = unused.unwrap_or_else(|| {
        let new: &'static mut Watched = Box::leak(Box::new(Watched::new()));
        new.next = AtomicPtr::new(FIRST.load(Ordering::Relaxed));
        FIRST.store(new, Ordering::Release);
        new
    });
    watched.set(base, len_bytes);
    watched
}

fn find(address: usize) -> Option<(&'static Watched, usize, usize)> {
    entries().find_map(|watched| watched.containing(address).map(|(base, len)| (watched, base, len)))
}

/// Whether the address is in one of our mappings.
pub(super) fn knows(address: usize) -> bool {
    find(address).is_some()
}

/// Puts ordinary memory in the place of the mapping that has the fault, and notes that it is lost. False if
/// the fault is none of ours, or there is no memory.
///
/// The whole of it: one fault instead of one for each page, and a devdax device cannot be divided inside of a
/// page of 2 MiB. What is stored from now on is lost, which is what the note is for.
pub(super) fn take_over(fault: &Fault) -> bool {
    if fault.code == BUS_ADRALN {
        return false;
    }
    let Some((watched, base, len_bytes)) = find(fault.address) else { return false };
    let mut loss = (fault.address - base) as u64 & !(super::super::medium::LINE_BYTES as u64 - 1);
    loss = loss << OFFSET_SHIFT | IS_LOST;
    if Fault::is_machine_check(fault.code) {
        loss |= IS_MACHINE_CHECK;
    }
    // The first fault is the one to tell of. The note comes before the memory: see the module.
    let _ = watched.loss.compare_exchange(0, loss, Ordering::SeqCst, Ordering::SeqCst);
    if replace(base, len_bytes) {
        return true;
    }
    // All of it is too much where memory is not promised beyond what there is; what this store needs may not
    // be.
    let start = base.max(fault.address & !(fault.granule_bytes - 1));
    let end = (base + len_bytes).min((fault.address | (fault.granule_bytes - 1)) + 1);
    replace(start, end - start)
}

/// Maps zeroes of this process over a part of a mapping of ours.
fn replace(start: usize, len_bytes: usize) -> bool {
    let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
    let address = std::ptr::with_exposed_provenance_mut(start);
    // SAFETY: the bytes are those of a mapping of ours, into which no reference is ever made, and which the
    // interrupted thread keeps from being unmapped. The call is a system call and nothing else (rustix makes
    // it without libc), hence async-signal-safe.
    unsafe {
        rustix::mm::mmap_anonymous(address, len_bytes, ProtFlags::READ | ProtFlags::WRITE, flags).is_ok()
    }
}
