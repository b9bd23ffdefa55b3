//! Cleans up after a thread that panics in work that others wait for.

use fastness_sync::lock;

use crate::error::CommitError;
use crate::ids::BlockSeq;
use crate::log::{Counters, Log};
use crate::space::Space;

/// Held by a thread that writes or flushes for others. If it panics, nothing from block `from` on is
/// acknowledged any more, and the waiters get an error. Its work counts as still in progress, so that no new
/// chain gets the places.
pub(super) struct OnPanic<'a, S: Space> {
    pub(super) log: &'a Log<S>,
    pub(super) from: BlockSeq,
}

impl<S: Space> Drop for OnPanic<'_, S> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let mut index = lock(&self.log.index);
        let from = self.from.max(index.flushed.next());
        if index.bring_down(CommitError::Panicked { seq: from }, from) {
            Counters::add(&self.log.counters.downs, 1);
        }
    }
}
