//! Filling and writing closed blocks: the parallel part of a commit, without a lock.

use fastness_blkdev::AlignedBuf;
use fastness_sync::{lock, now};

use crate::error::CommitError;
use crate::format::{BlockHeader, Contents, PieceHeader, Tags};
use crate::ids::{BlockSeq, Lsn, Place};
use crate::log::index::State;
use crate::log::issuer::{Closed, Piece};
use crate::log::unwind::OnPanic;
use crate::log::{Counters, Log};
use crate::space::{Space, SpaceError, UNIT_BYTES};

/// Blocks that one thread writes at a time.
const GROUP: usize = 16;
/// Maximum number of buffers and vectors kept for reuse.
const SPARES_MAX: usize = 32;

/// Reused allocations, so that a commit allocates nothing.
#[derive(Debug, Default)]
pub(super) struct Spares {
    buffers: Vec<AlignedBuf>,
    works: Vec<Vec<Closed>>,
    pieces: Vec<Vec<Piece>>,
}

impl Spares {
    pub(super) fn pieces(&mut self) -> Vec<Piece> {
        self.pieces.pop().unwrap_or_default()
    }

    pub(super) fn work(&mut self) -> Vec<Closed> {
        self.works.pop().unwrap_or_default()
    }
}

fn keep<T>(spares: &mut Vec<T>, item: T) {
    if spares.len() < SPARES_MAX {
        spares.push(item);
    }
}

impl<S: Space> Log<S> {
    /// Fills and writes closed blocks, and keeps their allocations for reuse. The caller will wait for
    /// `upto`. Returns whether it must flush them: no other thread was woken to, because the caller needs a
    /// flush itself.
    pub(super) fn issue(&self, mut work: Vec<Closed>, upto: Lsn) -> bool {
        let mut owes_flush = false;
        let _told = work.first().map(|first| OnPanic { log: self, from: first.seq });
        let mut blocks = work.drain(..);
        while let Some(first) = blocks.next() {
            // Most commits close one block; only a long burst needs the vectors.
            if blocks.len() == 0 {
                owes_flush = self.issue_one(first, Some(upto));
            } else {
                let group = std::iter::once(first).chain(blocks.by_ref().take(GROUP - 1)).collect();
                owes_flush = self.issue_group(group, (blocks.len() == 0).then_some(upto));
            }
        }
        drop(blocks);
        keep(&mut lock(&self.spares).works, work);
        owes_flush
    }

    /// `upto`: the record that the caller will wait for next; `None` if it writes other blocks first.
    fn issue_one(&self, closed: Closed, upto: Option<Lsn>) -> bool {
        let (seq, place) = (closed.seq, closed.extent.place);
        let (buffer, written) = self.fill(closed);
        let owes_flush = self.note_issued(seq) && {
            let result = self.space.write(place, &buffer[..written]);
            self.note_ended([(seq, place, result)].into_iter(), written, upto)
        };
        keep(&mut lock(&self.spares).buffers, buffer);
        owes_flush
    }

    fn issue_group(&self, group: Vec<Closed>, upto: Option<Lsn>) -> bool {
        let fill = |closed: Closed| {
            let (seq, place) = (closed.seq, closed.extent.place);
            (seq, place, self.fill(closed))
        };
        let ready: Vec<_> = group.into_iter().map(fill).collect();
        let alive: Vec<_> = ready.iter().filter(|(seq, ..)| self.note_issued(*seq)).collect();
        let writes: Vec<_> =
            alive.iter().map(|(_, place, (buffer, written))| (*place, &buffer[..*written])).collect();
        let bytes = writes.iter().map(|(_, data)| data.len()).sum();
        let results = self.space.write_batch(&writes);
        assert_eq!(results.len(), writes.len(), "a result for each write");
        let ended = alive.iter().zip(results).map(|((seq, place, _), result)| (*seq, *place, result));
        let owes_flush = self.note_ended(ended, bytes, upto);
        let mut spares = lock(&self.spares);
        ready.into_iter().for_each(|(_, _, (buffer, _))| keep(&mut spares.buffers, buffer));
        owes_flush
    }

    /// Fills a block; returns its bytes, and how many of them to write.
    fn fill(&self, mut closed: Closed) -> (AlignedBuf, usize) {
        let durable_seq = {
            let mut index = lock(&self.index);
            let durable_seq = index.flushed.min(BlockSeq(closed.seq.0 - 1));
            index.block(closed.seq).into_iter().for_each(|block| block.says = durable_seq);
            durable_seq
        };
        let spare = lock(&self.spares).buffers.pop();
        let mut buffer = spare.unwrap_or_else(|| {
            AlignedBuf::zeroed(self.options.block_bytes_max as usize, UNIT_BYTES as usize)
        });
        let header = BlockHeader {
            guid: closed.guid,
            seq: closed.seq,
            durable_seq,
            newest_txg: closed.newest_txg,
            used_bytes: closed.used as u32,
            next: closed.next,
        };
        let written = header.written_bytes();
        let mut contents = Contents::new(&mut buffer[..written]);
        header.put(&mut contents);
        for piece in &closed.pieces {
            let entry = &piece.batch.entries[piece.entry];
            let header = PieceHeader {
                lsn: entry.lsn,
                txg: entry.txg,
                record_bytes: entry.len as u32,
                from: piece.from as u32,
                len_bytes: piece.len as u32,
            };
            let data = &piece.batch.record(entry)[piece.from..piece.from + piece.len];
            header.put(data, &mut contents);
        }
        assert_eq!(contents.len(), closed.used, "a block is as long as its pieces");
        contents.finish(Tags::of(closed.guid, closed.seq));
        closed.pieces.clear();
        keep(&mut lock(&self.spares).pieces, closed.pieces);
        (buffer, written)
    }

    /// Notes that a write begins; `false` if it need not: the chain failed before the block, or there is
    /// another chain.
    fn note_issued(&self, seq: BlockSeq) -> bool {
        let mut index = lock(&self.index);
        if index.is_dead(seq) {
            return false;
        }
        let Some(block) = index.block(seq) else { return false };
        block.state = State::Issued;
        block.issued_at = Some(now());
        index.in_flight += 1;
        true
    }

    /// Notes that writes have ended. Wakes a thread to flush them, unless the caller will do that; returns
    /// whether it must.
    fn note_ended(
        &self,
        ended: impl Iterator<Item = (BlockSeq, Place, Result<(), SpaceError>)>,
        bytes: usize,
        upto: Option<Lsn>,
    ) -> bool {
        let mut index = lock(&self.index);
        let mut count = 0;
        for (seq, place, result) in ended {
            index.in_flight -= 1;
            count += 1;
            match result {
                Ok(()) => index.note_written(seq),
                Err(source) => {
                    if index.bring_down(CommitError::Write { seq, place, source }, seq) {
                        Counters::add(&self.counters.downs, 1);
                    }
                }
            }
        }
        Counters::add(&self.counters.blocks, count);
        Counters::add(&self.counters.block_bytes, bytes as u64);
        // The caller flushes everything it can if the block that it waits for needs a flush, which it does
        // not if another thread has flushed it or is flushing it.
        let target = upto.and_then(|upto| index.target(upto)).map(|block| block.seq);
        let owes_flush = target.is_some_and(|seq| index.is_to_flush(seq));
        if !owes_flush {
            index.nudge();
        }
        owes_flush
    }
}
