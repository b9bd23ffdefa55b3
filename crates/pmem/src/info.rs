//! What a region is, and what survives on it.

use std::fmt;
use std::path::PathBuf;

use crate::method::Kernel;
use crate::pkeys::Protection;

/// The length of a file or of anonymous memory is a multiple of this; the least length of any region.
pub const REGION_ALIGN_BYTES: u64 = 4096;

/// The kind of medium that a region maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RegionKind {
    /// A devdax character device.
    DevDax,
    /// A file on a DAX file system, mapped with `MAP_SYNC`.
    FsDax,
    /// A file behind the page cache, virtio-pmem included.
    File,
    /// A file in a memory file system (tmpfs, ramfs, hugetlbfs): emulated PM.
    Tmpfs,
    /// Anonymous memory: emulated PM that ends with its region.
    Anonymous,
}

/// How far a store must get to survive a power cut.
///
/// Source: `persistence_domain` of a libnvdimm region, Linux `Documentation/ABI/testing/sysfs-bus-nvdimm`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum PersistenceDomain {
    /// Not known. Treated as volatile.
    Unknown,
    /// The memory controller's write queue (ADR): lines must leave the CPU caches.
    MemoryController,
    /// The CPU caches (eADR).
    CpuCache,
}

/// Where the persistence domain is known from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DomainSource {
    /// The kernel, through sysfs; also if the domain is unknown.
    Sysfs,
    /// The caller's override.
    Override,
}

/// What [`Medium::fence`](crate::Medium::fence) protects from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Durability {
    /// Fenced bytes survive the end of this process, not a power cut or a kernel crash.
    ProcessCrash,
    /// Fenced bytes survive a power cut.
    PowerFail,
}

/// Bytes that the kernel knows to be unreadable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BadRange {
    /// First byte.
    pub start: u64,
    /// Number of bytes.
    pub len_bytes: u64,
}

/// The kernel's list of bad blocks, as far as it can be read and placed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadBlocks {
    /// sysfs has no list for this region.
    Unknown,
    /// In region offsets, clipped to the region.
    InRegion(Vec<BadRange>),
    /// In offsets of the device or nd region under it; where they lie in this region is not known.
    OnDevice(Vec<BadRange>),
}

/// What was found out about a region when it was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegionInfo {
    /// The kind of medium.
    pub kind: RegionKind,
    /// File or device; `None` for anonymous memory.
    pub path: Option<PathBuf>,
    /// Length in bytes.
    pub len_bytes: u64,
    /// The medium's mapping granularity in bytes.
    pub align_bytes: u64,
    /// How far a store must get.
    pub persistence_domain: PersistenceDomain,
    /// Where it is known from.
    pub domain_source: DomainSource,
    /// Sum of the dirty shutdown counts of the DIMMs below, where sysfs has them all. A structure that finds
    /// it risen since its last clean close must not trust what the domain promised (Schwarz 2021, section
    /// 2.2.2).
    pub unsafe_shutdowns: Option<u64>,
    /// Known unreadable bytes.
    pub bad_blocks: BadBlocks,
    /// NUMA node of the memory, where sysfs says it.
    pub numa_node: Option<u32>,
    /// How bytes are stored.
    pub kernel: Kernel,
    /// Whether a fence calls `msync`.
    pub msync: bool,
    /// What a fence protects from.
    pub durability: Durability,
    /// Guard against stray stores.
    pub protection: Protection,
}

/// What a fence protects from, given what the region is. Errs towards [`Durability::ProcessCrash`].
pub(crate) fn durability_of(kind: RegionKind, domain: PersistenceDomain, msync: bool) -> Durability {
    match kind {
        // `memmap=` memory and soft-reserved DRAM look like devdax and DAX too, yet have no domain.
        RegionKind::DevDax | RegionKind::FsDax if domain != PersistenceDomain::Unknown => {
            Durability::PowerFail
        }
        RegionKind::File if msync => Durability::PowerFail,
        _ => Durability::ProcessCrash,
    }
}

impl fmt::Display for RegionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RegionKind::DevDax => "devdax device",
            RegionKind::FsDax => "file on a DAX file system",
            RegionKind::File => "ordinary file",
            RegionKind::Tmpfs => "file in memory (emulated PM)",
            RegionKind::Anonymous => "anonymous memory (emulated PM)",
        })
    }
}

impl fmt::Display for PersistenceDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PersistenceDomain::Unknown => "unknown",
            PersistenceDomain::MemoryController => "memory controller (ADR)",
            PersistenceDomain::CpuCache => "CPU caches (eADR)",
        })
    }
}

impl fmt::Display for BadBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = |ranges: &[BadRange]| ranges.iter().map(|range| range.len_bytes).sum::<u64>();
        match self {
            BadBlocks::Unknown => f.write_str("unknown"),
            BadBlocks::InRegion(ranges) => write!(f, "{} bytes in this region", sum(ranges)),
            BadBlocks::OnDevice(ranges) => write!(f, "{} bytes somewhere on the device", sum(ranges)),
        }
    }
}

impl fmt::Display for RegionInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            Some(path) => writeln!(f, "{}: {}, {} bytes", path.display(), self.kind, self.len_bytes)?,
            None => writeln!(f, "{}, {} bytes", self.kind, self.len_bytes)?,
        }
        let source = match self.domain_source {
            DomainSource::Sysfs => "",
            DomainSource::Override => ", according to the caller",
        };
        writeln!(f, "persistence domain: {}{source}", self.persistence_domain)?;
        let msync = if self.msync { ", then msync" } else { "" };
        writeln!(f, "written with: {}{msync}", self.kernel)?;
        match self.unsafe_shutdowns {
            Some(count) => writeln!(f, "unsafe shutdowns so far: {count}")?,
            None => writeln!(f, "unsafe shutdowns so far: unknown")?,
        }
        writeln!(f, "bad blocks: {}", self.bad_blocks)?;
        writeln!(f, "protection from stray stores: {}", self.protection)?;
        writeln!(
            f,
            "after a process crash: {}",
            match self.kind {
                RegionKind::Anonymous => "nothing is left",
                _ => "every store that was made is there, fenced or not",
            }
        )?;
        write!(
            f,
            "after a power cut: {}",
            match (self.durability, self.kind) {
                (Durability::PowerFail, _) => "everything fenced is there; of the rest, any 8-byte pieces",
                (_, RegionKind::Tmpfs | RegionKind::Anonymous) => "nothing is left",
                (_, RegionKind::File) => "anything may be missing, fenced or not: msync is off",
                (_, RegionKind::DevDax | RegionKind::FsDax) =>
                    "anything may be missing, fenced or not: the persistence domain is not known",
            }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durability_is_never_claimed_for_emulated_pm() {
        use PersistenceDomain::{CpuCache, MemoryController, Unknown};
        for domain in [Unknown, MemoryController, CpuCache] {
            for msync in [false, true] {
                for kind in [RegionKind::Tmpfs, RegionKind::Anonymous] {
                    assert_eq!(durability_of(kind, domain, msync), Durability::ProcessCrash);
                }
                let expected = if msync { Durability::PowerFail } else { Durability::ProcessCrash };
                assert_eq!(durability_of(RegionKind::File, domain, msync), expected);
                let expected =
                    if domain == Unknown { Durability::ProcessCrash } else { Durability::PowerFail };
                assert_eq!(durability_of(RegionKind::DevDax, domain, msync), expected);
                assert_eq!(durability_of(RegionKind::FsDax, domain, msync), expected);
            }
        }
    }
}
