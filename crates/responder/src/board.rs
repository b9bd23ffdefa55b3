//! What the processes that use one cache share besides PM: locks, lengths of files, which chunks are dirty.
//!
//! One of them serves: it knows names, flushes, and makes room. Others write and read what they have leases
//! for. Each lock says which process holds it, so the one that serves can let go of those of a process that
//! died, after it has put in order what that was changing ([`reap`](crate::Cache::reap)).
//!
//! Shape, in words of 64 bits:
//! ```text
//! 0   1
//! 1   last timestamp
//! 2   groups of slots
//! 3   places for files
//! 4   when the process that serves last said that it is there: monotonic clock, in ms
//! 8   a word for each group: who has the lock (low half; 0 nobody), its dirty chunks (high half)
//!     a bit for each group that may have dirty data
//!     8 words for each file: who has the lock; state; length; time of the last write; then of
//!     clients: reads, writes, bytes that were read, bytes that were written
//!     a word for each slot: in which lines its chunks differ (`chunks/difference.rs`)
//!     of each group the [`Counts`]
//! ```
//! The state of a file: bit 0 there are leases, bit 1 a truncation is not completed; the high half counts
//! what the place was used for, so that a lease from before counts for nothing. Counts change under the lock
//! of their group or file; those of a process that dies stay.
//!
//! Nothing of it is durable. The processes have the same user and could store to PM directly: they trust
//! each other.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fastness_pmem::SharedWords;
use fastness_sync::{Mutex, lock};
use rustix::time::Timespec;

use crate::error::Error;
use crate::stats::{Counts, Transfers};

/// The process that serves.
pub(crate) const SERVER: u32 = 1;
/// Files that can have leases at a time.
const FILES: usize = 8192;
const HEADER_WORDS: usize = 8;
const FILE_WORDS: usize = 8;

/// What has not said for so long that it is there, in ms, is looked at.
const SILENCE_MS: u64 = 500;

const LEASED: u64 = 1;
const UNFINISHED: u64 = 2;
const GENERATION: u64 = 1 << 32;

/// Attempts to take a lock before the thread lets others run, and before it sleeps.
const SPINS: u32 = 100;
const YIELDS: u32 = 200;
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000 };
/// From one look whether the cache is still served to the next, in attempts.
const LOOK: u32 = 1000;

type IsServed = Box<dyn Fn() -> bool + Send + Sync>;

/// The shared words, as one process sees them.
pub(crate) struct Board {
    words: SharedWords,
    groups: usize,
    slots: usize,
    files: usize,
    /// Number of this process.
    pub(crate) me: u32,
    /// Whether waiting for another process makes sense.
    is_served: IsServed,
    /// Places for files that are free; of the process that serves.
    free: Mutex<Vec<usize>>,
}

impl fmt::Debug for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Board").field("me", &self.me).finish_non_exhaustive()
    }
}

fn now_ms() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

fn words_for(groups: usize, slots: usize, files: usize) -> Option<usize> {
    let of_files = files.checked_mul(FILE_WORDS)?;
    let of_groups = groups.checked_add(groups.div_ceil(64))?;
    let counts = groups.checked_mul(Counts::LEN)?;
    HEADER_WORDS.checked_add(of_groups)?.checked_add(slots)?.checked_add(of_files)?.checked_add(counts)
}

impl Board {
    /// For the process that serves.
    pub(crate) fn create(groups: usize, slots: usize) -> std::io::Result<Board> {
        let count = words_for(groups, slots, FILES).ok_or(std::io::ErrorKind::InvalidInput)?;
        let words = SharedWords::create(count)?;
        for (at, value) in [(0, 1), (2, groups as u64), (3, FILES as u64)] {
            words[at].store(value, Ordering::Release);
        }
        let free = Mutex::new((0..FILES).rev().collect());
        Ok(Board { words, groups, slots, files: FILES, me: SERVER, is_served: Box::new(|| true), free })
    }

    /// For another one, whose number is `me`.
    pub(crate) fn join(
        words: SharedWords,
        (groups, slots): (usize, usize),
        me: u32,
        is_served: IsServed,
    ) -> Result<Board, Error> {
        let says = |at: usize| words.get(at).map_or(0, |word| word.load(Ordering::Acquire));
        let files = usize::try_from(says(3)).unwrap_or(usize::MAX);
        let fits = words_for(groups, slots, files).is_some_and(|count| count <= words.len());
        if says(2) != groups as u64 || !fits || me <= SERVER {
            return Err(Error::Geometry("the shared memory belongs to another cache"));
        }
        Ok(Board { words, groups, slots, files, me, is_served, free: Mutex::default() })
    }

    /// The process that serves says that it is there.
    pub(crate) fn beat(&self) {
        self.words[4].store(now_ms(), Ordering::Relaxed);
    }

    /// Whether the cache is served, as far as is known without a system call.
    ///
    /// # Errors
    /// [`Error::NotServed`].
    pub(crate) fn check_served(&self) -> Result<(), Error> {
        let last = self.words[4].load(Ordering::Relaxed);
        // It may only be slow.
        match now_ms().saturating_sub(last) < SILENCE_MS || (self.is_served)() {
            true => Ok(()),
            false => Err(Error::NotServed),
        }
    }

    pub(crate) fn words(&self) -> &SharedWords {
        &self.words
    }

    fn group(&self, number: usize) -> &AtomicU64 {
        assert!(number < self.groups, "a group of the region");
        &self.words[HEADER_WORDS + number]
    }

    /// The word with the bits of 64 groups that may have dirty data.
    pub(crate) fn dirty_word(&self, word: usize) -> &AtomicU64 {
        &self.words[HEADER_WORDS + self.groups + word]
    }

    /// The word of a slot.
    pub(crate) fn slot_word(&self, slot: usize) -> &AtomicU64 {
        assert!(slot < self.slots, "a slot of the region");
        &self.words[self.slots_at() + slot]
    }

    fn counts_of(&self, group: usize) -> impl Iterator<Item = &AtomicU64> {
        assert!(group < self.groups, "a group of the region");
        let first = self.slots_at() + self.slots + group * Counts::LEN;
        (first..first + Counts::LEN).map(|at| &self.words[at])
    }

    /// Moves what was counted to the counts of a group, which the caller holds.
    pub(crate) fn take_counts(&self, group: usize, counts: &mut Counts) {
        for (word, count) in self.counts_of(group).zip(counts.each()) {
            add(word, std::mem::take(count));
        }
    }

    /// What all processes have counted in a group.
    pub(crate) fn counts(&self, group: usize) -> Counts {
        let mut counts = Counts::default();
        for (count, word) in counts.each().into_iter().zip(self.counts_of(group)) {
            *count = word.load(Ordering::Relaxed);
        }
        counts
    }

    /// What clients have read and written.
    pub(crate) fn transfers(&self) -> Transfers {
        let sum = |word: usize| {
            let of = |slot: usize| self.file_word(slot, word).load(Ordering::Relaxed);
            (0..self.files).map(of).fold(0, u64::wrapping_add)
        };
        Transfers { reads: sum(4), writes: sum(5), read_bytes: sum(6), written_bytes: sum(7) }
    }

    fn slots_at(&self) -> usize {
        self.files_at() + self.files * FILE_WORDS
    }

    fn files_at(&self) -> usize {
        HEADER_WORDS + self.groups + self.groups.div_ceil(64)
    }

    pub(crate) fn last_timestamp(&self) -> &AtomicU64 {
        &self.words[1]
    }

    fn file_word(&self, slot: usize, word: usize) -> &AtomicU64 {
        assert!(slot < self.files, "a place for a file");
        &self.words[self.files_at() + slot * FILE_WORDS + word]
    }

    /// Takes a lock; returns the other half of its word.
    fn acquire(&self, word: &AtomicU64) -> Result<u32, Error> {
        let mut attempt: u32 = 0;
        loop {
            let now = word.load(Ordering::Relaxed);
            let mine = now | u64::from(self.me);
            if now as u32 == 0
                && word.compare_exchange_weak(now, mine, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return Ok((now >> 32) as u32);
            }
            attempt = attempt.wrapping_add(1);
            if attempt < SPINS {
                std::hint::spin_loop();
            } else if attempt < YIELDS {
                std::thread::yield_now();
            } else {
                // Not the C library's, as in `ReadOnly`; a signal may cut it short.
                let _ = rustix::thread::nanosleep(&PAUSE);
                if attempt.is_multiple_of(LOOK) && !(self.is_served)() {
                    return Err(Error::NotServed);
                }
            }
        }
    }

    fn release(word: &AtomicU64, other_half: u32) {
        word.store(u64::from(other_half) << 32, Ordering::Release);
    }

    /// Locks a group; returns which of its chunks are dirty.
    ///
    /// # Errors
    /// [`Error::NotServed`]: the process that holds it may have died, and nothing puts that in order.
    pub(crate) fn lock_group(&self, number: usize) -> Result<u32, Error> {
        self.acquire(self.group(number))
    }

    pub(crate) fn unlock_group(&self, number: usize, dirty: u32) {
        Board::release(self.group(number), dirty);
    }

    /// Takes the locks of a process that has died over: of which groups, and of which files.
    pub(crate) fn inherit(&self, client: u32) -> (Vec<usize>, Vec<usize>) {
        let take = |word: &AtomicU64| {
            let now = word.load(Ordering::Acquire);
            let is_its = now as u32 == client;
            if is_its {
                word.store(now & !u64::from(u32::MAX) | u64::from(self.me), Ordering::Release);
            }
            is_its
        };
        let groups = (0..self.groups).filter(|&number| take(self.group(number))).collect();
        let files = (0..self.files).filter(|&slot| take(self.file_word(slot, 0))).collect();
        (groups, files)
    }

    /// Whether a lease counts, and the file needs nothing that only the process that serves can do.
    pub(crate) fn is_usable(&self, slot: usize, generation: u32) -> bool {
        if slot >= self.files {
            return false;
        }
        let state = self.file_word(slot, 1).load(Ordering::Acquire);
        state & (LEASED | UNFINISHED) == LEASED && (state / GENERATION) as u32 == generation
    }

    /// A place for a file; `None` if there is none left.
    pub(crate) fn take_place(&self) -> Option<usize> {
        lock(&self.free).pop()
    }

    fn give_back(&self, slot: usize) {
        let state = self.file_word(slot, 1);
        let next = (state.load(Ordering::Relaxed) & !(LEASED | UNFINISHED)).wrapping_add(GENERATION);
        state.store(next, Ordering::Release);
        lock(&self.free).push(slot);
    }
}

/// Counts more. The caller holds the lock of the word.
fn add(word: &AtomicU64, more: u64) {
    if more > 0 {
        word.store(word.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }
}

/// What is shared of a file.
#[derive(Debug)]
pub(crate) struct SharedFile {
    board: Arc<Board>,
    slot: usize,
}

impl SharedFile {
    /// The place with this number, which the process that serves has given to the file.
    pub(crate) fn new(board: Arc<Board>, slot: usize) -> Option<SharedFile> {
        (slot < board.files).then_some(SharedFile { board, slot })
    }

    /// A place for a file that the process that serves has met.
    pub(crate) fn take(board: &Arc<Board>, size: u64, modified_ns: u64) -> Option<SharedFile> {
        let slot = board.take_place()?;
        let file = SharedFile { board: board.clone(), slot };
        file.set_size(size);
        file.modified_ns().store(modified_ns, Ordering::Relaxed);
        Some(file)
    }

    pub(crate) fn slot(&self) -> usize {
        self.slot
    }

    pub(crate) fn lock(&self) -> Result<(), Error> {
        self.board.acquire(self.board.file_word(self.slot, 0)).map(|_| ())
    }

    pub(crate) fn unlock(&self) {
        Board::release(self.board.file_word(self.slot, 0), 0);
    }

    fn state(&self) -> &AtomicU64 {
        self.board.file_word(self.slot, 1)
    }

    pub(crate) fn size(&self) -> u64 {
        self.board.file_word(self.slot, 2).load(Ordering::Relaxed)
    }

    pub(crate) fn set_size(&self, size: u64) {
        self.board.file_word(self.slot, 2).store(size, Ordering::Relaxed);
    }

    /// Timestamp of the last write.
    pub(crate) fn modified_ns(&self) -> &AtomicU64 {
        self.board.file_word(self.slot, 3)
    }

    /// A client has read. It holds the lock.
    pub(crate) fn count_read(&self, bytes: usize) {
        add(self.board.file_word(self.slot, 4), 1);
        add(self.board.file_word(self.slot, 6), bytes as u64);
    }

    /// A client has written. It holds the lock.
    pub(crate) fn count_write(&self, bytes: usize) {
        add(self.board.file_word(self.slot, 5), u64::from(bytes > 0));
        add(self.board.file_word(self.slot, 7), bytes as u64);
    }

    /// What a lease of now names.
    pub(crate) fn generation(&self) -> u32 {
        (self.state().load(Ordering::Acquire) / GENERATION) as u32
    }

    pub(crate) fn is_leased(&self) -> bool {
        self.state().load(Ordering::Acquire) & LEASED != 0
    }

    /// As [`Board::is_usable`]. It stays so while the caller holds the lock.
    pub(crate) fn is_usable(&self, generation: u32) -> bool {
        self.board.is_usable(self.slot, generation)
    }

    /// Begins or ends leases. The caller holds the lock.
    pub(crate) fn set_leased(&self, is_leased: bool) {
        if is_leased {
            self.state().fetch_or(LEASED, Ordering::AcqRel);
        } else if self.state().fetch_and(!LEASED, Ordering::AcqRel) & LEASED != 0 {
            self.state().fetch_add(GENERATION, Ordering::AcqRel);
        }
    }

    pub(crate) fn set_unfinished(&self, is_unfinished: bool) {
        if is_unfinished {
            self.state().fetch_or(UNFINISHED, Ordering::AcqRel);
        } else {
            self.state().fetch_and(!UNFINISHED, Ordering::AcqRel);
        }
    }
}

impl Drop for SharedFile {
    fn drop(&mut self) {
        if self.board.me == SERVER {
            self.board.give_back(self.slot);
        }
    }
}
