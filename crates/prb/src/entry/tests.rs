use super::*;

fn example() -> EntryHeader {
    EntryHeader {
        log: LogGuid::from_bytes(*b"0123456789abcdef").unwrap(),
        txg: Txg(0x1112),
        id: EntryId::new(0x2122, 0x3132),
        counters: Counters { newest: Txg(0x4142), counts: [0x51, 0x52, 0x53] },
        body_len_bytes: 0x6162,
        body_checksum: ChecksumKind::Crc32c.of(b"body"),
        checksum_kind: ChecksumKind::Crc32c,
        alignment: Alignment::Optane,
        insertion: Insertion::TwoFences,
        epoch: 0x7172,
    }
}

/// The bytes of `docs/format.md`, written out by hand.
#[test]
fn golden_bytes() {
    let bytes = example().encode();
    let mut expected = [0u8; 256];
    for tag in (7..104).step_by(8).chain([223]) {
        expected[tag] = 0xa5;
    }
    expected[..7].copy_from_slice(b"0123456");
    expected[8..15].copy_from_slice(b"789abcd");
    expected[16..23].copy_from_slice(&[b'e', b'f', 2, 0, 2, 0, 8]);
    expected[24..26].copy_from_slice(&[0x12, 0x11]);
    expected[32..34].copy_from_slice(&[0x72, 0x71]);
    expected[40..42].copy_from_slice(&[0x22, 0x21]);
    expected[48..50].copy_from_slice(&[0x32, 0x31]);
    expected[56..58].copy_from_slice(&[0x62, 0x61]);
    let id_check = crc32c::crc32c(&expected[..40]).to_le_bytes();
    expected[61..63].copy_from_slice(&[id_check[0] ^ id_check[2], id_check[1] ^ id_check[3]]);
    expected[64..66].copy_from_slice(&[0x42, 0x41]);
    expected[72] = 0x51;
    expected[80] = 0x52;
    expected[88] = 0x53;
    expected[96..100].copy_from_slice(&crc32c::crc32c(b"body").to_le_bytes());
    let header_checksum = crc32c::crc32c(&expected[..216]).to_le_bytes();
    expected[216..220].copy_from_slice(&header_checksum);
    assert_eq!(bytes, expected);
}

/// 32 bytes over five words, and a GUID over three.
#[test]
fn every_byte_of_a_field_has_its_place() {
    let body_checksum = std::array::from_fn(|index| index as u8 + 1);
    let log = LogGuid::from_bytes([0xff; 16]).unwrap();
    let header = EntryHeader {
        body_checksum,
        log,
        epoch: NUMBER_MAX,
        body_len_bytes: BODY_LEN_MAX,
        checksum_kind: ChecksumKind::Fletcher4,
        ..example()
    };
    let bytes = header.encode();
    assert_eq!(bytes[96..104], [1, 2, 3, 4, 5, 6, 7, 0xa5]);
    assert_eq!(bytes[128..136], [29, 30, 31, 32, 0, 0, 0, 0xa5]);
    assert_eq!(bytes[8..16], [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xa5]);
    assert_eq!(bytes[16..24], [0xff, 0xff, 2, 0, 1, 0, 8, 0xa5]);
    assert_eq!(bytes[56..61], [0xff; 5]);
    assert_eq!(EntryHeader::decode(&bytes), Ok(header));
}

#[test]
fn decode_returns_what_was_encoded() {
    for checksum_kind in ChecksumKind::ALL {
        for alignment in [Alignment::Line, Alignment::Optane] {
            let header = EntryHeader { checksum_kind, alignment, ..example() };
            assert_eq!(EntryHeader::decode(&header.encode()), Ok(header));
        }
    }
    let one_fence =
        EntryHeader { checksum_kind: ChecksumKind::Xxh3, insertion: Insertion::OneFence, ..example() };
    assert_eq!(EntryHeader::decode(&one_fence.encode()), Ok(one_fence));
}

/// Examples whose sums have words without content: the tag alone keeps them from being zero.
fn examples() -> impl Iterator<Item = EntryHeader> {
    ChecksumKind::ALL.into_iter().flat_map(|checksum_kind| {
        let full = EntryHeader { checksum_kind, ..example() };
        let body_checksum = ChecksumKind::Fletcher4.of(&[]);
        let small = EntryHeader { counters: Counters::default(), body_len_bytes: 0, ..full };
        [full, EntryHeader { body_checksum, ..small }]
    })
}

/// A flipped bit never looks like an insertion interrupted by a crash; the owner is known if the bit is
/// outside the identity, and never reported wrongly.
#[test]
fn a_flipped_bit_is_damage_with_its_owner() {
    for header in examples() {
        let good = header.encode();
        let owner = DamagedHeader { log: header.log, txg: header.txg };
        for bit in 0..HEADER_BYTES * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            let found = EntryHeader::decode(&bad).unwrap_err();
            let NoHeader::Damaged(remains) = found else { panic!("{header:?} bit {bit}: {found:?}") };
            let in_identity = bit / 64 < IDENTITY_WORDS || (61..63).contains(&(bit / 8));
            assert_eq!(remains.owner(), (!in_identity).then_some(owner), "bit {bit}");
            assert!(remains.is_of(header.epoch), "bit {bit}");
            assert!(!remains.is_of(header.epoch ^ 0xff_00ff), "bit {bit}");
        }
    }
}

/// What a crash leaves of a header, over zeroes: any subset of its words.
#[test]
fn words_that_are_missing_are_no_damage() {
    for header in examples() {
        let good = header.encode();
        let used: Vec<_> = (0..WORDS).filter(|word| good[word * 8..][..8] != [0; 8]).collect();
        assert_eq!(used.len(), 12 + 2 * sum_words(header.checksum_kind));
        // All sets of present words, by number; too many for the widest sums.
        let sets = if used.len() > 18 { 1 << 18 } else { 1 << used.len() };
        for set in 0_u64..sets {
            // In steps that reach sets of all sizes.
            let set = if sets == 1 << used.len() { set } else { set.wrapping_mul(0x9e37_79b9_7f4a_7c15) };
            let mut torn = [0; HEADER_BYTES];
            for (_, word) in used.iter().enumerate().filter(|(index, _)| set >> index & 1 == 1) {
                torn[word * 8..][..8].copy_from_slice(&good[word * 8..][..8]);
            }
            match EntryHeader::decode(&torn) {
                Ok(found) => assert!(found == header && torn == good),
                Err(NoHeader::Empty) => assert_eq!(torn, [0; HEADER_BYTES]),
                Err(NoHeader::Torn) => {}
                Err(other) => panic!("{header:?}, words {set:b}: {other:?}"),
            }
        }
    }
}

#[test]
fn zeroes_are_an_empty_place() {
    assert_eq!(EntryHeader::decode(&[0; 256]), Err(NoHeader::Empty));
}

/// A header with the right checksum that this version does not write.
#[test]
fn what_no_writer_of_this_version_leaves_is_unknown() {
    let good = example().encode();
    let resealed = |at: usize, byte: u8| {
        let mut bytes = good;
        bytes[at] = byte;
        let crc = crc32c::crc32c(&bytes[..216]).to_le_bytes();
        bytes[216..220].copy_from_slice(&crc);
        EntryHeader::decode(&bytes)
    };
    // Version, flags, alignment, the check of the identity, a tag, an unused word.
    for (at, byte) in [(18, 3), (21, 2), (22, 7), (61, good[61] ^ 1), (47, 1), (136, 1)] {
        assert_eq!(resealed(at, byte), Err(NoHeader::Unknown), "byte {at}");
    }
}
