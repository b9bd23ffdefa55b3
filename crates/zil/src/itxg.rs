//! What is kept of the unsynced txgs: for each an *itxg*, with one list of records that keep their place, and
//! one list for each object of those that need not.
//!
//! Order is kept between records of the sync list, and between those of one object. The txgs form a ring of
//! four: three can be unsynced, so whatever occupies a slot that is needed again has synced.
//!
//! Source: reference of intent log behaviour, section 1 (in-memory queue); zil-pmem thesis, 2.3.3.

use std::collections::BTreeMap;

use crate::itx::Itx;
use crate::kind::{Entry, Payload};
use fastness_base::{ObjectId, Txg};

const RING: usize = 4;

/// Records of one txg.
#[derive(Debug, Default)]
pub(crate) struct Itxg {
    txg: Txg,
    sync: Vec<Entry>,
    unordered: BTreeMap<ObjectId, Vec<Entry>>,
    /// What is to be read back for entries of `sync`: first byte, and how many.
    read_back: BTreeMap<ObjectId, Vec<(u64, u64)>>,
}

impl Itxg {
    /// Moves the records of an object after the sync list; of all objects for [`ObjectId::NONE`].
    fn promote(&mut self, object: ObjectId) {
        let entries = if object == ObjectId::NONE {
            let all = std::mem::take(&mut self.unordered);
            all.into_values().flatten().collect()
        } else {
            self.unordered.remove(&object).unwrap_or_default()
        };
        entries.into_iter().for_each(|entry| self.keep(entry));
    }

    /// Adds an entry to the sync list.
    fn keep(&mut self, entry: Entry) {
        if let Payload::NeedCopy { offset, len_bytes } = entry.payload {
            self.read_back.entry(entry.object).or_default().push((offset, len_bytes));
        }
        self.sync.push(entry);
    }

    /// Takes everything that a commit of an object needs.
    fn take(&mut self, object: ObjectId) -> Vec<Entry> {
        let mut taken = std::mem::take(&mut self.sync);
        self.read_back.clear();
        if object == ObjectId::NONE {
            taken.extend(std::mem::take(&mut self.unordered).into_values().flatten());
        } else {
            taken.extend(self.unordered.remove(&object).into_iter().flatten());
        }
        taken
    }
}

/// The unsynced txgs of one dataset.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    ring: [Itxg; RING],
    /// Newest txg of an entry that was taken.
    newest_taken: Txg,
    /// Newest txg of an entry that was taken for a log no longer in use.
    left_behind: Txg,
}

impl Lists {
    /// Keeps an itx. Returns synced records that occupied its slot, to be dropped outside the lock.
    pub(crate) fn assign(&mut self, txg: Txg, itx: Itx) -> Option<Itxg> {
        for object in itx.promotes.into_iter().filter(|object| *object != ObjectId::NONE) {
            self.promote(object);
        }
        let place = &mut self.ring[txg.0 as usize % RING];
        let old = (place.txg != txg).then(|| std::mem::replace(place, Itxg { txg, ..Itxg::default() }));
        debug_assert!(old.as_ref().is_none_or(|old| old.txg < txg), "a txg that was over long ago");
        let object = itx.object();
        let entry = itx.into_entry(txg);
        if entry.is_sync {
            place.keep(entry);
        } else {
            place.unordered.entry(object).or_default().push(entry);
        }
        old
    }

    /// From now on the object's records keep their place; those so far in the order they came.
    pub(crate) fn promote(&mut self, object: ObjectId) {
        self.ring.iter_mut().for_each(|itxg| itxg.promote(object));
    }

    /// Drops the records of a deleted object that need not keep their place.
    pub(crate) fn forget(&mut self, object: ObjectId) -> Vec<Vec<Entry>> {
        self.ring.iter_mut().filter_map(|itxg| itxg.unordered.remove(&object)).collect()
    }

    /// Takes the commit list for an object: by txg, the sync list followed by the object's records.
    pub(crate) fn take(&mut self, object: ObjectId, synced: Txg) -> Vec<Entry> {
        let mut taken = Vec::new();
        let mut order: [usize; RING] = std::array::from_fn(|index| index);
        order.sort_unstable_by_key(|&index| self.ring[index].txg);
        for itxg in order {
            let itxg = &mut self.ring[itxg];
            if itxg.txg > synced {
                let of_txg = itxg.take(object);
                if !of_txg.is_empty() {
                    self.newest_taken = self.newest_taken.max(itxg.txg);
                }
                taken.extend(of_txg);
            }
        }
        taken
    }

    /// What records that keep their place say of an object's bytes, and the newest txg of these.
    pub(crate) fn read_back(&self, object: ObjectId, synced: Txg) -> (Txg, Vec<(u64, u64)>) {
        let with_some = self.ring.iter().filter(|itxg| itxg.txg > synced);
        let of = with_some.filter_map(|itxg| Some((itxg.txg, itxg.read_back.get(&object)?)));
        of.fold((Txg(0), Vec::new()), |(newest, mut ranges), (txg, more)| {
            ranges.extend(more);
            (newest.max(txg), ranges)
        })
    }

    /// What is taken from now on goes to another log.
    pub(crate) fn leave_behind(&mut self) {
        self.left_behind = self.newest_taken;
    }

    /// The txg that a commit must wait for because a log no longer in use may have entries that it needs, or
    /// that what it needs depends on: the newest txg of everything taken. `None`: these have synced.
    pub(crate) fn is_behind(&self, synced: Txg) -> Option<Txg> {
        (self.left_behind > synced).then_some(self.newest_taken)
    }

    /// Whether a commit of an object would have something to take, or to wait for. It may say so of what has
    /// synced and was not [detached](Self::detach) yet.
    pub(crate) fn needs(&self, object: ObjectId) -> bool {
        let has = |itxg: &Itxg| !itxg.sync.is_empty() || itxg.unordered.contains_key(&object);
        self.left_behind > Txg(0) || self.ring.iter().any(has)
    }

    /// Removes what has synced, to be dropped outside the lock.
    pub(crate) fn detach(&mut self, synced: Txg) -> Vec<Itxg> {
        if self.left_behind <= synced {
            self.left_behind = Txg(0);
        }
        let has_synced = |itxg: &&mut Itxg| itxg.txg <= synced && itxg.txg > Txg(0);
        self.ring.iter_mut().filter(has_synced).map(std::mem::take).collect()
    }

    /// Whether there are records of txgs after `synced`, or were, for a log no longer in use.
    pub(crate) fn has_unsynced(&self, synced: Txg) -> bool {
        let is_left = |itxg: &Itxg| itxg.txg > synced && !(itxg.sync.is_empty() && itxg.unordered.is_empty());
        self.left_behind > synced || self.ring.iter().any(is_left)
    }

    /// Number of records kept.
    pub(crate) fn len(&self) -> usize {
        let of = |itxg: &Itxg| itxg.sync.len() + itxg.unordered.values().map(Vec::len).sum::<usize>();
        self.ring.iter().map(of).sum()
    }
}
