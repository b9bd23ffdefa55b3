//! Which states crashes lead to, and of each the crash that says most.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::finding::FindingKind;
use super::in_recovery::{Link, lost_bytes};
use super::losses::Losses;
use crate::image::ImageHash;

/// A crash that leads to a state.
#[derive(Debug, Clone)]
pub struct Crash {
    /// It comes before this event.
    pub event: u64,
    /// Hash of the image that it leaves.
    pub image: ImageHash,
    /// Bytes of the lines and blocks that the image lacks.
    pub lost_bytes: u64,
    /// What it lacks; none if that is too much to be kept.
    pub losses: Option<Arc<Losses>>,
    /// The crash of its recovery, that of the recovery of what this leaves, and so on.
    pub in_recovery: Vec<Arc<Link>>,
}

impl Crash {
    /// For comparison: a short chain, and little lost, says most.
    pub(super) fn size(&self) -> (usize, u64) {
        (self.in_recovery.len(), self.lost_bytes.saturating_add(lost_bytes(&self.in_recovery)))
    }
}

/// States that crashes lead to.
#[derive(Debug, Clone, Default)]
pub(super) struct Led {
    /// With the crash that says most.
    pub(super) states: BTreeMap<usize, Crash>,
    /// What oracles said, and of which.
    pub(super) refused: BTreeMap<String, BTreeSet<usize>>,
}

impl Led {
    fn extend(&mut self, later: &Led) {
        for (state, crash) in &later.states {
            match self.states.get_mut(state) {
                Some(best) if best.size() <= crash.size() => {}
                _ => drop(self.states.insert(*state, crash.clone())),
            }
        }
        for (said, states) in &later.refused {
            self.refused.entry(said.clone()).or_default().extend(states);
        }
    }
}

/// States of one failure point, or of several.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    pub(super) own: Led,
    /// States that crashes during recovery lead to.
    pub(super) in_recovery: Led,
    /// Event of the first point.
    pub(super) event: u64,
    /// The state at the first point if nothing is lost there.
    pub(super) complete: Option<usize>,
    pub(super) points: usize,
}

impl Seen {
    pub(super) fn at(event: u64) -> Seen {
        Seen { event, points: 1, ..Seen::default() }
    }

    /// Adds what a later point has.
    pub(super) fn extend(&mut self, later: &Seen) {
        if self.points == 0 {
            (self.event, self.complete) = (later.event, later.complete);
        }
        self.points += later.points;
        self.own.extend(&later.own);
        self.in_recovery.extend(&later.in_recovery);
    }

    /// States that only crashes during recovery lead to.
    pub(super) fn only_in_recovery(&self) -> impl Iterator<Item = usize> {
        self.in_recovery.states.keys().copied().filter(|state| !self.own.states.contains_key(state))
    }
}

/// The crash that shows a state of a finding, if states of an operation are `all`, and those after it `last`.
pub(super) fn crash_of<'a>(
    kind: &FindingKind,
    state: usize,
    all: &'a Seen,
    last: &'a Seen,
) -> Option<&'a Crash> {
    let own = |seen: &'a Seen| seen.own.states.get(&state);
    let in_recovery = |seen: &'a Seen| seen.in_recovery.states.get(&state);
    match kind {
        FindingKind::FinalStates => own(last),
        FindingKind::InRecovery if own(all).is_some() => in_recovery(last),
        FindingKind::InRecovery => in_recovery(all),
        FindingKind::Oracle(said) if !all.own.refused.get(said).is_some_and(|of| of.contains(&state)) => {
            in_recovery(all)
        }
        _ => own(all).or(in_recovery(all)),
    }
}
