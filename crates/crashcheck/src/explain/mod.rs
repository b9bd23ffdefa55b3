//! Trace debugging: which stores are pending at an event, which of them an image has, and which patterns of a
//! trace are suspicious in themselves, and which it has at all (`reached`, for fuzzing).
//!
//! Source: PM file systems dissertation, 8.7 (trace analysis).

mod exclude;
mod lines;
mod patterns;
mod pending;
mod reached;
mod track;

pub use exclude::Exclusion;
pub use lines::{ExplainedLine, Kept, explain};
pub use patterns::{Pattern, PatternKind, Search, patterns};
pub use pending::{Pending, Store, pending_at};
pub use reached::pending_features;

#[cfg(test)]
mod tests;
