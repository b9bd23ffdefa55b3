//! Assigns records to blocks, one by one: the serial part of a commit.
//!
//! Only sizes matter here. The result is a list of pieces for each block; copying happens without the lock.

use std::collections::VecDeque;
use std::sync::Arc;

use fastness_sync::atomic::Ordering;
use fastness_sync::lock;

use crate::error::CommitError;
use crate::format::{BLOCK_HEADER_BYTES, PIECE_HEADER_BYTES, capacity, padded};
use crate::ids::{Ahead, BlockSeq, Extent, LogGuid, Lsn, Txg};
use crate::log::index::{Index, State};
use crate::log::predict::{Bursts, block_bytes};
use crate::log::queue::Batch;
use crate::log::{Counters, Log};
use crate::space::{Space, SpaceError, UNIT_BYTES};

/// A record is not split to fill less space than this, unless the rest of it fits there: headers would take
/// more space than data.
const SPLIT_BYTES_MIN: usize = 512;

/// A piece of a record, by reference.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) batch: Arc<Batch>,
    pub(super) entry: usize,
    pub(super) from: usize,
    pub(super) len: usize,
}

/// The block that takes records.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) seq: BlockSeq,
    extent: Extent,
    used: usize,
    pieces: Vec<Piece>,
    newest_txg: Txg,
    first: Lsn,
}

/// A block that takes no more records and has to be written.
#[derive(Debug)]
pub(super) struct Closed {
    pub(super) guid: LogGuid,
    pub(super) seq: BlockSeq,
    pub(super) extent: Extent,
    pub(super) next: Ahead,
    pub(super) used: usize,
    pub(super) pieces: Vec<Piece>,
    pub(super) newest_txg: Txg,
}

/// What the issuer lock protects.
#[derive(Debug)]
pub(super) struct Issuer {
    pub(super) guid: Option<LogGuid>,
    pub(super) open: Option<Open>,
    /// Batches with records that may not be durable. They are kept in case the chain fails.
    pub(super) taken: VecDeque<Arc<Batch>>,
    /// The last record that is completely in blocks.
    pub(super) last_whole: Lsn,
    pub(super) bursts: Bursts,
}

impl Issuer {
    pub(super) fn new() -> Issuer {
        Issuer {
            guid: None,
            open: None,
            taken: VecDeque::new(),
            last_whole: Lsn(0),
            bursts: Bursts::default(),
        }
    }

    pub(super) fn open(&mut self, seq: BlockSeq, extent: Extent, pieces: Vec<Piece>) {
        self.open = Some(Open {
            seq,
            extent,
            used: BLOCK_HEADER_BYTES,
            pieces,
            newest_txg: Txg(0),
            first: Lsn(u64::MAX),
        });
    }
}

impl Open {
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// How much of `len` bytes of a record the block takes; `None`: nothing.
    fn takes(&self, len: usize) -> Option<usize> {
        let room = capacity(self.extent.len_bytes) - self.used;
        if padded(len) <= room {
            return Some(len);
        }
        // What the headers leave, without padding in the middle of a record.
        let part = room.saturating_sub(PIECE_HEADER_BYTES) & !7;
        (part >= SPLIT_BYTES_MIN).then_some(part)
    }
}

impl<S: Space> Log<S> {
    /// Assigns all queued records to blocks. Closed blocks go to `work`; the caller must write them.
    pub(super) fn assign(&self, issuer: &mut Issuer, work: &mut Vec<Closed>) {
        {
            let index = lock(&self.index);
            if index.down.is_some() {
                return;
            }
            let is_shared = issuer.open.as_ref().is_some_and(|open| !open.is_empty());
            let has_predecessors =
                || issuer.open.as_ref().is_some_and(|open| index.has_predecessors(open.seq));
            let meets = is_shared || has_predecessors();
            issuer.bursts.commit(meets);
        }
        let (batch, last) = {
            let mut queue = lock(&self.queue);
            let durable = Lsn(self.durable.load(Ordering::Acquire));
            while issuer.taken.front().is_some_and(|batch| is_durable(batch, durable)) {
                queue.recycle(issuer.taken.pop_front().expect("looked at it"));
            }
            queue.take()
        };
        if !batch.entries.is_empty() {
            issuer.taken.push_back(Arc::clone(&batch));
        }
        let mut following: usize = batch.entries.iter().map(|entry| padded(entry.len)).sum();
        for (at, entry) in batch.entries.iter().enumerate() {
            following -= padded(entry.len);
            // What has synced in the meantime need not be logged.
            let is_obsolete = entry.txg.0 <= self.synced.load(Ordering::Acquire);
            if !is_obsolete && !self.assign_record(issuer, &batch, at, following, work) {
                // The earlier records are in the last existing block.
                let _index = lock(&self.index);
                self.assigned.fetch_max(issuer.last_whole.0, Ordering::AcqRel);
                return;
            }
        }
        if issuer.open.as_ref().is_some_and(|open| !open.is_empty()) && !issuer.bursts.is_parallel() {
            issuer.bursts.end();
            self.close(issuer, 0, work);
        }
        let mut index = lock(&self.index);
        if let Some(open) = &issuer.open {
            publish(open, issuer.last_whole, &mut index);
        }
        self.assigned.store(last.0, Ordering::Release);
    }

    /// Assigns one record to as many blocks as it needs; `following` bytes of records follow. `false`: no
    /// space.
    fn assign_record(
        &self,
        issuer: &mut Issuer,
        batch: &Arc<Batch>,
        at: usize,
        following: usize,
        work: &mut Vec<Closed>,
    ) -> bool {
        let entry = batch.entries[at];
        let mut from = 0;
        loop {
            let Some(open) = &mut issuer.open else { return false };
            let rest = entry.len - from;
            if let Some(len) = open.takes(rest) {
                open.pieces.push(Piece { batch: Arc::clone(batch), entry: at, from, len });
                open.used += padded(len);
                open.newest_txg = open.newest_txg.max(entry.txg);
                open.first = open.first.min(entry.lsn);
                issuer.bursts.note(padded(len));
                from += len;
                if from == entry.len {
                    issuer.last_whole = entry.lsn;
                    return true;
                }
            }
            self.close(issuer, padded(entry.len - from) + following, work);
        }
    }

    /// Closes the open block and opens the next one. `following` bytes will go into that at once, 0 if
    /// unknown.
    ///
    /// A block names the next [`AHEAD`](crate::AHEAD) blocks, so one more gets a place now. If there is no
    /// space, the chain continues as far as it has places; it ends with the last one, and the log is down for
    /// everything after it.
    pub(super) fn close(&self, issuer: &mut Issuer, following: usize, work: &mut Vec<Closed>) {
        let open = issuer.open.take().expect("a block that is open");
        let max = self.options.block_bytes_max;
        // What fits into blocks that have places needs no space in the new one. Only the used part is
        // written, so a block that is too long costs only space, until its txg has synced.
        let (mut next, room) = lock(&self.index).ahead(open.seq);
        let wanted = block_bytes(following.saturating_sub(room), max).max(issuer.bursts.predict(max));
        let refused = self.allocate_missing(&mut next, wanted).err();
        let mut index = lock(&self.index);
        publish(&open, issuer.last_whole, &mut index);
        if let Some(block) = index.block(open.seq) {
            block.state = State::Closed;
            if open.is_empty() {
                // It has no waiters; a thread that waits for a later record waits for a later block.
                (block.first, block.last_whole) = (issuer.last_whole.next(), issuer.last_whole);
                block.is_witness = true;
            }
        }
        index.push_ahead(open.seq, &next);
        index.note_named(open.seq, &next);
        if let Some(extent) = next[0] {
            let pieces = lock(&self.spares).pieces();
            issuer.open(open.seq.next(), extent, pieces);
        } else if let Some(error) = refused
            && index.bring_down(CommitError::NoSpace(error), open.seq.next())
        {
            Counters::add(&self.counters.downs, 1);
        }
        let Open { seq, extent, used, pieces, newest_txg, .. } = open;
        let guid = issuer.guid.expect("a chain with blocks has a name");
        work.push(Closed { guid, seq, extent, next, used, pieces, newest_txg });
    }

    /// Allocates the blocks that have no place yet, in order.
    pub(super) fn allocate_missing(
        &self,
        next: &mut [Option<Extent>],
        wanted: u32,
    ) -> Result<(), SpaceError> {
        for place in next.iter_mut().filter(|place| place.is_none()) {
            *place = Some(self.allocate(wanted)?);
        }
        Ok(())
    }

    /// Allocates a block of `wanted` bytes, or a smaller one if that fails.
    fn allocate(&self, wanted: u32) -> Result<Extent, SpaceError> {
        let mut len_bytes = wanted;
        loop {
            match self.space.allocate(len_bytes) {
                Ok(place) => return Ok(Extent { place, len_bytes }),
                Err(error) if len_bytes == UNIT_BYTES => return Err(error),
                Err(_) => {
                    len_bytes = (len_bytes / 2).next_multiple_of(UNIT_BYTES).min(len_bytes - UNIT_BYTES);
                }
            }
        }
    }
}

/// Records in the index what is in the open block.
fn publish(open: &Open, last_whole: Lsn, index: &mut Index) {
    if let Some(block) = index.block(open.seq).filter(|_| !open.is_empty()) {
        block.state = State::Opened;
        (block.first, block.last_whole, block.newest_txg) = (open.first, last_whole, open.newest_txg);
    }
}

fn is_durable(batch: &Batch, durable: Lsn) -> bool {
    batch.entries.last().is_none_or(|entry| entry.lsn <= durable)
}
