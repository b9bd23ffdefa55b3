//! The blocks of the chain and their states: which have waiters, and which are acknowledged.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastness_sync::{Condvar, now};

use crate::error::CommitError;
use crate::format::{BLOCK_HEADER_BYTES, capacity};
use crate::header::Chain;
use crate::ids::{Ahead, BlockSeq, Extent, LogGuid, Lsn, Txg};
use crate::log::pace::{Gather, Pace};
use crate::log::predict::Latency;

/// State of a block; the diagram is in `log`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    New,
    Opened,
    Closed,
    Issued,
    Written,
    Flushed,
}

/// A block of the chain.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) seq: BlockSeq,
    pub(super) extent: Extent,
    pub(super) state: State,
    /// First record with a piece in the block; `u64::MAX` without one.
    pub(super) first: Lsn,
    /// Last record that ends in the block or before.
    pub(super) last_whole: Lsn,
    pub(super) newest_txg: Txg,
    /// It has no records; it only reports that earlier ones are durable.
    pub(super) is_witness: bool,
    /// What names this block on the medium names the next one as well: without this block, an import still
    /// finds those that follow. Not so if there was no space for the next one yet.
    pub(super) is_bridged: bool,
    /// The last block that was durable when this one was filled, as recorded in it.
    pub(super) says: BlockSeq,
    pub(super) issued_at: Option<Instant>,
    /// Wakes the threads that wait for this block.
    pub(super) wake: Arc<Condvar>,
    pub(super) waiters: u32,
}

/// Why commits fail, and from which block on.
#[derive(Debug)]
pub(super) struct Down {
    pub(super) error: CommitError,
    /// This block and all after it will not be acknowledged.
    pub(super) from: BlockSeq,
}

/// What happens to the log when a txg has synced.
#[derive(Debug)]
pub(super) struct Starting {
    pub(super) txg: Txg,
    /// The new chain; `None` for none.
    pub(super) chain: Option<Chain>,
}

/// What a txg does for the chain whose header is stored with it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Release {
    pub(super) txg: Txg,
    /// Blocks before this one may be freed when the txg has synced.
    pub(super) first: BlockSeq,
    /// The last durable block according to the header.
    pub(super) durable: BlockSeq,
}

#[derive(Debug)]
pub(super) struct Index {
    pub(super) guid: Option<LogGuid>,
    /// In the order of the chain, without a gap.
    pub(super) blocks: VecDeque<Block>,
    /// All blocks up to this one are flushed.
    pub(super) flushed: BlockSeq,
    /// All blocks up to this one are written.
    pub(super) written: BlockSeq,
    /// A later block on the medium, or a header, records that all blocks up to this one are durable.
    pub(super) stated: BlockSeq,
    /// The value of `flushed` at the last check whether the log is idle.
    pub(super) seen: BlockSeq,
    /// A flush in progress, or one that has ended, serves all blocks up to this one.
    pub(super) covered: BlockSeq,
    /// Flushes in progress.
    pub(super) flushes: u32,
    /// How many flushes have begun.
    pub(super) begun: u64,
    pub(super) pace: Pace,
    /// The next flush waits for threads that the last one woke.
    pub(super) gather: Option<Gather>,
    /// Writes in progress.
    pub(super) in_flight: u32,
    pub(super) down: Option<Down>,
    /// A chain is wanted.
    pub(super) is_wanted: bool,
    pub(super) is_stopped: bool,
    pub(super) starting: Option<Starting>,
    pub(super) release: Option<Release>,
    pub(super) latency: Latency,
    /// Devices of a flush, for reuse.
    pub(super) devices: Vec<u32>,
    spare_wakes: Vec<Arc<Condvar>>,
}

impl Index {
    pub(super) fn new(flushes_max: u32) -> Index {
        Index {
            guid: None,
            blocks: VecDeque::new(),
            flushed: BlockSeq(0),
            written: BlockSeq(0),
            stated: BlockSeq(0),
            seen: BlockSeq(0),
            covered: BlockSeq(0),
            flushes: 0,
            begun: 0,
            pace: Pace::new(flushes_max),
            gather: None,
            in_flight: 0,
            down: Some(Down { error: CommitError::NotStarted, from: BlockSeq(1) }),
            is_wanted: false,
            is_stopped: false,
            starting: None,
            release: None,
            latency: Latency::default(),
            devices: Vec::new(),
            spare_wakes: Vec::new(),
        }
    }

    /// Adds a block after the last.
    fn push(&mut self, seq: BlockSeq, extent: Extent) {
        self.blocks.push_back(Block {
            seq,
            extent,
            state: State::New,
            first: Lsn(u64::MAX),
            last_whole: Lsn(0),
            newest_txg: Txg(0),
            is_witness: false,
            is_bridged: false,
            says: BlockSeq(0),
            issued_at: None,
            wake: self.spare_wakes.pop().unwrap_or_default(),
            waiters: 0,
        });
    }

    /// Places of the blocks after `seq`, as far as they are allocated, and how many bytes of records fit into
    /// them.
    pub(super) fn ahead(&mut self, seq: BlockSeq) -> (Ahead, usize) {
        let (mut places, mut room, mut seq) = (Ahead::default(), 0, seq);
        for place in &mut places {
            seq = seq.next();
            *place = self.block(seq).map(|block| block.extent);
            room += place.map_or(0, |extent| capacity(extent.len_bytes) - BLOCK_HEADER_BYTES);
        }
        (places, room)
    }

    /// Adds the blocks after `seq` that are not in the index yet.
    pub(super) fn push_ahead(&mut self, seq: BlockSeq, places: &Ahead) {
        let mut seq = seq;
        for extent in places.iter().flatten() {
            seq = seq.next();
            if self.block(seq).is_none() {
                self.push(seq, *extent);
            }
        }
    }

    /// Block `seq` names these, or the header does if they are the first ones.
    pub(super) fn note_named(&mut self, seq: BlockSeq, places: &Ahead) {
        if let Some(block) = self.block(seq.next()) {
            block.is_bridged = places[1].is_some();
        }
    }

    /// Takes the first block off.
    pub(super) fn pop(&mut self) -> Option<Extent> {
        let block = self.blocks.pop_front()?;
        // A waiter that has not run yet still holds the old one.
        if Arc::strong_count(&block.wake) == 1 {
            self.spare_wakes.push(block.wake);
        }
        Some(block.extent)
    }

    pub(super) fn block(&mut self, seq: BlockSeq) -> Option<&mut Block> {
        let at = seq.0.checked_sub(self.blocks.front()?.seq.0)?;
        self.blocks.get_mut(usize::try_from(at).ok()?)
    }

    /// The block with the last piece of any record up to `upto`: a commit waits for it and all blocks before
    /// it.
    pub(super) fn target(&mut self, upto: Lsn) -> Option<&mut Block> {
        let behind = self.blocks.partition_point(|block| block.first <= upto);
        self.blocks.get_mut(behind.checked_sub(1)?)
    }

    /// The first block that is still needed once `txg` has synced. A chain always has one: the first that is
    /// not obsolete, or the open end; or, while I/O in progress keeps a chain without an open end from being
    /// replaced, its last block, obsolete or not.
    pub(super) fn first_needed(&self, txg: Txg) -> Option<&Block> {
        let is_obsolete = |block: &&Block| block.state == State::Flushed && block.newest_txg <= txg;
        self.blocks.iter().find(|block| !is_obsolete(block)).or(self.blocks.back())
    }

    /// Whether records of other threads are in progress before this block.
    pub(super) fn has_predecessors(&self, seq: BlockSeq) -> bool {
        let before = self.blocks.iter().skip_while(|block| block.seq <= self.flushed);
        before.take_while(|block| block.seq < seq).any(|block| !block.is_witness)
    }

    /// Whether a block will not be acknowledged.
    pub(super) fn is_dead(&self, seq: BlockSeq) -> bool {
        self.down.as_ref().is_some_and(|down| seq >= down.from)
    }

    /// A block was written: all blocks written without a gap can now be flushed.
    pub(super) fn note_written(&mut self, seq: BlockSeq) {
        if let Some(block) = self.block(seq) {
            block.state = State::Written;
            let says = block.says;
            self.stated = self.stated.max(says);
        }
        loop {
            let next = self.written.next();
            if self.block(next).is_none_or(|block| block.state != State::Written) {
                return;
            }
            self.written = next;
        }
    }

    /// The last block that a flush now would acknowledge.
    pub(super) fn flushable(&self) -> BlockSeq {
        match &self.down {
            Some(down) => self.written.min(BlockSeq(down.from.0 - 1)),
            None => self.written,
        }
    }

    /// Whether a waiter of a block should flush: it is written, no flush serves it yet, and there are not too
    /// many flushes.
    pub(super) fn is_to_flush(&self, seq: BlockSeq) -> bool {
        seq > self.covered && seq <= self.flushable() && self.flushes < self.pace.flushes()
    }

    /// How long the next flush has to wait for threads that are about to commit; `None` if there are none, or
    /// they are here. `commits`: the counter of commits.
    pub(super) fn gathers(&self, commits: u64) -> Option<Duration> {
        let gather = self.gather?;
        let rest = gather.until.saturating_duration_since(now());
        if rest.is_zero() || commits >= gather.commits {
            return None;
        }
        Some(rest)
    }

    /// How long an open block waits for records of others.
    pub(super) fn timeout(&self, percent: u32) -> Duration {
        let is_flush_free = self.pace.is_overlapping() && self.flushes < self.pace.flushes();
        if is_flush_free { Duration::ZERO } else { self.latency.timeout(percent) }
    }

    /// The block that takes records, if it has some.
    pub(super) fn opened(&self) -> Option<BlockSeq> {
        self.blocks.iter().rev().find(|block| block.state == State::Opened).map(|block| block.seq)
    }

    /// Wakes a waiter to flush what can be flushed, if there is one.
    pub(super) fn nudge(&mut self) {
        if self.flushes >= self.pace.flushes() {
            return;
        }
        let (from, to) = (self.covered.0 + 1, self.flushable().0);
        // The last one with a waiter: its flush serves all earlier blocks; an earlier waiter's would leave it
        // out.
        let waited = (from..=to).rev().find_map(|seq| {
            self.block(BlockSeq(seq)).filter(|block| block.waiters > 0).map(|block| Arc::clone(&block.wake))
        });
        if let Some(wake) = waited {
            wake.notify_one();
        }
    }

    /// Records that nothing from block `from` on will be acknowledged. The first error counts; returns
    /// whether this is it.
    pub(super) fn bring_down(&mut self, error: CommitError, from: BlockSeq) -> bool {
        let is_first = self.down.is_none();
        let down = self.down.get_or_insert(Down { error, from });
        down.from = down.from.min(from);
        let from = down.from;
        for block in self.blocks.iter().filter(|block| block.seq >= from && block.waiters > 0) {
            block.wake.notify_all();
        }
        self.nudge();
        is_first
    }
}
