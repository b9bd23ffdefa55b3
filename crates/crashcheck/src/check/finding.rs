//! What can be wrong with an operation of a test.

use std::collections::{BTreeMap, BTreeSet};

use super::led::Crash;
use super::state::{State, States};
use crate::process::Ending;

/// One operation of a test, and its result.
#[derive(Debug, Clone)]
pub struct Operation {
    /// The checkpoint before it; `None` at the beginning of the trace.
    pub from: Option<u64>,
    /// The checkpoint after it; `None` at the end of the trace.
    pub to: Option<u64>,
    /// The events of its failure points: from that at the checkpoint before it to that at the checkpoint
    /// after it.
    pub events: (u64, u64),
    /// The state before it if nothing is lost.
    pub before: Option<usize>,
    /// The state after it if nothing is lost.
    pub after: Option<usize>,
    /// States that a crash during it can lead to, by index.
    pub states: BTreeSet<usize>,
    /// States after it; empty if it is not known to have ended.
    pub final_states: BTreeSet<usize>,
    /// States that only a crash during recovery leads to: of those of crashes during it, and of those after
    /// it.
    pub in_recovery: BTreeSet<usize>,
    /// What is wrong.
    pub findings: Vec<Finding>,
}

/// Something that is wrong.
#[derive(Debug, Clone)]
pub struct Finding {
    /// What.
    pub kind: FindingKind,
    /// The states that show it, by index.
    pub states: BTreeSet<usize>,
    /// For some of them, the crash that has lost least.
    pub crashes: Vec<(usize, Crash)>,
    /// How many more states there are that need one.
    pub states_without_crash: usize,
}

/// What can be wrong; the worst first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingKind {
    /// The recovery was killed by a signal, did not end, or panicked its kernel.
    RecoveryCrash,
    /// The recovery reported a failure.
    RecoveryError,
    /// The recovered contents could not be written to.
    WriteError,
    /// An image shows another state when it is recovered once more.
    NotDeterministic,
    /// An oracle rejects the state.
    Oracle(String),
    /// More than one state is possible after the operation.
    FinalStates,
    /// It has intermediate states.
    Atomicity,
    /// Only a crash during recovery leads to a state.
    InRecovery,
}

impl FindingKind {
    /// What is wrong with a recovery by itself.
    pub fn of_recovery(state: &State) -> Option<FindingKind> {
        match (state.ending, state.write) {
            (Ending::Signal(_) | Ending::TimedOut | Ending::Panicked, _) => Some(FindingKind::RecoveryCrash),
            (Ending::Code(0), None) => None,
            (Ending::Code(0), Some(_)) => Some(FindingKind::WriteError),
            (Ending::Code(_) | Ending::TooMuchOutput, _) => Some(FindingKind::RecoveryError),
        }
    }

    /// A letter for tables.
    pub fn letter(&self) -> char {
        match self {
            FindingKind::RecoveryCrash => 'C',
            FindingKind::RecoveryError => 'E',
            FindingKind::WriteError => 'W',
            FindingKind::NotDeterministic => 'N',
            FindingKind::Oracle(_) => 'O',
            FindingKind::FinalStates => 'S',
            FindingKind::Atomicity => 'A',
            FindingKind::InRecovery => 'R',
        }
    }

    /// For programs.
    pub fn name(&self) -> &'static str {
        match self {
            FindingKind::RecoveryCrash => "recovery-crash",
            FindingKind::RecoveryError => "recovery-error",
            FindingKind::WriteError => "write-error",
            FindingKind::NotDeterministic => "not-deterministic",
            FindingKind::Oracle(_) => "oracle",
            FindingKind::FinalStates => "final-states",
            FindingKind::Atomicity => "atomicity",
            FindingKind::InRecovery => "in-recovery",
        }
    }
}

impl std::fmt::Display for FindingKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FindingKind::RecoveryCrash => write!(f, "the recovery crashes"),
            FindingKind::RecoveryError => write!(f, "the recovery fails"),
            FindingKind::WriteError => write!(f, "the recovered contents cannot be written to"),
            FindingKind::NotDeterministic => {
                write!(
                    f,
                    "the recovery is not deterministic: an image that is recovered again has another state"
                )
            }
            FindingKind::Oracle(said) => write!(f, "the oracle rejects it: {said}"),
            FindingKind::FinalStates => write!(f, "several states are possible after it"),
            FindingKind::Atomicity => write!(f, "it is not atomic"),
            FindingKind::InRecovery => {
                write!(f, "a crash during recovery leads to a state that no other crash leads to")
            }
        }
    }
}

impl Finding {
    /// Without a crash that shows it.
    pub(super) fn new(kind: FindingKind, states: BTreeSet<usize>) -> Finding {
        Finding { kind, states, crashes: Vec::new(), states_without_crash: 0 }
    }

    /// The states of it that need evidence: those that are not expected, or else that before the operation.
    pub(super) fn suspects(&self, before: Option<usize>, after: Option<usize>) -> Vec<usize> {
        let is_expected = |state: &usize| Some(*state) == before || Some(*state) == after;
        if !matches!(self.kind, FindingKind::FinalStates | FindingKind::Atomicity) {
            return self.states.iter().copied().collect();
        }
        let others: Vec<usize> = self.states.iter().copied().filter(|state| !is_expected(state)).collect();
        if !others.is_empty() {
            return others;
        }
        self.states.iter().copied().filter(|state| Some(*state) != after).collect()
    }
}

pub(super) fn judge_recoveries(states: &States, operation: &mut Operation) {
    let mut found: BTreeMap<FindingKind, BTreeSet<usize>> = BTreeMap::new();
    for index in operation.states.union(&operation.in_recovery) {
        if let Some(kind) = FindingKind::of_recovery(states.state(*index)) {
            found.entry(kind).or_default().insert(*index);
        }
        if states.again(*index).is_some() {
            found.entry(FindingKind::NotDeterministic).or_default().insert(*index);
        }
    }
    operation.findings.extend(found.into_iter().map(|(kind, states)| Finding::new(kind, states)));
}

/// States of recoveries that failed, or that show another one each time, are findings by themselves.
fn sound(states: &States, set: &BTreeSet<usize>) -> BTreeSet<usize> {
    let is_sound = |index: &usize| {
        let state = states.state(*index);
        state.ending.is_success() && state.write.is_none() && states.again(*index).is_none()
    };
    set.iter().copied().filter(is_sound).collect()
}

pub(super) fn judge_in_recovery(states: &States, operation: &mut Operation) {
    let found = sound(states, &operation.in_recovery);
    if !found.is_empty() {
        operation.findings.push(Finding::new(FindingKind::InRecovery, found));
    }
}

pub(super) fn judge_atomicity(states: &States, operation: &mut Operation, must_be_atomic: bool) {
    let (after, all) = (sound(states, &operation.final_states), sound(states, &operation.states));
    if after.len() > 1 {
        operation.findings.push(Finding::new(FindingKind::FinalStates, after));
    } else if must_be_atomic && all.len() > 2 {
        operation.findings.push(Finding::new(FindingKind::Atomicity, all));
    }
}
