//! What volumes, file systems and devices did, as clients get it.

use serde::{Deserialize, Serialize};

/// Counters since the import; the difference of two reports gives a rate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoReport {
    /// Pool.
    pub pool: String,
    /// Nanoseconds since the import.
    pub at_ns: u64,
    /// Newest durable txg.
    pub synced_txg: u64,
    /// Unsynced bytes in memory.
    pub dirty_bytes: u64,
    /// Volumes that are served and file systems that are mounted, by name.
    pub volumes: Vec<IoRow>,
    /// Devices, by path.
    pub devices: Vec<IoRow>,
}

/// Counters of one volume, file system or device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoRow {
    /// `volume`, `files` or `device`.
    #[serde(default)]
    pub kind: String,
    /// Name or path.
    pub name: String,
    /// Reads.
    pub read: IoCounters,
    /// Writes, including zeroing, that return before they are durable.
    pub write: IoCounters,
    /// Writes that are durable on return (FUA).
    pub sync_write: IoCounters,
    /// Flushes.
    pub flush: IoCounters,
    /// Discards.
    pub discard: IoCounters,
    /// Of a mounted file system: what the kernel asked the mount for.
    #[serde(default)]
    pub requests: Vec<RequestCounters>,
}

/// Counters of one kind of the kernel's requests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestCounters {
    /// Its name in the FUSE protocol, in lower case.
    pub request: String,
    /// All of them are timed; their bytes are not counted.
    #[serde(flatten)]
    pub counters: IoCounters,
}

/// Counters of one operation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoCounters {
    /// Operations.
    pub ops: u64,
    /// Bytes of the operations that succeeded.
    pub bytes: u64,
    /// Operations that failed.
    pub errors: u64,
    /// Operations that were timed.
    pub timed_ops: u64,
    /// Sum of their latencies.
    pub latency_ns_sum: u64,
    /// Their distribution, shortest first; empty for devices.
    #[serde(default)]
    pub latencies: Vec<LatencyBucket>,
}

/// Operations of about one latency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyBucket {
    /// Longest latency of the bucket; the next shorter bucket ends an eighth before.
    pub to_ns: u64,
    /// Timed operations.
    pub ops: u64,
}
