//! What the states of crash images say about the operations of a test.
//!
//! Operations lie between checkpoints. An operation has a *single final state* if all images of a crash at
//! the checkpoint after it have the same state: its effects are durable. It is *atomic* if it can also leave
//! at most one other state, the one before it. Recoveries that fail are findings, not states in this sense.
//! A test without checkpoints is one operation. Events before the first checkpoint, if they are tested, and
//! after the last one only have to be recoverable: they are reported as an operation only if something is
//! wrong.
//!
//! Images come one after another and are not kept: of each state of an operation it is kept what the image
//! with the least losses has lost, and after the operation only of the states that need evidence.
//!
//! What crashes during recovery lead to counts like states of the operation, but for atomicity and final
//! states: such a state has to be among those that other crashes lead to.
//!
//! Source: PM file systems dissertation, 8.6.2.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::finding::{Finding, FindingKind, Operation, judge_atomicity, judge_in_recovery, judge_recoveries};
use super::in_recovery::Link;
use super::led::{Crash, Seen, crash_of};
use super::left_out::{CutPoint, LeftOut};
use super::losses::{Held, Losses, bytes_lost};
use super::oracle::{Moment, Oracle};
use super::state::{State, States};
use crate::Result;
use crate::generate::{Contents, Part, Point, PointKind};
use crate::image::ImageHash;

/// Most states of a finding that get evidence.
const EVIDENCE_MAX: usize = 4;
/// Most states of all operations together, a state counting for each operation that has it.
const STATES_OF_OPERATIONS_MAX: usize = 1_000_000;

/// An image of the failure point.
pub(super) struct Judged<'a> {
    pub(super) contents: &'a Contents,
    pub(super) hash: ImageHash,
    pub(super) part: Part,
    pub(super) has_non_temporal: bool,
    /// No point before had it.
    pub(super) is_new: bool,
    /// Number of its state.
    pub(super) state: u32,
}

/// What failure points have in all.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    /// Failure points.
    pub points: usize,
    /// Those of which all images were taken and recovered.
    pub exhaustive_points: usize,
    /// Those where the bound has left out some that the heuristics wanted.
    pub cut_points: usize,
}

/// What an oracle said of states, by their indexes.
type Said = HashMap<usize, Option<String>>;

/// Judges the operations of a trace while its images are recovered.
pub struct Judge<'a> {
    oracles: &'a [Box<dyn Oracle + 'a>],
    /// An operation has at most the states before and after it.
    must_be_atomic: bool,
    operations: Vec<Operation>,
    counts: Counts,
    left_out: LeftOut,
    /// Images of the point.
    images: HashSet<ImageHash>,
    non_temporal: BTreeSet<u64>,
    held: Held,
    /// The checkpoint before the operation, and the states at it.
    from: Option<(u64, Seen)>,
    /// Those of the operation since.
    current: Seen,
    point: Seen,
    everything: Option<Contents>,
    /// Of the states of the point: all their images have a non-temporal store.
    only_non_temporal: BTreeMap<usize, bool>,
    /// What each oracle said of states in its present period.
    asked: Vec<(Option<u64>, Said)>,
    /// There is an oracle that knows what operations do: it alone says which states are right.
    is_left_to_oracles: bool,
    states_of_operations: usize,
}

impl<'a> Judge<'a> {
    /// Before the first point.
    pub fn new(oracles: &'a [Box<dyn Oracle + 'a>], must_be_atomic: bool) -> Judge<'a> {
        Judge {
            oracles,
            must_be_atomic,
            operations: Vec::new(),
            counts: Counts::default(),
            left_out: LeftOut::default(),
            images: HashSet::new(),
            non_temporal: BTreeSet::new(),
            held: Held::default(),
            from: None,
            current: Seen::default(),
            point: Seen::default(),
            everything: None,
            only_non_temporal: BTreeMap::new(),
            asked: vec![(None, HashMap::new()); oracles.len()],
            is_left_to_oracles: false,
            states_of_operations: 0,
        }
    }

    /// Leaves it to the oracles to say which states are right, however many an operation has.
    pub fn left_to_oracles(self, is_left: bool) -> Judge<'a> {
        Judge { is_left_to_oracles: is_left, ..self }
    }

    /// The operations, after the last point.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// What there was, in numbers.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The points where images were left out.
    pub fn left_out(&self) -> &LeftOut {
        &self.left_out
    }

    /// Failure points at which a state may depend on non-temporal stores alone: all their images with this
    /// state have some, so images with a part of them may have another. Events, for
    /// [`NonTemporal::PartialAt`](crate::generate::NonTemporal).
    ///
    /// Source: PM file systems dissertation, 8.4.2 (Suvi-NT).
    pub fn depends_on_non_temporal(&self) -> &BTreeSet<u64> {
        &self.non_temporal
    }

    /// Whether operations have as many states as may be.
    pub(super) fn is_full(&self) -> bool {
        let of = |seen: &Seen| seen.own.states.len() + seen.in_recovery.states.len();
        self.states_of_operations + of(&self.current) + of(&self.point) >= STATES_OF_OPERATIONS_MAX
    }

    pub(super) fn begin(&mut self, point: &Point, everything: Contents) {
        self.point = Seen::at(point.event);
        self.everything = Some(everything);
        self.only_non_temporal.clear();
        self.images.clear();
        let moment = Moment { checkpoint: point.checkpoint, event: point.event };
        for (oracle, asked) in self.oracles.iter().zip(&mut self.asked) {
            let period = oracle.period(moment);
            if asked.0 != period {
                *asked = (period, HashMap::new());
            }
        }
    }

    pub(super) fn image(&mut self, states: &mut States, point: &Point, image: &Judged<'_>) -> Result<()> {
        let is_regular = image.part == Part::Everything;
        let state = states.note(image.state, named_by(point), is_regular, image.is_new);
        if is_regular {
            self.point.complete = Some(state);
        }
        self.images.insert(image.hash);
        *self.only_non_temporal.entry(state).or_insert(true) &= image.has_non_temporal;
        self.note_crash(state, point.event, image, &[]);
        for said in self.ask(states.state(state), state, point)? {
            self.point.own.refused.entry(said).or_default().insert(state);
        }
        Ok(())
    }

    /// A state that crashes in the recovery of `image` lead to.
    pub(super) fn in_recovery(
        &mut self,
        states: &mut States,
        point: &Point,
        image: &Judged<'_>,
        chain: &[Arc<Link>],
    ) -> Result<()> {
        let state = states.note_in_recovery(image.state, named_by(point));
        self.note_crash(state, point.event, image, chain);
        for said in self.ask(states.state(state), state, point)? {
            self.point.in_recovery.refused.entry(said).or_default().insert(state);
        }
        Ok(())
    }

    /// Keeps the crash if none with its state says more.
    fn note_crash(&mut self, state: usize, event: u64, image: &Judged<'_>, chain: &[Arc<Link>]) {
        let Some(everything) = &self.everything else { return };
        let led = if chain.is_empty() { &mut self.point.own } else { &mut self.point.in_recovery };
        let best = led.states.get(&state).map_or((usize::MAX, u64::MAX), Crash::size);
        if best == (0, 0) {
            return;
        }
        let lost_bytes = bytes_lost(everything, image.contents);
        let crash = Crash { event, image: image.hash, lost_bytes, losses: None, in_recovery: chain.to_vec() };
        if crash.size() < best {
            let losses = Losses::of(everything, image.contents, &self.held).map(Arc::new);
            led.states.insert(state, Crash { losses, ..crash });
        }
    }

    /// What oracles have against a state.
    fn ask(&mut self, state: &State, index: usize, point: &Point) -> Result<Vec<String>> {
        let moment = Moment { checkpoint: point.checkpoint, event: point.event };
        let mut refused = Vec::new();
        for (oracle, (_, asked)) in self.oracles.iter().zip(&mut self.asked) {
            let said = match asked.entry(index) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(oracle.refuses(state, moment)?),
            };
            refused.extend(said.clone());
        }
        Ok(refused)
    }

    /// The point has ended; `is_whole` if all its images were recovered.
    pub(super) fn end(&mut self, states: &States, point: &Point, is_whole: bool) {
        let is_exhaustive = point.is_exhaustive && is_whole;
        self.counts.points += 1;
        self.counts.exhaustive_points += usize::from(is_exhaustive);
        self.counts.cut_points += usize::from(point.is_cut);
        if let Some(possible) = point.possible {
            let Point { event, is_cut, is_mixed, .. } = *point;
            self.left_out.note(CutPoint { possible, event, used: self.images.len(), is_cut, is_mixed });
        }
        if !is_exhaustive && self.only_non_temporal.values().any(|is_only| *is_only) {
            self.non_temporal.insert(point.event);
        }
        self.everything = None;
        let last = std::mem::take(&mut self.point);
        self.current.extend(&last);
        match point.kind {
            PointKind::Checkpoint(number) => {
                self.close(states, Some(number), &last);
                self.from = Some((number, last));
            }
            PointKind::End => self.close(states, None, &last),
            _ => {}
        }
    }

    /// An operation has ended with this point.
    fn close(&mut self, states: &States, to: Option<u64>, last: &Seen) {
        let own = std::mem::take(&mut self.current);
        let (from, all) = match (self.from.take(), to) {
            // What comes after the last checkpoint does not begin at it.
            (Some((number, _)), None) => (Some(number), own),
            (Some((number, mut at)), Some(_)) => {
                at.extend(&own);
                (Some(number), at)
            }
            (None, _) => (None, own),
        };
        let is_judged = from.is_some() == to.is_some();
        if from.is_none() && to.is_some() && all.points == 1 {
            return;
        }
        let mut operation = Operation {
            from,
            to,
            events: (all.event, last.event),
            before: all.complete,
            after: last.complete,
            states: all.own.states.keys().copied().collect(),
            final_states: BTreeSet::new(),
            in_recovery: all.only_in_recovery().collect(),
            findings: Vec::new(),
        };
        judge_recoveries(states, &mut operation);
        let mut refused = all.own.refused.clone();
        for (said, of) in &all.in_recovery.refused {
            refused.entry(said.clone()).or_default().extend(of);
        }
        let oracles = refused.into_iter().map(|(said, of)| Finding::new(FindingKind::Oracle(said), of));
        operation.findings.extend(oracles);
        if is_judged {
            operation.final_states = last.own.states.keys().copied().collect();
            operation.in_recovery.extend(last.only_in_recovery());
            if !self.is_left_to_oracles {
                judge_atomicity(states, &mut operation, self.must_be_atomic);
                judge_in_recovery(states, &mut operation);
            }
        }
        operation.findings.sort_by(|one, two| one.kind.cmp(&two.kind));
        for finding in &mut operation.findings {
            let suspects = finding.suspects(operation.before, operation.after);
            let crash = |state: &usize| crash_of(&finding.kind, *state, &all, last);
            let crashes = suspects.iter().filter_map(|state| Some((*state, crash(state)?.clone())));
            finding.crashes = crashes.collect();
            finding.crashes.sort_by_key(|(_, crash)| crash.size());
            finding.crashes.truncate(EVIDENCE_MAX);
            finding.states_without_crash = suspects.len() - finding.crashes.len();
        }
        let is_known = |before: &Operation| {
            operation.states.is_subset(&before.states) && operation.in_recovery.is_subset(&before.in_recovery)
        };
        if is_judged || !operation.findings.is_empty() && !self.operations.last().is_some_and(is_known) {
            self.states_of_operations += operation.states.len() + operation.in_recovery.len();
            self.operations.push(operation);
        }
    }
}

/// The checkpoint that names states of a point. What comes before the first has its name.
fn named_by(point: &Point) -> Option<u64> {
    match point.kind {
        PointKind::Checkpoint(number) if point.checkpoint.is_none() => Some(number),
        _ => point.checkpoint,
    }
}
