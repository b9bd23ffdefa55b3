//! Replay: hands the claimed entries to their owner, in order, each with the checkpoint to persist with it.
//!
//! Crash cases: an entry's change and its checkpoint are persisted in one transaction, so after a crash the
//! entry is either before the checkpoint (and skipped) or after it (and replayed); entries stay on PM until
//! the header that no longer needs them is durable.
//!
//! Source: zil-pmem thesis, 5.7 and 5.13.2.

use std::sync::Arc;

use fastness_pmem::Medium;

use crate::chunk::Chunk;
use crate::counters::Tracker;
use crate::error::{Misuse, ReplayError};
use crate::hdl::header::{HdlHeader, HeaderUpdate, ReplayingHeader};
use crate::hdl::resume::{Sequence, Stop, check_seal, resume};
use crate::hdl::{Hdl, State, wrong_state};
use crate::ids::{EntryId, Txg};
use crate::scan::Node;
use crate::traverse::BodyError;

/// A log between claim and the end of replay.
#[derive(Debug)]
pub(super) struct Session<M> {
    pub(super) header: Arc<ReplayingHeader>,
    sequence: Sequence<Node<M>>,
    finished: bool,
}

impl<M: Medium + Sync> Session<M> {
    pub(super) fn new(header: Arc<ReplayingHeader>, sequence: Sequence<Node<M>>) -> Self {
        Self { header, sequence, finished: false }
    }
}

impl<M> Session<M> {
    /// The chunks that this log holds.
    pub(super) fn into_held_chunks(self) -> Vec<Arc<Chunk<M>>> {
        let mut chunks: Vec<_> = self.sequence.into_nodes().map(|node| node.chunk).collect();
        chunks.sort_unstable_by_key(|chunk| chunk.id);
        chunks.dedup_by_key(|chunk| chunk.id);
        chunks
    }
}

/// An entry to replay.
///
/// The body is not accessed in place: it is first copied into DRAM and checked.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a, M> {
    node: &'a Node<M>,
}

impl<M: Medium + Sync> Entry<'_, M> {
    /// Place in the log.
    pub fn id(&self) -> EntryId {
        self.node.entry.header.id
    }

    /// Transaction group of the change.
    pub fn txg(&self) -> Txg {
        self.node.entry.header.txg
    }

    /// Length of the body in bytes.
    pub fn body_len_bytes(&self) -> usize {
        self.node.entry.header.body_len_bytes as usize
    }

    /// Region offset of the entry's header.
    pub fn region_offset(&self) -> u64 {
        self.node.region_offset()
    }

    /// Copies the body into the front of `buffer`, and checks it and that the entry is still the claimed one.
    ///
    /// # Errors
    /// [`BodyError`]; [`BodyError::Padding`] leaves an intact body in the buffer.
    pub fn read_body(&self, buffer: &mut [u8]) -> Result<(), BodyError> {
        self.node.read_body(buffer)
    }
}

/// What replay did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replayed {
    /// Entries handed to the callback.
    pub entries: usize,
    /// Entries that are present but were not claimed; they were skipped.
    pub reappeared: usize,
}

impl<M: Medium + Sync> Hdl<M> {
    /// Replays the entries after the checkpoint. In state nozil there is nothing to do.
    ///
    /// For each entry, `apply` must read the body, and in one transaction apply it and persist the header
    /// update; consecutive entries may share a transaction, with the update of the last. If it fails, neither
    /// may be persisted; a later call continues from that entry.
    ///
    /// # Errors
    /// [`ReplayError`]: try again, or give up the rest by [`Hdl::destroy_log`]. If the seal finds entries
    /// missing, all present ones have been replayed.
    pub fn replay<E>(
        &mut self,
        mut apply: impl FnMut(Entry<'_, M>, HeaderUpdate) -> Result<(), E>,
    ) -> Result<Replayed, ReplayError<E>> {
        let session = match &mut self.state {
            State::NoZil => return Ok(Replayed { entries: 0, reappeared: 0 }),
            State::Replaying(session) => session,
            other => return Err(wrong_state("replay", "replaying or nozil", other).into()),
        };
        let mut entries = 0;
        let ReplayingHeader { log, first_txg, checkpoint, ref seal } = *session.header;
        let update = |checkpoint: Tracker| {
            Arc::new(ReplayingHeader { log, first_txg, checkpoint, seal: Arc::clone(seal) })
        };
        let mut state = checkpoint;
        let result = resume(&session.sequence, &mut state, first_txg, |node, next| {
            apply(Entry { node }, HeaderUpdate::new(HdlHeader::Replaying(update(*next))))?;
            entries += 1;
            Ok(())
        });
        let result = match result {
            Ok(()) => check_seal(seal, &state, first_txg).map_err(ReplayError::Log),
            Err(Stop::Log(error)) => Err(ReplayError::Log(error)),
            Err(Stop::Callback { id, source }) => Err(ReplayError::Callback { id, source }),
        };
        session.header = update(state);
        result?;
        session.finished = true;
        Ok(Replayed { entries, reappeared: session.sequence.reappeared })
    }

    /// Hands out the entries that [`Hdl::replay`] would, and changes nothing.
    ///
    /// # Errors
    /// As there.
    pub fn peek<E>(&self, mut look: impl FnMut(Entry<'_, M>) -> Result<(), E>) -> Result<(), ReplayError<E>> {
        let session = match &self.state {
            State::NoZil => return Ok(()),
            State::Replaying(session) => session,
            other => return Err(wrong_state("peek", "replaying or nozil", other).into()),
        };
        let mut state = session.header.checkpoint;
        let first_txg = session.header.first_txg;
        resume(&session.sequence, &mut state, first_txg, |node, _| look(Entry { node })).map_err(|stop| {
            match stop {
                Stop::Log(error) => ReplayError::Log(error),
                Stop::Callback { id, source } => ReplayError::Callback { id, source },
            }
        })
    }

    /// Ends replay: the log is gone, and its chunks are released once `sync_txg`, with which the update must
    /// be persisted, has synced.
    ///
    /// # Errors
    /// [`Misuse::ReplayNotFinished`] unless [`Hdl::replay`] has returned without an error.
    pub fn replay_done(&mut self, sync_txg: Txg) -> Result<HeaderUpdate, Misuse> {
        match &self.state {
            State::NoZil => {}
            State::Replaying(session) if session.finished => self.become_nozil(sync_txg),
            State::Replaying(_) => return Err(Misuse::ReplayNotFinished),
            other => return Err(wrong_state("replay_done", "replaying or nozil", other)),
        }
        Ok(HeaderUpdate::new(HdlHeader::NoZil))
    }
}
