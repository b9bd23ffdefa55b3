//! What a cache is like now.

use std::path::PathBuf;

/// A side of a mirror.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SideStatus {
    /// Where it is, or was last.
    pub path: PathBuf,
    /// Why it takes no part; `None`: it does.
    pub out: Option<String>,
    /// Entries that it lacked or had damaged when the cache was opened although no crash explains that, and
    /// reads since then of bytes that it did not have. Where the other side is as it should be, the second
    /// one is not read.
    pub faults: u64,
}

/// What is known of a cache; counts are since it was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// Blocks of 4 KiB of which the log has something that the origin may not have.
    pub blocks: u64,
    /// Long ranges of zeroes that the origin may not have.
    pub zero_ranges: u64,
    /// Bytes of entries in generations that the origin does not have.
    pub log_bytes: u64,
    /// Bytes of the log.
    pub capacity_bytes: u64,
    /// Chunks in use, in 1024ths.
    pub used_per_1024: u32,
    /// Generations that wait for the origin, the open one included.
    pub generations: u64,
    /// The last generation that the origin has.
    pub synced: u64,
    /// Why the origin takes nothing; `None`: it does.
    pub failure: Option<String>,
    /// For how many ms the write-back under way has been waiting for the origin; 0: none is.
    pub write_back_ms: u64,
    /// Persistent memory failed: nothing is acknowledged any more.
    pub is_region_failed: bool,
    /// The sides of a mirror; of a cache in one region none.
    pub sides: Vec<SideStatus>,
    /// Requests that changed something.
    pub writes: u64,
    /// Their bytes.
    pub written_bytes: u64,
    /// Requests to read.
    pub reads: u64,
    /// Bytes read from the log.
    pub log_read_bytes: u64,
    /// Bytes read from the origin.
    pub origin_read_bytes: u64,
    /// Bytes written to the origin.
    pub written_back_bytes: u64,
    /// Writes to the origin: neighbours are one.
    pub written_back_runs: u64,
    /// Write-backs, each with a flush.
    pub write_backs: u64,
    /// Write-backs that failed.
    pub failed_write_backs: u64,
    /// Bytes of log that the origin takes in a second.
    pub rate: u64,
    /// Writes that were delayed because the log was filling.
    pub delays: u64,
    /// For how long, in all, in ns.
    pub delay_ns: u64,
    /// Writes that found the log full.
    pub stops: u64,
    /// The longest that a write has taken, in ns.
    pub write_ns_max: u64,
}

impl Status {
    /// Whether the origin has everything.
    pub fn is_clean(&self) -> bool {
        self.log_bytes == 0
    }
}
