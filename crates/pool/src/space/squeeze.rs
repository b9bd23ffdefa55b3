//! For tests: a pool as full as they want, without the bytes that fill one.

use std::sync::Arc;

use crate::pool::Pool;
use crate::space::room::Claim;
use crate::state::Shared;

/// Which changes are to find little room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Short {
    /// What users store.
    Data,
    /// That, and what clears a part of a block.
    Parts,
    /// All that users do.
    Frees,
}

/// Room that is taken from everybody, until this is dropped.
#[must_use = "what is dropped gives the room back"]
pub struct Squeezed {
    shared: Arc<Shared>,
    bytes: i64,
}

impl std::fmt::Debug for Squeezed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Squeezed({} bytes)", self.bytes)
    }
}

impl Drop for Squeezed {
    fn drop(&mut self) {
        self.shared.space.room.give(self.bytes);
    }
}

impl Pool {
    /// For tests: such changes find `left_bytes` left at most, until what is returned is dropped.
    pub fn squeeze(&self, short: Short, left_bytes: u64) -> Squeezed {
        let claim = match short {
            Short::Data => Claim::Data,
            Short::Parts => Claim::Part,
            Short::Frees => Claim::Free,
        };
        let room = &self.shared.space.room;
        let bytes = (room.left(claim) - left_bytes as i64).max(0);
        // Whatever is kept for others: nothing is ever written to it.
        let taken = room.take(bytes, Claim::Replay, 0);
        debug_assert!(taken.is_ok(), "a replay is never refused");
        Squeezed { shared: self.shared.clone(), bytes }
    }
}
