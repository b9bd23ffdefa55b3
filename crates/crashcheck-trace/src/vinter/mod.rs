//! Traces of Vinter, the predecessor of the tester: there and back.
//!
//! Layout: a snappy stream of records, one after the other, in bincode 2's standard form (numbers below 251
//! in one byte, larger ones after 251, 252, 253 with two, four, eight bytes, little endian; texts and byte
//! strings after their length; a record's kind is a number). It has no end of its own, no disks, no threads
//! and no initial contents.
//!
//! Source: design notes on crash testing, 3.

mod number;
mod read;
mod write;

pub use read::import;
pub use write::{Exported, export};

/// Kinds of records.
mod kind {
    pub(super) const WRITE: u64 = 0;
    pub(super) const FENCE: u64 = 1;
    pub(super) const FLUSH: u64 = 2;
    pub(super) const READ: u64 = 3;
    pub(super) const HYPERCALL: u64 = 4;
}

/// Actions of hypercalls that have a meaning here.
mod action {
    pub(super) const CHECKPOINT: &str = "checkpoint";
    pub(super) const START: &str = "trace_start";
    pub(super) const SUCCESS: &str = "success";
    pub(super) const FAIL: &str = "fail";
}

#[cfg(test)]
mod tests;
