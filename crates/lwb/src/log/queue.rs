//! Records without a block: a batch of bytes that grows, and is taken as a whole.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::ids::{Lsn, Txg};

/// Maximum number of batches kept for reuse, and the maximum size of a kept one.
const SPARES_MAX: usize = 16;
const SPARE_BYTES_MAX: usize = 1 << 20;

/// A record in a batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) lsn: Lsn,
    pub(super) txg: Txg,
    start: usize,
    pub(super) len: usize,
}

/// Records in the order of their numbers.
#[derive(Debug, Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    pub(super) entries: Vec<Entry>,
}

impl Batch {
    fn push(&mut self, lsn: Lsn, txg: Txg, record: &[u8]) {
        self.entries.push(Entry { lsn, txg, start: self.bytes.len(), len: record.len() });
        self.bytes.extend_from_slice(record);
    }

    pub(super) fn record(&self, entry: &Entry) -> &[u8] {
        &self.bytes[entry.start..entry.start + entry.len]
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
    }
}

/// Records that were appended and are in no block yet.
#[derive(Debug, Default)]
pub(super) struct Queue {
    batch: Arc<Batch>,
    last: Lsn,
    spares: Vec<Arc<Batch>>,
}

/// The batch that is being filled has one owner, the queue.
fn own(batch: &mut Arc<Batch>) -> &mut Batch {
    Arc::get_mut(batch).expect("a batch is shared only after it was taken")
}

impl Queue {
    pub(super) fn push(&mut self, txg: Txg, record: &[u8]) -> Lsn {
        self.last.0 += 1;
        own(&mut self.batch).push(self.last, txg, record);
        self.last
    }

    /// The last record that was appended.
    pub(super) fn last(&self) -> Lsn {
        self.last
    }

    /// Takes all records; returns them and the number of the last record so far.
    pub(super) fn take(&mut self) -> (Arc<Batch>, Lsn) {
        let empty = self.spares.pop().unwrap_or_default();
        (std::mem::replace(&mut self.batch, empty), self.last)
    }

    /// Keeps a batch for reuse if it has no other owner.
    pub(super) fn recycle(&mut self, mut batch: Arc<Batch>) {
        let Some(own) = Arc::get_mut(&mut batch) else { return };
        if self.spares.len() < SPARES_MAX && own.bytes.capacity() <= SPARE_BYTES_MAX {
            own.clear();
            self.spares.push(batch);
        }
    }

    /// Drops records of synced txgs. A commit of them finds that they are durable.
    pub(super) fn prune(&mut self, synced: Txg) {
        if self.batch.entries.iter().any(|entry| entry.txg <= synced) {
            self.put_back(VecDeque::new(), Lsn(0), synced);
        }
    }

    /// Puts taken records that come after `durable` and belong to unsynced txgs back in front of the queue.
    /// Returns the number of the last record that is neither.
    pub(super) fn put_back(&mut self, taken: VecDeque<Arc<Batch>>, durable: Lsn, synced: Txg) -> Lsn {
        let mut kept = Batch::default();
        for batch in taken.iter().chain([&self.batch]) {
            for entry in batch.entries.iter().filter(|entry| entry.lsn > durable && entry.txg > synced) {
                kept.push(entry.lsn, entry.txg, batch.record(entry));
            }
        }
        let first = kept.entries.first().map_or(self.last.0 + 1, |entry| entry.lsn.0);
        self.batch = Arc::new(kept);
        Lsn(first - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lsns(queue: &Queue) -> Vec<u64> {
        queue.batch.entries.iter().map(|entry| entry.lsn.0).collect()
    }

    #[test]
    fn what_is_put_back_stands_before_what_came_later() {
        let mut queue = Queue::default();
        for txg in [5, 6, 5, 6] {
            queue.push(Txg(txg), &[txg as u8]);
        }
        let (taken, last) = queue.take();
        assert_eq!(last, Lsn(4));
        queue.push(Txg(6), b"later");
        assert_eq!(queue.put_back([taken].into(), Lsn(2), Txg(5)), Lsn(3));
        assert_eq!(lsns(&queue), [4, 5]);
        queue.prune(Txg(5));
        assert_eq!(lsns(&queue), [4, 5]);
        assert_eq!(queue.put_back(VecDeque::new(), Lsn(0), Txg(6)), Lsn(5));
        assert_eq!(queue.push(Txg(7), b""), Lsn(6));
    }

    #[test]
    fn batches_are_used_again_unless_somebody_has_them() {
        let mut queue = Queue::default();
        queue.push(Txg(1), b"one");
        let (first, _) = queue.take();
        queue.recycle(first.clone());
        assert!(queue.spares.is_empty());
        queue.recycle(first);
        assert_eq!(queue.spares.len(), 1);
        let _ = queue.take();
        assert!(queue.spares.is_empty());
    }
}
