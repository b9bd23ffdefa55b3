//! Bugs that a crash tester has to find: empty without the feature `planted-bugs`, which no program enables.

#![cfg_attr(
    not(feature = "planted-bugs"),
    allow(unreachable_pub, reason = "there is nothing to plant them with")
)]

#[cfg(feature = "planted-bugs")]
use std::cell::Cell;

/// A mistake in the insertion of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// Ordering: no fence between body and header.
    HeaderBesideBody,
    /// Missing fence: the entry is acknowledged before its header is durable.
    Unfenced,
    /// Logic: the checksum is that of an empty body.
    Unsummed,
    /// Logic: the length is that of the body with its padding.
    PaddingCounted,
}

#[cfg(feature = "planted-bugs")]
thread_local! {
    static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
}

/// Plants a bug into all logs that this thread writes to, or none.
#[cfg(feature = "planted-bugs")]
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}

#[cfg(feature = "planted-bugs")]
pub(crate) fn is_planted(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

#[cfg(not(feature = "planted-bugs"))]
pub(crate) const fn is_planted(_: Bug) -> bool {
    false
}
