//! Recovers crash images, and judges the resulting states.
//!
//! Motivation: only the program itself can tell whether an image is consistent. So a recovery runs on each
//! image and prints what a user would see, and the operations of a test are judged by the states that they
//! can leave.
//!
//! Source: PM file systems dissertation, 8.6 (tester).

mod analyze;
mod extract;
mod oracle;
mod pace;
mod progress;
mod shrink;
mod state;

pub use analyze::{Finding, FindingKind, Operation, analyze, depends_on_non_temporal};
pub use extract::{CommandExtract, Extract, WorkDir, extract_all, write_files};
pub use oracle::{Oracle, Predicate, Prefix};
pub use pace::Pace;
pub(crate) use progress::Seen;
pub use progress::{Failure, Step};
pub use shrink::{Shrink, Shrunk};
pub use state::{Found, State, States};

#[cfg(test)]
mod tests;
