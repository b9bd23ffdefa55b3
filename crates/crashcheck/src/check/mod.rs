//! Recovers crash images, and judges the resulting states.
//!
//! Motivation: only the program itself can tell whether an image is consistent. So a recovery runs on each
//! image and prints what a user would see, and the operations of a test are judged by the states that they
//! can leave. Images are recovered and judged as they are made (`stream`); what is kept does not grow with
//! their number.
//!
//! Source: PM file systems dissertation, 8.6 (tester).

mod extract;
mod finding;
mod in_recovery;
mod judge;
mod led;
mod left_out;
mod losses;
mod operations;
mod oracle;
mod pace;
mod progress;
mod shrink;
mod state;
mod stream;
mod workers;

pub use extract::{CommandExtract, Extract, WorkDir, write_files};
pub use finding::{Finding, FindingKind, Operation};
pub(crate) use in_recovery::{Explorer, Here};
pub use in_recovery::{Link, RecoveryCounts, RecoveryCrashes, RecoveryTrace, TraceRecovery, after_chain};
pub use judge::{Counts, Judge};
pub use led::Crash;
pub use left_out::{CutPoint, LeftOut};
pub use losses::Losses;
pub use operations::{Log, Operations};
pub use oracle::{Moment, Oracle, Predicate, Prefix};
pub use pace::Pace;
pub(crate) use progress::Seen;
pub use progress::{Failure, Step};
pub use shrink::{Shrink, Shrunk};
pub use state::{Found, State, StateLimits, States};
pub(crate) use stream::{BEYOND_IMAGES, BeyondStates, Stream};
pub use stream::{Passed, Recovered, Stop};
pub(crate) use workers::Workers;

#[cfg(test)]
mod tests;
