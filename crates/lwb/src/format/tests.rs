//! The format, byte for byte, and what a reader refuses.

use super::*;
use crate::ids::{BlockSeq, Extent, LogGuid, Lsn, Place, Txg};

const SECTOR: usize = 512;

fn guid() -> LogGuid {
    LogGuid::from_bytes(*b"0123456789abcdef").unwrap()
}

fn extent(offset: u64) -> Option<Extent> {
    Some(Extent { place: Place { device: 2, offset }, len_bytes: 0x2000 })
}

fn header(used: usize) -> BlockHeader {
    BlockHeader {
        guid: guid(),
        seq: BlockSeq(3),
        durable_seq: BlockSeq(1),
        newest_txg: Txg(41),
        used_bytes: used as u32,
        next: [extent(0x5000), extent(0x9000), None],
    }
}

/// A block of these pieces, in memory with other old contents.
fn block(pieces: &[(PieceHeader, &[u8])]) -> (Vec<u8>, BlockHeader) {
    let used = BLOCK_HEADER_BYTES + pieces.iter().map(|(_, data)| padded(data.len())).sum::<usize>();
    let header = header(used);
    let mut block = vec![0xee; header.written_bytes()];
    let mut contents = Contents::new(&mut block);
    header.put(&mut contents);
    pieces.iter().for_each(|(piece, data)| piece.put(data, &mut contents));
    assert_eq!(contents.len(), used);
    contents.finish(Tags::of(guid(), BlockSeq(3)));
    (block, header)
}

/// A record of 5 bytes and the beginning of one of 20.
fn example() -> (Vec<u8>, BlockHeader) {
    let whole = PieceHeader { lsn: Lsn(6), txg: Txg(40), record_bytes: 5, from: 0, len_bytes: 5 };
    let part = PieceHeader { lsn: Lsn(7), txg: Txg(41), record_bytes: 20, from: 0, len_bytes: 8 };
    block(&[(whole, b"first"), (part, b"12345678")])
}

/// A block of 3 sectors of contents, and 5 of zeroes.
fn long_example() -> Vec<u8> {
    let piece = PieceHeader { lsn: Lsn(6), txg: Txg(40), record_bytes: 1200, from: 0, len_bytes: 1200 };
    block(&[(piece, &[7; 1200])]).0
}

fn decode(block: &[u8]) -> Result<BlockHeader, Reject> {
    BlockHeader::decode(block, guid(), BlockSeq(3), &mut Vec::new())
}

#[test]
fn golden_bytes() {
    let (block, header) = example();
    assert_eq!(header.used_bytes, 184);
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let golden = concat!(
        "46415354 4c57424b 0200 0000 b8000000 30313233343536373839616263646566",
        "0300000000000000 0100000000000000 2900000000000000",
        "0050000000000000 02000000 00200000 0090000000000000 02000000 00200000",
        "0000000000000000 00000000 00000000",
        "05000000 05000000 0600000000000000 2800000000000000 00000000 00000000 6669727374 000000",
        "08000000 14000000 0700000000000000 2900000000000000 00000000 00000000 3132333435363738",
    );
    assert_eq!(hex(&block[..184]), golden.replace(' ', ""));
    assert!(block[184..496].iter().all(|byte| *byte == 0), "nothing of the memory before");
    // Tags: XXH3-64 of guid and number, and the same plus 1. Sums: XXH3-64 of what is before them, xor the
    // tag.
    assert_eq!(hex(&block[496..512]), "c79e0ba986aca83886ff41b02746fa0f");
    assert!(block[512..1008].iter().all(|byte| *byte == 0));
    assert_eq!(hex(&block[1008..1024]), "c89e0ba986aca838495eb766471098f3");
    assert_eq!(block.len(), 4096);
}

#[test]
fn decode_returns_what_was_encoded() {
    let (mut block, header) = example();
    let before = block.clone();
    block.resize(8192, 0xee);
    let mut contents = Vec::new();
    assert_eq!(BlockHeader::decode(&block, guid(), BlockSeq(3), &mut contents), Ok(header));
    assert_eq!(block[..4096], before);
    let found: Vec<_> = pieces(&contents, &header).map(Result::unwrap).collect();
    assert_eq!(found.len(), 2);
    assert_eq!((found[0].0.lsn, found[0].1, found[0].0.is_last()), (Lsn(6), &b"first"[..], true));
    assert_eq!((found[1].0.txg, found[1].1, found[1].0.is_last()), (Txg(41), &b"12345678"[..], false));
}

/// Contents of every length around sector and unit borders are read back unchanged.
#[test]
fn contents_go_over_sectors() {
    for len in (0..1100).chain(3700..4100).chain([100_000]) {
        let data: Vec<u8> = (0..len).map(|at| (at * 7 + at / 256) as u8).collect();
        let len = len as u32;
        let piece = PieceHeader { lsn: Lsn(6), txg: Txg(40), record_bytes: len, from: 0, len_bytes: len };
        let (block, header) = block(&[(piece, &data)]);
        assert!(capacity(block.len() as u32) >= header.used_bytes as usize);
        let mut contents = Vec::new();
        assert_eq!(BlockHeader::decode(&block, guid(), BlockSeq(3), &mut contents), Ok(header));
        let found: Vec<_> = pieces(&contents, &header).map(Result::unwrap).collect();
        assert_eq!(found, [(piece, &data[..])]);
    }
}

/// Wherever a bit is flipped, it is not taken for a crash, and the sector is reported.
#[test]
fn every_flipped_bit_is_found_to_be_damage() {
    for block in [example().0, long_example()] {
        for bit in 0..block.len() * 8 {
            let mut bad = block.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let sector = (bit / 8 / SECTOR) as u32;
            assert_eq!(decode(&bad), Err(Reject::Damaged { sector }), "bit {bit}");
        }
    }
}

/// What a crash leaves: each sector with its old contents, which are arbitrary, or its new ones. That is
/// never damage.
#[test]
fn sectors_that_were_never_written_are_no_damage() {
    let block = long_example();
    let stale = {
        let mut stale = vec![0xee; 4096];
        let older = BlockHeader { seq: BlockSeq(2), durable_seq: BlockSeq(0), ..header(BLOCK_HEADER_BYTES) };
        let mut contents = Contents::new(&mut stale);
        older.put(&mut contents);
        contents.finish(Tags::of(guid(), BlockSeq(2)));
        stale
    };
    let foreign = {
        let mut foreign = stale.clone();
        foreign[16] ^= 1;
        let other = LogGuid::from_bytes(get(&foreign, 16)).unwrap();
        Tags::of(other, BlockSeq(2)).put_trailers(&mut foreign);
        (foreign, other)
    };
    let olds = [
        (vec![0; 4096], Reject::NoBlock),
        (vec![0xa5; 4096], Reject::NoBlock),
        (stale, Reject::Stale(BlockSeq(2))),
        (foreign.0, Reject::Foreign(foreign.1)),
    ];
    for (old, instead) in olds {
        for written in 0..256_usize {
            let mut torn = old.clone();
            for sector in (0..8).filter(|sector| written >> sector & 1 == 1) {
                let range = sector * SECTOR..(sector + 1) * SECTOR;
                torn[range.clone()].copy_from_slice(&block[range]);
            }
            let expected = match written {
                0 => Err(instead),
                255 => Ok(()),
                _ => Err(Reject::Torn),
            };
            assert_eq!(decode(&torn).map(drop), expected, "{written:08b}");
        }
    }
}

/// One sector was written and has changed, others were never written: the medium cannot be trusted.
#[test]
fn damage_counts_in_a_torn_block_too() {
    let mut block = long_example();
    block[..SECTOR].fill(0);
    block[3 * SECTOR + 9] ^= 1;
    assert_eq!(decode(&block), Err(Reject::Damaged { sector: 3 }));
    let mut block = long_example();
    block[3 * SECTOR..4 * SECTOR].fill(0);
    block[5 * SECTOR + 500] ^= 1;
    assert_eq!(decode(&block), Err(Reject::Damaged { sector: 5 }));
}

/// A sector of the block at the place of another of its sectors.
#[test]
fn a_sector_has_one_place() {
    let mut block = long_example();
    block.copy_within(5 * SECTOR..6 * SECTOR, 4 * SECTOR);
    assert_eq!(decode(&block), Err(Reject::Torn), "as far as anybody can tell");
}

#[test]
fn another_verifier_is_refused() {
    let (block, _) = example();
    let other = LogGuid::from_bytes([1; 16]).unwrap();
    let decode = |block: &[u8], guid, seq| BlockHeader::decode(block, guid, BlockSeq(seq), &mut Vec::new());
    assert_eq!(decode(&block, other, 3), Err(Reject::Foreign(guid())));
    assert_eq!(decode(&block, guid(), 4), Err(Reject::Stale(BlockSeq(3))));
    assert_eq!(decode(&block, guid(), 2), Err(Reject::Misplaced(BlockSeq(3))));
    assert_eq!(decode(&[], guid(), 3), Err(Reject::NoBlock));
    assert_eq!(decode(&[0; 4096], guid(), 3), Err(Reject::NoBlock));
}

/// Scenario 16 of the reference: crafted lengths under valid trailers.
#[test]
fn crafted_fields_are_refused_where_they_are() {
    let cases: &[(usize, &[u8], Reject)] = &[
        (0, &[0], Reject::Malformed { offset: 0 }),
        (8, &[1], Reject::Version(1)),
        (10, &[1], Reject::Malformed { offset: 10 }),
        (12, &[0, 0], Reject::Malformed { offset: 12 }),
        (12, &[0xb9], Reject::Malformed { offset: 12 }),
        (12, &[0, 0x20], Reject::Malformed { offset: 12 }),
        (12, &[0xff, 0xff, 0xff, 0xff], Reject::Malformed { offset: 12 }),
        (16, &[0], Reject::Malformed { offset: 16 }),
        (32, &[4], Reject::Malformed { offset: 32 }),
        (40, &[3], Reject::Malformed { offset: 40 }),
        (57, &[1], Reject::Malformed { offset: 56 }),
        (68, &[1], Reject::Malformed { offset: 56 }),
        (70, &[3], Reject::Malformed { offset: 56 }),
        (69, &[0], Reject::Malformed { offset: 56 }),
        (57, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], Reject::Malformed { offset: 72 }),
        (88, &[1], Reject::Malformed { offset: 88 }),
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
        // What passes the trailer checks was forged, or written by a bug.
        Tags::of(guid(), BlockSeq(3)).put_trailers(&mut block);
        let mut contents = Vec::new();
        let found = BlockHeader::decode(&block, guid(), BlockSeq(3), &mut contents);
        let found = found.and_then(|header| pieces(&contents, &header).collect::<Result<Vec<_>, _>>());
        assert_eq!(found.expect_err("crafted"), *expected, "{bytes:?} at {at}");
    }
}
