//! What the states of crash images say about the operations of a test.
//!
//! Operations lie between checkpoints. An operation has a *single final state* if all images of a crash at
//! the checkpoint after it have the same state: its effects are durable. It is *atomic* if it can also leave
//! at most one other state, the one before it. Recoveries that fail are findings, not states in this sense.
//! A test without checkpoints is one operation. Events before the first checkpoint, if they are tested, and
//! after the last one only have to be recoverable: they are reported as an operation only if something is
//! wrong.
//!
//! Source: PM file systems dissertation, 8.6.2.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::oracle::Oracle;
use super::state::{State, States};
use crate::Result;
use crate::generate::{CrashImages, PointKind};
use crate::process::Ending;

/// One operation of a test, and its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// The checkpoint before it; `None` at the beginning of the trace.
    pub from: Option<u64>,
    /// The checkpoint after it; `None` at the end of the trace.
    pub to: Option<u64>,
    /// Its failure points: from that at the checkpoint before it to that at the checkpoint after it.
    pub points: Range<usize>,
    /// States that a crash during it can lead to, by index.
    pub states: BTreeSet<usize>,
    /// States after it; empty if it is not known to have ended.
    pub final_states: BTreeSet<usize>,
    /// What is wrong.
    pub findings: Vec<Finding>,
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What.
    pub kind: FindingKind,
    /// The states that show it, by index.
    pub states: BTreeSet<usize>,
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
    /// An oracle rejects the state.
    Oracle(String),
    /// More than one state is possible after the operation.
    FinalStates,
    /// It has intermediate states.
    Atomicity,
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
            FindingKind::Oracle(_) => 'O',
            FindingKind::FinalStates => 'S',
            FindingKind::Atomicity => 'A',
        }
    }

    /// For programs.
    pub fn name(&self) -> &'static str {
        match self {
            FindingKind::RecoveryCrash => "recovery-crash",
            FindingKind::RecoveryError => "recovery-error",
            FindingKind::WriteError => "write-error",
            FindingKind::Oracle(_) => "oracle",
            FindingKind::FinalStates => "final-states",
            FindingKind::Atomicity => "atomicity",
        }
    }
}

impl std::fmt::Display for FindingKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FindingKind::RecoveryCrash => write!(f, "the recovery crashes"),
            FindingKind::RecoveryError => write!(f, "the recovery fails"),
            FindingKind::WriteError => write!(f, "the recovered contents cannot be written to"),
            FindingKind::Oracle(said) => write!(f, "the oracle rejects it: {said}"),
            FindingKind::FinalStates => write!(f, "several states are possible after it"),
            FindingKind::Atomicity => write!(f, "it is not atomic"),
        }
    }
}

/// Judges the operations of a test; with `must_be_atomic`, also whether they are atomic.
///
/// # Errors
/// Those of the oracles.
pub fn analyze(
    images: &CrashImages,
    states: &States,
    oracles: &[&dyn Oracle],
    must_be_atomic: bool,
) -> Result<Vec<Operation>> {
    let of_point = states_of_points(images, states);
    let mut operations = Vec::new();
    for (from, to, points, is_judged) in ranges(images) {
        let mut operation = Operation {
            from,
            to,
            states: of_point[points.clone()].iter().flatten().copied().collect(),
            final_states: BTreeSet::new(),
            findings: Vec::new(),
            points: points.clone(),
        };
        judge_recoveries(states, &mut operation);
        for oracle in oracles {
            judge_by(*oracle, images, states, &of_point, &mut operation)?;
        }
        if is_judged {
            operation.final_states = of_point[points.end - 1].clone();
            judge_atomicity(states, &mut operation, must_be_atomic);
        }
        operation.findings.sort_by(|one, two| one.kind.cmp(&two.kind));
        let is_known = |before: &Operation| operation.states.is_subset(&before.states);
        if is_judged || !operation.findings.is_empty() && !operations.last().is_some_and(is_known) {
            operations.push(operation);
        }
    }
    Ok(operations)
}

/// For each point the states of its images.
fn states_of_points(images: &CrashImages, states: &States) -> Vec<BTreeSet<usize>> {
    let mut of_point = vec![BTreeSet::new(); images.points.len()];
    for (image, state) in images.images.iter().zip(&states.of_image) {
        image.occurrences.iter().for_each(|occurrence| {
            of_point[occurrence.point].insert(*state);
        });
    }
    of_point
}

type Span = (Option<u64>, Option<u64>, Range<usize>, bool);

/// The operations: the checkpoints around them, their points, and whether they are judged as operations.
fn ranges(images: &CrashImages) -> Vec<Span> {
    let checkpoints = images.points.iter().enumerate().filter_map(|(index, point)| match point.kind {
        PointKind::Checkpoint(number) => Some((index, number)),
        _ => None,
    });
    let checkpoints: Vec<_> = checkpoints.collect();
    let end = images.points.len();
    let (Some(first), Some(last)) = (checkpoints.first(), checkpoints.last()) else {
        return if end == 0 { Vec::new() } else { vec![(None, None, 0..end, true)] };
    };
    let mut ranges = Vec::new();
    if first.0 > 0 {
        ranges.push((None, Some(first.1), 0..first.0 + 1, false));
    }
    for pair in checkpoints.windows(2) {
        ranges.push((Some(pair[0].1), Some(pair[1].1), pair[0].0..pair[1].0 + 1, true));
    }
    if last.0 + 1 < end {
        ranges.push((Some(last.1), None, last.0 + 1..end, false));
    }
    ranges
}

fn judge_recoveries(states: &States, operation: &mut Operation) {
    let mut found: BTreeMap<FindingKind, BTreeSet<usize>> = BTreeMap::new();
    for index in &operation.states {
        if let Some(kind) = FindingKind::of_recovery(&states.found[*index].state) {
            found.entry(kind).or_default().insert(*index);
        }
    }
    operation.findings.extend(found.into_iter().map(|(kind, states)| Finding { kind, states }));
}

fn judge_by(
    oracle: &dyn Oracle,
    images: &CrashImages,
    states: &States,
    of_point: &[BTreeSet<usize>],
    operation: &mut Operation,
) -> Result<()> {
    let mut found: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
    let mut asked = BTreeSet::new();
    for point in operation.points.clone() {
        let checkpoint = images.points[point].checkpoint;
        for state in &of_point[point] {
            if !asked.insert((checkpoint, *state)) {
                continue;
            }
            if let Some(said) = oracle.refuses(&states.found[*state].state, checkpoint)? {
                found.entry(said).or_default().insert(*state);
            }
        }
    }
    let finding = |(said, states)| Finding { kind: FindingKind::Oracle(said), states };
    operation.findings.extend(found.into_iter().map(finding));
    Ok(())
}

/// States of recoveries that failed are findings by themselves, and do not count here.
fn judge_atomicity(states: &States, operation: &mut Operation, must_be_atomic: bool) {
    let is_sound = |index: &usize| {
        let state = &states.found[*index].state;
        state.ending.is_success() && state.write.is_none()
    };
    let sound =
        |set: &BTreeSet<usize>| set.iter().copied().filter(|index| is_sound(index)).collect::<BTreeSet<_>>();
    let (after, all) = (sound(&operation.final_states), sound(&operation.states));
    if after.len() > 1 {
        operation.findings.push(Finding { kind: FindingKind::FinalStates, states: after });
    } else if must_be_atomic && all.len() > 2 {
        operation.findings.push(Finding { kind: FindingKind::Atomicity, states: all });
    }
}

/// Failure points at which a state may depend on non-temporal stores alone: all their images with this state
/// have some, so images with a part of them may have another. Events, for
/// [`NonTemporal::PartialAt`](crate::generate::NonTemporal).
///
/// Source: PM file systems dissertation, 8.4.2 (Suvi-NT).
pub fn depends_on_non_temporal(images: &CrashImages, states: &States) -> BTreeSet<u64> {
    let mut is_only: BTreeMap<(usize, usize), bool> = BTreeMap::new();
    for (image, state) in images.images.iter().zip(&states.of_image) {
        for occurrence in &image.occurrences {
            *is_only.entry((occurrence.point, *state)).or_insert(true) &= occurrence.has_non_temporal;
        }
    }
    let points =
        is_only.into_iter().filter(|(_, is_only)| *is_only).map(|((point, _), _)| &images.points[point]);
    points.filter(|point| !point.is_exhaustive).map(|point| point.event).collect()
}
