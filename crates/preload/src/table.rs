//! Which descriptors are files with leases.
//!
//! A word for each descriptor names a place, and what the descriptor may do; a place has a file. Descriptors
//! that are duplicated share a place. Places have the numbers of the cache's own (`Lease::slot`), and are
//! never given back to the allocator, so that a thread which works with one while another closes its last
//! descriptor always finds a place, if not the same file: both are counted.

use std::cell::UnsafeCell;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use fastness_responder::{Lease, LeasedFile};

use crate::member::Member;
use crate::own;

/// Descriptors with larger numbers go through the mount.
const DESCRIPTORS: usize = 1 << 16;
/// Files at a time.
const PLACES: usize = 1 << 13;

/// What a descriptor may do, in the low bits of its word.
pub(crate) const APPENDS: u64 = 1;
pub(crate) const READS: u64 = 2;
pub(crate) const WRITES: u64 = 4;
const FLAGS: u64 = 7;
const PLACE_SHIFT: u32 = 3;
const PLACE_BITS: u64 = (PLACES as u64) - 1;
const USED: u64 = 1 << 17;
/// Alone: a file of the mount that was open when the program began. A lease of it is asked for when it is
/// used.
const INHERITED: u64 = 1 << 18;
const GENERATION_SHIFT: u32 = 32;

/// The word of a descriptor with a lease: flags, place, and the generation of the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry(u64);

impl Entry {
    fn new(lease: &Lease, flags: u64) -> Entry {
        let generation = u64::from(lease.generation) << GENERATION_SHIFT;
        Entry(generation | USED | u64::from(lease.slot) << PLACE_SHIFT | flags)
    }

    /// Place of its lease.
    pub(crate) fn slot(self) -> u32 {
        ((self.0 >> PLACE_SHIFT) & PLACE_BITS) as u32
    }

    /// Generation of its lease.
    pub(crate) fn lease(self) -> u32 {
        (self.0 >> GENERATION_SHIFT) as u32
    }

    fn place(self) -> &'static Place {
        &TABLE[self.slot() as usize]
    }

    fn generation(self) -> u64 {
        u64::from(self.lease()) + 1
    }

    pub(crate) fn may(self, what: u64) -> bool {
        self.0 & what != 0
    }
}

static WORDS: [AtomicU64; DESCRIPTORS] = [const { AtomicU64::new(0) }; DESCRIPTORS];
static TABLE: [Place; PLACES] = [const { Place::new() }; PLACES];
/// Places that were ever used have smaller numbers.
static PLACES_USED: AtomicU32 = AtomicU32::new(0);
/// Held by who changes places.
static LOCK: AtomicU32 = AtomicU32::new(0);

/// A file with a lease, as long as descriptors of it are open.
struct Place {
    /// Threads that work with it.
    users: AtomicU32,
    /// Descriptors.
    descriptors: AtomicU32,
    /// Generation of its lease, and 1; 0 if there is none.
    generation: AtomicU64,
    content: UnsafeCell<Option<Content>>,
}

struct Content {
    lease: Lease,
    backing: Arc<File>,
    /// Of this process.
    file: LeasedFile,
    epoch: u32,
}

// SAFETY: the content changes while the lock is held, `generation` is 0 and no thread is counted as a user.
unsafe impl Sync for Place {}

impl Place {
    const fn new() -> Place {
        Place {
            users: AtomicU32::new(0),
            descriptors: AtomicU32::new(0),
            generation: AtomicU64::new(0),
            content: UnsafeCell::new(None),
        }
    }

    /// Empties the place, and puts something else there. The caller holds the lock.
    fn replace(&self, content: Option<Content>) {
        self.generation.store(0, Ordering::SeqCst);
        // They see the new generation, or are done soon: handlers wait meanwhile.
        while self.users.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
        let generation = content.as_ref().map_or(0, |content| u64::from(content.lease.generation) + 1);
        // SAFETY: nobody uses it, and nobody else changes it.
        unsafe { *self.content.get() = content };
        self.generation.store(generation, Ordering::SeqCst);
    }
}

/// The lock of all places. No handler runs in a thread that holds it.
struct Locked;

impl Locked {
    fn new() -> Locked {
        while LOCK.compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            std::thread::yield_now();
        }
        Locked
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        LOCK.store(0, Ordering::Release);
    }
}

fn word(fd: i32) -> Option<&'static AtomicU64> {
    WORDS.get(usize::try_from(fd).ok()?)
}

/// What is known of a descriptor.
#[inline]
pub(crate) fn find(fd: i32) -> Option<Entry> {
    let entry = word(fd)?.load(Ordering::Acquire);
    (entry & USED != 0).then_some(Entry(entry))
}

/// Notes that a descriptor came with the program.
pub(crate) fn add_inherited(fd: i32) {
    if let Some(word) = word(fd) {
        word.store(INHERITED, Ordering::Release);
    }
}

/// Whether the descriptor came with the program, and was not used yet.
#[inline]
pub(crate) fn is_inherited(fd: i32) -> bool {
    word(fd).is_some_and(|word| word.load(Ordering::Relaxed) == INHERITED)
}

/// Works with the file of a descriptor; `None`: it has none any more, and is forgotten.
#[inline]
pub(crate) fn with<T>(
    fd: i32,
    entry: Entry,
    member: &Member,
    act: impl FnOnce(&LeasedFile) -> T,
) -> Option<T> {
    let place = entry.place();
    place.users.fetch_add(1, Ordering::SeqCst);
    let done = if place.generation.load(Ordering::SeqCst) == entry.generation() {
        // SAFETY: it does not change while this thread is counted.
        let content = unsafe { (*place.content.get()).as_ref() };
        content.filter(|content| content.epoch == member.epoch).map(|content| act(&content.file))
    } else {
        None
    };
    place.users.fetch_sub(1, Ordering::SeqCst);
    if done.is_none() {
        forget_entry(fd, entry);
    }
    done
}

/// Notes that a descriptor is a file with a lease.
pub(crate) fn add(fd: i32, flags: u64, member: &Member, lease: &Lease, backing: OwnedFd) {
    if let Some(entry) = find(fd) {
        forget_entry(fd, entry);
    }
    let Some(word) = word(fd).filter(|_| (lease.slot as usize) < PLACES) else { return };
    let entry = Entry::new(lease, flags & FLAGS);
    let place = entry.place();
    let _locked = Locked::new();
    if place.generation.load(Ordering::SeqCst) != entry.generation() {
        let Some(content) = Content::new(member, lease, Arc::new(own::raise(backing).into())) else {
            return;
        };
        PLACES_USED.fetch_max(lease.slot + 1, Ordering::Relaxed);
        place.descriptors.store(0, Ordering::Relaxed);
        place.replace(Some(content));
    }
    place.descriptors.fetch_add(1, Ordering::Relaxed);
    word.store(entry.0, Ordering::Release);
}

impl Content {
    fn new(member: &Member, lease: &Lease, backing: Arc<File>) -> Option<Content> {
        let file = member.client.file(lease, backing.clone())?;
        own::protect(backing.as_raw_fd());
        Some(Content { lease: *lease, backing, file, epoch: member.epoch })
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        own::release(self.backing.as_raw_fd());
    }
}

/// A descriptor is one of the same file as another one now.
pub(crate) fn duplicate(fd: i32, to: i32) {
    forget(to);
    if is_inherited(fd) {
        add_inherited(to);
    }
    let (Some(entry), Some(word)) = (find(fd), word(to)) else { return };
    let place = entry.place();
    let _locked = Locked::new();
    if place.generation.load(Ordering::SeqCst) == entry.generation() {
        place.descriptors.fetch_add(1, Ordering::Relaxed);
        word.store(entry.0, Ordering::Release);
    }
}

/// Says whether a descriptor appends.
pub(crate) fn set_appends(fd: i32, appends: bool) {
    if let (Some(word), true) = (word(fd), find(fd).is_some()) {
        if appends {
            word.fetch_or(APPENDS, Ordering::AcqRel);
        } else {
            word.fetch_and(!APPENDS, Ordering::AcqRel);
        }
    }
}

/// A descriptor is about to be closed, or goes through the mount from now on.
pub(crate) fn forget(fd: i32) {
    if let Some(entry) = find(fd) {
        forget_entry(fd, entry);
    } else if let (true, Some(word)) = (is_inherited(fd), word(fd)) {
        word.store(0, Ordering::Release);
    }
}

/// The same of all from `first` to `last`.
pub(crate) fn forget_range(first: u32, last: u32) {
    let end = (last as usize).saturating_add(1).min(DESCRIPTORS);
    (first as usize..end).for_each(|fd| forget(fd as i32));
}

/// Descriptors with leases.
pub(crate) fn leased() -> impl Iterator<Item = i32> {
    (0..DESCRIPTORS as i32).filter(|&fd| find(fd).is_some())
}

#[cold]
fn forget_entry(fd: i32, entry: Entry) {
    let Some(word) = word(fd) else { return };
    let now = word.load(Ordering::Acquire);
    if now & !APPENDS != entry.0 & !APPENDS
        || word.compare_exchange(now, 0, Ordering::AcqRel, Ordering::Relaxed).is_err()
    {
        return;
    }
    let place = entry.place();
    let _locked = Locked::new();
    if place.generation.load(Ordering::SeqCst) == entry.generation()
        && place.descriptors.fetch_sub(1, Ordering::Relaxed) == 1
    {
        place.replace(None);
    }
}

/// The only thread of a process that was forked just now: the others, which may have been anywhere in here,
/// are in its parent.
pub(crate) fn begin_in_child() {
    LOCK.store(0, Ordering::Release);
    for place in &TABLE[..PLACES_USED.load(Ordering::Relaxed) as usize] {
        place.users.store(0, Ordering::Relaxed);
    }
}

/// Files that were opened before a fork become this process's own.
pub(crate) fn adopt(member: &Member) {
    let _locked = Locked::new();
    for place in &TABLE[..PLACES_USED.load(Ordering::Relaxed) as usize] {
        // SAFETY: it changes under the lock alone.
        let content = unsafe { (*place.content.get()).as_ref() };
        let Some(content) = content.filter(|content| content.epoch != member.epoch) else { continue };
        let backing = content.backing.clone();
        let again = Content::new(member, &content.lease, backing.clone());
        let is_kept = again.is_some();
        place.replace(again);
        if is_kept {
            // The former content has released it.
            own::protect(backing.as_raw_fd());
        }
    }
}
