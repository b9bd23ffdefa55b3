//! What a long analysis tells while it goes on.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};

use super::finding::FindingKind;
use super::state::State;

/// A recovery has ended.
#[derive(Debug)]
pub struct Step<'a> {
    /// Recoveries so far.
    pub done: usize,
    /// The crash came before this event of the trace. Events are gone through in order, but for the few
    /// recoveries that run at a time.
    pub event: u64,
    /// How many events there are.
    pub events: u64,
    /// Different states so far.
    pub states: usize,
    /// A recovery that failed, in a way that none before it has.
    pub failure: Option<Failure<'a>>,
}

/// A recovery that failed: a finding, whatever the others will say.
#[derive(Debug)]
pub struct Failure<'a> {
    /// What.
    pub kind: FindingKind,
    /// The crash came before this event of the trace.
    pub event: u64,
    /// What it printed.
    pub text: &'a [u8],
}

/// Which states were seen, by their hashes.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    keys: RandomState,
    hashes: Mutex<HashSet<u64>>,
}

impl Seen {
    /// Notes a state: how many there are now, and whether it is new.
    pub(crate) fn note(&self, state: &State) -> (usize, bool) {
        let hash = self.keys.hash_one(state);
        let mut hashes = self.hashes.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = hashes.insert(hash);
        (hashes.len(), is_new)
    }
}
