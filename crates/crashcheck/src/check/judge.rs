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
//! Source: PM file systems dissertation, 8.6.2.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::finding::{Finding, FindingKind, Operation, judge_atomicity, judge_recoveries};
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
}

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

/// States of one failure point, or of several.
#[derive(Debug, Clone, Default)]
struct Seen {
    /// With the crash that has lost least.
    states: BTreeMap<usize, Crash>,
    /// What oracles said, and of which.
    refused: BTreeMap<String, BTreeSet<usize>>,
    /// Event of the first point.
    event: u64,
    /// The state at the first point if nothing is lost there.
    complete: Option<usize>,
    points: usize,
}

impl Seen {
    fn at(event: u64) -> Seen {
        Seen { event, points: 1, ..Seen::default() }
    }

    /// Adds what a later point has.
    fn extend(&mut self, later: &Seen) {
        if self.points == 0 {
            (self.event, self.complete) = (later.event, later.complete);
        }
        self.points += later.points;
        for (state, crash) in &later.states {
            match self.states.get_mut(state) {
                Some(best) if best.lost_bytes <= crash.lost_bytes => {}
                _ => drop(self.states.insert(*state, crash.clone())),
            }
        }
        for (said, states) in &later.refused {
            self.refused.entry(said.clone()).or_default().extend(states);
        }
    }
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
        self.states_of_operations + self.current.states.len() + self.point.states.len()
            >= STATES_OF_OPERATIONS_MAX
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
        // What comes before the first checkpoint has its name.
        let checkpoint = match point.kind {
            PointKind::Checkpoint(number) if point.checkpoint.is_none() => Some(number),
            _ => point.checkpoint,
        };
        let is_regular = image.part == Part::Everything;
        let state = states.note(image.state, checkpoint, is_regular, image.is_new);
        if is_regular {
            self.point.complete = Some(state);
        }
        self.images.insert(image.hash);
        *self.only_non_temporal.entry(state).or_insert(true) &= image.has_non_temporal;
        self.note_crash(state, point.event, image);
        self.ask(states.state(state), state, Moment { checkpoint: point.checkpoint, event: point.event })
    }

    /// Keeps the crash if none with its state has lost less.
    fn note_crash(&mut self, state: usize, event: u64, image: &Judged<'_>) {
        let Some(everything) = &self.everything else { return };
        let best = self.point.states.get(&state).map_or(u64::MAX, |crash| crash.lost_bytes);
        if best == 0 {
            return;
        }
        let lost_bytes = bytes_lost(everything, image.contents);
        if lost_bytes < best {
            let losses = Losses::of(everything, image.contents, &self.held).map(Arc::new);
            self.point.states.insert(state, Crash { event, image: image.hash, lost_bytes, losses });
        }
    }

    fn ask(&mut self, state: &State, index: usize, moment: Moment) -> Result<()> {
        for (oracle, (_, asked)) in self.oracles.iter().zip(&mut self.asked) {
            let said = match asked.entry(index) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(oracle.refuses(state, moment)?),
            };
            if let Some(said) = said {
                self.point.refused.entry(said.clone()).or_default().insert(index);
            }
        }
        Ok(())
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
            states: all.states.keys().copied().collect(),
            final_states: BTreeSet::new(),
            findings: Vec::new(),
        };
        judge_recoveries(states, &mut operation);
        let oracles = all.refused.iter();
        let oracles = oracles.map(|(said, of)| Finding::new(FindingKind::Oracle(said.clone()), of.clone()));
        operation.findings.extend(oracles);
        if is_judged {
            operation.final_states = last.states.keys().copied().collect();
            if !self.is_left_to_oracles {
                judge_atomicity(states, &mut operation, self.must_be_atomic);
            }
        }
        operation.findings.sort_by(|one, two| one.kind.cmp(&two.kind));
        for finding in &mut operation.findings {
            let seen = if finding.kind == FindingKind::FinalStates { last } else { &all };
            let suspects = finding.suspects(operation.before, operation.after);
            let crashes = suspects.iter().filter_map(|state| Some((*state, seen.states.get(state)?.clone())));
            finding.crashes = crashes.collect();
            // What has lost least says most.
            finding.crashes.sort_by_key(|(_, crash)| crash.lost_bytes);
            finding.crashes.truncate(EVIDENCE_MAX);
            finding.states_without_crash = suspects.len() - finding.crashes.len();
        }
        let is_known = |before: &Operation| operation.states.is_subset(&before.states);
        if is_judged || !operation.findings.is_empty() && !self.operations.last().is_some_and(is_known) {
            self.states_of_operations += operation.states.len();
            self.operations.push(operation);
        }
    }
}
