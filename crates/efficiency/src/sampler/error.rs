//! Why stores cannot be sampled.

use std::io;

use fastness_base::ErrorKind;

/// Why stores cannot be sampled; says what is missing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SampleError {
    /// This machine has no event for it.
    #[error("no event for stores: {missing}")]
    NoEvent {
        /// What was looked for, and what there is instead.
        missing: String,
    },
    /// The kernel does not let this user.
    #[error(
        "the event {event} is not permitted: perf_event_paranoid is {paranoid}, which takes CAP_PERFMON \
         (root) for {what}"
    )]
    NotPermitted {
        /// The event.
        event: String,
        /// What `/proc/sys/kernel/perf_event_paranoid` says.
        paranoid: String,
        /// What was asked for.
        what: &'static str,
    },
    /// The event exists, and records nothing precise.
    #[error(
        "the event {event} has no precise samples (precise_ip): the CPU, or the hypervisor that this machine \
         is a guest of, does not offer PEBS"
    )]
    NotPrecise {
        /// The event.
        event: String,
    },
    /// There is no such process, or none that may be looked at.
    #[error("cannot look at process {pid}")]
    Process {
        /// Its number.
        pid: u32,
        /// The system call's error.
        #[source]
        source: io::Error,
    },
    /// The options make no sense.
    #[error("{0}")]
    Options(String),
    /// The event could not be opened, or its buffer not be mapped.
    #[error("cannot sample the event {event}")]
    Open {
        /// The event.
        event: String,
        /// The system call's error.
        #[source]
        source: io::Error,
    },
}

impl SampleError {
    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            SampleError::Process { .. } => ErrorKind::Closed,
            _ => ErrorKind::Invalid,
        }
    }
}

fastness_base::has_kind!(SampleError);
