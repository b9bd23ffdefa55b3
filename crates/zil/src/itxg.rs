//! What is kept of the unsynced txgs: for each an *itxg* with one list of records that keep their place, and
//! one list for each object of those that need not.
//!
//! Order kept: between records of the sync list; between those of one object. A ring of four, by txg: three
//! can be unsynced, so what is found in a place that is needed again has synced.
//!
//! Source: reference of intent log behaviour, section 1 (in-memory queue); zil-pmem thesis, 2.3.3.

use std::collections::BTreeMap;

use crate::ids::{ObjectId, Txg};
use crate::itx::Itx;
use crate::kind::Entry;

const RING: usize = 4;

/// Records of one txg.
#[derive(Debug, Default)]
pub(crate) struct Itxg {
    txg: Txg,
    sync: Vec<Entry>,
    unordered: BTreeMap<ObjectId, Vec<Entry>>,
}

impl Itxg {
    /// Moves what there is of an object behind the sync list; of all objects for [`ObjectId::NONE`].
    fn promote(&mut self, object: ObjectId) {
        if object == ObjectId::NONE {
            let all = std::mem::take(&mut self.unordered);
            self.sync.extend(all.into_values().flatten());
        } else if let Some(entries) = self.unordered.remove(&object) {
            self.sync.extend(entries);
        }
    }
}

/// The unsynced txgs of one dataset.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    ring: [Itxg; RING],
    /// Newest txg of an entry that was taken.
    newest_taken: Txg,
    /// Newest txg of an entry that was taken for a log that is not in use any more.
    left_behind: Txg,
}

impl Lists {
    /// Keeps an itx. Returns what was in its place of a txg that has synced, to be dropped outside of the
    /// lock.
    pub(crate) fn assign(&mut self, txg: Txg, itx: Itx) -> Option<Itxg> {
        if itx.promotes != ObjectId::NONE {
            self.promote(itx.promotes);
        }
        let place = &mut self.ring[txg.0 as usize % RING];
        let old = (place.txg != txg).then(|| std::mem::replace(place, Itxg { txg, ..Itxg::default() }));
        debug_assert!(old.as_ref().is_none_or(|old| old.txg < txg), "a txg that was over long ago");
        let object = itx.object();
        let entry = itx.into_entry(txg);
        if entry.is_sync {
            place.sync.push(entry);
        } else {
            place.unordered.entry(object).or_default().push(entry);
        }
        old
    }

    /// Records of the object keep their place from now on, those so far in the order they came.
    pub(crate) fn promote(&mut self, object: ObjectId) {
        self.ring.iter_mut().for_each(|itxg| itxg.promote(object));
    }

    /// Forgets what need not keep its place of an object that is gone.
    pub(crate) fn forget(&mut self, object: ObjectId) -> Vec<Vec<Entry>> {
        self.ring.iter_mut().filter_map(|itxg| itxg.unordered.remove(&object)).collect()
    }

    /// Takes the commit list for an object: by txg, the sync list with the object's records behind it.
    pub(crate) fn take(&mut self, object: ObjectId, synced: Txg) -> Vec<Entry> {
        let mut taken = Vec::new();
        let mut order: [usize; RING] = std::array::from_fn(|index| index);
        order.sort_unstable_by_key(|&index| self.ring[index].txg);
        for itxg in order {
            let itxg = &mut self.ring[itxg];
            if itxg.txg > synced {
                itxg.promote(object);
                if !itxg.sync.is_empty() {
                    self.newest_taken = self.newest_taken.max(itxg.txg);
                }
                taken.append(&mut itxg.sync);
            }
        }
        taken
    }

    /// Another log takes what is taken from now on.
    pub(crate) fn leave_behind(&mut self) {
        self.left_behind = self.newest_taken;
    }

    /// The txg that a commit has to wait for because a log that is not in use any more may have entries that
    /// it needs, or that what it needs depends on: the newest of all that was taken. `None`: these have
    /// synced.
    pub(crate) fn is_behind(&self, synced: Txg) -> Option<Txg> {
        (self.left_behind > synced).then_some(self.newest_taken)
    }

    /// Takes out what has synced, to be dropped outside of the lock.
    pub(crate) fn detach(&mut self, synced: Txg) -> Vec<Itxg> {
        let has_synced = |itxg: &&mut Itxg| itxg.txg <= synced && itxg.txg > Txg(0);
        self.ring.iter_mut().filter(has_synced).map(std::mem::take).collect()
    }

    /// Whether there are records of txgs after `synced`, or were, for a log that is not in use any more.
    pub(crate) fn has_unsynced(&self, synced: Txg) -> bool {
        let is_left = |itxg: &Itxg| itxg.txg > synced && !(itxg.sync.is_empty() && itxg.unordered.is_empty());
        self.left_behind > synced || self.ring.iter().any(is_left)
    }

    /// Number of records that are kept.
    pub(crate) fn len(&self) -> usize {
        let of = |itxg: &Itxg| itxg.sync.len() + itxg.unordered.values().map(Vec::len).sum::<usize>();
        self.ring.iter().map(of).sum()
    }
}
