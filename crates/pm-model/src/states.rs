//! The distinct contents that one line can have after a crash.

use std::collections::HashMap;

use crate::config::Config;
use crate::labels::{Label, Labels};
use crate::line::{Line, LineBytes, NEVER, Pending, Time};

/// One content of a line.
#[derive(Debug, Clone)]
pub(crate) struct State {
    pub(crate) bytes: LineBytes,
    pub(crate) labels: Labels,
    pub(crate) nt: NtPart,
}

/// What a content has of the line's non-temporal stores; where there are several ways to it, the least.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NtPart {
    /// A piece of one.
    pub(crate) any: bool,
    /// A part of stores that follow each other, but not all of them.
    pub(crate) partial: bool,
}

impl NtPart {
    const NONE: Self = Self { any: false, partial: false };
}

/// States in order of discovery without duplicates.
#[derive(Debug, Default)]
struct StateSet {
    states: Vec<State>,
    index: HashMap<LineBytes, usize>,
}

impl StateSet {
    fn add(&mut self, bytes: LineBytes, label: Label, nt: NtPart) {
        let next = self.states.len();
        let at = *self.index.entry(bytes).or_insert(next);
        if at == next {
            self.states.push(State { bytes, labels: Labels::one(label), nt });
        } else {
            let state = &mut self.states[at];
            state.labels.add(label);
            state.nt.any &= nt.any;
            state.nt.partial &= nt.partial;
        }
    }
}

/// What the states of a line depend on besides the line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Context {
    pub(crate) config: Config,
    /// Whether any rule across lines is in force; without one all labels are [`Label::FREE`].
    pub(crate) is_ordered: bool,
    /// Time of the last fence (R11).
    pub(crate) fence: Time,
}

/// A line has more distinct contents than asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Overflow;

/// All distinct contents of a line, the one without any pending store first.
///
/// # Errors
/// [`Overflow`] if there are more than `cap`.
pub(crate) fn line_states(
    line: &Line,
    base: &LineBytes,
    context: Context,
    cap: usize,
) -> Result<Vec<State>, Overflow> {
    let mut walk = Walk::new(line, *base, context);
    let mut at = 0;
    if context.config.has_line_subsets() {
        walk.found.add(*base, Label::FREE, NtPart::NONE);
        at = line.forced_prefix(context.fence);
        line.stores[..at].iter().for_each(|store| walk.complete(store));
    }
    walk.found.add(walk.bytes, walk.label(at), walk.nt_at(at));
    while at < line.stores.len() {
        let end = line.group_end(at, context.config);
        if end == at + 1 {
            walk.tear_one(at);
        } else {
            walk.tear_group(at, end, cap)?;
        }
        line.stores[at..end].iter().for_each(|store| walk.complete(store));
        at = end;
        if walk.found.states.len() > cap {
            return Err(Overflow);
        }
    }
    Ok(walk.found.states)
}

/// Walks along the stores of a line, and notes the states between them.
struct Walk<'a> {
    line: &'a Line,
    context: Context,
    /// Per store.
    limits: Vec<Time>,
    /// Minimum of the limits from a store on.
    limits_from: Vec<Time>,
    /// The line with all stores up to here.
    bytes: LineBytes,
    newest: Time,
    found: StateSet,
}

impl<'a> Walk<'a> {
    fn new(line: &'a Line, bytes: LineBytes, context: Context) -> Self {
        let limits = line.limits(context.config);
        let mut limits_from = vec![NEVER; limits.len() + 1];
        for index in (0..limits.len()).rev() {
            limits_from[index] = limits[index].min(limits_from[index + 1]);
        }
        Self { line, context, limits, limits_from, bytes, newest: 0, found: StateSet::default() }
    }

    /// Label of the state that lacks exactly the stores from `first_missing` on.
    fn label(&self, first_missing: usize) -> Label {
        self.any_label(self.newest, self.limits_from[first_missing])
    }

    /// Of the state that lacks exactly the stores from `first_missing` on.
    fn nt_at(&self, first_missing: usize) -> NtPart {
        let is_nt = |index: usize| self.line.stores.get(index).is_some_and(|store| store.nt);
        NtPart {
            any: self.line.stores[..first_missing].iter().any(|store| store.nt),
            partial: first_missing > 0 && is_nt(first_missing - 1) && is_nt(first_missing),
        }
    }

    fn any_label(&self, newest: Time, limit: Time) -> Label {
        if self.context.is_ordered { Label { newest, limit } } else { Label::FREE }
    }

    fn newest_with(&self, store: &Pending) -> Time {
        if store.nt { self.newest } else { self.newest.max(store.time) }
    }

    fn complete(&mut self, store: &Pending) {
        self.newest = self.newest_with(store);
        store.apply(&mut self.bytes);
    }

    /// Notes the states with some pieces of one store, and the one with all of them. Pieces of one
    /// store are disjoint, so only those that change something count, and no two subsets are equal.
    fn tear_one(&mut self, at: usize) {
        let store = &self.line.stores[at];
        let changes: Vec<_> =
            store.pieces().filter(|&piece| store.piece_changes(piece, &self.bytes)).collect();
        let torn = self.any_label(self.newest_with(store), self.limits_from[at]);
        let torn_nt = NtPart { any: store.nt || self.nt_at(at).any, partial: store.nt };
        for subset in 1..(1_u32 << changes.len()).saturating_sub(1) {
            let mut bytes = self.bytes;
            for (_, &piece) in changes.iter().enumerate().filter(|(bit, _)| subset >> bit & 1 == 1) {
                store.apply_piece(piece, &mut bytes);
            }
            self.found.add(bytes, torn, torn_nt);
        }
        let mut bytes = self.bytes;
        store.apply(&mut bytes);
        let full = self.any_label(self.newest_with(store), self.limits_from[at + 1]);
        self.found.add(bytes, full, self.nt_at(at + 1));
    }

    /// Notes the states with any subset of the pieces of the stores `at..end`, merging equal ones
    /// after each piece.
    fn tear_group(&mut self, at: usize, end: usize, cap: usize) -> Result<(), Overflow> {
        let mut frontier = StateSet::default();
        frontier.add(self.bytes, self.label(end), self.nt_at(at));
        for index in at..end {
            let store = &self.line.stores[index];
            for piece in store.pieces() {
                let mut next = StateSet::default();
                for state in &frontier.states {
                    let mut with = state.bytes;
                    store.apply_piece(piece, &mut with);
                    for label in state.labels.iter() {
                        let newest = if store.nt { label.newest } else { label.newest.max(store.time) };
                        let limit = label.limit.min(self.limits[index]);
                        next.add(state.bytes, self.any_label(label.newest, limit), state.nt);
                        let nt = NtPart { any: true, partial: true };
                        next.add(with, self.any_label(newest, label.limit), nt);
                    }
                }
                frontier = next;
                if frontier.states.len() > cap {
                    return Err(Overflow);
                }
            }
        }
        let mut all = self.bytes;
        self.line.stores[at..end].iter().for_each(|store| store.apply(&mut all));
        for state in &frontier.states {
            let nt = if state.bytes == all { self.nt_at(end) } else { state.nt };
            state.labels.iter().for_each(|label| self.found.add(state.bytes, label, nt));
        }
        Ok(())
    }
}
