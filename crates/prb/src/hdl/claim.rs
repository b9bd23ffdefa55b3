//! Claim: finds the entries that a log needs after a crash and holds their chunks, before any txg syncs.
//!
//! Crash cases: claim writes nothing. Until its header update is durable, the next import claims again from
//! the same state; the update is part of the first txg, so the precrash txg cannot advance in between.
//!
//! Source: zil-pmem thesis, 5.7 (step 1) and 5.13.1.

use std::sync::Arc;

use fastness_pmem::Medium;
use fastness_sync::lock;

use crate::counters::Tracker;
use crate::entry::EntryHeader;
use crate::error::{ClaimError, LogError, Misuse, Witness};
use crate::hdl::header::{GAPS_MAX, HdlHeader, HeaderUpdate, ReplayingHeader, Seal};
use crate::hdl::replay::Session;
use crate::hdl::resume::{ReplayNode, Sequence, Stop, check_seal, make_seal, resume};
use crate::hdl::{Hdl, State, wrong_state};
use crate::ids::{EntryId, LogGuid, Txg};
use crate::scan::Node;
use crate::traverse::BodyError;

/// What claim does about missing or unreadable entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnLoss {
    /// Fails; the operator can look for the cause and import again.
    Fail,
    /// Keeps what does not depend on the loss and gives up the rest, permanently.
    DropTail,
}

/// What claim found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    /// The header for the first txg; `None` if it stays unchanged.
    pub update: Option<HeaderUpdate>,
    /// Entries to replay.
    pub entries: usize,
    /// Those of them without a body: [witnesses](Hdl::witness), if the owner's records have bodies.
    pub without_body: usize,
    /// Bytes of their bodies.
    pub body_bytes: u64,
    /// Places missing in the last generation: entries that were being written at the crash, or lost.
    pub gaps: u64,
    /// Entries that were missing at the first claim but are present now; they are not replayed.
    pub reappeared: usize,
    /// Entries given up by [`OnLoss::DropTail`]: unreadable ones and those that depend on a missing one.
    pub dropped: usize,
    /// The first reason for dropping.
    pub loss: Option<ClaimError>,
}

impl<M: Medium + Sync> ReplayNode for Node<M> {
    fn header(&self) -> &EntryHeader {
        &self.entry.header
    }

    fn region_offset(&self) -> u64 {
        Node::region_offset(self)
    }
}

/// The part of a claim that depends on the header it starts from.
struct Start {
    log: LogGuid,
    first_txg: Txg,
    checkpoint: Tracker,
    seal: Option<Arc<Seal>>,
}

impl Start {
    fn new(header: &HdlHeader, pool_first_txg: Txg) -> Option<Self> {
        match header {
            HdlHeader::NoZil => None,
            HdlHeader::Logging { log } => Some(Self {
                log: *log,
                first_txg: pool_first_txg,
                checkpoint: Tracker::default(),
                seal: None,
            }),
            HdlHeader::Replaying(header) => Some(Self {
                log: header.log,
                first_txg: header.first_txg,
                checkpoint: header.checkpoint,
                seal: Some(Arc::clone(&header.seal)),
            }),
        }
    }
}

impl<M: Medium + Sync> Hdl<M> {
    /// Claims the log's entries: scans the chunks, replays in a dry run that reads every body, holds the
    /// chunks. `pool_first_txg` is the first txg after import.
    ///
    /// The update must be persisted with `pool_first_txg`. A log without entries to claim (nozil) is left
    /// unchanged, and the result is empty.
    ///
    /// # Errors
    /// [`ClaimError`]: the log stays unclaimed and holds nothing; claim again (another policy, a repaired
    /// medium), or tear it down with `abandon`.
    pub fn claim(&mut self, pool_first_txg: Txg, on_loss: OnLoss) -> Result<Claimed, ClaimError> {
        let start = match &self.state {
            State::NoZil => None,
            State::Unclaimed(header) => Start::new(header, pool_first_txg),
            other => return Err(wrong_state("claim", "unclaimed or nozil", other).into()),
        };
        let Some(start) = start else {
            return Ok(Claimed::nothing());
        };
        let scan = {
            let mut lists = lock(&self.prb.lists);
            if !lists.roster.claiming {
                return Err(Misuse::ClaimingOver { log: start.log }.into());
            }
            self.prb.scan(&mut lists)
        };
        let found = scan.by_log.get(&start.log).map_or(&[][..], Vec::as_slice);
        let (session, claimed) = claim_nodes(found, start, on_loss)?;
        self.state = State::Replaying(session);
        lock(&self.prb.lists).roster.unclaimed -= 1;
        Ok(claimed)
    }
}

impl Claimed {
    fn nothing() -> Self {
        Self {
            update: None,
            entries: 0,
            without_body: 0,
            body_bytes: 0,
            gaps: 0,
            reappeared: 0,
            dropped: 0,
            loss: None,
        }
    }
}

fn claim_nodes<M: Medium + Sync>(
    found: &[Node<M>],
    start: Start,
    on_loss: OnLoss,
) -> Result<(Session<M>, Claimed), ClaimError> {
    let Start { log, first_txg, checkpoint, seal } = start;
    let mut sequence = Sequence::new(found.iter().cloned(), first_txg, seal.as_deref())?;
    let mut losses = Losses { policy: on_loss, dropped: 0, first: None };
    losses.drop_unreadable(&mut sequence, checkpoint.last)?;
    let state = losses.drop_dependents(&mut sequence, checkpoint, first_txg)?;
    let seal = match seal {
        Some(seal) if losses.dropped == 0 => {
            // Is this still what the first claim found? If not, and the operator accepts the loss, seal it
            // anew.
            match check_seal(&seal, &state, first_txg) {
                Ok(()) => seal,
                Err(error) => {
                    losses.accept(error.into(), 0)?;
                    losses.seal(&mut sequence, checkpoint, first_txg)?
                }
            }
        }
        _ => losses.seal(&mut sequence, checkpoint, first_txg)?,
    };
    let unreplayed = sequence.nodes().iter().filter(|node| node.entry.header.id > checkpoint.last);
    let claimed = Claimed {
        update: None,
        entries: unreplayed.clone().count(),
        without_body: unreplayed.clone().filter(|node| node.entry.header.body_len_bytes == 0).count(),
        body_bytes: unreplayed.map(|node| node.entry.header.body_len_bytes).sum(),
        gaps: seal.gaps.iter().map(|&(_, count)| count).sum(),
        reappeared: sequence.reappeared,
        dropped: losses.dropped,
        loss: losses.first,
    };
    let header = Arc::new(ReplayingHeader { log, first_txg, checkpoint, seal });
    let update = Some(HeaderUpdate::new(HdlHeader::Replaying(Arc::clone(&header))));
    Ok((Session::new(header, sequence), Claimed { update, ..claimed }))
}

/// Counts what is given up.
struct Losses {
    policy: OnLoss,
    dropped: usize,
    first: Option<ClaimError>,
}

impl Losses {
    fn accept(&mut self, error: ClaimError, entries: usize) -> Result<(), ClaimError> {
        if self.policy == OnLoss::Fail {
            return Err(error);
        }
        self.first.get_or_insert(error);
        self.dropped += entries;
        Ok(())
    }

    /// Reads every body that is still to be replayed, so that damage is found at import and not at the first
    /// mount.
    fn drop_unreadable<M: Medium + Sync>(
        &mut self,
        sequence: &mut Sequence<Node<M>>,
        last: EntryId,
    ) -> Result<(), ClaimError> {
        let mut buffer = Vec::new();
        let mut failed = None;
        sequence.retain(|node| {
            let header = &node.entry.header;
            if header.id <= last || failed.is_some() {
                return true;
            }
            let len = header.body_len_bytes as usize;
            if buffer.len() < len {
                buffer.resize(len, 0);
            }
            let source = match node.read_body(&mut buffer) {
                // Reported by verify; the body itself is whole.
                Ok(()) | Err(BodyError::Padding { .. }) => return true,
                Err(source) => source,
            };
            match self.accept(ClaimError::Body { id: header.id, source }, 1) {
                Ok(()) => false,
                Err(error) => {
                    failed = Some(error);
                    true
                }
            }
        });
        failed.map_or(Ok(()), Err)
    }

    /// Does a dry run from the checkpoint; drops the generation of the first witness and all later ones.
    fn drop_dependents<M: Medium + Sync>(
        &mut self,
        sequence: &mut Sequence<Node<M>>,
        checkpoint: Tracker,
        first_txg: Txg,
    ) -> Result<Tracker, ClaimError> {
        loop {
            let mut state = checkpoint;
            let stop = resume(sequence, &mut state, first_txg, |_, _| Ok::<_, std::convert::Infallible>(()));
            let error = match stop {
                Ok(()) => return Ok(state),
                Err(Stop::Callback { source, .. }) => match source {},
                Err(Stop::Log(error)) => error,
            };
            let dropped = match error {
                LogError::MissingEntries { witness: Witness::Entry(id), .. } => {
                    drop_where(sequence, |other| other.generation >= id.generation)
                }
                LogError::TxgOutsideCorridor { id, .. } => drop_where(sequence, |other| other >= id),
                other => return Err(other.into()),
            };
            self.accept(error.into(), dropped)?;
        }
    }

    /// Seals the sequence; drops the end of the last generation if it has too many gaps.
    fn seal<M: Medium + Sync>(
        &mut self,
        sequence: &mut Sequence<Node<M>>,
        checkpoint: Tracker,
        first_txg: Txg,
    ) -> Result<Arc<Seal>, ClaimError> {
        loop {
            let state = self.drop_dependents(sequence, checkpoint, first_txg)?;
            if let Some(seal) = make_seal(sequence, &state) {
                return Ok(Arc::new(seal));
            }
            let generation = state.last.generation;
            // Entries of one generation are independent of each other: any part of it may be kept.
            let dropped = drop_where(sequence, |id| id == state.last);
            self.accept(ClaimError::TooManyGaps { generation, max: GAPS_MAX }, dropped)?;
            if dropped == 0 {
                return Err(ClaimError::TooManyGaps { generation, max: GAPS_MAX });
            }
        }
    }
}

fn drop_where<M: Medium + Sync>(sequence: &mut Sequence<Node<M>>, drop: impl Fn(EntryId) -> bool) -> usize {
    let before = sequence.nodes().len();
    sequence.retain(|node| !drop(node.entry.header.id));
    before - sequence.nodes().len()
}
