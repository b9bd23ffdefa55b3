//! What the kernel knows, and which descriptors are kept of it.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::sync::{Arc, Weak};

use fastness_responder::FileId;

use super::Node;

/// Where a file is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// Number of the directory.
    pub(super) parent: u64,
    pub(super) name: OsString,
}

impl Place {
    pub(super) fn is(&self, parent: u64, name: &OsStr) -> bool {
        self.parent == parent && self.name == name
    }
}

#[derive(Debug)]
pub(super) struct Known {
    pub(super) id: FileId,
    pub(super) lookups: u64,
    /// `None`: it has no name that is known, and keeps its descriptor.
    pub(super) place: Option<Place>,
    /// Its descriptor, if that is kept.
    pub(super) kept: Option<Arc<Node>>,
    /// The same while something uses it.
    used: Weak<Node>,
    /// Since when, among those that are kept and can be closed.
    turn: Option<u64>,
    pub(super) is_used: bool,
}

impl Known {
    pub(super) fn new(id: FileId) -> Known {
        let (place, kept, turn) = (None, None, None);
        Known { id, lookups: 0, place, kept, used: Weak::new(), turn, is_used: true }
    }

    /// The number is another file's now.
    pub(super) fn replace(&mut self, id: FileId) {
        (self.id, self.kept, self.used) = (id, None, Weak::new());
    }

    /// Its descriptor, if there is one.
    pub(super) fn node(&self) -> Option<Arc<Node>> {
        self.kept.clone().or_else(|| self.used.upgrade())
    }
}

/// What the kernel knows, and what of it is held.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) known: HashMap<u64, Known>,
    /// Those whose descriptors can be closed, by turns.
    pub(super) turns: BTreeMap<u64, u64>,
    next_turn: u64,
}

impl Table {
    /// Keeps the descriptor of a file that is known.
    pub(super) fn keep(&mut self, number: u64, node: &Arc<Node>) {
        let Some(known) = self.known.get_mut(&number) else { return };
        (known.used, known.kept, known.is_used) = (Arc::downgrade(node), Some(node.clone()), true);
        if let Some(turn) = known.turn.take() {
            self.turns.remove(&turn);
        }
        if known.place.is_some() {
            known.turn = Some(self.next_turn);
            self.turns.insert(self.next_turn, number);
            self.next_turn += 1;
        }
    }

    /// The descriptor, if there is one.
    pub(super) fn held(&mut self, number: u64) -> Option<Arc<Node>> {
        let known = self.known.get_mut(&number)?;
        known.is_used = true;
        if known.kept.is_some() {
            return known.kept.clone();
        }
        let node = known.used.upgrade()?;
        self.keep(number, &node);
        Some(node)
    }

    /// Lets go of descriptors that can be closed until there are `most`: those first that were not used since
    /// it was last their turn.
    pub(super) fn shrink(&mut self, most: usize) -> Vec<Arc<Node>> {
        let mut closed = Vec::new();
        while self.turns.len() > most {
            let (_, number) = self.turns.pop_first().expect("there are more than none");
            let known = self.known.get_mut(&number).expect("what has a turn is known");
            if std::mem::take(&mut known.is_used) {
                known.turn = Some(self.next_turn);
                self.turns.insert(self.next_turn, number);
                self.next_turn += 1;
            } else {
                known.turn = None;
                closed.extend(known.kept.take());
            }
        }
        closed
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<Known> {
        let known = self.known.remove(&number)?;
        if let Some(turn) = known.turn {
            self.turns.remove(&turn);
        }
        Some(known)
    }
}
