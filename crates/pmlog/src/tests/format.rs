//! The blocks in front of the chunks, byte by byte.

use fastness_prb::{ChecksumKind, HdlHeader, LogGuid, Txg};

use super::*;
use crate::{BLOCK_BYTES, ErrorKind, FormatError, Geometry, HeaderSlot, Superblock, Uuid};

fn superblock() -> Superblock {
    let geometry = Geometry {
        region_bytes: 64 << 20,
        chunk_bytes: 1 << 20,
        chunks: 63,
        alignment: Alignment::Optane,
        checksum: ChecksumKind::Xxh3,
    };
    Superblock { uuid: Uuid(*b"0123456789abcdef"), geometry }
}

fn slot() -> HeaderSlot {
    HeaderSlot {
        uuid: Uuid(*b"0123456789abcdef"),
        sequence: 0x1112,
        synced: Txg(0x2122),
        log_number: 0x3132,
        committers: 4,
        unsafe_shutdowns: None,
        header: HdlHeader::Logging { log: LogGuid::from_bytes(*b"fedcba9876543210").unwrap() },
    }
}

fn sealed(mut bytes: [u8; BLOCK_BYTES]) -> [u8; BLOCK_BYTES] {
    let crc = crc32c::crc32c(&bytes[..4092]);
    bytes[4092..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// The bytes of `docs/format.md`, written out by hand.
#[test]
fn golden_superblock() {
    let mut expected = [0; BLOCK_BYTES];
    expected[..8].copy_from_slice(b"FSTNPLOG");
    expected[8..12].copy_from_slice(&[2, 0, 4, 8]);
    expected[16..32].copy_from_slice(b"0123456789abcdef");
    expected[35] = 4;
    expected[42] = 0x10;
    expected[48] = 63;
    expected[57] = 0x40;
    let bytes = superblock().encode();
    assert_eq!(bytes, sealed(expected));
    assert_eq!(bytes[4092..], 0x9029_d7d6_u32.to_le_bytes());
    assert_eq!(Superblock::decode(&bytes, 0), Ok(superblock()));
}

#[test]
fn golden_header_slot() {
    let mut expected = [0; BLOCK_BYTES];
    expected[..8].copy_from_slice(b"FSTNPHDR");
    expected[8..13].copy_from_slice(&[1, 0, 28, 0, 4]);
    expected[16..32].copy_from_slice(b"0123456789abcdef");
    expected[32..34].copy_from_slice(&[0x12, 0x11]);
    expected[40..42].copy_from_slice(&[0x22, 0x21]);
    expected[48..50].copy_from_slice(&[0x32, 0x31]);
    expected[56..64].fill(0xff);
    expected[64..67].copy_from_slice(&[1, 0, 1]);
    expected[72..88].copy_from_slice(b"fedcba9876543210");
    let crc = crc32c::crc32c(&expected[64..88]);
    expected[88..92].copy_from_slice(&crc.to_le_bytes());
    let bytes = slot().encode();
    assert_eq!(bytes, sealed(expected));
    assert_eq!(HeaderSlot::decode(&bytes, 4096), Ok(slot()));
    let known = HeaderSlot { unsafe_shutdowns: Some(7), ..slot() };
    assert_eq!(HeaderSlot::decode(&known.encode(), 4096), Ok(known));
}

#[test]
fn every_flipped_bit_is_an_error() {
    let (superblock, slot) = (superblock().encode(), slot().encode());
    for bit in 0..BLOCK_BYTES * 8 {
        let flipped = |mut bytes: [u8; BLOCK_BYTES]| {
            bytes[bit / 8] ^= 1 << (bit % 8);
            bytes
        };
        assert!(Superblock::decode(&flipped(superblock), 0).is_err(), "superblock bit {bit}");
        assert!(HeaderSlot::decode(&flipped(slot), 0).is_err(), "slot bit {bit}");
    }
}

/// Invalid fields under a matching checksum: written by another program, or an attack.
#[test]
fn every_bad_field_is_named_with_its_offset() {
    let offset_of = |error: FormatError| match error {
        FormatError::Field { region_offset, .. } | FormatError::Header { region_offset, .. } => region_offset,
        other => panic!("{other}"),
    };
    let fields: [(usize, u8, u64); 9] = [
        (10, 9, 10),    // checksum kind
        (11, 7, 11),    // alignment
        (13, 1, 12),    // reserved
        (40, 1, 40),    // chunk length: not even
        (47, 0xff, 40), // chunk length: huge and uneven is caught first as too large a log
        (48, 0, 48),    // chunks: none
        (55, 1, 48),    // chunks: more than fit
        (56, 1, 56),    // first chunk
        (4091, 1, 4091),
    ];
    for (at, value, expected) in fields {
        let mut bytes = superblock().encode();
        bytes[at] = value;
        let error = Superblock::decode(&sealed(bytes), 0).unwrap_err();
        let found = offset_of(error);
        // A huge chunk shows as too few bytes for the number of chunks.
        assert!(found == expected || (at == 47 && found == 48), "byte {at}: {error}");
        assert_eq!(error.kind(), ErrorKind::Corrupt);
    }
    let fields: [(usize, u8, u64); 8] = [
        (11, 0xff, 4096 + 10),
        (10, 27, 4096 + 64),
        (10, 29, 4096 + 10),
        (39, 0xff, 4096 + 32),
        (47, 0xff, 4096 + 40),
        (55, 0xff, 4096 + 48),
        (66, 3, 4096 + 64),
        (1000, 1, 4096 + 1000),
    ];
    for (at, value, expected) in fields {
        let mut bytes = slot().encode();
        bytes[at] = value;
        let error = HeaderSlot::decode(&sealed(bytes), 4096).unwrap_err();
        assert_eq!(offset_of(error), expected, "byte {at}: {error}");
    }
    let mut bytes = superblock().encode();
    bytes[8] = 3;
    let error = Superblock::decode(&sealed(bytes), 0).unwrap_err();
    assert!(matches!(error, FormatError::Version { found: 3, known: 2, .. }));
}

#[test]
fn what_is_no_log_is_told_from_a_damaged_one() {
    assert!(matches!(open_image(&[0; SMALL]), Err(OpenError::NotALog)));
    assert!(matches!(open_image(&[0x5a; SMALL]), Err(OpenError::NotALog)));
    assert!(matches!(open_image(&[0; 64]), Err(OpenError::Superblock(_))));
    let (recorder, log) = new_log(SMALL);
    log.append(b"one").unwrap();
    let good = recorder.image();
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut image = good.clone();
        change(&mut image);
        open_image(&image).map(records_of)
    };
    assert_eq!(with(&|image| image[40] ^= 1).unwrap(), [b"one"]);
    assert_eq!(with(&|image| image[12288 + 40] ^= 1).unwrap(), [b"one"]);
    assert_eq!(with(&|image| image[4096 + 40] ^= 1).unwrap(), [b"one"]);
    assert_eq!(with(&|image| image[8192 + 40] ^= 1).unwrap(), [b"one"]);
    let both = with(&|image| [40, 12288 + 40].iter().for_each(|&at| image[at] ^= 1)).unwrap_err();
    assert!(matches!(both, OpenError::Superblock(FormatError::Checksum { region_offset: 0, .. })));
    let both = with(&|image| [4096, 8192].iter().for_each(|&at| image[at + 40] ^= 1)).unwrap_err();
    assert!(matches!(both, OpenError::Headers { .. }));
    assert_eq!(both.kind(), ErrorKind::Corrupt);
    let short = with(&|image| image.truncate(SMALL - 64)).unwrap_err();
    assert!(matches!(short, OpenError::Truncated { .. }), "{short}");
    let foreign = with(&|image| {
        for at in [4096, 8192] {
            image[at + 16] ^= 1;
            let crc = crc32c::crc32c(&image[at..at + 4092]);
            image[at + 4092..at + 4096].copy_from_slice(&crc.to_le_bytes());
        }
    });
    let foreign = foreign.unwrap_err();
    assert!(matches!(foreign, OpenError::Headers { first: FormatError::Foreign { .. }, .. }));
}
