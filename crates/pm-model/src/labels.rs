//! Pairs of times that say which states of different lines fit together.

use crate::line::{NEVER, Time};

/// What one way to reach a line state means for the other lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Label {
    /// Time of the newest cached store of which the state contains a piece.
    pub(crate) newest: Time,
    /// No cached store after this time may have persisted.
    pub(crate) limit: Time,
}

impl Label {
    /// Fits every other state.
    pub(crate) const FREE: Self = Self { newest: 0, limit: NEVER };

    fn and(self, other: Self) -> Self {
        Self { newest: self.newest.max(other.newest), limit: self.limit.min(other.limit) }
    }

    fn is_allowed(self) -> bool {
        self.newest <= self.limit
    }

    /// Fits whatever `other` fits.
    fn dominates(self, other: Self) -> bool {
        self.newest <= other.newest && self.limit >= other.limit
    }
}

/// The ways to reach a state, none of which dominates another. Never empty for a line state.
#[derive(Debug, Clone, Default)]
pub(crate) struct Labels(Vec<Label>);

impl Labels {
    /// One way.
    pub(crate) fn one(label: Label) -> Self {
        Self(vec![label])
    }

    /// Adds a way.
    pub(crate) fn add(&mut self, label: Label) {
        if self.0.iter().any(|have| have.dominates(label)) {
            return;
        }
        self.0.retain(|have| !label.dominates(*have));
        self.0.push(label);
    }

    /// All ways.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Label> + '_ {
        self.0.iter().copied()
    }

    /// Puts the allowed combinations of `a` and `b` here; false if there is none.
    pub(crate) fn set_product(&mut self, a: &Self, b: &Self) -> bool {
        self.0.clear();
        for x in a.iter() {
            for label in b.iter().map(|y| x.and(y)).filter(|label| label.is_allowed()) {
                self.add(label);
            }
        }
        !self.0.is_empty()
    }
}
