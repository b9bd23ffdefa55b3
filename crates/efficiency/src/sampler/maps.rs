//! From addresses of a process to regions.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, makedev, statx};

use crate::accounting::{KnownRegion, RegionName};

/// Bytes of a process's list of mappings that are read.
const MAPS_BYTES_MAX: u64 = 64 << 20;

/// A region that is mapped into a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapped {
    /// First address.
    pub start: u64,
    /// The address after the last one.
    pub end: u64,
    /// The region.
    pub region: Arc<RegionName>,
}

/// The processes of this machine, as `/proc` shows them.
#[derive(Debug, Default)]
pub struct LiveProcesses {
    known: Vec<KnownRegion>,
    names: HashMap<PathBuf, Option<Arc<RegionName>>>,
}

impl LiveProcesses {
    /// Says which files are regions beside those on PM.
    pub fn know(&mut self, known: Vec<KnownRegion>) {
        if self.known != known {
            self.known = known;
            self.names.clear();
        }
    }

    /// The regions that a process has mapped, in the order of addresses. One that has ended has none.
    pub(super) fn regions_of(&mut self, pid: u32) -> Vec<Mapped> {
        use std::io::Read;
        let mut text = String::new();
        let read = File::open(format!("/proc/{pid}/maps"))
            .and_then(|file| file.take(MAPS_BYTES_MAX).read_to_string(&mut text));
        if read.is_err() {
            return Vec::new();
        }
        let root = PathBuf::from(format!("/proc/{pid}/root"));
        text.lines().filter_map(line).filter_map(|line| self.region(&root, &line)).collect()
    }

    /// Bytes of a process's memory; how many could be read.
    pub(super) fn code_of(pid: u32, address: u64, into: &mut [u8]) -> usize {
        let memory = File::open(format!("/proc/{pid}/mem"));
        memory.and_then(|memory| memory.read_at(into, address)).unwrap_or(0)
    }

    fn region(&mut self, root: &Path, line: &Line<'_>) -> Option<Mapped> {
        let is_same = |known: &&KnownRegion| {
            let is_that = known.inode == line.inode && known.device == line.device;
            // Some file systems show another number of the device here than `stat` does.
            is_that || (known.inode == line.inode && known.name.path.as_deref() == Some(Path::new(line.path)))
        };
        let known = self.known.iter().find(is_same).map(|known| known.name.clone());
        let region = known.or_else(|| {
            let name = self.names.entry(PathBuf::from(line.path));
            name.or_insert_with(|| pm_name(root, line.path)).clone()
        })?;
        Some(Mapped { start: line.start, end: line.end, region })
    }
}

/// The name of a device or file that is PM by itself: devdax, or on a DAX file system.
fn pm_name(root: &Path, path: &str) -> Option<Arc<RegionName>> {
    let named = |kind: &str, numa_node| {
        Some(Arc::new(RegionName { kind: kind.to_owned(), path: Some(path.into()), numa_node }))
    };
    if let Some(name) = path.strip_prefix("/dev/dax") {
        let node = fs::read_to_string(format!("/sys/bus/dax/devices/dax{name}/target_node"));
        return named("devdax device", node.ok().and_then(|node| node.trim().parse().ok()));
    }
    let below = root.join(path.strip_prefix('/')?);
    let found = statx(CWD, &below, AtFlags::STATX_DONT_SYNC, StatxFlags::empty()).ok()?;
    if found.stx_attributes.contains(StatxAttributes::DAX) {
        return named("file on a DAX file system", None);
    }
    None
}

/// A line of `/proc/PID/maps` that has a file which is mapped shared, to write.
struct Line<'a> {
    start: u64,
    end: u64,
    device: u64,
    inode: u64,
    path: &'a str,
}

/// Source: proc_pid_maps(5).
fn line(text: &str) -> Option<Line<'_>> {
    let mut rest = text;
    let mut field = || {
        let (field, after) = rest.trim_start().split_once(' ').unwrap_or((rest.trim_start(), ""));
        rest = after;
        field
    };
    let (addresses, permissions, _offset, device, inode) = (field(), field(), field(), field(), field());
    let (start, end) = addresses.split_once('-')?;
    let (major, minor) = device.split_once(':')?;
    let hex = |digits: &str| u64::from_str_radix(digits, 16).ok();
    let line = Line {
        start: hex(start)?,
        end: hex(end)?,
        device: makedev(hex(major)?.try_into().ok()?, hex(minor)?.try_into().ok()?),
        inode: inode.parse().ok()?,
        path: rest.trim_start(),
    };
    let is_written = permissions.get(1..2)? == "w" && permissions.get(3..4)? == "s";
    (is_written && line.path.starts_with('/') && line.start < line.end).then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_shared_writable_files_are_read() {
        let found =
            line("7f10aa000000-7f10ab000000 rw-s 00001000 fd:01 4711    /dev/shm/a file (1)").unwrap();
        assert_eq!((found.start, found.end), (0x7f10_aa00_0000, 0x7f10_ab00_0000));
        assert_eq!((found.device, found.inode), (makedev(0xfd, 1), 4711));
        assert_eq!(found.path, "/dev/shm/a file (1)");
        for text in [
            "",
            "x",
            "1-2 rw-s",
            "1-2 r--s 0 fd:01 1 /x",
            "1-2 rw-p 0 fd:01 1 /x",
            "2-1 rw-s 0 fd:01 1 /x",
            "1-2 rw-s 0 fd:01 1",
            "1-2 rw-s 0 fd:01 1 [heap]",
            "1-2 rw-s 0 fd 1 /x",
            "zz-2 rw-s 0 fd:01 1 /x",
        ] {
            assert!(line(text).is_none(), "{text}");
        }
    }

    /// A file that this process maps is found if it is known, and only then.
    #[test]
    fn a_mapped_file_is_a_region_if_it_is_known() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("region");
        let options = fastness_pmem::OpenOptions::new().msync(fastness_pmem::MsyncMode::Never);
        let _range = fastness_pmem::Region::create_file(&path, 1 << 16, &options).unwrap().into_range();
        let found = fs::metadata(&path).unwrap();
        let name =
            Arc::new(RegionName { kind: "test".to_owned(), path: Some(path.clone()), numa_node: None });
        let mut processes = LiveProcesses::default();
        let of = |processes: &mut LiveProcesses| {
            let found = processes.regions_of(std::process::id());
            found
                .iter()
                .filter(|mapped| mapped.region.path.as_ref() == Some(&path))
                .cloned()
                .collect::<Vec<_>>()
        };
        assert_eq!(of(&mut processes), []);
        processes.know(vec![KnownRegion { device: found.dev(), inode: found.ino(), name: name.clone() }]);
        let mapped = of(&mut processes);
        assert_eq!(mapped.len(), 1);
        assert_eq!((mapped[0].end - mapped[0].start, &mapped[0].region), (1 << 16, &name));
        processes.know(vec![KnownRegion { device: found.dev(), inode: found.ino() + 1, name }]);
        assert_eq!(of(&mut processes), []);
        assert!(processes.regions_of(u32::MAX).is_empty(), "no such process");
    }

    #[test]
    fn code_of_a_process_is_read() {
        let bytes = [1_u8, 2, 3, 4];
        let mut into = [0; 4];
        let read = LiveProcesses::code_of(std::process::id(), bytes.as_ptr().addr() as u64, &mut into);
        assert_eq!((read, into), (4, bytes));
        assert_eq!(LiveProcesses::code_of(std::process::id(), 8, &mut into), 0, "nothing is mapped there");
        assert_eq!(LiveProcesses::code_of(u32::MAX, 8, &mut into), 0);
    }
}
