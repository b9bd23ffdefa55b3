use super::*;
use crate::golden::{hex, sample_vdevs};
use crate::space::alloc::Allocator;
use fastness_sync::order::lock;

/// A map of three pages, written to a pool of one device; its root, and the vdevs.
fn written() -> (Vec<u8>, Vdevs) {
    let vdevs = sample_vdevs();
    let mut allocator = Allocator::default();
    allocator.add_vdev(0, vdevs.all()[0].units());
    let allocator = SharedAllocator::new(allocator);
    let mut map = PageMap::default();
    for page in [0, 2, 300] {
        let place = lock(&allocator).allocate_meta().unwrap();
        map.set(page, Some(Entry { place, sum: 0x1122_3344_5566_7700 + page }));
    }
    (map.write(12_345, &vdevs, &allocator).unwrap(), vdevs)
}

#[test]
fn golden_bytes_of_a_node_and_the_root() {
    let mut node = Node::default();
    node.entries[0] = Some(Entry { place: Place { vdev: 2, unit: 0x345 }, sum: 0x0102_0304_0506_0708 });
    node.entries[255] = Some(Entry { place: Place { vdev: 0, unit: 0 }, sum: 9 });
    let bytes = node.encode();
    assert_eq!(bytes.len(), 4096);
    assert_eq!(hex(&bytes[..16]), "46030000000002000807060504030201");
    assert_eq!(hex(&bytes[255 * 16..]), "01000000000000000900000000000000");
    assert!(bytes[16..255 * 16].iter().all(|byte| *byte == 0));
    let (root, _) = written();
    assert_eq!(hex(&root[..20]), "3930000000000000010000008f06000000000000");
    assert_eq!(root.len(), 28);
}

#[test]
fn a_root_goes_there_and_back_and_nothing_else_does() {
    let (root, vdevs) = written();
    let (map, len_bytes) = PageMap::load(&root, &vdevs).unwrap();
    assert_eq!(len_bytes, 12_345);
    assert_eq!((0..600).filter(|page| map.get(*page).is_some()).collect::<Vec<_>>(), [0, 2, 300]);
    for cut in 0..root.len() {
        assert!(PageMap::load(&root[..cut], &vdevs).is_err(), "cut at {cut}");
    }
    assert!(PageMap::load(&[&root[..], &[0]].concat(), &vdevs).is_err());
    for bit in 64..root.len() * 8 {
        let mut flipped = root.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(PageMap::load(&flipped, &vdevs).is_err(), "bit {bit}");
    }
}
