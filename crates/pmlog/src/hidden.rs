//! Signs that records are missing which no crash can have cost.

use std::fmt;

/// Records are missing although all those found are in order: no crash leaves this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hidden {
    /// A sign in a chunk.
    End(fastness_prb::Hidden),
    /// More records are missing in the last generation than can have been in flight.
    Gaps {
        /// Number of missing records.
        missing: u64,
        /// Maximum number that can have been in flight.
        in_flight: u64,
    },
}

impl fmt::Display for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::End(hidden) => hidden.fmt(f),
            Self::Gaps { missing, in_flight } => write!(
                f,
                "{missing} records are missing in the last generation, at most {in_flight} were being written"
            ),
        }
    }
}
