//! Which blocks of code run, and how often (`fastness_crashcheck_trace::coverage`).
//!
//! A block gets a number when it is translated for the first time, and its code adds to the counter of that
//! number: no call, so counting costs next to nothing. Concurrency: counters are those of a virtual CPU;
//! numbers are given under a lock, at translation only.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use fastness_crashcheck_trace::coverage::{BLOCKS_MAX, Block, write};

use crate::api::{Counters, block_address};

/// Counted blocks.
#[derive(Debug)]
pub(crate) struct Coverage {
    path: PathBuf,
    counters: Counters,
    /// By address.
    numbers: Mutex<HashMap<u64, usize>>,
    /// What the counters had counted when it began.
    before: Mutex<Vec<u64>>,
}

impl Coverage {
    /// For a file at `path`, which is written at the end.
    pub(crate) fn new(path: &Path) -> Coverage {
        let counters = Counters::new(BLOCKS_MAX);
        Coverage { path: path.to_owned(), counters, numbers: Mutex::default(), before: Mutex::default() }
    }

    /// A block is being translated, perhaps again. The first [`BLOCKS_MAX`] are counted.
    pub(crate) fn translated(&self, block: *mut qemu_plugin_sys::qemu_plugin_tb) {
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let next = numbers.len();
        let address = block_address(block);
        let number = match next < BLOCKS_MAX {
            true => Some(*numbers.entry(address).or_insert(next)),
            false => numbers.get(&address).copied(),
        };
        if let Some(number) = number {
            self.counters.count(block, number);
        }
    }

    /// What has run until now does not count.
    pub(crate) fn begin(&self) {
        let len = self.numbers.lock().unwrap_or_else(PoisonError::into_inner).len();
        let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        *before = (0..len).map(|number| self.counters.sum(number)).collect();
    }

    /// Writes what has run so far, in the order of addresses.
    ///
    /// # Errors
    /// Those of the file.
    pub(crate) fn save(&self) -> io::Result<()> {
        let numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        let count = |(pc, number): (&u64, &usize)| {
            let before = before.get(*number).copied().unwrap_or_default();
            Block { pc: *pc, count: self.counters.sum(*number).saturating_sub(before) }
        };
        let mut blocks: Vec<Block> = numbers.iter().map(count).filter(|block| block.count > 0).collect();
        blocks.sort_unstable();
        write(&mut File::create(&self.path)?, blocks)
    }
}
