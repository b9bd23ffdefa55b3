//! The protocol between a running pool and its clients: lines of JSON over a Unix socket.
//!
//! A client sends one [`Request`] per line; the daemon answers each with any number of [`Message::Progress`]
//! and then one [`Message::Done`] or [`Message::Failed`]. Bulk data
//! goes on the same connection, behind a [`Message::Stream`]. A line has at most [`LINE_BYTES_MAX`] bytes.

use fastness_base::{ErrorKind, HasKind};
use serde::{Deserialize, Serialize};

use crate::report::Address;

/// Longest line, in either direction.
pub const LINE_BYTES_MAX: u64 = 16 << 20;

/// A top-level vdev on a command line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VdevRequest {
    /// For logs only.
    pub is_log: bool,
    /// It was called a mirror, however many devices it has.
    #[serde(default)]
    pub is_mirror: bool,
    /// One path, or the sides of a mirror.
    pub devices: Vec<String>,
}

/// How a device for logs is to be used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PmUse {
    /// An ordinary file, or one in memory, is used as if it were persistent memory: fast, but lost in a power
    /// cut.
    pub emulates: bool,
    /// Create a file of this length if there is none.
    pub create_bytes: Option<u64>,
}

/// How a file system is to be mounted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MountRequest {
    /// Changes are refused.
    pub is_read_only: bool,
    /// Bits that run a program as another user are ignored.
    pub no_set_id: bool,
    /// Device nodes are ignored.
    pub no_devices: bool,
    /// No programs are run.
    pub no_exec: bool,
    /// Reads do not change the time of access.
    pub no_access_time: bool,
    /// Other users may use the mount of an ordinary user.
    pub allows_others: bool,
    /// Whether requests come over io_uring, where the kernel can; otherwise as the process was told:
    /// so, unless it was told otherwise.
    pub is_over_rings: Option<bool>,
}

/// Which clients of a volume are served.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AccessRequest {
    /// Folder of certificates: nobody is served without TLS.
    pub tls_dir: Option<String>,
    /// Nor without a certificate of their own.
    pub verifies_clients: bool,
    /// Without TLS, those of other machines too.
    pub is_insecure: bool,
}

impl AccessRequest {
    /// As options of the command line.
    pub(crate) fn in_words(&self) -> String {
        let tls = self.tls_dir.as_ref().map(|folder| format!("with --tls-dir {folder}"));
        let verify = self.verifies_clients.then(|| "with --tls-verify-peer".to_owned());
        let insecure = self.is_insecure.then(|| "with --insecure".to_owned());
        let words: Vec<_> = tls.into_iter().chain(verify).chain(insecure).collect();
        if words.is_empty() { "without TLS".to_owned() } else { words.join(", ") }
    }
}

/// Which stream is wanted: of a snapshot, perhaps as an increment, or the rest of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendRequest {
    /// Full name; none with a token.
    pub snapshot: Option<String>,
    /// Full name of the snapshot that the receiver has.
    pub from: Option<String>,
    /// Where an interrupted stream goes on.
    pub token: Option<String>,
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
    /// Resumes a suspended pool, if its devices are back; of any other, sets the counters of errors of a
    /// device, or of all, back to zero.
    Clear {
        is_degraded: bool,
        #[serde(default)]
        device: Option<String>,
    },
    /// Answer: a list of [`crate::PropertyReport`], features among them.
    PoolProperties,
    SetPoolProperty {
        property: String,
        value: String,
    },
    /// Answer: a list of [`crate::HistoryReport`].
    History,
    /// Makes everything durable. Answer: the txg.
    Sync,
    /// Who uses a dataset, or anything of the pool. Answer: a list of texts.
    Users {
        name: Option<String>,
    },
    /// Syncs and exports the pool, ends the daemon. Answered before the process exits. What is in use is
    /// ended only with `is_forced`; so it is with the others that have it.
    Export {
        is_forced: bool,
    },
    /// Destroys the pool, ends the daemon. Until its devices are overwritten, it can be imported again.
    Destroy {
        is_forced: bool,
    },
    /// Full check. Answer: [`crate::CheckReport`].
    Check,
    /// Reads every copy; with `wait`, answers with [`crate::JobReport`] when it has ended.
    Scrub {
        wait: bool,
    },
    /// Stops a running scrub or resilver.
    StopJob,
    /// Discards what is free, of a device or of all; goes on after an import. With `wait`, answers when it
    /// has ended. Answer: [`crate::JobReport`].
    Trim {
        device: Option<String>,
        wait: bool,
    },
    /// Ends a trim. Answer: [`crate::JobReport`], if there was one since the import.
    CancelTrim,
    /// Log devices that are persistent memory, or stand in for it, become the log.
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
    /// Takes a side of a mirror offline.
    Offline {
        device: String,
    },
    /// Opens a side again, at its old path or another one, and brings it up to date.
    Online {
        device: String,
        path: Option<String>,
        wait: bool,
    },
    /// Uses what a device has grown by. Answer: how many bytes the pool is larger.
    Expand {
        device: String,
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
    /// A dataset, or snapshots of a volume: `volume@name`, `volume@first%last`. With `is_dry`, only says what
    /// would be destroyed. Answer: [`crate::DestroyedReport`].
    DestroyDataset {
        name: String,
        is_recursive: bool,
        #[serde(default)]
        is_dry: bool,
    },
    /// Snapshots of all volumes and file systems. Answer: a list of [`crate::DatasetReport`].
    Snapshots,
    /// What compression saves, for these datasets and snapshots: counted from all their blocks. Answer: a
    /// list of [`crate::RatioReport`], `null` for what does not exist.
    Ratios {
        names: Vec<String>,
    },
    /// Makes snapshots of volumes, `volume@name`, one after the other.
    Snapshot {
        names: Vec<String>,
    },
    /// Makes a volume what a snapshot is; with `newer_too`, destroys newer ones.
    Rollback {
        snapshot: String,
        newer_too: bool,
    },
    /// Makes a volume that begins as a snapshot is.
    CloneSnapshot {
        snapshot: String,
        name: String,
        properties: Vec<(String, String)>,
        with_parents: bool,
    },
    /// A clone gets the snapshots up to the one that it began as; their volume becomes a clone.
    Promote {
        name: String,
    },
    /// How long a stream would be. Answer: [`crate::StreamReport`].
    StreamSize(SendRequest),
    /// Sends a snapshot: answered with [`Message::Stream`], frames, and then as any request.
    Send(SendRequest),
    /// Receives a stream into a volume, or `volume@name`: answered with [`Message::Stream`]; the client sends
    /// frames then. Answer: [`crate::ReceivedReport`].
    Receive {
        name: String,
        is_resumable: bool,
        is_forced: bool,
    },
    /// Discards what came of a volume.
    AbortReceive {
        name: String,
    },
    RenameDataset {
        from: String,
        to: String,
    },
    /// All of them, or none if one cannot be; `None`: inherit again.
    SetProperties {
        name: String,
        values: Vec<(String, Option<String>)>,
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
        is_forced: bool,
    },
    /// Serves a volume; with `is_kept`, again after each import. Answer: the [`Address`] in use.
    Serve {
        name: String,
        address: Address,
        is_read_only: bool,
        is_kept: bool,
        /// At an address where others are served already, the same as theirs.
        #[serde(default)]
        access: AccessRequest,
    },
    /// Reads the certificates of all addresses again, for connections that begin from then on. Answer: a list
    /// of these addresses.
    ReloadCertificates,
    /// Stops all servers of a volume, and those that an import would start.
    Unserve {
        name: String,
        is_forced: bool,
    },
    /// The root belongs to this user and group.
    CreateFiles {
        name: String,
        uid: u32,
        gid: u32,
        properties: Vec<(String, String)>,
        with_parents: bool,
    },
    /// Mounts a file system; with `is_kept`, again after each import. Answer: [`crate::ServedReport`].
    Mount {
        name: String,
        path: String,
        options: MountRequest,
        is_kept: bool,
    },
    /// By name or mount point; an import does not mount it any more.
    Unmount {
        what: String,
        is_forced: bool,
    },
    /// Answer: [`crate::FilesCheckReport`].
    CheckFiles {
        name: String,
    },
}

impl Request {
    /// Whether it may run even while a suspended pool is imported again: it only reads, or ends everything.
    pub(crate) fn may_come_any_time(&self) -> bool {
        matches!(
            self,
            Request::Status
                | Request::Io
                | Request::Users { .. }
                | Request::Export { .. }
                | Request::Destroy { .. }
                | Request::StopJob
                | Request::Clear { .. }
        )
    }
}

/// A message from the daemon.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// Progress of a job.
    Progress(crate::JobReport),
    /// Bulk data follows, from whoever has it: frames, each of a length (4 bytes, little-endian) and so many
    /// bytes; one of no bytes is the last. Then the connection ends with the answer.
    Stream,
    /// The request is done; this is the answer.
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
    /// The chain of causes, nearest first.
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

impl<E: HasKind> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::new(error.kind(), &error)
    }
}
