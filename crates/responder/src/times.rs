//! What is shown of the times of a file while the cache itself moves them in the backing store.
//!
//! A flush writes, which sets the time of the last modification, and then sets that to when the program
//! wrote. A program must not see the first of the two, nor that the time of the last change (ctime) moves
//! although it has changed nothing: `tar` takes either for a file that changes as it is read. No call sets a
//! ctime. So the one that a flush leaves is noted, and as long as the backing store says that one, the one of
//! before is shown.
//!
//! Whoever asks looks whether a flush was under way before or after the backing store was asked: nobody waits
//! for one. A flush that the process does not survive leaves what it had done: the next recovery sets the
//! time of modification again, and of the ctime nothing is known any more.

use std::io;

use fastness_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use fastness_sync::{Mutex, lock};

use crate::backing::{BackingFile, Stat};

/// In the low half: how many are changing times now. In the high half: how often that has ended.
const ACTIVE: u64 = (1 << 32) - 1;
const ENDED: u64 = 1 << 32;

/// The times of a file.
#[derive(Debug, Default)]
pub(crate) struct Times {
    flux: AtomicU64,
    /// The backing store's time of modification does not count before a flush has set it.
    is_unsettled: AtomicBool,
    shown: Mutex<Shown>,
}

/// What is shown instead of what the backing store says. All in ns since 1970.
#[derive(Debug, Default, Clone, Copy)]
struct Shown {
    /// The ctime before the cache moved it.
    changed_ns: u64,
    /// What the backing store says of it since; 0: nothing was moved.
    hidden_ns: u64,
    /// When the file was modified, before the cache moved that.
    modified_ns: u64,
}

impl Times {
    /// The cache is about to write what a program has written earlier.
    pub(crate) fn begin(&self, backing: &dyn BackingFile) {
        let before = self.flux.fetch_add(1, Ordering::AcqRel);
        let Ok(stat) = backing.stat() else { return };
        let mut shown = lock(&self.shown);
        if before & ACTIVE == 0 {
            shown.modified_ns = stat.modified_ns;
            if stat.changed_ns != shown.hidden_ns {
                shown.changed_ns = stat.changed_ns;
            }
        }
    }

    /// It has done so, up to a write that was made then.
    pub(crate) fn end(&self, backing: &dyn BackingFile, written_ns: u64) {
        {
            let mut shown = lock(&self.shown);
            shown.changed_ns = shown.changed_ns.max(written_ns);
            if let Ok(stat) = backing.stat() {
                shown.hidden_ns = stat.changed_ns;
            }
        }
        self.flux.fetch_add(ENDED - 1, Ordering::AcqRel);
    }

    /// Whether the backing store's time of modification counts.
    pub(crate) fn set_settled(&self, is_settled: bool) {
        self.is_unsettled.store(!is_settled, Ordering::Release);
    }

    /// A program has changed attributes or names at that time: a flush under way must not hide it.
    pub(crate) fn changed(&self, now_ns: u64) {
        if self.flux.load(Ordering::Acquire) & ACTIVE > 0 {
            let mut shown = lock(&self.shown);
            shown.changed_ns = shown.changed_ns.max(now_ns);
        }
    }

    /// What there is to show of a file that was last written to at `modified_ns`; `ask` asks the backing
    /// store.
    ///
    /// # Errors
    /// Those of `ask`.
    pub(crate) fn current(
        &self,
        modified_ns: u64,
        ask: impl FnOnce() -> io::Result<Stat>,
    ) -> io::Result<Stat> {
        let before = self.flux.load(Ordering::Acquire);
        let stat = ask()?;
        let shown = *lock(&self.shown);
        let is_still = before & ACTIVE == 0 && self.flux.load(Ordering::Acquire) == before;
        let below = if is_still { stat.modified_ns } else { shown.modified_ns };
        let is_hidden = !is_still || stat.changed_ns == shown.hidden_ns;
        let changed = if is_hidden { shown.changed_ns } else { stat.changed_ns };
        let counts = is_still && !self.is_unsettled.load(Ordering::Acquire);
        Ok(Stat {
            modified_ns: if counts { below.max(modified_ns) } else { modified_ns },
            // What is in PM alone was a change, too.
            changed_ns: if modified_ns > below { changed.max(modified_ns) } else { changed },
            ..stat
        })
    }
}
