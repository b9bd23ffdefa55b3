//! What a running pool and those who talk to it say to each other: lines of JSON over a Unix socket.
//!
//! A client sends one [`Request`] a line; the daemon answers each with any number of [`Message::Progress`]
//! and then one [`Message::Done`] or [`Message::Failed`]. Lines have [`LINE_BYTES_MAX`] at most.

use fastness_error::ErrorKind;
use serde::{Deserialize, Serialize};

use crate::log_device::PmUse;

/// Longest line, in either direction.
pub const LINE_BYTES_MAX: u64 = 16 << 20;

/// A top-level vdev on a command line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VdevRequest {
    /// For logs only.
    pub is_log: bool,
    /// One path, or the sides of a mirror.
    pub devices: Vec<String>,
}

/// Where a volume is served.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Address {
    /// Path of a Unix socket.
    Unix(String),
    /// Loopback address and port; port 0 for any.
    Tcp(String),
}

/// What a client wants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
#[non_exhaustive]
#[allow(missing_docs, reason = "fields are named as the arguments of the commands that send them")]
pub enum Request {
    /// Answer: [`crate::PoolReport`].
    Status,
    /// Answer: [`crate::IoReport`].
    Io,
    /// Lets a suspended pool go on, if its devices are back.
    Clear {
        is_degraded: bool,
    },
    /// Answer: a list of [`crate::PropertyReport`], features among them.
    PoolProperties,
    SetPoolProperty {
        property: String,
        value: String,
    },
    /// Makes everything durable. Answer: the txg.
    Sync,
    /// Sync, give the pool back, end the daemon. Answered before the process ends.
    Export,
    /// Erases the labels, ends the daemon.
    Destroy,
    /// Full check. Answer: [`crate::CheckReport`].
    Check,
    /// Reads every copy; with `wait`, answers when it has ended, with [`crate::JobReport`].
    Scrub {
        wait: bool,
    },
    /// Ends a scrub or resilver that is under way.
    StopJob,
    /// Devices for logs that are persistent memory, or are to stand in for it, become the log.
    Add {
        vdevs: Vec<VdevRequest>,
        is_forced: bool,
        pm: PmUse,
    },
    Remove {
        device: String,
    },
    Attach {
        to: String,
        device: String,
        is_forced: bool,
        wait: bool,
    },
    Detach {
        device: String,
    },
    /// Lets go of a side of a mirror.
    Offline {
        device: String,
    },
    /// Opens a side again, where it was or at another path, and brings it up to date.
    Online {
        device: String,
        path: Option<String>,
        wait: bool,
    },
    Replace {
        old: String,
        new: String,
        is_forced: bool,
        wait: bool,
    },
    /// Answer: a list of [`crate::DatasetReport`].
    Datasets,
    CreateDataset {
        name: String,
        properties: Vec<(String, String)>,
        with_parents: bool,
    },
    DestroyDataset {
        name: String,
        is_recursive: bool,
    },
    RenameDataset {
        from: String,
        to: String,
    },
    /// `value` of `None`: inherit again.
    SetProperty {
        name: String,
        property: String,
        value: Option<String>,
    },
    CreateVolume {
        name: String,
        size_bytes: u64,
        properties: Vec<(String, String)>,
        with_parents: bool,
    },
    ResizeVolume {
        name: String,
        size_bytes: u64,
    },
    /// Serves a volume; with `is_kept`, again after each import. Answer: the [`Address`] in use.
    Serve {
        name: String,
        address: Address,
        is_read_only: bool,
        is_kept: bool,
    },
    /// Ends all servers of a volume, and those that an import would start.
    Unserve {
        name: String,
    },
}

impl Request {
    /// Whether it is carried out even while a suspended pool is imported again: it looks only, or ends
    /// everything.
    pub(crate) fn may_come_any_time(&self) -> bool {
        matches!(
            self,
            Request::Status
                | Request::Io
                | Request::Export
                | Request::Destroy
                | Request::StopJob
                | Request::Clear { .. }
        )
    }
}

/// What the daemon says.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// A job goes on.
    Progress(crate::JobReport),
    /// It is done; the answer.
    Done(serde_json::Value),
    /// It failed.
    Failed(Failure),
}

/// An error that has crossed a socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// Name of the [`ErrorKind`].
    pub kind: String,
    /// What went wrong.
    pub message: String,
    /// Why, from near to far.
    pub causes: Vec<String>,
}

impl Failure {
    /// An error with its sources.
    pub fn new(kind: ErrorKind, error: &dyn std::error::Error) -> Failure {
        let mut causes = Vec::new();
        let mut source = error.source();
        while let Some(cause) = source {
            causes.push(cause.to_string());
            source = cause.source();
        }
        Failure { kind: kind.name().to_owned(), message: error.to_string(), causes }
    }

    /// A refusal that needs no source.
    pub fn refuse(kind: ErrorKind, message: impl Into<String>) -> Failure {
        Failure { kind: kind.name().to_owned(), message: message.into(), causes: Vec::new() }
    }

    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        self.kind.parse().unwrap_or(ErrorKind::Bug)
    }
}

impl From<fastness_pool::PoolError> for Failure {
    fn from(error: fastness_pool::PoolError) -> Failure {
        Failure::new(error.kind(), &error)
    }
}

impl From<fastness_zvol::VolumeError> for Failure {
    fn from(error: fastness_zvol::VolumeError) -> Failure {
        Failure::new(error.kind(), &error)
    }
}
