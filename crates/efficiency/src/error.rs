//! Why a cost could not be measured.

use std::io;
use std::path::PathBuf;

use fastness_base::ErrorKind;

/// Why a cost could not be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CostError {
    /// Something else uses the CPUs. Try again when it has ended.
    #[error(
        "the machine is not idle: {busy_percent:.1} % of its CPU time was in use over {seconds:.1} s, and at \
         most {max_percent:.1} % may be{who}"
    )]
    NotIdle {
        /// Share of the time of all CPUs that was in use.
        busy_percent: f64,
        /// The most that counts as idle.
        max_percent: f64,
        /// How long it was watched.
        seconds: f64,
        /// The busiest processes, in words; empty if none stands out.
        who: String,
    },
    /// A counter of the kernel cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system call's error.
        #[source]
        source: io::Error,
    },
    /// A file of the kernel is not as documented.
    #[error("{} {what}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// There is no block device of that name.
    #[error("{} has no device {name}", path.display())]
    NoDevice {
        /// The file that lists devices.
        path: PathBuf,
        /// As it was asked for.
        name: String,
    },
    /// The kernel denies an event that counts energy.
    #[error("cannot open the event {event}")]
    Event {
        /// Its name.
        event: String,
        /// The system call's error.
        #[source]
        source: io::Error,
    },
    /// There is no meter at that address.
    #[error("cannot reach the meter {address}")]
    Unreachable {
        /// As it was given.
        address: String,
        /// The system call's error.
        #[source]
        source: io::Error,
    },
    /// The meter sends nothing.
    #[error("the meter {address} sent no reading within {seconds:.0} s")]
    Silent {
        /// As it was given.
        address: String,
        /// How long it was waited for.
        seconds: f64,
    },
    /// The meter has ended the connection, or the file.
    #[error("the meter {address} has ended")]
    Ended {
        /// As it was given.
        address: String,
    },
    /// The meter does not keep to the protocol.
    #[error("line {line} of the meter {address} {why}: {text}")]
    Line {
        /// As it was given.
        address: String,
        /// Number of the line, from 1.
        line: u64,
        /// What is wrong.
        why: &'static str,
        /// Its beginning.
        text: String,
    },
    /// A thread could not be started.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
    /// The picture could not be written.
    #[error("cannot draw {}: {why}", path.display())]
    Draw {
        /// The file.
        path: PathBuf,
        /// In the words of the library.
        why: String,
    },
}

impl CostError {
    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            CostError::NotIdle { .. } => ErrorKind::Retry,
            CostError::Read { .. }
            | CostError::NoDevice { .. }
            | CostError::Event { .. }
            | CostError::Unreachable { .. }
            | CostError::Draw { .. } => ErrorKind::Invalid,
            CostError::Malformed { .. } | CostError::Line { .. } => ErrorKind::Corrupt,
            CostError::Silent { .. } | CostError::Ended { .. } => ErrorKind::Closed,
            CostError::Thread(_) => ErrorKind::Retry,
        }
    }
}

fastness_base::has_kind!(CostError);
