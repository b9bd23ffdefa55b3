//! What is said of a write cache, to people and programs.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use fastness_pmem::{Durability, PmRange, RegionInfo, RegionKind};
use fastness_wcache::{Cache, Inspection, Replayed, SideStatus, Status, Superblock};
use serde::{Deserialize, Serialize};

/// A write-back for which the origin takes longer is worth a word.
const LATE_MS: u64 = 5000;

/// What is known of a write cache. Counts are those since its process has it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[allow(missing_docs, reason = "fields are named as the status shows them")]
pub struct Report {
    pub region: String,
    pub region_kind: String,
    pub region_bytes: u64,
    pub cache: String,
    pub origin: String,
    pub origin_bytes: u64,
    pub block_bytes: u32,
    /// Where it is served; `None`: no process has the region.
    pub uri: Option<String>,
    pub pid: Option<u32>,
    /// Blocks of 4 KiB that the origin may not have; without a process, entries of the log.
    pub dirty_blocks: u64,
    pub dirty_ranges: u64,
    pub log_bytes: u64,
    pub capacity_bytes: u64,
    pub used_per_1024: u32,
    pub generations: u64,
    /// Why the origin takes nothing.
    pub failure: Option<String>,
    pub write_back_ms: u64,
    pub is_region_failed: bool,
    /// The last request that failed.
    pub last_error: Option<String>,
    pub writes: u64,
    pub written_bytes: u64,
    pub reads: u64,
    pub log_read_bytes: u64,
    pub origin_read_bytes: u64,
    pub written_back_bytes: u64,
    pub written_back_runs: u64,
    pub write_backs: u64,
    pub failed_write_backs: u64,
    pub write_back_rate: u64,
    pub delays: u64,
    pub delay_ns: u64,
    pub stops: u64,
    pub write_ns_max: u64,
    pub after_process_crash: String,
    pub after_power_cut: String,
    /// What somebody should know who expects speed.
    pub notice: Option<String>,
    /// What the opening did with which the process began.
    pub found: Option<String>,
    /// The sides of a mirror.
    #[serde(default)]
    pub sides: Vec<SideReport>,
}

/// What is known of a side of a mirror.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SideReport {
    /// Its path.
    pub region: String,
    /// Why it takes no part.
    pub out: Option<String>,
    /// How often it did not have what the other side has.
    pub faults: u64,
}

impl From<SideStatus> for SideReport {
    fn from(SideStatus { path, out, faults }: SideStatus) -> SideReport {
        SideReport { region: path.display().to_string(), out, faults }
    }
}

fn sides(of: Vec<SideStatus>) -> Vec<SideReport> {
    of.into_iter().map(SideReport::from).collect()
}

/// Where the origin of a cache was when it was made.
pub(super) fn origin_of(superblock: &Superblock) -> PathBuf {
    OsStr::from_bytes(&superblock.origin_path).into()
}

/// What a power cut leaves.
fn after_power_cut(info: &RegionInfo) -> &'static str {
    match (info.durability, info.kind) {
        (Durability::PowerFail, _) => "every acknowledged write",
        (_, RegionKind::Tmpfs | RegionKind::Anonymous | RegionKind::File) => {
            "what the origin has, in no order: the region only stands in for persistent memory, and what is in the \
             log alone is lost. A file system on it may be damaged"
        }
        _ => "what the origin has, for certain: it is not known whether this memory keeps its contents",
    }
}

fn notice(info: &RegionInfo) -> Option<String> {
    let is_slow = info.kind == RegionKind::File && info.msync;
    is_slow.then(|| {
        "the region is an ordinary file: every write waits for the disk under it. It is meant for persistent \
         memory; --emulate-pm uses the file as if it were, for as long as the power stays on"
            .to_owned()
    })
}

/// What an opening did, in words.
fn found(replayed: Option<&Replayed>) -> String {
    match replayed {
        None => "made just now".to_owned(),
        Some(Replayed { entries: 0, dropped: 0, .. }) => "the origin had everything".to_owned(),
        Some(Replayed { entries, bytes, dropped }) => {
            let dropped = if *dropped > 0 { format!(", {dropped} entries given up") } else { String::new() };
            format!("{entries} changes in the log, {bytes} bytes written to the origin{dropped}")
        }
    }
}

impl Report {
    fn new(superblock: &Superblock, info: &RegionInfo) -> Report {
        Report {
            region: info.path.as_ref().map(|path| path.display().to_string()).unwrap_or_default(),
            region_kind: info.kind.to_string(),
            region_bytes: info.len_bytes,
            cache: superblock.id.to_string(),
            origin: origin_of(superblock).display().to_string(),
            origin_bytes: superblock.origin.len_bytes,
            block_bytes: superblock.origin.block_bytes,
            capacity_bytes: superblock.geometry.capacity_bytes(),
            after_process_crash: "every acknowledged write".to_owned(),
            after_power_cut: after_power_cut(info).to_owned(),
            notice: notice(info),
            ..Report::default()
        }
    }

    /// Of a region that no process has.
    pub fn of_inspection(found: &Inspection, info: &RegionInfo) -> Report {
        let sides = sides(found.sides.clone());
        let report = Report::new(&found.superblock, info);
        Report { dirty_blocks: found.entries, log_bytes: found.bytes, sides, ..report }
    }

    /// Of a cache that this process has.
    pub(super) fn of(cache: &Cache<PmRange>, info: &RegionInfo, replayed: Option<&Replayed>) -> Report {
        // It may be elsewhere than when the cache was made.
        let origin = OsStr::from_bytes(&cache.origin_path()).to_string_lossy().into_owned();
        let report = Report { origin, found: Some(found(replayed)), ..Report::new(cache.superblock(), info) };
        report.with_status(cache.status())
    }

    /// The same with what the cache says now.
    #[must_use]
    pub(super) fn with_status(self, status: Status) -> Report {
        Report {
            dirty_blocks: status.blocks,
            dirty_ranges: status.zero_ranges,
            log_bytes: status.log_bytes,
            used_per_1024: status.used_per_1024,
            generations: status.generations,
            failure: status.failure,
            write_back_ms: status.write_back_ms,
            is_region_failed: status.is_region_failed,
            writes: status.writes,
            written_bytes: status.written_bytes,
            reads: status.reads,
            log_read_bytes: status.log_read_bytes,
            origin_read_bytes: status.origin_read_bytes,
            written_back_bytes: status.written_back_bytes,
            written_back_runs: status.written_back_runs,
            write_backs: status.write_backs,
            failed_write_backs: status.failed_write_backs,
            write_back_rate: status.rate,
            delays: status.delays,
            delay_ns: status.delay_ns,
            stops: status.stops,
            write_ns_max: status.write_ns_max,
            sides: sides(status.sides),
            ..self
        }
    }

    /// Whether the origin has not answered for long.
    pub fn is_late(&self) -> bool {
        self.write_back_ms >= LATE_MS
    }

    /// Whether a side of a mirror is out, or did not have what it should.
    pub fn has_bad_side(&self) -> bool {
        self.sides.iter().any(|side| side.out.is_some() || side.faults > 0)
    }

    /// Whether somebody has to do something: the origin, the region or a side of it fails.
    pub fn has_trouble(&self) -> bool {
        self.failure.is_some() || self.is_region_failed || self.is_late() || self.has_bad_side()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_back_that_does_not_end_is_trouble_after_five_seconds() {
        let report =
            |write_back_ms| Report::default().with_status(Status { write_back_ms, ..Status::default() });
        assert!(!report(LATE_MS - 1).has_trouble() && report(LATE_MS).has_trouble());
        let failed = Status { failure: Some("EIO".to_owned()), ..Status::default() };
        assert!(Report::default().with_status(failed).has_trouble());
    }
}
