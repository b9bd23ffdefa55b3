//! The region of a mount: opened or made, and what is said about it. The words are here alone.

use std::path::Path;

use fastness_pmem::{Durability, MsyncMode, OpenOptions, Region, RegionInfo, RegionKind};

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
/// [`FrontError::Region`].
pub fn open_region(
    path: &Path,
    create_bytes: Option<u64>,
    how: RegionUse,
) -> Result<(Region, bool), FrontError> {
    let (region, is_new) = match create_bytes {
        Some(len_bytes) if is_vacant(path) => (Region::create_file(path, len_bytes, &options(how))?, true),
        _ => (Region::open(path, &options(how))?, false),
    };
    if region.info().kind == RegionKind::Tmpfs {
        // This only saves page faults.
        let _ = region.populate();
    }
    Ok((region, is_new))
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
