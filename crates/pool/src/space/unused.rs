//! When pages that the engine does not use are given back to the pool (`metadata::file::unused`).
//!
//! Finding them means reading all tables, so it is done in a txg for which a change waits that found no room,
//! and only after as many rows were removed as the engine's file has pages (or after an import, which does
//! not know). So the cost of a search is spread over the removals that made it worth while.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use crate::sync_util::lock;

/// What decides about a search; `S` is a snapshot of the tables.
#[derive(Debug)]
pub(crate) struct Unused<S> {
    /// Rows removed since the last search.
    pub(crate) removed: AtomicU64,
    /// A change found no room.
    pub(crate) is_wanted: AtomicBool,
    /// Snapshots that were replaced, while they are being read.
    past: Mutex<Vec<Weak<S>>>,
}

impl<S> Default for Unused<S> {
    fn default() -> Unused<S> {
        let (removed, is_wanted) = (AtomicU64::new(u64::MAX / 2), AtomicBool::new(false));
        Unused { removed, is_wanted, past: Mutex::default() }
    }
}

impl<S> Unused<S> {
    /// Rows of tables were removed.
    pub(crate) fn note_removed(&self, rows: u64) {
        self.removed.fetch_add(rows, Ordering::Relaxed);
    }

    /// A snapshot was replaced.
    pub(crate) fn note_past(&self, snapshot: &Arc<S>) {
        let mut past = lock(&self.past);
        past.retain(|snapshot| snapshot.strong_count() > 0);
        past.push(Arc::downgrade(snapshot));
    }

    pub(crate) fn is_past_read(&self) -> bool {
        lock(&self.past).iter().any(|snapshot| snapshot.strong_count() > 0)
    }
}
