//! How much space an object takes.
//!
//! The tables say it block by block. Counting all of them is slow for a large object, so it is counted once, when
//! it is first asked for, and then kept up to date by the txgs, for as long as the object is open.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use crate::error::Result;
use crate::freeing::bytes;
use crate::handle::Object;
use crate::ids::{DatasetId, ObjectId};
use crate::state::Shared;
use crate::sync::decode_row;
use crate::sync_util::{lock, read};

/// Not counted yet.
const UNKNOWN: i64 = i64::MIN;
/// How often a count is tried again that a txg has overtaken.
const TRIES: usize = 3;

/// Bytes on the vdevs, as far as they were counted.
#[derive(Debug)]
pub(crate) struct Taken {
    bytes: AtomicI64,
    /// Counts changes, so that a count knows whether there were some meanwhile.
    changes: AtomicU64,
}

impl Taken {
    /// Of an object that is new, or was not counted yet.
    pub(crate) fn new(is_new: bool) -> Taken {
        Taken { bytes: AtomicI64::new(if is_new { 0 } else { UNKNOWN }), changes: AtomicU64::new(0) }
    }

    /// A txg changes it. Only the thread that syncs calls this.
    pub(crate) fn change(&self, change: i64) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        let known = self.bytes.load(Ordering::SeqCst);
        if known != UNKNOWN {
            self.bytes.store(known + change, Ordering::SeqCst);
        }
    }
}

impl Shared {
    /// A txg frees blocks of an object, which may be open.
    pub(crate) fn note_freed(&self, (dataset, object): (u64, u64), freed: i64) {
        let namespace = read(&self.namespace);
        let Some(core) = namespace.by_id.get(&dataset) else { return };
        if let Some(core) = lock(&core.objects).get(&ObjectId(object)).and_then(std::sync::Weak::upgrade) {
            core.taken.change(-freed);
        }
    }

    fn count_taken(&self, dataset: DatasetId, object: ObjectId) -> Result<i64> {
        let (snapshot, mut sum) = (self.current(), 0);
        let key = |group| (dataset.0, object.0, group);
        for row in snapshot.extents.range(key(0)..=key(u64::MAX))? {
            let (key, extents) = decode_row(row)?;
            sum += snapshot.alive(key, &extents).map(|(_, extent)| bytes(&extent)).sum::<i64>();
        }
        Ok(sum)
    }
}

impl Object {
    /// Bytes that it takes: on the vdevs as of the last synced txg, and what is unsynced, uncompressed. What
    /// replaces something else counts twice until it has synced.
    ///
    /// # Errors
    /// Those of reading the tables.
    pub fn taken_bytes(&self) -> Result<u64> {
        let unsynced: usize = read(&self.core.contents).layers.iter().map(|layer| layer.blocks.len()).sum();
        let unsynced_bytes = unsynced as u64 * u64::from(self.core.block_bytes);
        let taken = &self.core.taken;
        let mut synced = taken.bytes.load(Ordering::SeqCst);
        for _ in 0..TRIES {
            if synced != UNKNOWN {
                break;
            }
            let changes = taken.changes.load(Ordering::SeqCst);
            let counted = self.shared.count_taken(self.core.dataset, self.core.id);
            let counted = self.shared.explained(counted)?;
            synced = counted;
            let is_current = taken.changes.load(Ordering::SeqCst) == changes;
            if is_current {
                // A txg that changes it from here on finds the count, or leaves it unknown.
                let _ = taken.bytes.compare_exchange(UNKNOWN, counted, Ordering::SeqCst, Ordering::SeqCst);
                if taken.changes.load(Ordering::SeqCst) != changes {
                    taken.bytes.store(UNKNOWN, Ordering::SeqCst);
                }
            }
        }
        Ok(synced.max(0) as u64 + unsynced_bytes)
    }
}
