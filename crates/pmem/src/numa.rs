//! Which CPUs are near a region.

use std::fs;
use std::path::Path;

use crate::info::RegionInfo;

/// CPUs that are not looked for: more than any machine has.
const CPUS_MAX: usize = 1 << 16;

/// The CPUs of the region's NUMA node; none if the kernel does not say which node that is.
pub fn cpus_near(info: &RegionInfo) -> Vec<usize> {
    cpus_of_node(info.numa_node)
}

/// The CPUs of a NUMA node; none if the kernel does not know the node.
pub fn cpus_of_node(node: Option<u32>) -> Vec<usize> {
    cpus_of(Path::new("/sys"), node)
}

fn cpus_of(sys: &Path, node: Option<u32>) -> Vec<usize> {
    let Some(node) = node else { return Vec::new() };
    let list = fs::read_to_string(sys.join(format!("devices/system/node/node{node}/cpulist")));
    list.ok().and_then(|list| cpu_list(&list)).unwrap_or_default()
}

/// The CPUs of a list as the kernel writes it, "0-3,8,10-11"; none: it is no such list.
pub fn cpu_list(list: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in list.trim().split(',').filter(|part| !part.is_empty()) {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to): (usize, usize) = (from.parse().ok()?, to.parse().ok()?);
        if to >= CPUS_MAX {
            return None;
        }
        cpus.extend(from..=to);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_of_a_node_are_listed_and_odd_lists_are_none() {
        let dir = tempfile::tempdir().unwrap();
        let node = dir.path().join("devices/system/node/node1");
        fs::create_dir_all(&node).unwrap();
        for (list, cpus) in [
            ("0-3,8,10-11\n", vec![0, 1, 2, 3, 8, 10, 11]),
            ("\n", vec![]),
            ("0-", vec![]),
            ("0-9999999", vec![]),
        ] {
            fs::write(node.join("cpulist"), list).unwrap();
            assert_eq!(cpus_of(dir.path(), Some(1)), cpus, "{list}");
        }
        assert!(cpus_of(dir.path(), Some(2)).is_empty() && cpus_of(dir.path(), None).is_empty());
    }
}
