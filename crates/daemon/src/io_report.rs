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
    /// Of a mounted file system: what the kernel asked the mount for. Of a volume: what virtual machines
    /// asked their disk for (vhost-user).
    #[serde(default)]
    pub requests: Vec<RequestCounters>,
}

/// Counters of one kind of requests to a mount or a disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestCounters {
    /// Its name in the FUSE or the virtio protocol, in lower case.
    pub request: String,
    /// Of a mount all requests are timed, and their bytes are not counted.
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

impl IoRow {
    /// Adds what came to the same volume at another socket.
    pub(crate) fn add_requests(&mut self, others: Vec<RequestCounters>) {
        for other in others {
            match self.requests.iter_mut().find(|known| known.request == other.request) {
                Some(known) => known.counters.add(&other.counters),
                None => self.requests.push(other),
            }
        }
    }
}

impl IoCounters {
    fn add(&mut self, other: &IoCounters) {
        self.ops += other.ops;
        self.bytes += other.bytes;
        self.errors += other.errors;
        self.timed_ops += other.timed_ops;
        self.latency_ns_sum += other.latency_ns_sum;
        for bucket in &other.latencies {
            match self.latencies.binary_search_by_key(&bucket.to_ns, |known| known.to_ns) {
                Ok(at) => self.latencies[at].ops += bucket.ops,
                Err(at) => self.latencies.insert(at, *bucket),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(ops: u64, latencies: &[(u64, u64)]) -> IoCounters {
        let latencies: Vec<_> = latencies.iter().map(|&(to_ns, ops)| LatencyBucket { to_ns, ops }).collect();
        let timed_ops = latencies.iter().map(|bucket| bucket.ops).sum();
        IoCounters { ops, bytes: ops * 512, errors: 1, timed_ops, latency_ns_sum: ops * 10, latencies }
    }

    #[test]
    fn requests_to_several_sockets_of_a_volume_are_added() {
        let requests = |of: &[(&str, IoCounters)]| -> Vec<RequestCounters> {
            of.iter()
                .map(|(name, of)| RequestCounters { request: (*name).to_owned(), counters: of.clone() })
                .collect()
        };
        let first = [("read", counters(3, &[(100, 1)])), ("write", counters(40, &[(100, 1), (300, 2)]))];
        let second = [("write", counters(50, &[(200, 3), (300, 1)])), ("flush", counters(1, &[(900, 1)]))];
        let mut row = IoRow { requests: requests(&first), ..IoRow::default() };
        row.add_requests(requests(&second));
        let write = IoCounters { errors: 2, ..counters(90, &[(100, 1), (200, 3), (300, 3)]) };
        let expected = [("read", first[0].1.clone()), ("write", write), ("flush", second[1].1.clone())];
        assert_eq!(row.requests, requests(&expected));
    }
}
