//! Traversal of one chunk with anything in it.
#![no_main]

use arbitrary::Arbitrary;
use fastness_fuzz::{Damage, Layout, assert_inside, body, reseal_entries};
use fastness_pmem::Medium;
use fastness_prb::{BodyError, EntryHeader, HEADER_BYTES, HdlHeader, Prb, Traversal, Txg, Wait, read_body};
use fastness_testkit::{Heap, HeapRange};
use libfuzzer_sys::fuzz_target;

const CHUNK: usize = 4096;

#[derive(Debug, Arbitrary)]
enum Input {
    Bytes { bytes: Vec<u8>, reseal: bool, start: u16 },
    Written { layout: Layout, bodies: Vec<u16>, damage: Damage },
}

/// Walks over the chunk; every entry must be where it says, and be read again as it was found.
fn walk(chunk: &HeapRange, start: usize) -> Vec<(EntryHeader, Option<Vec<u8>>)> {
    let mut found = Vec::new();
    let mut behind = start;
    let mut traversal = Traversal::starting_at(chunk, start);
    for entry in traversal.by_ref() {
        assert_eq!(entry.offset, behind);
        let mut header = [0; HEADER_BYTES];
        chunk.read(entry.offset, &mut header).expect("it was read before");
        assert_eq!(entry.header.encode(), header);
        let len = entry.header.body_len_bytes as usize;
        behind = entry.offset + HEADER_BYTES + len.next_multiple_of(entry.header.alignment.bytes());
        assert!(behind <= chunk.len_bytes(), "the entry reaches beyond the chunk");
        let mut body = vec![0; len];
        let body = match read_body(chunk, &entry, &mut body) {
            Ok(()) | Err(BodyError::Padding { .. }) => Some(body),
            Err(BodyError::Checksum { .. } | BodyError::Poison(_)) => None,
            Err(other) => panic!("{other}"),
        };
        found.push((entry.header, body));
    }
    assert_eq!(traversal.offset(), behind);
    assert_inside(traversal.end().expect("it stopped"));
    found
}

fuzz_target!(|input: Input| match input {
    Input::Bytes { mut bytes, reseal, start } => {
        bytes.truncate(1 << 16);
        bytes.resize(bytes.len().next_multiple_of(64).max(64), 0);
        if reseal {
            reseal_entries(&mut bytes);
        }
        let len = bytes.len();
        let heap = Heap::new(bytes);
        walk(&heap.range(0..len), 0);
        walk(&heap.range(0..len), usize::from(start) % (len + 1));
    }
    Input::Written { layout, bodies, damage } => {
        let heap = Heap::new(vec![0; CHUNK]);
        let prb = Prb::format(layout.config(1), heap.chunks(CHUNK)).unwrap();
        let mut hdl = prb.setup_hdl(&HdlHeader::NoZil).unwrap();
        let _ = hdl.create_log().unwrap();
        hdl.header_synced().unwrap();
        let mut written = 0;
        for (number, len) in bodies.iter().enumerate() {
            let body = body(number, usize::from(*len) % 700);
            written += usize::from(hdl.write_dependent_entry(Txg(1), &body, Wait::Fail).is_ok());
        }
        let chunk = heap.range(0..CHUNK);
        let good = walk(&chunk, 0);
        assert_eq!(good.len(), written);
        damage.apply(&heap);
        for (header, body) in walk(&chunk, 0) {
            if damage.reseal {
                continue;
            }
            let known = good.iter().find(|(known, _)| *known == header).expect("nobody wrote this entry");
            assert!(body.is_none() || body == known.1, "a body that nobody wrote");
        }
    }
});
