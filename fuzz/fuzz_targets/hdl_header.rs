//! Log headers: decoding anything, and claiming a log by whatever header was decoded.
#![no_main]

use arbitrary::Arbitrary;
use fastness_fuzz::{Layout, body};
use fastness_prb::{HdlHeader, OnLoss, Prb, Txg, Wait};
use fastness_testkit::Heap;
use libfuzzer_sys::fuzz_target;

const CHUNK: usize = 2048;

#[derive(Debug, Arbitrary)]
enum Input {
    Bytes { bytes: Vec<u8>, reseal: bool },
    Fields { fields: [u64; 27], small: [bool; 27], gaps: Vec<(u64, u64)>, layout: Layout, entries: u8 },
}

fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let sum = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Option<HdlHeader> {
    let header = HdlHeader::decode(bytes).ok()?;
    let encoded = header.encode();
    assert_eq!(encoded, bytes[..encoded.len()]);
    assert_eq!(HdlHeader::decode(&encoded), Ok(header.clone()));
    Some(header)
}

/// A header in state replaying of the log `guid`, with these numbers; docs/format.md has their order.
fn replaying(guid: [u8; 16], fields: &[u64], small: &[bool], gaps: &[(u64, u64)]) -> Vec<u8> {
    let mut bytes = vec![1, 0, 2, 0, 0, 0, 0, 0];
    bytes.extend_from_slice(&guid);
    let mut numbers: Vec<u64> =
        fields.iter().zip(small).map(|(field, small)| if *small { field % 8 } else { *field }).collect();
    // The seal's generation is one above the last, or nothing behind this check is ever reached.
    numbers[25] = numbers[19].wrapping_sub(1);
    numbers.push(gaps.len() as u64);
    numbers.extend(gaps.iter().flat_map(|&(first, count)| [first, count]));
    numbers.iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
    sealed(bytes)
}

fuzz_target!(|input: Input| match input {
    Input::Bytes { bytes, reseal } => {
        decode(&if reseal { sealed(bytes) } else { bytes });
    }
    Input::Fields { fields, small, gaps, layout, entries } => {
        let heap = Heap::new(vec![0; 2 * CHUNK]);
        let prb = Prb::format(layout.config(1), heap.chunks(CHUNK)).unwrap();
        let mut hdl = prb.setup_hdl(&HdlHeader::NoZil).unwrap();
        let _ = hdl.create_log().unwrap();
        hdl.header_synced().unwrap();
        let guid = hdl.log().unwrap().to_bytes();
        for number in 0..usize::from(entries % 6) {
            let txg = Txg(1 + number as u64 / 2);
            let _ = hdl.write_dependent_entry(txg, &body(number, 100), Wait::Fail);
            let _ = hdl.write_entry(txg, &body(number, 100), Wait::Fail);
        }
        drop((hdl, prb));
        let gaps = &gaps[..gaps.len().min(70)];
        // 27 numbers: first txg, last (2), two tables (16), the seal's id (2), counters (4), last generation,
        // gsid.
        let Some(header) = decode(&replaying(guid, &fields, &small, gaps)) else { return };
        for policy in [OnLoss::Fail, OnLoss::DropTail] {
            let heap = Heap::new(heap.bytes());
            let prb = Prb::open(layout.config(2), heap.chunks(CHUNK)).unwrap();
            let mut hdl = prb.setup_hdl(&header).unwrap();
            if let Ok(claimed) = hdl.claim(Txg(1), policy) {
                decode(&claimed.update.expect("a log was claimed").header().encode())
                    .expect("our own header");
                prb.finish_claiming().unwrap();
                let replayed = hdl.replay(|_, update| {
                    decode(&update.header().encode()).expect("our own header");
                    Ok::<_, ()>(())
                });
                assert!(replayed.is_ok(), "what claim accepted can be replayed: {replayed:?}");
                let _ = hdl.replay_done(Txg(9)).unwrap();
            } else {
                hdl.teardown(Some(Txg(9)));
                prb.finish_claiming().unwrap();
            }
            assert_eq!(prb.collect(Txg(9)).unwrap().chunks, 2);
        }
    }
});
