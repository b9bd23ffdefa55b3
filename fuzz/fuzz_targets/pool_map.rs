//! The page map of a pool's metadata: forged nodes and roots, with checksums that are right.
#![no_main]

use arbitrary::Arbitrary;
use fastness_pool::fuzzing::page_map;
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
struct Input {
    len_bytes: u64,
    nodes: Vec<(u16, Vec<(u8, Place)>)>,
    root: Vec<Place>,
    tail: Vec<u8>,
}

#[derive(Debug, Clone, Copy, Arbitrary)]
enum Place {
    Near(u8),
    Far(u64),
}

impl Place {
    fn packed(self) -> u64 {
        match self {
            Place::Near(unit) => unit.into(),
            Place::Far(packed) => packed,
        }
    }
}

fuzz_target!(|input: Input| {
    let entries =
        |entries: Vec<(u8, Place)>| entries.into_iter().map(|(at, place)| (at, place.packed())).collect();
    // Units of nodes are as near as the places that name them.
    let nodes: Vec<_> = input.nodes.into_iter().map(|(unit, all)| (unit % 300, entries(all))).collect();
    let root: Vec<_> = input.root.into_iter().map(Place::packed).collect();
    page_map(input.len_bytes, &nodes, &root, &input.tail);
});
