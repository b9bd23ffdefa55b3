//! The format, byte for byte, and what a reader refuses.

use super::*;
use crate::ids::{BlockSeq, Extent, LogGuid, Lsn, Place, Txg};

fn guid() -> LogGuid {
    LogGuid::from_bytes(*b"0123456789abcdef").unwrap()
}

/// A block with a record of 5 bytes and the beginning of one of 20.
fn example() -> (Vec<u8>, BlockHeader) {
    let mut block = vec![0xee; 4096];
    let mut at = BLOCK_HEADER_BYTES;
    let whole = PieceHeader { lsn: Lsn(6), txg: Txg(40), record_bytes: 5, from: 0, len_bytes: 5 };
    at += whole.encode(b"first", &mut block[at..]);
    let part = PieceHeader { lsn: Lsn(7), txg: Txg(41), record_bytes: 20, from: 0, len_bytes: 8 };
    at += part.encode(b"12345678", &mut block[at..]);
    let header = BlockHeader {
        guid: guid(),
        seq: BlockSeq(3),
        durable_seq: BlockSeq(1),
        newest_txg: Txg(41),
        used_bytes: at as u32,
        next: Some(Extent { place: Place { device: 2, offset: 0x5000 }, len_bytes: 0x2000 }),
    };
    header.encode(&mut block);
    (block, header)
}

#[test]
fn golden_bytes() {
    let (block, header) = example();
    assert_eq!(header.used_bytes, 184);
    let hex: String = block[..184].iter().map(|byte| format!("{byte:02x}")).collect();
    let golden = concat!(
        "46415354 4c57424b 0100 0000 00100000 30313233343536373839616263646566",
        "0300000000000000 0100000000000000 2900000000000000 b8000000 00200000",
        "02000000 00000000 0050000000000000 0000000000000000 662ddf7c9f8b009c38a1c4f674ef6b1c",
        "05000000 05000000 0600000000000000 2800000000000000 00000000 00000000 6669727374 000000",
        "08000000 14000000 0700000000000000 2900000000000000 00000000 00000000 3132333435363738",
    );
    // The last number of the chain header: XXH3-128 of the block with these 16 bytes zero.
    assert_eq!(hex, golden.replace(' ', ""));
    assert!(block[184..].iter().all(|byte| *byte == 0), "nothing of the memory before");
}

#[test]
fn decode_returns_what_was_encoded() {
    let (mut block, header) = example();
    let before = block.clone();
    block.resize(8192, 0xee);
    assert_eq!(BlockHeader::decode(&mut block, guid(), BlockSeq(3)), Ok(header));
    assert_eq!(block[..4096], before);
    let found: Vec<_> = pieces(&block, &header).map(Result::unwrap).collect();
    assert_eq!(found.len(), 2);
    assert_eq!((found[0].0.lsn, found[0].1, found[0].0.is_last()), (Lsn(6), &b"first"[..], true));
    assert_eq!((found[1].0.txg, found[1].1, found[1].0.is_last()), (Txg(41), &b"12345678"[..], false));
}

#[test]
fn every_flipped_bit_is_found() {
    let (block, _) = example();
    for bit in 0..block.len() * 8 {
        let mut bad = block.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let result = BlockHeader::decode(&mut bad, guid(), BlockSeq(3));
        let reject = result.expect_err(&format!("bit {bit}"));
        match bit / 64 {
            0 => assert_eq!(reject, Reject::NoBlock),
            2 | 3 => assert!(matches!(reject, Reject::Foreign(_)), "bit {bit}: {reject:?}"),
            4 => assert!(matches!(reject, Reject::Stale(_) | Reject::Misplaced(_)), "bit {bit}: {reject:?}"),
            _ => assert_eq!(reject, Reject::Checksum, "bit {bit}"),
        }
    }
}

#[test]
fn another_verifier_is_refused() {
    let (mut block, _) = example();
    let other = LogGuid::from_bytes([1; 16]).unwrap();
    assert_eq!(BlockHeader::decode(&mut block, other, BlockSeq(3)), Err(Reject::Foreign(guid())));
    assert_eq!(BlockHeader::decode(&mut block, guid(), BlockSeq(4)), Err(Reject::Stale(BlockSeq(3))));
    assert_eq!(BlockHeader::decode(&mut block, guid(), BlockSeq(2)), Err(Reject::Misplaced(BlockSeq(3))));
    assert_eq!(BlockHeader::decode(&mut [], guid(), BlockSeq(3)), Err(Reject::NoBlock));
    assert_eq!(BlockHeader::decode(&mut [0; 4096], guid(), BlockSeq(3)), Err(Reject::NoBlock));
}

/// Makes the checksum fit again: what reaches the checks behind it was forged, or written by a defect.
fn reseal(block: &mut [u8]) {
    put(block, 88, [0; 16]);
    let sum = twox_hash::XxHash3_128::oneshot(block);
    put(block, 88, sum.to_le_bytes());
}

/// Scenario 16 of the reference: crafted lengths under a checksum that fits.
#[test]
fn crafted_fields_are_refused_where_they_are() {
    let cases: &[(usize, &[u8], Reject)] = &[
        (8, &[2], Reject::Version(2)),
        (10, &[1], Reject::Malformed { offset: 10 }),
        (40, &[3], Reject::Malformed { offset: 40 }),
        (56, &[0, 0], Reject::Malformed { offset: 56 }),
        (56, &[0xb9], Reject::Malformed { offset: 56 }),
        (56, &[0, 0x20], Reject::Malformed { offset: 56 }),
        (56, &[0xff, 0xff, 0xff, 0xff], Reject::Malformed { offset: 56 }),
        (60, &[1], Reject::Malformed { offset: 60 }),
        (60, &[0, 0, 3], Reject::Malformed { offset: 60 }),
        (60, &[0, 0], Reject::Malformed { offset: 60 }),
        (68, &[1], Reject::Malformed { offset: 68 }),
        (72, &[1], Reject::Malformed { offset: 60 }),
        (80, &[1], Reject::Malformed { offset: 80 }),
        (184, &[1], Reject::Malformed { offset: 184 }),
        // Pieces.
        (104, &[0, 0, 0, 0], Reject::Malformed { offset: 104 }),
        (104, &[6], Reject::Malformed { offset: 104 }),
        (104, &[0xff, 0xff, 0xff, 0xff], Reject::Malformed { offset: 104 }),
        (108, &[4], Reject::Malformed { offset: 104 }),
        (112, &[0], Reject::Malformed { offset: 104 }),
        (120, &[42], Reject::Malformed { offset: 104 }),
        (128, &[1], Reject::Malformed { offset: 104 }),
        (132, &[1], Reject::Malformed { offset: 104 }),
        (141, &[1], Reject::Malformed { offset: 104 }),
        (144, &[9], Reject::Malformed { offset: 144 }),
        (168, &[0xff, 0xff, 0xff, 0xff], Reject::Malformed { offset: 144 }),
    ];
    for (at, bytes, expected) in cases {
        let (mut block, _) = example();
        block[*at..*at + bytes.len()].copy_from_slice(bytes);
        reseal(&mut block);
        let found = BlockHeader::decode(&mut block, guid(), BlockSeq(3));
        let found = found.and_then(|header| pieces(&block, &header).collect::<Result<Vec<_>, _>>());
        assert_eq!(found.expect_err("crafted"), *expected, "{bytes:?} at {at}");
    }
}

#[test]
fn a_record_without_bytes_has_one_piece() {
    let mut block = vec![0xee; 4096];
    let piece = PieceHeader { lsn: Lsn(1), txg: Txg(1), record_bytes: 0, from: 0, len_bytes: 0 };
    let used = BLOCK_HEADER_BYTES + piece.encode(b"", &mut block[BLOCK_HEADER_BYTES..]);
    let (seq, durable_seq) = (BlockSeq(1), BlockSeq(0));
    let header = BlockHeader {
        guid: guid(),
        seq,
        durable_seq,
        newest_txg: Txg(1),
        used_bytes: used as u32,
        next: None,
    };
    header.encode(&mut block);
    let decoded = BlockHeader::decode(&mut block, guid(), seq).unwrap();
    assert_eq!(decoded, header);
    assert_eq!(pieces(&block, &decoded).collect::<Result<Vec<_>, _>>().unwrap(), [(piece, &b""[..])]);
}
