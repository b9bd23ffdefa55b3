//! Reads what sysfs says about a PM device.
//!
//! Everything here is advisory and comes from outside: a missing or odd attribute is "unknown", never an
//! error. Source: Linux `Documentation/ABI/testing/{sysfs-bus-nvdimm,sysfs-bus-dax,sysfs-bus-nfit}`.

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::info::{BadBlocks, BadRange, PersistenceDomain};

/// Unit of a `badblocks` attribute.
const SECTOR_BYTES: u64 = 512;

/// Stacked block devices (device-mapper) are followed this deep.
const SLAVE_DEPTH_MAX: usize = 4;

/// A device number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeviceNumber {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

/// What sysfs says about a devdax character device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DevDaxAttributes {
    pub(crate) len_bytes: Option<u64>,
    pub(crate) align_bytes: Option<u64>,
    pub(crate) pm: PmAttributes,
}

/// What sysfs says about the PM under a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PmAttributes {
    pub(crate) domain: PersistenceDomain,
    pub(crate) unsafe_shutdowns: Option<u64>,
    pub(crate) bad_blocks: BadBlocks,
    pub(crate) numa_node: Option<u32>,
}

impl PmAttributes {
    pub(crate) const UNKNOWN: PmAttributes = PmAttributes {
        domain: PersistenceDomain::Unknown,
        unsafe_shutdowns: None,
        bad_blocks: BadBlocks::Unknown,
        numa_node: None,
    };
}

/// Attributes of the character device, or `None` if it is no devdax device.
pub(crate) fn devdax(root: &Path, number: DeviceNumber) -> Option<DevDaxAttributes> {
    let device = device_dir(root, "char", number)?;
    let subsystem = fs::read_link(device.join("subsystem")).ok()?;
    if subsystem.file_name()? != "dax" {
        return None;
    }
    let len_bytes = number_in(&device.join("size"));
    let align_bytes = ["align", "device/align", "dax_region/align", "../dax_region/align", "../align"]
        .iter()
        .find_map(|name| number_in(&device.join(name)))
        .filter(|align| align.is_power_of_two());
    let pm = match nd_region_above(root, &device) {
        Some(region) => PmAttributes {
            domain: domain_of(&region),
            unsafe_shutdowns: unsafe_shutdowns_of(&region),
            bad_blocks: devdax_bad_blocks(&region, &device, len_bytes),
            numa_node: node_of(&region),
        },
        None => PmAttributes::UNKNOWN,
    };
    Some(DevDaxAttributes { len_bytes, align_bytes, pm })
}

/// Attributes of the PM under the file system on the block device `number`.
pub(crate) fn under_block_device(root: &Path, number: DeviceNumber) -> PmAttributes {
    match device_dir(root, "block", number) {
        Some(device) => pm_under(root, &device, SLAVE_DEPTH_MAX),
        None => PmAttributes::UNKNOWN,
    }
}

/// Whether the block device is PM, and the name of the namespace that it is.
pub(crate) fn block_namespace(root: &Path, number: DeviceNumber) -> (bool, Option<String>) {
    let Some(device) = device_dir(root, "block", number) else { return (false, None) };
    let is_pm = nd_region_above(root, &device).is_some();
    let name = ancestors_in(root, &device).find_map(|dir| {
        // An fsdax namespace is claimed by a `pfn`, `btt` or `dax` device that names it.
        let named = text(&dir.join("namespace"));
        named.or_else(|| file_name(dir)).filter(|name| name.starts_with("namespace"))
    });
    (is_pm, name)
}

fn pm_under(root: &Path, device: &Path, depth_left: usize) -> PmAttributes {
    if let Some(region) = nd_region_above(root, device) {
        let list = text_allow_empty(&device.join("badblocks"))
            .or_else(|| text_allow_empty(&device.join("../badblocks")));
        return PmAttributes {
            domain: domain_of(&region),
            unsafe_shutdowns: unsafe_shutdowns_of(&region),
            bad_blocks: list.map_or(BadBlocks::Unknown, |list| BadBlocks::OnDevice(parse_bad_blocks(&list))),
            numa_node: node_of(&region),
        };
    }
    let Some(depth_left) = depth_left.checked_sub(1) else { return PmAttributes::UNKNOWN };
    let Ok(slaves) = fs::read_dir(device.join("slaves")) else { return PmAttributes::UNKNOWN };
    slaves
        .flatten()
        .filter_map(|slave| fs::canonicalize(slave.path()).ok())
        .map(|slave| pm_under(root, &slave, depth_left))
        .reduce(weakest)
        .unwrap_or(PmAttributes::UNKNOWN)
}

/// What can be said of two devices that carry one file system.
fn weakest(left: PmAttributes, right: PmAttributes) -> PmAttributes {
    PmAttributes {
        domain: left.domain.min(right.domain),
        unsafe_shutdowns: left.unsafe_shutdowns.zip(right.unsafe_shutdowns).map(|(l, r)| l.saturating_add(r)),
        // The offsets are those of two devices; without saying which they mean nothing.
        bad_blocks: BadBlocks::Unknown,
        numa_node: left.numa_node.filter(|node| right.numa_node == Some(*node)),
    }
}

/// Its NUMA node; -1 stands for none.
fn node_of(region: &Path) -> Option<u32> {
    u32::try_from(number_in(&region.join("numa_node"))?).ok()
}

/// The canonical directory of a device.
fn device_dir(root: &Path, class: &str, number: DeviceNumber) -> Option<PathBuf> {
    let DeviceNumber { major, minor } = number;
    fs::canonicalize(root.join("dev").join(class).join(format!("{major}:{minor}"))).ok()
}

/// `dir` and the directories above it, up to but without the sysfs root.
fn ancestors_in<'a>(root: &Path, dir: &'a Path) -> impl Iterator<Item = &'a Path> {
    let root = fs::canonicalize(root).unwrap_or_else(|_| root.to_path_buf());
    dir.ancestors().take_while(move |above| above.starts_with(&root) && **above != *root)
}

/// The libnvdimm region that a device lies in.
fn nd_region_above(root: &Path, device: &Path) -> Option<PathBuf> {
    ancestors_in(root, device)
        .find(|dir| {
            let numbered = file_name(dir)
                .and_then(|name| name.strip_prefix("region").map(|id| id.parse::<u32>().is_ok()))
                .unwrap_or(false);
            // `mappings` tells an nd region from other buses' regions.
            numbered && (dir.join("mappings").exists() || dir.join("persistence_domain").exists())
        })
        .map(Path::to_path_buf)
}

fn domain_of(region: &Path) -> PersistenceDomain {
    match text(&region.join("persistence_domain")).as_deref() {
        Some("memory_controller") => PersistenceDomain::MemoryController,
        Some("cpu_cache") => PersistenceDomain::CpuCache,
        _ => PersistenceDomain::Unknown,
    }
}

/// Sum over the DIMMs of the interleave set; unknown if any of them does not say.
fn unsafe_shutdowns_of(region: &Path) -> Option<u64> {
    let count = number_in(&region.join("mappings"))?;
    let bus = region.parent()?;
    let mut sum = 0_u64;
    for index in 0..count {
        // "nmem0,0,135291469824,0": DIMM, start, length, position.
        let mapping = text(&region.join(format!("mapping{index}")))?;
        let dimm = mapping.split(',').next().filter(|dimm| dimm.starts_with("nmem"))?;
        let dimm = bus.join(dimm);
        let dirty = ["nfit/dirty_shutdown", "papr/dirty_shutdown", "cxl/dirty_shutdown"]
            .iter()
            .find_map(|name| number_in(&dimm.join(name)))?;
        sum = sum.saturating_add(dirty);
    }
    (count > 0).then_some(sum)
}

/// The region's list, moved to device offsets where both physical addresses can be read (by root only).
fn devdax_bad_blocks(region: &Path, device: &Path, len_bytes: Option<u64>) -> BadBlocks {
    let Some(list) = text_allow_empty(&region.join("badblocks")) else { return BadBlocks::Unknown };
    let ranges = parse_bad_blocks(&list);
    if ranges.is_empty() {
        return BadBlocks::InRegion(ranges);
    }
    let region_start = number_in(&region.join("resource"));
    let device_start = number_in(&device.join("resource"));
    match (region_start, device_start, len_bytes) {
        (Some(region_start), Some(device_start), Some(len_bytes)) if device_start >= region_start => {
            let shift = device_start - region_start;
            BadBlocks::InRegion(ranges.iter().filter_map(|range| clip(range, shift, len_bytes)).collect())
        }
        _ => BadBlocks::OnDevice(ranges),
    }
}

/// The part of `range` inside `shift..shift + len_bytes`, relative to `shift`.
fn clip(range: &BadRange, shift: u64, len_bytes: u64) -> Option<BadRange> {
    let start = range.start.max(shift);
    let end = range.start.saturating_add(range.len_bytes).min(shift.saturating_add(len_bytes));
    (start < end).then(|| BadRange { start: start - shift, len_bytes: end - start })
}

/// Lines of "first-sector sectors".
fn parse_bad_blocks(list: &str) -> Vec<BadRange> {
    let parse = |line: &str| {
        let (start, count) = line.trim().split_once(' ')?;
        Some(BadRange {
            start: start.parse::<u64>().ok()?.checked_mul(SECTOR_BYTES)?,
            len_bytes: count.trim().parse::<u64>().ok()?.checked_mul(SECTOR_BYTES)?,
        })
    };
    list.lines().filter_map(parse).collect()
}

fn file_name(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_str()?.to_owned())
}

fn text_allow_empty(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

fn text(path: &Path) -> Option<String> {
    text_allow_empty(path).filter(|text| !text.is_empty())
}

/// A decimal or 0x-prefixed hexadecimal attribute.
fn number_in(path: &Path) -> Option<u64> {
    let text = text(path)?;
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => u64::from_str(&text).ok(),
    }
}

#[cfg(test)]
mod tests;
