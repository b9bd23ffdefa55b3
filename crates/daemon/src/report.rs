//! Reports of a running pool: the same types for `--json` and for the tables that people read.

use serde::{Deserialize, Serialize};

use crate::damaged::DamagedReport;
use crate::importing::ImportReport;
use crate::journal::EventReport;

/// State of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolReport {
    /// Name.
    pub name: String,
    /// GUID, hexadecimal.
    pub guid: String,
    /// `online`, `degraded`, `damaged` (scrubs found blocks without a good copy, and these were neither
    /// rewritten nor freed since) or `suspended`.
    pub state: String,
    /// Why it is not online, and what to do.
    pub advice: Option<String>,
    /// `failmode`: whether requests wait while it is suspended.
    pub failmode: String,
    /// Client requests that wait for it.
    pub waiting: usize,
    /// The process that has it.
    pub pid: u32,
    /// Since the import.
    pub uptime_s: u64,
    /// How long the import took.
    pub import: ImportReport,
    /// Newest durable txg.
    pub synced_txg: u64,
    /// The txg that new changes join.
    pub open_txg: u64,
    /// Unsynced bytes in memory.
    pub dirty_bytes: u64,
    /// Bound of `dirty_bytes`.
    pub dirty_bytes_max: u64,
    /// Total space of the vdevs.
    pub total_bytes: u64,
    /// Space in use.
    pub used_bytes: u64,
    /// Space still available to data.
    pub free_bytes: u64,
    /// By how much volumes without room of their own could outgrow what is free for them.
    #[serde(default)]
    pub overcommitted_bytes: u64,
    /// How the pool was imported, and what of it was found.
    pub found: String,
    /// What of the flushed data a crash of the process leaves.
    pub after_process_crash: String,
    /// What of the flushed data a power cut leaves.
    pub after_power_cut: String,
    /// What of the unflushed data either leaves.
    pub not_flushed: String,
    /// Top-level vdevs.
    pub vdevs: Vec<VdevReport>,
    /// Blocks without a good copy, at most 1000.
    pub damaged: Vec<DamagedReport>,
    /// How many others there were when a scrub last saw everything.
    pub damaged_unlisted: u64,
    /// The log; none if the pool is read-only.
    pub log: Option<LogReport>,
    /// Served volumes, once for each address.
    pub served: Vec<ServedReport>,
    /// The running scrub or resilver, or the last one.
    pub job: Option<JobReport>,
    /// The running trim, or the last one.
    #[serde(default)]
    pub trim: Option<JobReport>,
    /// The latest events, oldest first.
    pub events: Vec<EventReport>,
}

/// A top-level vdev.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VdevReport {
    /// Number.
    pub id: u16,
    /// For logs only.
    pub is_log: bool,
    /// Its sides; one if it is not a mirror.
    pub devices: Vec<DeviceReport>,
}

/// A device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceReport {
    /// Path, or last known path.
    pub path: String,
    /// GUID, hexadecimal.
    pub guid: String,
    /// `online`, `stale`, `failed` (a flush), `full` (less space below it than it reports), `failing` (a
    /// write of something new), `offline` (a user said so) or `missing`.
    pub state: String,
    /// Reads that failed.
    pub read_errors: u64,
    /// Writes and flushes that failed.
    pub write_errors: u64,
    /// Reads that returned something other than what was written.
    pub checksum_errors: u64,
    /// Blocks that were rewritten from another side.
    pub healed: u64,
    /// What it is, in words.
    pub medium: String,
}

/// The log of a pool, and what the logs of open volumes did since they were opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogReport {
    /// `pmem` or `lwb`.
    pub kind: String,
    /// Regions of kind pmem; two are a mirror.
    pub regions: Vec<RegionReport>,
    /// What it is on, in words.
    pub medium: String,
    /// All volumes together.
    pub total: LogCounters,
    /// Volumes that are open, by name.
    pub volumes: Vec<LogVolumeReport>,
    /// Kind pmem: what was written to the regions since the import.
    pub medium_counters: Option<LogRegionCounters>,
}

/// Counters of a log's regions, which all volumes share.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogRegionCounters {
    /// Entries written.
    pub entries: u64,
    /// Bytes written, with headers and padding; a mirrored write counts once.
    pub bytes: u64,
    /// Times that a writer found no free commit slot.
    pub slot_waits: u64,
    /// Times that a writer found no free chunk.
    pub chunk_waits: u64,
    /// Chunks that were emptied to be used again.
    pub chunks_collected: u64,
    /// Chunks that did not hold what was written to them.
    pub media_faults: u64,
    /// Estimated time that all writers together spent writing, in ns (from one entry in 64).
    pub time_in_pm_ns: u64,
    /// Bytes read back, with `logdata=pm`: headers and records.
    #[serde(default)]
    pub read_bytes: u64,
    /// Times that a side did not have what was to be read back.
    #[serde(default)]
    pub read_faults: u64,
}

/// Why synchronous writes were not in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogCauseReport {
    /// In words.
    pub cause: String,
    /// Commits and flushes that waited for a txg for this cause.
    pub fallbacks: u64,
    /// Records that were not logged for this cause; the next flush waits for a txg, unless one has synced
    /// before.
    pub unlogged: u64,
}

/// A region of persistent memory that holds a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionReport {
    /// Where it is.
    pub path: String,
    /// Its number, hexadecimal.
    pub id: String,
    /// Whether it only stands in for persistent memory.
    pub emulates: bool,
    /// What it is on, in words; empty if it is not open.
    #[serde(default)]
    pub medium: String,
    /// `online`; `out`: it was missing, or lost in use, and lacks what was logged since; `lost`: it failed in
    /// use, and nothing more is logged to it; `faulty`: it did not hold what was written.
    pub state: String,
    /// Times that it did not hold what was written to it, when a chunk was collected or a block was read
    /// back.
    pub faults: u64,
    /// The error of the store or fence, if it was lost in use since the import.
    #[serde(default)]
    pub error: Option<String>,
}

/// What the log of one volume did since it was opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogVolumeReport {
    /// Name.
    pub name: String,
    /// Counters.
    pub counters: LogCounters,
    /// What the fallbacks came from; causes that never occurred are left out.
    pub causes: Vec<LogCauseReport>,
}

/// Counters of logs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogCounters {
    /// Records written.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Commits of a commit list.
    pub commits: u64,
    /// Flushes.
    pub flushes: u64,
    /// Times that a commit waited for records that another commit was writing.
    pub waits: u64,
    /// Assigned changes whose data was copied for the log at once.
    pub copied: u64,
    /// Assigned changes whose data is read back if it has to be logged.
    pub need_copy: u64,
    /// Records written with only an address, their data having gone to its place in the pool.
    pub indirect: u64,
    /// Bytes written to the pool for these at commit.
    #[serde(default)]
    pub indirect_bytes: u64,
    /// Flushes and writes with FUA that waited for a txg instead.
    pub fallbacks: u64,
    /// Times that the log was full.
    pub stalls: u64,
    /// Commits and flushes that failed altogether.
    pub errors: u64,
}

/// Where a volume is served.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Address {
    /// Path of a Unix socket.
    Unix(String),
    /// Address and port, loopback unless told otherwise; port 0 for any.
    Tcp(String),
    /// Path of a Unix socket, for a virtual machine (vhost-user).
    VhostUser(String),
    /// Path of a mount point.
    Mount(String),
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Address::Unix(at) | Address::Tcp(at) | Address::VhostUser(at) | Address::Mount(at)) = self;
        f.write_str(at)
    }
}

/// A volume at an address, or a file system at its mount point.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServedReport {
    /// The volume or file system.
    pub volume: String,
    /// Its size; 0 for files.
    pub size_bytes: u64,
    /// Where.
    pub address: Address,
    /// As an NBD URI, or the mount point.
    pub uri: String,
    /// Whether writes are refused.
    pub is_read_only: bool,
    /// Clients that are connected.
    pub clients: u64,
    /// Of NBD through TLS.
    #[serde(default)]
    pub tls: Option<TlsReport>,
    /// Of a mount: what the kernel has asked for; of a disk of virtual machines: what these have.
    #[serde(default)]
    pub operations: Vec<OperationReport>,
}

/// TLS at an address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsReport {
    /// Whether clients need a certificate.
    pub verifies_clients: bool,
    /// Clients that have shown one.
    pub certified: u64,
    /// What is wrong with the files, and no reason to refuse them.
    pub warnings: Vec<String>,
}

/// An operation of a mount, or of a disk of virtual machines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationReport {
    /// Its name in the FUSE protocol, or for a disk in the virtio protocol.
    pub operation: String,
    /// How often.
    pub ops: u64,
    /// How many of these failed, but for names and attributes that do not exist.
    pub errors: u64,
    /// Of a disk: bytes of those that succeeded.
    #[serde(default)]
    pub bytes: u64,
    /// How many were timed: of a mount all.
    #[serde(default)]
    pub timed_ops: u64,
    /// Sum of the latencies of these.
    pub latency_ns_sum: u64,
}

/// A check of a file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesCheckReport {
    /// Files that are no directories.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Names.
    pub names: u64,
    /// Files without a name: in use, or erased by the next mount.
    pub without_name: u64,
    /// The first findings.
    pub findings: Vec<String>,
    /// All of them.
    pub findings_count: u64,
    /// If the pool does not run: what was looked at.
    #[serde(default)]
    pub offline: Option<OfflineReport>,
}

/// The state of a pool that does not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfflineReport {
    /// The txg whose tables were compared.
    pub synced_txg: u64,
    /// Whether its log may have newer records, which were not looked at: the pool was not exported.
    pub leaves_log_out: bool,
}

/// A scrub or resilver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobReport {
    /// `scrub` or `resilver of PATH`.
    pub what: String,
    /// `running`, `done`, `stopped` or `failed`.
    pub state: String,
    /// Bytes examined.
    pub done_bytes: u64,
    /// Estimated total.
    pub total_bytes: u64,
    /// Bad copies; they were rewritten if a good one existed.
    pub wrong_copies: u64,
    /// Places without a good copy.
    pub lost: Vec<String>,
    /// Elapsed time so far.
    pub elapsed_s: u64,
    /// Why it failed.
    pub error: Option<String>,
}

/// What a full check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckReport {
    /// Whether allocated and referenced space match exactly.
    pub is_clean: bool,
    /// Bytes of data that extents reference.
    pub data_bytes: u64,
    /// Bytes of metadata.
    pub metadata_bytes: u64,
    /// Allocated, but not referenced.
    pub leaked: Vec<String>,
    /// Referenced, but free.
    pub missing: Vec<String>,
    /// Referenced twice.
    pub shared: Vec<String>,
}

/// A command that was carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryReport {
    /// Seconds since 1970.
    pub at_unix_s: u64,
    /// Number of the user.
    pub user: u32,
    /// The host.
    pub host: String,
    /// What was asked, as `command name=value ...`.
    pub command: String,
}
