//! How many bytes this process has written to each region, by which of its threads.
//!
//! # Design
//! Each thread has a cell for each region that it writes to, on a cache line of its own, and is the only one
//! that stores to it: counting is a load, an addition and a store, without a lock, an atomic
//! read-modify-write or a line that another thread writes. A thread that ends adds its cells to the sums of
//! the regions, so totals are exact at any time. The table of cells is a file that `fastness top` reads
//! ([`read_all`]), if the process has said where ([`publish_with`]); otherwise it is memory of its own, and
//! [`copied_bytes`] is all that there is to see.
//!
//! What counts: whole extents of [`Medium::copy`](crate::Medium::copy), padding included, and what a DMA
//! engine was given; each side of a mirror. Of writes that workers of a gate make, the worker is the thread.
//! A failed fence takes nothing back.
//!
//! Limits: the table has room for `table::CELLS` pairs of living thread and region, and for
//! `table::ROWS` regions. What is beyond counts as of ended threads, or of *other regions*: totals stay
//! exact.
//!
//! A child of `fork` begins at zero, with a table of its own. A file outlives its process; whoever reads it
//! knows the process by its number and the time at which it started, and the next process that publishes
//! removes it.
//!
//! ```text
//! table    rows and cells: the layout, who owns a cell
//! memory   the mapping                process   which process it is, and whether it lives
//! read     the counters of others
//! ```

mod memory;
mod process;
mod read;
mod table;

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

pub use process::start_time_of;
pub use read::{Count, ProcessCounters, Published, RegionCounters, ThreadCount, read_all};
pub(crate) use table::Label;
use table::{CellRef, Table};

/// Says where the counters of this process are to be published; asked once there is something to count, and
/// in each child of a fork again. The first one that is given stays.
pub fn publish_with(folder: fn() -> Option<PathBuf>) {
    // Another one is there: as documented.
    let _ = FOLDER.set(folder);
}

/// Bytes that this process has copied to its regions so far, padding included.
pub fn copied_bytes() -> u64 {
    let table = TABLE.load(Ordering::Acquire);
    // SAFETY: tables are never freed.
    unsafe { table.as_ref() }.map_or(0, Table::sum_bytes)
}

static FOLDER: OnceLock<fn() -> Option<PathBuf>> = OnceLock::new();
/// Leaked, so that no thread can outlive it.
static TABLE: AtomicPtr<Table> = AtomicPtr::new(std::ptr::null_mut());
static IS_CREATING: AtomicBool = AtomicBool::new(false);
static KNOWS_FORKS: AtomicBool = AtomicBool::new(false);
static LAST_NUMBER: AtomicU32 = AtomicU32::new(0);

/// A region of this process, to find its cell by; 0 is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RegionNumber(u32);

impl RegionNumber {
    /// For a region that was opened just now; makes the table, so that no write has to.
    pub(crate) fn next() -> RegionNumber {
        table();
        let next = || LAST_NUMBER.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        // After 2^32 regions, numbers come again; a thread may then count for the wrong one.
        RegionNumber(match next() {
            0 => next(),
            number => number,
        })
    }
}

/// Cells that a thread finds without a search: the two sides of two mirrors.
const WAYS: usize = 4;

struct Recent {
    number: Cell<u32>,
    cell: Cell<Option<CellRef>>,
}

/// What a thread owns; released when it ends.
struct Own(RefCell<Vec<(usize, CellRef)>>);

thread_local! {
    // Without a destructor: one addition to the thread's base finds it.
    static RECENT: [Recent; WAYS] =
        const { [const { Recent { number: Cell::new(0), cell: Cell::new(None) } }; WAYS] };
    static OWN: Own = const { Own(RefCell::new(Vec::new())) };
}

/// Counts a copy to a region; `label` says which one that is, and is asked the first time only.
#[inline(always)]
pub(crate) fn count(region: RegionNumber, bytes: usize, label: impl FnOnce() -> Label) {
    RECENT.with(|recent| {
        let recent = &recent[region.0 as usize % WAYS];
        match recent.cell.get() {
            Some(cell) if recent.number.get() == region.0 => cell.add(bytes as u64),
            _ => count_first(region, bytes as u64, &label()),
        }
    });
}

#[cold]
#[inline(never)]
fn count_first(region: RegionNumber, bytes: u64, label: &Label) {
    let table = table();
    let row = table.row(label);
    let cell = OWN.try_with(|own| own.cell(table, row)).ok().flatten();
    let Some(cell) = cell else {
        // The thread is ending, or there is no free cell.
        return table.add_ended(row, bytes);
    };
    cell.add(bytes);
    RECENT.with(|recent| {
        let recent = &recent[region.0 as usize % WAYS];
        recent.number.set(region.0);
        recent.cell.set(Some(cell));
    });
}

impl Own {
    fn cell(&self, table: &'static Table, row: usize) -> Option<CellRef> {
        let mut own = self.0.try_borrow_mut().ok()?;
        if let Some((_, cell)) = own.iter().find(|(of, _)| *of == row) {
            return Some(*cell);
        }
        let cell = table.claim(row)?;
        own.push((row, cell));
        Some(cell)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        forget_recent();
        for (row, cell) in self.0.get_mut().drain(..) {
            table().release(row, cell);
        }
    }
}

fn forget_recent() {
    RECENT.with(|recent| recent.iter().for_each(|recent| recent.cell.set(None)));
}

/// The table of this process, made by whoever comes first.
fn table() -> &'static Table {
    // SAFETY: tables are never freed.
    let known = || unsafe { TABLE.load(Ordering::Acquire).as_ref() };
    known().unwrap_or_else(|| {
        while IS_CREATING.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            std::thread::yield_now();
        }
        let table = known().unwrap_or_else(|| {
            if !KNOWS_FORKS.swap(true, Ordering::Relaxed) {
                // SAFETY: a function that stays where it is. Without memory for it, a child counts for its
                // parent.
                unsafe { libc::pthread_atfork(None, None, Some(begin_in_child)) };
            }
            let folder = FOLDER.get().and_then(|folder| folder());
            let table = Box::leak(Box::new(Table::create(folder.as_deref())));
            TABLE.store(&raw mut *table, Ordering::Release);
            table
        });
        IS_CREATING.store(false, Ordering::Release);
        table
    })
}

/// Runs in the only thread of a process that was forked just now: the table is its parent's.
extern "C" fn begin_in_child() {
    TABLE.store(std::ptr::null_mut(), Ordering::Release);
    IS_CREATING.store(false, Ordering::Release);
    forget_recent();
    // An ending thread has none.
    let _ = OWN.try_with(|own| own.0.try_borrow_mut().map(|mut own| own.clear()));
}
