//! The core of recovery: sorts entries into replay order, finds out which are missing, and calls back for the
//! rest.
//!
//! A pure function of the entries found and the replay state, so that claim (dry run), replay and the tests'
//! tables all run the same code.
//!
//! Source: zil-pmem thesis, 5.4 to 5.7; 7.2.1 (`replay_resume`).

use crate::counters::{Tracker, VisitError};
use crate::entry::EntryHeader;
use crate::error::{LogError, Witness};
use crate::hdl::header::{GAPS_MAX, Seal};
use crate::ids::{EntryId, Generation, Gsid, Txg};

/// Something with an entry header in DRAM: the input of recovery.
pub(crate) trait ReplayNode {
    fn header(&self) -> &EntryHeader;
    fn region_offset(&self) -> u64;
}

/// The replayable entries of a log in replay order.
#[derive(Debug)]
pub(crate) struct Sequence<N> {
    nodes: Vec<N>,
    /// Entries that were missing when the log was claimed but are present now.
    pub(crate) reappeared: usize,
}

impl<N> Sequence<N> {
    pub(crate) fn into_nodes(self) -> impl Iterator<Item = N> {
        self.nodes.into_iter()
    }
}

impl<N: ReplayNode> Sequence<N> {
    /// Sorts the entries that are not obsolete; with a seal, only those that were claimed.
    ///
    /// # Errors
    /// [`LogError::Duplicate`].
    pub(crate) fn new(
        nodes: impl IntoIterator<Item = N>,
        first_txg: Txg,
        seal: Option<&Seal>,
    ) -> Result<Self, LogError> {
        let mut nodes: Vec<N> = nodes.into_iter().filter(|node| node.header().txg >= first_txg).collect();
        let found = nodes.len();
        if let Some(seal) = seal {
            nodes.retain(|node| seal.claimed(node.header().id));
        }
        let reappeared = found - nodes.len();
        nodes.sort_unstable_by_key(|node| node.header().id);
        match nodes.windows(2).find(|pair| pair[0].header().id == pair[1].header().id) {
            Some(pair) => {
                let (first, second) = (pair[0].region_offset(), pair[1].region_offset());
                Err(LogError::Duplicate { id: pair[0].header().id, first, second })
            }
            None => Ok(Self { nodes, reappeared }),
        }
    }

    pub(crate) fn nodes(&self) -> &[N] {
        &self.nodes
    }

    pub(crate) fn retain(&mut self, keep: impl FnMut(&N) -> bool) {
        self.nodes.retain(keep);
    }
}

/// Why [`resume`] stopped.
#[derive(Debug)]
pub(crate) enum Stop<E> {
    Log(LogError),
    Callback { id: EntryId, source: E },
}

/// Visits every entry after the state's last one; `apply` gets the entry and the state to persist with it.
///
/// On an error the state is that after the last applied entry.
pub(crate) fn resume<N: ReplayNode, E>(
    sequence: &Sequence<N>,
    state: &mut Tracker,
    first_txg: Txg,
    mut apply: impl FnMut(&N, &Tracker) -> Result<(), E>,
) -> Result<(), Stop<E>> {
    let start = sequence.nodes.partition_point(|node| node.header().id <= state.last);
    for node in &sequence.nodes[start..] {
        let EntryHeader { id, txg, counters, .. } = *node.header();
        let mut next = *state;
        next.visit(id, txg, &counters, first_txg).map_err(|error| {
            Stop::Log(match error {
                VisitError::Missing(mismatch) => {
                    LogError::MissingEntries { witness: Witness::Entry(id), mismatch }
                }
                VisitError::Corridor { newest } => LogError::TxgOutsideCorridor { id, txg, newest },
            })
        })?;
        apply(node, &next).map_err(|source| Stop::Callback { id, source })?;
        *state = next;
    }
    Ok(())
}

/// Compares the replayed entries with those that claim found.
pub(crate) fn check_seal(seal: &Seal, state: &Tracker, first_txg: Txg) -> Result<(), LogError> {
    let mut behind = *state;
    behind.start_generation(seal.id.generation);
    behind
        .compare(&seal.counters, first_txg)
        .map_err(|mismatch| LogError::MissingEntries { witness: Witness::Seal(seal.id), mismatch })
}

/// Makes the seal for a sequence that [`resume`] has visited in a dry run from `checkpoint` to `state`.
///
/// `None` if the last generation has too many gaps.
pub(crate) fn make_seal<N: ReplayNode>(sequence: &Sequence<N>, state: &Tracker) -> Option<Seal> {
    let last = state.last;
    let of_last =
        sequence.nodes.iter().map(|node| node.header().id).filter(|id| id.generation == last.generation);
    let mut gaps = Vec::new();
    let mut expected = 1;
    for id in of_last {
        if id.gsid.0 > expected {
            gaps.push((expected, id.gsid.0 - expected));
        }
        expected = id.gsid.0.saturating_add(1);
    }
    let mut behind = *state;
    let id = EntryId { generation: Generation(last.generation.0 + 1), gsid: Gsid(1) };
    behind.start_generation(id.generation);
    let seal = Seal { id, counters: behind.counters(), last_gsid: last.gsid, gaps };
    (seal.gaps.len() <= GAPS_MAX).then_some(seal)
}
