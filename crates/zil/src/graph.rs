//! What a commit list depends on, and what may be written in parallel.
//!
//! Entries are numbered in the order of the commit list. An entry *depends* on the last earlier entry of each
//! object that it touches, and so on all earlier ones of those objects. It is *ready* when none of them is
//! left in the graph; ready entries may be written in parallel. An entry leaves when it is durable.
//!
//! A commit needs the entries with `is_sync`, those of its object, and what these depend on. Because a
//! dependency has the smaller number, the first of them that is left is ready or being written: a commit that
//! needs it writes it or waits for a thread that is awake, and no cycle can arise.
//!
//! Where entries are appended to one chain (kind lwb), read *appended* for *durable* above: a chain has no
//! record without those before it. So a thread may take entries that depend on each other, and append them in
//! order.
//!
//! This file only decides; locks, threads and media are the kind's. Why replay is right: `docs/adr`.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::hash::BuildHasherDefault;

use crate::kind::{Entry, Payload};
use crate::kind::{KEYS_MAX, Keys};
use fastness_base::{NumberHasher, ObjectId, Txg};

/// How far ahead a commit searches for something that it can write itself.
const WINDOW: usize = 64;
/// Most bytes that one thread takes to append before waiting threads can continue.
pub(crate) const RUN_BYTES: u64 = 1 << 20;
/// Most objects of one generation that are remembered; after that another generation starts.
const TOUCHED_MAX: usize = 4096;

#[derive(Debug)]
struct Node {
    txg: Txg,
    object: ObjectId,
    keys: Keys,
    /// The last earlier entry of each key; 0 if there was none.
    after: [u64; KEYS_MAX],
    is_sync: bool,
    /// None while it is being written.
    payload: Option<Payload>,
}

/// An entry that was taken to be written.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) number: u64,
    pub(crate) txg: Txg,
    pub(crate) object: ObjectId,
    pub(crate) keys: Keys,
    pub(crate) payload: Payload,
}

/// Entries that are not durable yet.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    /// Number of the last entry that was added.
    last_number: u64,
    nodes: BTreeMap<u64, Node>,
    /// Numbers of those with `is_sync`.
    sync: BTreeSet<u64>,
    last_of: HashMap<ObjectId, u64, BuildHasherDefault<NumberHasher>>,
    /// Objects with an entry in the current generation.
    touched: HashSet<ObjectId, BuildHasherDefault<NumberHasher>>,
}

fn used(keys: &Keys) -> impl Iterator<Item = (usize, ObjectId)> + '_ {
    keys.iter().copied().enumerate().filter(|(_, key)| *key != ObjectId::NONE)
}

impl Graph {
    /// Adds an entry after all others.
    pub(crate) fn add(&mut self, entry: Entry) {
        self.last_number += 1;
        let number = self.last_number;
        let Entry { txg, object, keys, is_sync, payload } = entry;
        let mut after = [0; KEYS_MAX];
        for (index, key) in used(&keys) {
            let before = self.last_of.insert(key, number).unwrap_or(0);
            // An object that is named twice must not make an entry wait for itself.
            after[index] = if before == number { 0 } else { before };
        }
        if is_sync {
            self.sync.insert(number);
        }
        self.nodes.insert(number, Node { txg, object, keys, after, is_sync, payload: Some(payload) });
    }

    /// Number of the last entry that was added.
    pub(crate) fn last_number(&self) -> u64 {
        self.last_number
    }

    /// The entries up to `horizon` that a commit of `object` needs, in order.
    pub(crate) fn needed(&self, object: ObjectId, horizon: u64) -> VecDeque<u64> {
        if object == ObjectId::NONE {
            return self.nodes.range(..=horizon).map(|(number, _)| *number).collect();
        }
        let mut stack: Vec<u64> = self.sync.range(..=horizon).copied().collect();
        stack.extend(self.last_before(object, horizon));
        let mut found = BTreeSet::new();
        while let Some(number) = stack.pop() {
            if let Some(node) = self.nodes.get(&number)
                && found.insert(number)
            {
                stack.extend(node.after.iter().filter(|&&before| before > 0));
            }
        }
        found.into_iter().collect()
    }

    /// Whether a commit of `object` would have something to write, or to wait for.
    pub(crate) fn needs(&self, object: ObjectId) -> bool {
        !self.sync.is_empty() || self.last_of.contains_key(&object)
    }

    /// The last entry of an object up to `horizon`.
    fn last_before(&self, object: ObjectId, horizon: u64) -> Option<u64> {
        let mut number = *self.last_of.get(&object)?;
        while number > horizon {
            let node = self.nodes.get(&number)?;
            let (index, _) = used(&node.keys).find(|(_, key)| *key == object)?;
            number = node.after[index];
        }
        Some(number)
    }

    /// Drops durable entries from the front of `needed`.
    pub(crate) fn trim(&self, needed: &mut VecDeque<u64>) {
        while needed.front().is_some_and(|number| !self.nodes.contains_key(number)) {
            needed.pop_front();
        }
    }

    /// Takes the first ready entry of `needed`, to write it.
    pub(crate) fn begin(&mut self, needed: &VecDeque<u64>) -> Option<Job> {
        let is_ready = |number: &&u64| {
            self.nodes.get(number).is_some_and(|node| {
                node.payload.is_some() && node.after.iter().all(|before| !self.nodes.contains_key(before))
            })
        };
        let number = *needed.iter().take(WINDOW).find(is_ready)?;
        Some(self.take(number))
    }

    fn take(&mut self, number: u64) -> Job {
        let node = self.nodes.get_mut(&number).expect("it was just there");
        let payload = node.payload.take().expect("it is ready");
        Job { number, txg: node.txg, object: node.object, keys: node.keys, payload }
    }

    /// Takes entries of `needed`, about `run_bytes` at most, to append them to one chain in this order:
    /// everything that each depends on has left, or comes before it in the result. Empty: other threads are
    /// appending what these depend on.
    pub(crate) fn begin_run(&mut self, needed: &VecDeque<u64>, run_bytes: u64) -> Vec<Job> {
        let mut run: Vec<Job> = Vec::new();
        let mut bytes = 0;
        for &number in needed.iter().take(WINDOW) {
            let Some(node) = self.nodes.get(&number) else { continue };
            let has_place = |before: &u64| {
                !self.nodes.contains_key(before) || run.binary_search_by_key(before, |job| job.number).is_ok()
            };
            if node.payload.is_none() || !node.after.iter().all(has_place) {
                continue;
            }
            let job = self.take(number);
            bytes += match &job.payload {
                Payload::Record(record) => record.len() as u64,
                Payload::NeedCopy { len_bytes, .. } => *len_bytes,
                Payload::Written => 0,
            };
            run.push(job);
            if bytes >= run_bytes {
                break;
            }
        }
        run
    }

    /// Notes that a record of these objects goes into the current generation. True if a new generation must
    /// be started first: one of the objects has a record in the current one.
    pub(crate) fn enter(&mut self, keys: &Keys) -> bool {
        let is_touched = used(keys).any(|(_, key)| self.touched.contains(&key));
        let starts = is_touched || self.touched.len() >= TOUCHED_MAX;
        if starts {
            self.touched.clear();
        }
        self.touched.extend(used(keys).map(|(_, key)| key));
        starts
    }

    /// As [`enter`](Self::enter), for another record of an entry, which does not depend on the ones before.
    pub(crate) fn enter_again(&mut self, keys: &Keys) {
        self.touched.extend(used(keys).map(|(_, key)| key));
    }

    /// An entry is durable.
    pub(crate) fn finish(&mut self, number: u64) {
        let Some(node) = self.nodes.remove(&number) else { return };
        if node.is_sync {
            self.sync.remove(&number);
        }
        for (_, key) in used(&node.keys) {
            if self.last_of.get(&key) == Some(&number) {
                self.last_of.remove(&key);
            }
        }
    }

    /// An entry could not be written: it is ready again.
    pub(crate) fn put_back(&mut self, job: Job) {
        if let Some(node) = self.nodes.get_mut(&job.number) {
            node.payload = Some(job.payload);
        }
    }

    /// Everything of a txg and of older ones is durable elsewhere. Entries that are being written right now
    /// stay until that is done.
    pub(crate) fn forget_synced(&mut self, synced: Txg) {
        let is_over = |node: &Node| node.txg <= synced && node.payload.is_some();
        let over: Vec<u64> =
            self.nodes.iter().filter(|(_, node)| is_over(node)).map(|(number, _)| *number).collect();
        over.into_iter().for_each(|number| self.finish(number));
    }

    /// The newest txg of the entries of `needed` that are left.
    pub(crate) fn newest_txg(&self, needed: &VecDeque<u64>) -> Option<Txg> {
        needed.iter().filter_map(|number| self.nodes.get(number)).map(|node| node.txg).max()
    }

    /// Entries that are not durable yet.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }
}

#[cfg(test)]
mod tests;
