//! The counters that processes of Fastness publish.

use std::sync::Arc;

use fastness_pmem::counters::{Count, Published, RegionCounters};

use super::{KnownRegion, RegionName, Source, Written};

/// What the threads of processes have written, by their own count.
pub fn exact(found: &Published) -> Vec<Written> {
    let mut written = Vec::new();
    for process in &found.processes {
        for region in &process.regions {
            let name = Arc::new(name_of(region));
            let mut add = |thread: Option<u32>, count: Count| {
                written.push(Written {
                    pid: process.pid,
                    thread,
                    region: name.clone(),
                    bytes: count.bytes,
                    writes: Some(count.writes),
                    source: Source::Exact,
                });
            };
            region.threads.iter().for_each(|thread| add(Some(thread.thread), thread.count));
            if region.ended != Count::default() {
                add(None, region.ended);
            }
        }
    }
    written
}

/// Files that these processes use as regions, so that samples in them are known, whoever has mapped them.
pub fn known_regions(found: &Published) -> Vec<KnownRegion> {
    let mut known = Vec::new();
    for region in found.processes.iter().flat_map(|process| &process.regions) {
        let is_file = region.inode != 0 && region.path.is_some();
        let is_new =
            !known.iter().any(|old: &KnownRegion| (old.device, old.inode) == (region.device, region.inode));
        if is_file && is_new {
            let name = Arc::new(name_of(region));
            known.push(KnownRegion { device: region.device, inode: region.inode, name });
        }
    }
    known
}

fn name_of(region: &RegionCounters) -> RegionName {
    let kind = region.kind.map_or_else(|| "other regions".to_owned(), |kind| kind.to_string());
    RegionName { kind, path: region.path.clone(), numa_node: region.numa_node }
}

#[cfg(test)]
mod tests {
    use super::*;

    use fastness_pmem::RegionKind;
    use fastness_pmem::counters::{ProcessCounters, ThreadCount};

    fn region(kind: Option<RegionKind>, inode: u64, ended: u64, threads: &[(u32, u64)]) -> RegionCounters {
        let count = |bytes| Count { bytes, writes: bytes / 64 };
        RegionCounters {
            kind,
            path: (inode > 0).then(|| format!("/dev/shm/{inode}").into()),
            device: 5,
            inode,
            len_bytes: 4096,
            numa_node: None,
            ended: count(ended),
            threads: threads
                .iter()
                .map(|&(thread, bytes)| ThreadCount { thread, count: count(bytes) })
                .collect(),
        }
    }

    #[test]
    fn counters_become_rows_and_their_files_are_known() {
        let regions = vec![
            region(Some(RegionKind::Tmpfs), 7, 64, &[(3, 128), (4, 640)]),
            region(Some(RegionKind::Anonymous), 0, 0, &[(3, 64)]),
            region(None, 0, 64, &[]),
        ];
        let one = ProcessCounters { pid: 2, start_time: 1, regions: regions.clone() };
        let other = ProcessCounters { pid: 9, start_time: 1, regions };
        let found = Published { processes: vec![one, other], unreadable: Vec::new() };
        let written = exact(&found);
        let rows: Vec<_> = written
            .iter()
            .filter(|row| row.pid == 2)
            .map(|row| (row.region.short(), row.thread, row.bytes, row.writes))
            .collect();
        let shm = || "/dev/shm/7".to_owned();
        let expected = [
            (shm(), Some(3), 128, Some(2)),
            (shm(), Some(4), 640, Some(10)),
            (shm(), None, 64, Some(1)),
            ("anonymous memory (emulated PM)".to_owned(), Some(3), 64, Some(1)),
            ("other regions".to_owned(), None, 64, Some(1)),
        ];
        assert_eq!(rows, expected);
        let known = known_regions(&found);
        assert_eq!(known.len(), 1, "a file that two processes use is one region");
        assert_eq!((known[0].device, known[0].inode), (5, 7));
    }
}
