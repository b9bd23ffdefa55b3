//! The region of a mount: opened or made, and what is said about it. The words are here alone.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use fastness_pmem::{Durability, MsyncMode, OpenOptions, Region, RegionError, RegionInfo, RegionKind};
use fastness_responder::ProtocolKind;

use crate::error::FrontError;

/// How a file is used as a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegionUse {
    /// As what it is: of an ordinary file every write waits for the disk.
    AsItIs,
    /// As if it were persistent memory: it survives the process, but not the power.
    Emulated,
}

/// Options for a region that is used so.
pub(crate) fn options(how: RegionUse) -> OpenOptions {
    match how {
        RegionUse::AsItIs => OpenOptions::new(),
        RegionUse::Emulated => OpenOptions::new().msync(MsyncMode::Never),
    }
}

/// Whether there is nothing at `path`, or a file without a byte, which a process left that died when it made
/// it.
fn is_vacant(path: &Path) -> bool {
    match std::fs::metadata(path) {
        Ok(found) => found.is_file() && found.len() == 0,
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

/// Opens the region at `path`; makes a file of that length, with mode 0600, if nothing is there, or a file
/// without a byte. The answer says whether it was made.
///
/// # Errors
/// [`FrontError::Region`], [`FrontError::InUse`].
pub fn open_region(
    path: &Path,
    create_bytes: Option<u64>,
    how: RegionUse,
) -> Result<(Region, bool), FrontError> {
    let in_use = |error| match error {
        RegionError::AlreadyOpen { path } => FrontError::InUse { holder: holder(&path), path },
        error => error.into(),
    };
    let (region, is_new) = match create_bytes {
        Some(len_bytes) if is_vacant(path) => {
            (Region::create_file(path, len_bytes, &options(how)).map_err(in_use)?, true)
        }
        _ => (Region::open(path, &options(how)).map_err(in_use)?, false),
    };
    if region.info().kind == RegionKind::Tmpfs {
        // This only saves page faults.
        let _ = region.populate();
    }
    Ok((region, is_new))
}

/// The process that has locked a region, as far as this one can see it.
fn holder(region: &Path) -> Option<String> {
    let metadata = std::fs::metadata(region).ok()?;
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let (major, minor) = (rustix::fs::major(metadata.dev()), rustix::fs::minor(metadata.dev()));
    let pid = locked_by(&locks, (major, minor, metadata.ino()))?;
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Some(format!("process {pid} ({})", name.trim()))
}

/// Which process holds a `flock` of a file, by `/proc/locks` (`proc_locks(5)`).
fn locked_by(locks: &str, (major, minor, inode): (u32, u32, u64)) -> Option<u32> {
    let file = format!("{major:02x}:{minor:02x}:{inode}");
    let holds = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let is_lock = words.next() == Some("FLOCK");
        let pid = words.nth(2)?.parse().ok()?;
        (is_lock && words.next() == Some(&*file)).then_some(pid)
    };
    locks.lines().find_map(holds).filter(|pid| *pid > 0)
}

/// What a crash of the process leaves.
pub(crate) fn after_process_crash(protocol: ProtocolKind) -> &'static str {
    match protocol {
        ProtocolKind::Log => "what was synced; a later write to the same bytes, not synced, may be undone",
        _ => "every acknowledged write",
    }
}

/// What a power cut leaves.
pub(crate) fn after_power_cut(protocol: ProtocolKind, info: &RegionInfo) -> &'static str {
    match (info.durability, info.kind) {
        (Durability::PowerFail, _) if protocol == ProtocolKind::Log => {
            "what was synced (fsync, O_SYNC, msync), and every change of names and lengths; of other writes what \
             the directory happens to have"
        }
        (Durability::PowerFail, _) => "every acknowledged write",
        (_, RegionKind::Tmpfs | RegionKind::Anonymous | RegionKind::File)
            if protocol == ProtocolKind::Log =>
        {
            "what the directory has: the region only stands in for persistent memory, and what was synced in the \
             last seconds is lost"
        }
        (_, RegionKind::Tmpfs | RegionKind::Anonymous) => {
            "what the directory has: the region is in memory; writes of the last flush period, and names and \
             small new files of the last second are lost"
        }
        (_, RegionKind::File) => {
            "what the directory has: the region only stands in for persistent memory; writes of the last flush \
             period, and names and small new files of the last second are lost"
        }
        _ => "what the directory has, for certain: it is not known whether this memory keeps its contents",
    }
}

/// The same of a region that no process has: how it will be used, and was, is not known of an ordinary file.
pub(crate) fn after_power_cut_unused(protocol: ProtocolKind, info: &RegionInfo) -> &'static str {
    match (info.kind, protocol) {
        (RegionKind::File, ProtocolKind::Log) => {
            "what was synced; with --emulate-pm what the directory has, without the syncs of the last seconds"
        }
        (RegionKind::File, _) => {
            "every acknowledged write; with --emulate-pm what the directory has, without the writes of the last \
             flush period, and names and small new files of the last second"
        }
        _ => after_power_cut(protocol, info),
    }
}

/// What somebody should know who expects speed of this region.
pub(crate) fn notice(protocol: ProtocolKind, info: &RegionInfo) -> Option<&'static str> {
    if info.kind != RegionKind::File || !info.msync {
        return None;
    }
    Some(match protocol {
        ProtocolKind::Log => {
            "the region is an ordinary file: every sync waits for the disk under it. It is meant for persistent \
             memory; --emulate-pm uses the file as if it were, for as long as the power stays on"
        }
        _ => {
            "the region is an ordinary file: every write waits for the disk under it, as a sync would. It is meant \
             for persistent memory; --emulate-pm uses the file as if it were, for as long as the power stays on"
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_that_has_a_lock_is_found() {
        let locks = "1: FLOCK  ADVISORY  WRITE 20847 fe:00:10231845 0 EOF\n\
            1: -> FLOCK  ADVISORY  WRITE 5 fe:00:77 0 EOF\n\
            2: POSIX  ADVISORY  WRITE 20848 00:1c:17 0 EOF\n\
            3: FLOCK  ADVISORY  WRITE 20849 00:1c:17 0 EOF\n\
            4: FLOCK  ADVISORY  WRITE 0 00:1c:18 0 EOF\n";
        assert_eq!(locked_by(locks, (0xfe, 0, 10_231_845)), Some(20847));
        assert_eq!(locked_by(locks, (0, 0x1c, 17)), Some(20849));
        assert_eq!(locked_by(locks, (0, 0x1c, 18)), None, "of another namespace");
        assert_eq!(locked_by(locks, (0xfe, 0, 77)), None, "it waits");
        assert_eq!(locked_by("nonsense\n", (0, 0, 1)), None);
    }
}
