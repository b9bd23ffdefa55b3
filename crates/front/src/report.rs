//! What is said of a cache, to people and programs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fastness_base::chain;
use fastness_pmem::RegionInfo;
use fastness_responder::{Backing, Directory, FileId, Inspection, ProtocolKind, Recovered, Status};
use serde::{Deserialize, Serialize};

use crate::descriptors::Descriptors;
use crate::places::places;
use crate::region::{after_power_cut, after_power_cut_unused, after_process_crash, notice};

/// A file that could not be flushed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureReport {
    /// Its inode.
    pub inode: u64,
    /// Where it is in the directory, if that is known.
    #[serde(default)]
    pub path: Option<String>,
    /// The error number of its last flush.
    pub errno: i32,
    /// The same in words.
    pub error: String,
    /// Where the region cannot be read, if that is why.
    #[serde(default)]
    pub region_offset: Option<u64>,
}

/// A flush for which the directory takes long is worth a word after this time.
const LATE_NS: u64 = 5_000_000_000;

/// A file whose flush does not end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LateReport {
    /// Its inode.
    pub inode: u64,
    /// Where it is in the directory, if that is known.
    #[serde(default)]
    pub path: Option<String>,
    /// For how long it has been under way.
    pub seconds: u64,
}

/// A file of which the directory does not have everything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirtyReport {
    /// Its inode.
    pub inode: u64,
    /// Where it is in the directory, if it was found there.
    pub path: Option<String>,
    /// How many chunks, or with the protocol Log, syncs.
    pub chunks: u64,
}

/// What is known of a cache. Counts are those since its process has it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[allow(missing_docs, reason = "fields are named as the status shows them")]
pub struct Report {
    pub region: String,
    pub region_kind: String,
    pub region_bytes: u64,
    pub protocol: String,
    pub directory: String,
    pub directory_device: u64,
    pub directory_inode: u64,
    /// Where it is mounted; `None`: no process has the region.
    pub mounted_at: Option<String>,
    pub pid: Option<u32>,
    pub flush_period_ms: Option<u64>,
    pub chunk_bytes: u64,
    pub slots: u64,
    /// Chunks that the directory does not have; with the protocol Log, syncs in the log.
    pub dirty_chunks: u64,
    /// The files that these belong to; only of a region that no process has.
    #[serde(default)]
    pub dirty_files: Vec<DirtyReport>,
    /// What is wrong with the directory of a region that no process has.
    #[serde(default)]
    pub directory_trouble: Option<String>,
    /// Of these, chunks of files that are not in the directory; known after a recovery only.
    pub orphaned_chunks: u64,
    /// Changes of names that the directory may not have.
    #[serde(default)]
    pub unsynced_names: u64,
    /// Tags that contradict themselves, and the log of names if it does.
    pub damaged_tags: u64,
    /// With the protocol Log: what is wrong with its records.
    #[serde(default)]
    pub log_damage: Option<String>,
    pub failures: Vec<FailureReport>,
    /// Flushes for which the directory has not answered for five seconds.
    #[serde(default)]
    pub late: Vec<LateReport>,
    pub forced_flushes: u64,
    pub flushed_chunks: u64,
    pub written_chunks: u64,
    pub loaded_chunks: u64,
    pub multi_chunk_writes: u64,
    pub read_hits: u64,
    pub read_misses: u64,
    /// With the protocol Log: syncs that went into the log, their bytes, syncs of the directory, and how
    /// often the log was freed.
    #[serde(default)]
    pub records: u64,
    #[serde(default)]
    pub record_bytes: u64,
    #[serde(default)]
    pub real_syncs: u64,
    #[serde(default)]
    pub trims: u64,
    /// What programs have read and written by themselves, past the mount.
    #[serde(default)]
    pub direct_reads: u64,
    #[serde(default)]
    pub direct_writes: u64,
    #[serde(default)]
    pub direct_read_bytes: u64,
    #[serde(default)]
    pub direct_written_bytes: u64,
    /// Descriptors that the process may have, files and directories that programs have open through it, how
    /// many may be, and how often there were none left.
    #[serde(default)]
    pub descriptors_max: Option<u64>,
    #[serde(default)]
    pub open_files: u64,
    #[serde(default)]
    pub open_files_max: u64,
    #[serde(default)]
    pub refused_opens: u64,
    pub after_process_crash: String,
    pub after_power_cut: String,
    /// What somebody should know who expects speed.
    pub notice: Option<String>,
    /// What the recovery did with which the process began.
    pub found: Option<String>,
}

/// What is wrong with the directory at `path`, if it is the one that a region belongs to.
///
/// # Errors
/// It is not, or not there.
fn look_at(path: &Path, inspection: &Inspection) -> Result<Option<String>, String> {
    let moved = "if it was moved, `recover`, `flush` and `detach` find it with --dir";
    let directory = match Directory::open(path) {
        Ok(directory) => directory,
        Err(error) => return Err(format!("{}: {error}; {moved}", path.display())),
    };
    if directory.directory().map_or(true, |found| found.id != inspection.directory.id) {
        return Err(format!("{} is another directory now; {moved}", path.display()));
    }
    let needed = inspection.dirty_chunks.values().sum::<u64>() * inspection.geometry.chunk_bytes;
    let space = rustix::fs::statvfs(path).ok();
    let free = space.map_or(u64::MAX, |space| space.f_bavail.saturating_mul(space.f_frsize));
    let is_full = free < needed && inspection.protocol != ProtocolKind::Log;
    Ok(is_full.then(|| {
        format!("its file system has {free} bytes free; what the region has for it may need {needed}")
    }))
}

/// Name of a protocol, as on the command line.
fn name_of(protocol: ProtocolKind) -> &'static str {
    match protocol {
        ProtocolKind::Fr => "fr",
        ProtocolKind::Melo => "melov",
        ProtocolKind::Pmal => "pmal",
        ProtocolKind::PmalOrdered => "pmal-o",
        ProtocolKind::Log => "log",
        _ => "unknown",
    }
}

/// What a recovery did, in words.
pub(crate) fn found(protocol: ProtocolKind, recovered: Option<&Recovered>) -> String {
    let Some(recovered) = recovered else { return "made just now".to_owned() };
    let Recovered { dirty_chunks, orphaned_chunks, records, unreadable, damaged, .. } = *recovered;
    let [of_chunks, of_orphans, of_unreadable] = match protocol {
        ProtocolKind::Log => [
            (0, ""),
            (orphaned_chunks, "syncs of files that are not in the directory"),
            (unreadable, "syncs given up that were damaged, or followed one"),
        ],
        _ => [
            (dirty_chunks, "chunks that the directory does not have"),
            (orphaned_chunks, "of these of files that are not in it"),
            (unreadable, "files made again without what cannot be read"),
        ],
    };
    let parts = [
        (recovered.names, "changes of names looked at"),
        (recovered.made_again, "files and directories made again"),
        of_chunks,
        of_orphans,
        (records, "syncs carried out on the directory"),
        (recovered.undone_writes, "writes undone that were not acknowledged"),
        (recovered.redone_writes, "writes made again"),
        (recovered.removals, "removals completed"),
        (recovered.truncations, "truncations completed"),
        of_unreadable,
        (damaged, "chunks or operations given up that were damaged: their files are not known"),
    ];
    let parts = parts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
    let given_up = recovered
        .left_out
        .iter()
        .map(|(file, count)| format!("{count} later syncs of inode {} given up", file.inode));
    let parts: Vec<String> = parts.chain(given_up).collect();
    match parts.is_empty() {
        true => "the directory had everything".to_owned(),
        false => parts.join(", "),
    }
}

impl Report {
    /// Of a region that no process has, with the files of its directory, if that can be looked at.
    pub fn of_unused(region: &Path, inspection: &Inspection, info: &RegionInfo) -> Report {
        let after_power_cut = after_power_cut_unused(inspection.protocol, info).to_owned();
        let mut report = Report { after_power_cut, ..Report::of_inspection(region, inspection, info) };
        let files = inspection.dirty_chunks.keys().copied().collect();
        let mut found = BTreeMap::new();
        if let Some(path) = &inspection.path {
            report.directory_trouble = match look_at(path, inspection) {
                Ok(trouble) => {
                    found = places(path, &files);
                    trouble
                }
                Err(why) => Some(why),
            };
        }
        let dirty = |(file, chunks): (&FileId, &u64)| {
            let path = found.get(file).map(|path| path.display().to_string());
            DirtyReport { inode: file.inode, path, chunks: *chunks }
        };
        report.dirty_files = inspection.dirty_chunks.iter().map(dirty).collect();
        report
    }

    /// Of a region.
    pub(crate) fn of_inspection(region: &Path, inspection: &Inspection, info: &RegionInfo) -> Report {
        let directory = inspection.path.as_ref().map(|path| path.display().to_string());
        Report {
            region: region.display().to_string(),
            region_kind: info.kind.to_string(),
            region_bytes: info.len_bytes,
            protocol: name_of(inspection.protocol).to_owned(),
            directory: directory.unwrap_or_default(),
            directory_device: inspection.directory.device,
            directory_inode: inspection.directory.id.inode,
            mounted_at: None,
            pid: None,
            flush_period_ms: None,
            chunk_bytes: inspection.geometry.chunk_bytes,
            slots: inspection.geometry.slots,
            dirty_chunks: inspection.dirty_chunks.values().sum(),
            dirty_files: Vec::new(),
            directory_trouble: None,
            orphaned_chunks: 0,
            unsynced_names: inspection.unsynced_names.unwrap_or(0),
            damaged_tags: inspection.damaged_tags + u64::from(inspection.unsynced_names.is_none()),
            log_damage: inspection.log_damage.clone(),
            failures: Vec::new(),
            late: Vec::new(),
            forced_flushes: 0,
            flushed_chunks: 0,
            written_chunks: 0,
            loaded_chunks: 0,
            multi_chunk_writes: 0,
            read_hits: 0,
            read_misses: 0,
            records: 0,
            record_bytes: 0,
            real_syncs: 0,
            trims: 0,
            after_process_crash: after_process_crash(inspection.protocol).to_owned(),
            after_power_cut: after_power_cut(inspection.protocol, info).to_owned(),
            notice: notice(inspection.protocol, info).map(str::to_owned),
            direct_reads: 0,
            direct_writes: 0,
            direct_read_bytes: 0,
            direct_written_bytes: 0,
            descriptors_max: None,
            open_files: 0,
            open_files_max: 0,
            refused_opens: 0,
            found: None,
        }
    }

    /// The same with what the cache itself says; `place` knows where files are.
    #[must_use]
    pub(crate) fn with_status(
        mut self,
        status: &Status,
        place: impl Fn(FileId) -> Option<PathBuf>,
    ) -> Report {
        let path = |file: FileId| place(file).map(|path| path.display().to_string());
        let counts = &status.counts;
        self.dirty_chunks = status.dirty_chunks;
        self.orphaned_chunks = status.orphaned_chunks;
        self.unsynced_names = status.unsynced_names;
        let report = |&(file, errno): &(FileId, i32)| {
            let unreadable = status.unreadable.iter().find(|(of, _)| *of == file).map(|(_, place)| *place);
            let error = chain(&std::io::Error::from_raw_os_error(errno));
            FailureReport {
                inode: file.inode,
                path: path(file),
                errno,
                error: match unreadable {
                    Some(place) => format!("{error}: the region cannot be read at offset {place:#x}"),
                    None => error,
                },
                region_offset: unreadable,
            }
        };
        self.failures = status.failures.iter().map(report).collect();
        let is_late = |(_, ns): &&(FileId, u64)| *ns >= LATE_NS;
        let late = |&(file, ns): &(FileId, u64)| LateReport {
            inode: file.inode,
            path: path(file),
            seconds: ns / 1_000_000_000,
        };
        self.late = status.flushing.iter().filter(is_late).map(late).collect();
        self.forced_flushes = status.forced_flushes;
        self.flushed_chunks = counts.flushed;
        self.written_chunks = counts.overwritten + counts.placed + counts.placed_beside;
        self.loaded_chunks = counts.loaded;
        self.multi_chunk_writes = counts.multi_chunk_writes;
        self.read_hits = counts.read_hits;
        self.read_misses = counts.read_misses;
        self.records = counts.records;
        self.record_bytes = counts.record_bytes;
        self.real_syncs = counts.real_syncs;
        self.trims = counts.trims;
        self.direct_reads = status.direct.reads;
        self.direct_writes = status.direct.writes;
        self.direct_read_bytes = status.direct.read_bytes;
        self.direct_written_bytes = status.direct.written_bytes;
        self
    }

    /// The same with what its process may have open.
    #[must_use]
    pub(crate) fn with_descriptors(self, descriptors: &Descriptors) -> Report {
        let (open_files, refused_opens) = descriptors.counts();
        let descriptors_max = Some(descriptors.most());
        Report { descriptors_max, open_files, open_files_max: descriptors.open_max(), refused_opens, ..self }
    }

    /// Whether somebody has to do something: flushes fail or do not end, or data have no file.
    pub fn has_trouble(&self) -> bool {
        let is_flushed = self.failures.is_empty() && self.late.is_empty();
        !is_flushed || self.orphaned_chunks > 0 || self.damaged_tags > 0 || self.log_damage.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_that_does_not_end_is_trouble_after_five_seconds() {
        let file = |inode| FileId { inode, generation: 1 };
        let status = |ns| Status { flushing: vec![(file(7), ns), (file(8), 1)], ..Status::default() };
        let place = |id: FileId| (id.inode == 7).then(|| "a/b".into());
        let report = |ns| Report::default().with_status(&status(ns), place);
        assert!(!report(LATE_NS - 1).has_trouble());
        let late = report(12_300_000_000);
        assert_eq!(late.late, [LateReport { inode: 7, path: Some("a/b".to_owned()), seconds: 12 }]);
        assert!(late.has_trouble());
    }
}
