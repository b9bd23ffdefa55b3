//! Why there is no gate, or no engine for one.

use std::io;
use std::path::PathBuf;

use fastness_base::ErrorKind;

use crate::slots::WRITERS_MAX;

/// Why a gate could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GateError {
    /// The limit is out of bounds.
    #[error("a gate lets 1 to {WRITERS_MAX} writers pass at a time, not {writers_max}")]
    Limit {
        /// As it was asked for.
        writers_max: u32,
    },
    /// A worker could not be started.
    #[error("cannot start a worker")]
    Worker(#[source] io::Error),
    /// A worker cannot run there.
    #[error("cannot keep a worker on the CPUs {cpus:?}")]
    Cpus {
        /// As they were asked for.
        cpus: Vec<usize>,
        /// The system call's error.
        #[source]
        source: io::Error,
    },
}

impl GateError {
    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            GateError::Limit { .. } | GateError::Cpus { .. } => ErrorKind::Invalid,
            GateError::Worker(_) => ErrorKind::Retry,
        }
    }
}

/// Why there is no DMA engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoDma {
    /// The kernel shows no such engine.
    #[error("no {}: the CPU has no DSA, or the kernel's driver idxd is not loaded", path.display())]
    NoEngine {
        /// The folder that would list them.
        path: PathBuf,
    },
    /// There are engines, and none of their queues is for programs.
    #[error(
        "none of the {queues} work queues in {} is enabled for programs (type user); accel-config sets them up",
        path.display()
    )]
    NoQueue {
        /// The folder that lists them.
        path: PathBuf,
        /// How many there are.
        queues: usize,
    },
    /// A queue cannot be opened.
    #[error("cannot open the work queue {}", path.display())]
    Open {
        /// The device.
        path: PathBuf,
        /// The system call's error.
        #[source]
        source: io::Error,
    },
    /// A queue does not take descriptors.
    #[error("the work queue {} takes no descriptors by write(2), which needs Linux 6.10", path.display())]
    Refuses {
        /// The device.
        path: PathBuf,
        /// The system call's error.
        #[source]
        source: io::Error,
    },
    /// A queue takes a descriptor that does nothing, and does not complete it.
    #[error("the work queue {} did not complete a descriptor that does nothing: {what}", path.display())]
    Fails {
        /// The device.
        path: PathBuf,
        /// What came instead.
        what: String,
    },
}

impl NoDma {
    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            NoDma::NoEngine { .. } | NoDma::NoQueue { .. } | NoDma::Open { .. } | NoDma::Refuses { .. } => {
                ErrorKind::Invalid
            }
            NoDma::Fails { .. } => ErrorKind::MediaFailed,
        }
    }
}

fastness_base::has_kind!(GateError);
fastness_base::has_kind!(NoDma);
