//! Bytes as Vinter writes them, and there and back.

use std::io::{Read, Write};

use super::*;
use crate::{
    Event, FenceKind, FlushKind, Header, Hypercall, Kind, Origin, Reader, Region, TraceError, Writer,
};

fn header() -> Header {
    let region = Region { name: "pm".to_owned(), start: 0, len_bytes: 1 << 20 };
    Header { tool: "test".to_owned(), regions: vec![region], devices: Vec::new() }
}

fn snappy(raw: &[u8]) -> Vec<u8> {
    let mut encoder = snap::write::FrameEncoder::new(Vec::new());
    encoder.write_all(raw).unwrap();
    encoder.into_inner().unwrap()
}

fn plain(packed: &[u8]) -> Vec<u8> {
    let mut raw = Vec::new();
    snap::read::FrameDecoder::new(packed).read_to_end(&mut raw).unwrap();
    raw
}

fn import_raw(raw: &[u8]) -> crate::Result<Vec<u8>> {
    let mut writer = Writer::new(Vec::new(), &header())?;
    import(&snappy(raw)[..], &mut writer)?;
    writer.finish()
}

/// One record of each kind, written by hand from the description of the format.
fn golden_records() -> [Vec<u8>; 6] {
    let mut write = vec![0, 0, 251, 0x00, 0x10, 4, 4, 1, 2, 3, 4, 1];
    // Where from: pc 0xffffffff81000000, in the kernel, a stack of two.
    write.extend([253, 0, 0, 0, 0x81, 0xff, 0xff, 0xff, 0xff, 1, 2, 250, 251, 251, 0]);
    let with_text = |front: &[u8], text: &str, back: &[u8]| [front, text.as_bytes(), back].concat();
    [
        write,
        with_text(&[2, 1, 4], "clwb", &[251, 0x00, 0x10, 7, 0, 0]),
        with_text(&[1, 2, 6], "sfence", &[252, 0, 0, 1, 0, 0, 0]),
        vec![3, 3, 0, 2, 2, 9, 8],
        with_text(&[4, 4, 10], "checkpoint", &[1, b'7']),
        with_text(&[4, 5, 3], "foo", &[3, b'b', b'a', b'r']),
    ]
}

fn golden() -> Vec<u8> {
    golden_records().concat()
}

#[test]
fn a_trace_of_vinters_is_read_and_written_again_byte_by_byte() {
    let ours = import_raw(&golden()).unwrap();
    let mut reader = Reader::new(&ours[..]).unwrap();
    let mut seen = 0;
    while let Some(Event { kind, origin }) = reader.next().unwrap() {
        match seen {
            0 => {
                let store = Kind::Store {
                    address: 4096,
                    data: &[1, 2, 3, 4],
                    is_non_temporal: true,
                    is_atomic64: false,
                };
                assert_eq!(kind, store);
                let pc = Some(0xffff_ffff_8100_0000);
                assert_eq!(origin, Origin { thread: 0, pc, is_kernel: true, stack: Some(&[250, 251]) });
            }
            1 => assert_eq!(kind, Kind::Flush { kind: FlushKind::Clwb, address: 4096 }),
            2 => {
                assert_eq!(kind, Kind::Fence(FenceKind::Sfence));
                assert_eq!((origin.pc, origin.is_kernel, origin.stack), (Some(0x1_0000), false, None));
            }
            3 => assert_eq!(kind, Kind::Read { address: 0, data: &[9, 8] }),
            4 => assert_eq!(kind, Kind::Hypercall(Hypercall::Checkpoint(7))),
            _ => assert_eq!(kind, Kind::Hypercall(Hypercall::Other { action: "foo", value: "bar" })),
        }
        seen += 1;
    }
    assert_eq!(seen, 6);
    let mut packed = Vec::new();
    let exported = export(&mut Reader::new(&ours[..]).unwrap(), &mut packed).unwrap();
    assert_eq!(exported, Exported { records: 6, left_out: 0 });
    assert_eq!(plain(&packed), golden());
}

#[test]
fn what_the_format_has_no_place_for_is_counted_and_a_locked_operation_keeps_its_meaning() {
    let mut writer = Writer::new(
        Vec::new(),
        &Header { regions: vec![Region { start: 0x1000, ..header().regions.remove(0) }], ..header() },
    )
    .unwrap();
    writer.push(&Event::of(Kind::Initial { address: 0x1000, data: &[1] })).unwrap();
    writer.push(&Event::of(Kind::Rmw { address: 0x1008, data: &[5; 8] })).unwrap();
    writer.push(&Event::of(Kind::Flush { kind: FlushKind::Wbinvd, address: 0 })).unwrap();
    let ours = writer.finish().unwrap();
    let mut packed = Vec::new();
    let exported = export(&mut Reader::new(&ours[..]).unwrap(), &mut packed).unwrap();
    assert_eq!(exported, Exported { records: 4, left_out: 1 });
    let again = import_raw(&plain(&packed)).unwrap();
    let mut reader = Reader::new(&again[..]).unwrap();
    assert_eq!(reader.next().unwrap().unwrap().kind, Kind::Fence(FenceKind::Locked));
    let store = Kind::Store { address: 8, data: &[5; 8], is_non_temporal: false, is_atomic64: false };
    assert_eq!(reader.next().unwrap().unwrap().kind, store);
    assert_eq!(reader.next().unwrap().unwrap().kind, Kind::Fence(FenceKind::Locked));
    assert_eq!(reader.next().unwrap().unwrap().kind, Kind::Flush { kind: FlushKind::Wbinvd, address: 0 });
}

#[test]
fn every_cut_and_every_wrong_byte_is_an_error_or_another_trace_and_never_a_panic() {
    let raw = golden();
    let mut ends = vec![0];
    golden_records().iter().for_each(|record| ends.push(ends[ends.len() - 1] + record.len()));
    for len in 0..raw.len() {
        let result = import_raw(&raw[..len]);
        match ends.contains(&len) {
            true => assert!(result.is_ok(), "{len}"),
            false => assert!(matches!(result, Err(TraceError::CutOff { .. })), "{len}: {result:?}"),
        }
    }
    let mut refused = 0;
    for at in 0..raw.len() {
        for value in 0..=255 {
            let mut wrong = raw.clone();
            wrong[at] = value;
            refused += usize::from(import_raw(&wrong).is_err());
        }
    }
    assert!(refused > raw.len() * 100, "{refused}");
    let packed = snappy(&raw);
    for at in 0..packed.len() {
        let mut wrong = packed.clone();
        wrong[at] ^= 0x10;
        let mut writer = Writer::new(Vec::new(), &header()).unwrap();
        assert!(import(&wrong[..], &mut writer).is_err(), "byte {at} of the snappy stream");
    }
}

#[test]
fn lengths_are_bounded() {
    // A write of 2^40 bytes.
    let raw = [0, 0, 0, 253, 0, 0, 0, 0, 0, 1, 0, 0, 253, 0, 0, 0, 0, 0, 1, 0, 0];
    assert!(matches!(import_raw(&raw), Err(TraceError::Damaged { offset: 0, .. })));
}
