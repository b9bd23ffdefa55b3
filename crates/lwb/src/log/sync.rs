//! What each txg does for the log: the header to store, the blocks to free, a new chain after a failure.
//!
//! When the log is down, acknowledged records stay in the old chain until they have synced; only then may a
//! new chain replace it. The new chain begins with every unsynced record, in order, whether it was in a block
//! of the old chain or not: so it is again a prefix of what was appended, on top of a txg that has all
//! records that it lacks.

use std::array;

use fastness_sync::atomic::Ordering;
use fastness_sync::{MutexGuard, lock};

use crate::error::CommitError;
use crate::header::{Chain, Header};
use crate::ids::{Ahead, BlockSeq, Lsn, Txg};
use crate::log::index::{Down, Index, Release, Starting, State};
use crate::log::issuer::Issuer;
use crate::log::predict::block_bytes;
use crate::log::{Counters, Log};
use crate::space::Space;

impl<S: Space> Log<S> {
    /// The header to store with `txg`, whose changes are complete. Late commits may still append records of
    /// it: what they describe is in the txg.
    ///
    /// Call it once for each txg while it is written, in order, and [`synced`](Self::synced) once it is
    /// durable.
    pub fn sync_header(&self, txg: Txg) -> Header {
        let issuer = lock(&self.issuer);
        let mut index = lock(&self.index);
        if index.down.is_some() {
            self.replace(&mut index, txg);
        }
        drop(issuer);
        if let Some(starting) = &index.starting {
            return starting.chain.map_or(Header::None, Header::Logging);
        }
        let (Some(guid), Some(first)) = (index.guid, index.first_needed(txg)) else { return Header::None };
        let (first, first_seq) = (first.extent, first.seq);
        let durable = index.flushed;
        index.release = Some(Release { txg, first: first_seq, durable });
        let ([then @ .., _], _) = index.ahead(first_seq);
        Header::Logging(Chain { guid, first, then, first_seq, durable_seq: durable })
    }

    /// `txg` and its header are durable: frees blocks that no header names any more, and starts using a new
    /// chain.
    pub fn synced(&self, txg: Txg) {
        self.synced.fetch_max(txg.0, Ordering::AcqRel);
        let mut issuer = lock(&self.issuer);
        let mut index = lock(&self.index);
        let mut freed = Vec::new();
        match index.starting.take_if(|starting| starting.txg <= txg) {
            Some(starting) => {
                // Block numbers are never reused: a thread may still have a closed block of the old chain.
                let last = self.last_seq(&index);
                (index.flushed, index.written, index.covered, index.stated) = (last, last, last, last);
                while let Some(extent) = index.pop() {
                    freed.push(extent);
                }
                self.start_chain(&mut issuer, &mut index, starting.chain);
            }
            None => {
                if let Some(release) = index.release.take_if(|release| release.txg <= txg) {
                    while index.blocks.front().is_some_and(|block| block.seq < release.first) {
                        freed.extend(index.pop());
                    }
                    index.stated = index.stated.max(release.durable);
                }
            }
        }
        drop(index);
        lock(&self.queue).prune(txg);
        drop(issuer);
        freed.into_iter().for_each(|extent| self.space.free(extent));
    }

    /// Lets the next txg start a chain, if there is none and the log is not stopped.
    pub fn start(&self) {
        lock(&self.index).is_wanted = true;
    }

    /// Takes the log down, so that its device can be removed or its dataset closed: commits fail, and the
    /// first txg that has everything acknowledged gets [`Header::None`]. Once that has synced, nothing is
    /// allocated.
    ///
    /// Writes in progress still finish, and what they complete is acknowledged.
    pub fn stop(&self) {
        let _issuer = lock(&self.issuer);
        let mut index = lock(&self.index);
        index.is_stopped = true;
        let waits = |state| matches!(state, State::New | State::Opened | State::Closed);
        let first = index.blocks.iter().find(|block| waits(block.state)).map(|block| block.seq);
        let from = first.unwrap_or_else(|| self.last_seq(&index).next());
        if index.bring_down(CommitError::Stopped, from) {
            Counters::add(&self.counters.downs, 1);
        }
    }

    /// Undoes [`stop`](Self::stop): the next txg that allows it starts a new chain.
    pub fn resume(&self) {
        let mut index = lock(&self.index);
        index.is_stopped = false;
        index.is_wanted = true;
    }

    fn last_seq(&self, index: &Index) -> BlockSeq {
        index.blocks.back().map_or(index.flushed, |block| block.seq)
    }

    /// Gives a log that is down a new chain, or none, with `txg`, if nothing of the old one is needed by
    /// then.
    fn replace(&self, index: &mut MutexGuard<'_, Index>, txg: Txg) {
        if let Some(starting) = &mut index.starting {
            // The txg of an earlier call did not become durable.
            starting.txg = txg;
            return;
        }
        let flushed = index.blocks.iter().filter(|block| block.state == State::Flushed);
        let is_needed = flushed.map(|block| block.newest_txg).max().is_some_and(|newest| newest > txg);
        // A write in progress would hit the next user of the space.
        if is_needed || index.in_flight > 0 || index.flushes > 0 {
            return;
        }
        // What is not acknowledged by now never will be; otherwise it would be lost with the old chain.
        let from = index.flushed.next();
        let error = index.down.as_ref().map_or(CommitError::NotStarted, |down| down.error.clone());
        index.bring_down(error, from);
        let is_wanted = index.is_wanted && !index.is_stopped;
        let chain = if is_wanted { self.new_chain(self.last_seq(index).next()) } else { None };
        index.starting = Some(Starting { txg, chain });
    }

    /// A chain that begins with block `first_seq`, if there is space for it.
    fn new_chain(&self, first_seq: BlockSeq) -> Option<Chain> {
        // The size of future bursts is unknown; the part that is not needed is not written.
        let max = self.options.block_bytes_max;
        let mut places = Ahead::default();
        self.allocate_missing(array::from_mut(&mut places[0]), block_bytes(32 << 10, max)).ok()?;
        // Without them the chain continues as far as it can.
        let _ = self.allocate_missing(&mut places[1..], block_bytes(0, max));
        let [Some(first), then @ ..] = places else { return None };
        let durable_seq = BlockSeq(first_seq.0 - 1);
        Some(Chain { guid: (self.options.guid)(), first, then, first_seq, durable_seq })
    }

    /// Starts the new chain. The old one is gone; its blocks have already been removed from the index.
    fn start_chain(&self, issuer: &mut Issuer, index: &mut Index, chain: Option<Chain>) {
        issuer.open = None;
        issuer.guid = chain.map(|chain| chain.guid);
        index.guid = issuer.guid;
        index.release = None;
        let taken = std::mem::take(&mut issuer.taken);
        let durable = Lsn(self.durable.load(Ordering::Acquire));
        let synced = Txg(self.synced.load(Ordering::Acquire));
        let durable = lock(&self.queue).put_back(taken, durable, synced);
        // Under the index lock: a waiter sees both changes or neither.
        self.durable.fetch_max(durable.0, Ordering::AcqRel);
        self.assigned.store(durable.0, Ordering::Release);
        issuer.last_whole = durable;
        let Some(chain) = chain else {
            if let Some(Down { from, .. }) = &mut index.down {
                *from = index.flushed.next();
            }
            return;
        };
        assert_eq!(
            chain.first_seq,
            index.flushed.next(),
            "nobody adds a block to a chain that is to be replaced"
        );
        let before = BlockSeq(chain.first_seq.0 - 1);
        index.push_ahead(before, &chain.places());
        index.note_named(before, &chain.places());
        let pieces = lock(&self.spares).pieces();
        issuer.open(chain.first_seq, chain.first, pieces);
        index.down = index.is_stopped.then_some(Down { error: CommitError::Stopped, from: chain.first_seq });
    }
}
