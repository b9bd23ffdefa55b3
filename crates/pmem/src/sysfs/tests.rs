//! Fake trees in the shape of real ones.

use std::os::unix::fs::symlink;

use super::*;

const DAX: DeviceNumber = DeviceNumber { major: 252, minor: 1 };
const PMEM: DeviceNumber = DeviceNumber { major: 259, minor: 0 };
const DM: DeviceNumber = DeviceNumber { major: 253, minor: 0 };

struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Tree {
        Tree(tempfile::tempdir().unwrap())
    }

    fn root(&self) -> &Path {
        self.0.path()
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn link(&self, from: &str, to: &str) {
        let from = self.root().join(from);
        fs::create_dir_all(from.parent().unwrap()).unwrap();
        fs::create_dir_all(self.root().join(to)).unwrap();
        symlink(self.root().join(to), from).unwrap();
    }

    /// An nd region of two DIMMs at 4 GiB.
    fn region(&self, name: &str, domain: &str) {
        let region = format!("devices/LNXSYSTM:00/ndbus0/{name}");
        self.put(&format!("{region}/persistence_domain"), domain);
        self.put(&format!("{region}/mappings"), "2\n");
        self.put(&format!("{region}/mapping0"), "nmem0,0,4294967296,0\n");
        self.put(&format!("{region}/mapping1"), "nmem1,0,4294967296,1\n");
        self.put(&format!("{region}/resource"), "0x100000000\n");
        self.put("devices/LNXSYSTM:00/ndbus0/nmem0/nfit/dirty_shutdown", "3\n");
        self.put("devices/LNXSYSTM:00/ndbus0/nmem1/nfit/dirty_shutdown", "4\n");
    }

    fn devdax(&self) {
        let device = "devices/LNXSYSTM:00/ndbus0/region0/dax0.0/dax0.0";
        self.put(&format!("{device}/size"), "4194304\n");
        self.put(&format!("{device}/align"), "2097152\n");
        self.put(&format!("{device}/resource"), "0x100200000\n");
        self.link(&format!("{device}/subsystem"), "bus/dax");
        self.link("dev/char/252:1", device);
    }
}

#[test]
fn devdax_device_in_its_region() {
    let tree = Tree::new();
    tree.region("region0", "memory_controller\n");
    // 2 MiB + 512 bytes into the region, and one entry before the device that must not be reported.
    tree.put("devices/LNXSYSTM:00/ndbus0/region0/badblocks", "0 8\n4097 2\n");
    tree.put("devices/LNXSYSTM:00/ndbus0/region0/numa_node", "1\n");
    tree.devdax();
    let expected = DevDaxAttributes {
        len_bytes: Some(4 << 20),
        align_bytes: Some(2 << 20),
        pm: PmAttributes {
            domain: PersistenceDomain::MemoryController,
            unsafe_shutdowns: Some(7),
            bad_blocks: BadBlocks::InRegion(vec![BadRange { start: 512, len_bytes: 1024 }]),
            numa_node: Some(1),
        },
    };
    assert_eq!(devdax(tree.root(), DAX), Some(expected));
}

#[test]
fn addresses_hidden_from_users_leave_bad_blocks_unplaced() {
    let tree = Tree::new();
    tree.region("region0", "cpu_cache\n");
    tree.put("devices/LNXSYSTM:00/ndbus0/region0/badblocks", "4097 2\n");
    tree.devdax();
    fs::remove_file(tree.root().join("devices/LNXSYSTM:00/ndbus0/region0/resource")).unwrap();
    let pm = devdax(tree.root(), DAX).unwrap().pm;
    assert_eq!(pm.domain, PersistenceDomain::CpuCache);
    assert_eq!(pm.bad_blocks, BadBlocks::OnDevice(vec![BadRange { start: 4097 * 512, len_bytes: 1024 }]));
}

#[test]
fn odd_or_missing_attributes_are_unknown() {
    let tree = Tree::new();
    tree.region("region0", "\n");
    tree.put("devices/LNXSYSTM:00/ndbus0/nmem1/nfit/dirty_shutdown", "many\n");
    tree.put("devices/LNXSYSTM:00/ndbus0/region0/badblocks", "x y\n1\n-1 3\n18446744073709551615 1\n");
    tree.devdax();
    tree.put("devices/LNXSYSTM:00/ndbus0/region0/dax0.0/dax0.0/size", "big\n");
    tree.put("devices/LNXSYSTM:00/ndbus0/region0/dax0.0/dax0.0/align", "3\n");
    let attributes = devdax(tree.root(), DAX).unwrap();
    assert_eq!((attributes.len_bytes, attributes.align_bytes), (None, None));
    assert_eq!(attributes.pm.domain, PersistenceDomain::Unknown);
    assert_eq!(attributes.pm.unsafe_shutdowns, None);
    assert_eq!(attributes.pm.bad_blocks, BadBlocks::InRegion(vec![]));
}

#[test]
fn other_character_devices_are_not_devdax() {
    let tree = Tree::new();
    tree.link("devices/virtual/mem/null/subsystem", "class/mem");
    tree.link("dev/char/1:3", "devices/virtual/mem/null");
    assert_eq!(devdax(tree.root(), DeviceNumber { major: 1, minor: 3 }), None);
    assert_eq!(devdax(tree.root(), DAX), None);
}

#[test]
fn soft_reserved_memory_is_devdax_without_a_domain() {
    let tree = Tree::new();
    let device = "devices/platform/hmem.0/dax0.0";
    tree.put(&format!("{device}/size"), "4194304\n");
    tree.link(&format!("{device}/subsystem"), "bus/dax");
    tree.link("dev/char/252:1", device);
    assert_eq!(devdax(tree.root(), DAX).unwrap().pm, PmAttributes::UNKNOWN);
}

#[test]
fn fsdax_block_device_names_its_namespace() {
    let tree = Tree::new();
    tree.region("region1", "memory_controller\n");
    let pfn = "devices/LNXSYSTM:00/ndbus0/region1/pfn1.0";
    tree.put(&format!("{pfn}/namespace"), "namespace1.0\n");
    tree.put(&format!("{pfn}/block/pmem1/badblocks"), "8 1\n");
    tree.link("dev/block/259:0", &format!("{pfn}/block/pmem1"));
    assert_eq!(block_namespace(tree.root(), PMEM), (true, Some("namespace1.0".to_owned())));
    let pm = under_block_device(tree.root(), PMEM);
    assert_eq!(pm.domain, PersistenceDomain::MemoryController);
    assert_eq!(pm.unsafe_shutdowns, Some(7));
    assert_eq!(pm.bad_blocks, BadBlocks::OnDevice(vec![BadRange { start: 4096, len_bytes: 512 }]));
}

#[test]
fn raw_namespace_and_foreign_block_devices() {
    let tree = Tree::new();
    tree.region("region2", "memory_controller\n");
    tree.link("dev/block/259:0", "devices/LNXSYSTM:00/ndbus0/region2/namespace2.3/block/pmem2.3");
    assert_eq!(block_namespace(tree.root(), PMEM), (true, Some("namespace2.3".to_owned())));
    tree.link("dev/block/8:0", "devices/pci0000:00/host0/block/sda");
    assert_eq!(block_namespace(tree.root(), DeviceNumber { major: 8, minor: 0 }), (false, None));
    assert_eq!(under_block_device(tree.root(), DeviceNumber { major: 8, minor: 1 }), PmAttributes::UNKNOWN);
}

#[test]
fn a_stack_is_as_weak_as_its_weakest_device() {
    let tree = Tree::new();
    tree.region("region0", "cpu_cache\n");
    tree.region("region1", "memory_controller\n");
    let pmem =
        |index: u32| format!("devices/LNXSYSTM:00/ndbus0/region{index}/namespace{index}.0/block/pmem{index}");
    tree.link("dev/block/253:0", "devices/virtual/block/dm-0");
    tree.link("devices/virtual/block/dm-0/slaves/pmem0", &pmem(0));
    assert_eq!(under_block_device(tree.root(), DM).domain, PersistenceDomain::CpuCache);
    tree.link("devices/virtual/block/dm-0/slaves/pmem1", &pmem(1));
    let pm = under_block_device(tree.root(), DM);
    assert_eq!(pm.domain, PersistenceDomain::MemoryController);
    assert_eq!(pm.unsafe_shutdowns, Some(14));
    tree.link("devices/virtual/block/dm-0/slaves/sda", "devices/pci0000:00/block/sda");
    assert_eq!(under_block_device(tree.root(), DM).domain, PersistenceDomain::Unknown);
}
