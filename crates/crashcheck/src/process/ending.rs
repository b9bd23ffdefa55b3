//! How programs end.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// What a program wrote is kept up to here; then it is killed.
pub(super) const OUTPUT_MAX_BYTES: usize = 16 << 20;

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ending {
    /// With this exit code.
    Code(i32),
    /// Killed by this signal.
    Signal(i32),
    /// It was killed after its time-out.
    TimedOut,
    /// The machine that it ran on has ended: its kernel has panicked.
    Panicked,
    /// It was killed because it had written more than 16 MiB.
    TooMuchOutput,
}

impl Ending {
    /// Whether it ended by itself, with 0.
    pub fn is_success(self) -> bool {
        self == Ending::Code(0)
    }
}

impl From<ExitStatus> for Ending {
    fn from(status: ExitStatus) -> Ending {
        match status.signal() {
            Some(signal) => Ending::Signal(signal),
            None => Ending::Code(status.code().unwrap_or(-1)),
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Code(0) => write!(f, "ended well"),
            Ending::Code(code) => write!(f, "ended with exit code {code}"),
            Ending::Signal(signal) => write!(f, "was killed by signal {signal}"),
            Ending::TimedOut => write!(f, "did not end in time"),
            Ending::Panicked => write!(f, "ended in a kernel panic"),
            Ending::TooMuchOutput => write!(f, "wrote more than {} MiB", OUTPUT_MAX_BYTES >> 20),
        }
    }
}
