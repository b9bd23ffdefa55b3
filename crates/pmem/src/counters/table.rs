//! The table of a process: a row for each region, a cell for each pair of living thread and region.
//!
//! Layout, in words of 64 bits of this machine: [`HEADER_WORDS`] of header, [`ROWS`] rows of [`ROW_WORDS`],
//! [`CELLS`] cells of [`CELL_WORDS`], which is a cache line (`docs/format.md`, "Counters of a process").

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::memory;
use super::process::Identity;
use crate::info::RegionKind;

pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"FSTPMCNT");
pub(super) const VERSION: u64 = 1;

pub(super) const HEADER_WORDS: usize = 64;
pub(super) const ROWS: usize = 64;
pub(super) const ROW_WORDS: usize = 64;
pub(super) const CELLS: usize = 1024;
pub(super) const CELL_WORDS: usize = 8;
pub(super) const FIRST_ROW: usize = HEADER_WORDS;
pub(super) const FIRST_CELL: usize = FIRST_ROW + ROWS * ROW_WORDS;
pub(super) const WORDS: usize = FIRST_CELL + CELLS * CELL_WORDS;

/// Words of the header.
pub(super) mod header {
    pub(crate) const MAGIC: usize = 0;
    pub(crate) const VERSION: usize = 1;
    pub(crate) const PID: usize = 2;
    pub(crate) const START_TIME: usize = 3;
    pub(crate) const NAMESPACE: usize = 4;
    /// Odd while a cell is added to its row.
    pub(crate) const CHANGES: usize = 5;
}

/// Words of a row.
pub(super) mod row {
    /// The kind and 1; 0: the row is not in use.
    pub(crate) const KIND: usize = 0;
    pub(crate) const DEVICE: usize = 1;
    pub(crate) const INODE: usize = 2;
    pub(crate) const LEN_BYTES: usize = 3;
    /// The NUMA node and 1; 0: not known.
    pub(crate) const NODE: usize = 4;
    pub(crate) const ENDED_BYTES: usize = 5;
    pub(crate) const ENDED_WRITES: usize = 6;
    pub(crate) const PATH_BYTES: usize = 7;
    pub(crate) const PATH: usize = 8;
}

/// Words of a cell.
pub(super) mod cell {
    /// The thread's number in the upper half, the row in the lower; 0: free.
    pub(crate) const OWNER: usize = 0;
    pub(crate) const BYTES: usize = 1;
    pub(crate) const WRITES: usize = 2;
}

/// Bytes of a path; of a longer one, the end is kept.
pub(super) const PATH_BYTES_MAX: usize = (ROW_WORDS - row::PATH) * 8;

/// The last row: of what there is no row for.
pub(super) const OTHERS: usize = ROWS - 1;
/// What it has in place of a kind.
pub(super) const KIND_OTHERS: u64 = 255;

pub(super) const KINDS: [RegionKind; 5] =
    [RegionKind::DevDax, RegionKind::FsDax, RegionKind::File, RegionKind::Tmpfs, RegionKind::Anonymous];

/// Which region it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Label {
    pub(crate) kind: RegionKind,
    /// Number of its file's device, and of the file; 0 of anonymous memory.
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) len_bytes: u64,
    pub(crate) numa_node: Option<u32>,
    pub(crate) path: Option<PathBuf>,
}

/// A cell of the calling thread.
#[derive(Debug, Clone, Copy)]
pub(super) struct CellRef(&'static [AtomicU64]);

impl CellRef {
    /// Only its owner stores to it.
    #[inline(always)]
    pub(super) fn add(self, bytes: u64) {
        let add = |word: &AtomicU64, more: u64| {
            word.store(word.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
        };
        add(&self.0[cell::BYTES], bytes);
        add(&self.0[cell::WRITES], 1);
    }
}

/// The table, in memory that stays mapped.
#[derive(Debug)]
pub(super) struct Table {
    words: &'static [AtomicU64],
    /// Held to take a row or a cell, and to give a cell back.
    changing: Mutex<()>,
}

impl Table {
    /// A table in a file of this folder, or in memory if there is none, or no room in it.
    pub(super) fn create(folder: Option<&Path>) -> Table {
        let me = Identity::own();
        let begin = |words: &[AtomicU64]| {
            for (word, value) in [
                (header::VERSION, VERSION),
                (header::PID, u64::from(me.pid)),
                (header::START_TIME, me.start_time),
                (header::NAMESPACE, me.namespace),
                (header::MAGIC, MAGIC),
            ] {
                words[word].store(value, Ordering::Release);
            }
        };
        let published = folder.and_then(|folder| memory::in_folder(folder, me.pid, WORDS, begin));
        Table { words: published.unwrap_or_else(|| memory::own(WORDS)), changing: Mutex::new(()) }
    }

    fn row_words(&self, row: usize) -> &'static [AtomicU64] {
        &self.words[FIRST_ROW + row * ROW_WORDS..][..ROW_WORDS]
    }

    fn cell_words(&self, cell: usize) -> &'static [AtomicU64] {
        &self.words[FIRST_CELL + cell * CELL_WORDS..][..CELL_WORDS]
    }

    /// The row of a region: the one that it has, a new one, or that of others.
    pub(super) fn row(&self, label: &Label) -> usize {
        let stored = Stored::of(label);
        let _changing = self.changing.lock().unwrap_or_else(|broken| broken.into_inner());
        for row in 0..OTHERS {
            let words = self.row_words(row);
            if words[row::KIND].load(Ordering::Relaxed) == 0 {
                stored.put(words);
                return row;
            }
            if stored.is(words) {
                return row;
            }
        }
        self.row_words(OTHERS)[row::KIND].store(KIND_OTHERS, Ordering::Release);
        OTHERS
    }

    /// A free cell for the calling thread; none: there is none.
    pub(super) fn claim(&self, row: usize) -> Option<CellRef> {
        let thread = rustix::thread::gettid().as_raw_nonzero().get() as u64;
        let _changing = self.changing.lock().unwrap_or_else(|broken| broken.into_inner());
        let is_free = |words: &&[AtomicU64]| words[cell::OWNER].load(Ordering::Relaxed) == 0;
        let words = (0..CELLS).map(|cell| self.cell_words(cell)).find(is_free)?;
        words[cell::BYTES].store(0, Ordering::Relaxed);
        words[cell::WRITES].store(0, Ordering::Relaxed);
        words[cell::OWNER].store(thread << 32 | row as u64, Ordering::Release);
        Some(CellRef(words))
    }

    /// Gives the cell of a thread that ends back; what it has counted goes to its row.
    pub(super) fn release(&self, row: usize, cell: CellRef) {
        let _changing = self.changing.lock().unwrap_or_else(|broken| broken.into_inner());
        let (changes, sums) = (&self.words[header::CHANGES], self.row_words(row));
        changes.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let move_to = |sum: usize, word: usize| {
            sums[sum].fetch_add(cell.0[word].swap(0, Ordering::Relaxed), Ordering::Relaxed);
        };
        move_to(row::ENDED_BYTES, cell::BYTES);
        move_to(row::ENDED_WRITES, cell::WRITES);
        cell.0[cell::OWNER].store(0, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        changes.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts what no cell can.
    pub(super) fn add_ended(&self, row: usize, bytes: u64) {
        let sums = self.row_words(row);
        sums[row::ENDED_BYTES].fetch_add(bytes, Ordering::Relaxed);
        sums[row::ENDED_WRITES].fetch_add(1, Ordering::Relaxed);
    }

    /// Of all regions and threads.
    pub(super) fn sum_bytes(&self) -> u64 {
        let _changing = self.changing.lock().unwrap_or_else(|broken| broken.into_inner());
        let ended = (0..ROWS).map(|row| self.row_words(row)[row::ENDED_BYTES].load(Ordering::Relaxed));
        let living = (0..CELLS).map(|cell| self.cell_words(cell)[cell::BYTES].load(Ordering::Relaxed));
        ended.chain(living).fold(0, u64::wrapping_add)
    }
}

/// A label as a row has it.
struct Stored {
    words: [u64; row::ENDED_BYTES],
    path: Vec<u8>,
}

impl Stored {
    fn of(label: &Label) -> Stored {
        let kind = KINDS.iter().position(|kind| *kind == label.kind).map_or(0, |at| at as u64 + 1);
        let node = label.numa_node.map_or(0, |node| u64::from(node) + 1);
        let path = label.path.as_ref().map_or(&[][..], |path| path.as_os_str().as_bytes());
        let path = path[path.len().saturating_sub(PATH_BYTES_MAX)..].to_vec();
        Stored { words: [kind, label.device, label.inode, label.len_bytes, node], path }
    }

    /// Whether it is the one in this row.
    fn is(&self, words: &[AtomicU64]) -> bool {
        let load = |word: usize| words[word].load(Ordering::Relaxed);
        self.words.iter().enumerate().all(|(word, value)| load(word) == *value)
            && load(row::PATH_BYTES) == self.path.len() as u64
            && self.path_words().enumerate().all(|(at, value)| load(row::PATH + at) == value)
    }

    /// Stores it; its kind last, with which the row is in use.
    fn put(&self, words: &[AtomicU64]) {
        for (at, value) in self.path_words().enumerate() {
            words[row::PATH + at].store(value, Ordering::Relaxed);
        }
        words[row::PATH_BYTES].store(self.path.len() as u64, Ordering::Relaxed);
        for (word, value) in self.words.iter().enumerate().rev() {
            words[word].store(*value, Ordering::Release);
        }
    }

    fn path_words(&self) -> impl Iterator<Item = u64> {
        self.path.chunks(8).map(|bytes| {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            u64::from_ne_bytes(word)
        })
    }
}

#[cfg(test)]
mod tests;
