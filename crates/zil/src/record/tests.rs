//! Records: round trips, their exact bytes, and what is refused.

use proptest::prelude::*;

use super::*;
use fastness_base::{ObjectId, Txg};

/// One record of each type and of each form, with bytes in every variable part.
fn examples() -> Vec<Record<'static>> {
    let crtime = Time { seconds: -2, nanoseconds: 999_999_999 };
    let attributes = Attributes { mode: 0o10_4755, uid: 1000, gid: 100, generation: 7, crtime, rdev: 0x801 };
    let object = ObjectId(44);
    let create = |kind, target: &'static [u8], acl: &'static [u8]| {
        Record::Create(Create { kind, object, attributes, name: b"name", target, acl })
    };
    let rename = |kind| {
        Record::Rename(Rename {
            kind,
            target_directory: ObjectId(9),
            source_name: b"from",
            target_name: b"to it",
        })
    };
    vec![
        create(CreateKind::File, b"", b""),
        create(CreateKind::Directory, b"", b"list"),
        create(CreateKind::XattrDirectory, b"", b""),
        create(CreateKind::Symlink, b"../there", b""),
        Record::Remove(Remove { is_directory: false, name: b"gone" }),
        Record::Remove(Remove { is_directory: true, name: b"d" }),
        Record::Link(Link { object, name: b"second" }),
        rename(RenameKind::Plain),
        rename(RenameKind::Exchange),
        rename(RenameKind::Whiteout(ObjectId(10), attributes)),
        Record::Write(Write { offset: 4096, data: WriteData::Inline(b"hello, log") }),
        Record::Write(Write { offset: 0, data: WriteData::Inline(b"") }),
        Record::Write(Write {
            offset: 1 << 40,
            data: WriteData::Indirect { len_bytes: 131_072, address: &[3; 33] },
        }),
        Record::Extend { offset: 5, len_bytes: 6 },
        Record::Truncate(Truncate { offset: 100, len_bytes: u64::MAX }),
        Record::Truncate(Truncate { offset: 100, len_bytes: 50 }),
        Record::Zeroes(Zeroes { offset: 8192, len_bytes: 4096, is_discard: false }),
        Record::Zeroes(Zeroes { offset: 8192, len_bytes: 4096, is_discard: true }),
        Record::SetAttr(SetAttr {
            mask: attribute::ALL,
            mode: 0o644,
            uid: 1,
            gid: 2,
            size_bytes: 3,
            atime: crtime,
            mtime: Time::default(),
            extra: b"project",
        }),
        Record::SetAcl(SetAcl { acl: b"another list" }),
        Record::SetXattr(SetXattr { name: b"user.a", value: b"value" }),
        Record::SetXattr(SetXattr { name: b"user.a", value: b"" }),
        Record::CloneRange(CloneRange { offset: 0, len_bytes: 8192, block_bytes: 4096, addresses: &[9; 66] }),
        Record::TimedWrite(TimedWrite { offset: 4096, time: crtime, data: b"hello, log" }),
    ]
}

const HEAD: Head = Head { txg: Txg(0x1112), number: 3, object: ObjectId(0x2122) };

#[test]
fn every_type_comes_back_as_it_was_and_leaves_no_byte_of_the_buffer() {
    let mut types = std::collections::HashSet::new();
    for record in examples() {
        // The buffer's earlier contents must not show through padding.
        let mut buffer = vec![0xee; record.encoded_bytes() + 16];
        let len = record.encode(HEAD, &mut buffer);
        assert_eq!(len % 8, 0);
        assert_eq!(buffer[..len], *record.to_bytes(HEAD), "{record:?}");
        assert!(buffer[len..].iter().all(|&byte| byte == 0xee));
        assert_eq!(Record::decode(&buffer[..len]), Ok((HEAD, record)));
        assert_eq!(Head::decode(&buffer), Ok((record.record_type(), HEAD, len)));
        types.insert(record.record_type());
    }
    assert_eq!(types.len(), RecordType::ALL.len());
}

#[test]
fn the_quick_write_is_the_same_record() {
    for data in [&b""[..], b"x", b"12345678", &[7; 4096]] {
        let time = Time { seconds: -3, nanoseconds: 999_999_999 };
        let plain = Record::Write(Write { offset: 77, data: WriteData::Inline(data) });
        let timed = Record::TimedWrite(TimedWrite { offset: 77, time, data });
        for (record, time) in [(plain, None), (timed, Some(time))] {
            let mut buffer = vec![0xee; record.encoded_bytes()];
            let len = encode_write(HEAD, 77, data, time, &mut buffer);
            assert_eq!(buffer[..len], *record.to_bytes(HEAD));
            if data.len().is_multiple_of(8) {
                assert_eq!(buffer[..64], encode_write_head(HEAD, 77, data.len(), time));
            }
        }
    }
}

/// The bytes on the medium are permanent: `docs/format.md`.
#[test]
fn golden_bytes() {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let golden = include_str!("golden.txt").lines();
    let mut count = 0;
    for (record, line) in examples().iter().zip(golden) {
        assert_eq!(hex(&record.to_bytes(HEAD)), line, "{record:?}");
        count += 1;
    }
    assert_eq!(count, examples().len());
}

#[test]
fn every_cut_and_every_extra_byte_is_an_error() {
    for record in examples() {
        let good = record.to_bytes(HEAD);
        for len in 0..good.len() {
            let error = Record::decode(&good[..len]).unwrap_err();
            assert!(matches!(error.fault, RecordFault::TooShort { .. }), "{record:?} cut to {len}: {error}");
        }
        let longer = [&good[..], &[0; 8]].concat();
        let error = Record::decode(&longer).unwrap_err();
        assert_eq!(error, RecordError::new(good.len(), RecordFault::TooLong { extra: 8 }), "{record:?}");
    }
}

/// Crafted: the entry's checksum is valid, the lengths in the record are not.
#[test]
fn lengths_that_lie_are_errors() {
    for record in examples() {
        let good = record.to_bytes(HEAD);
        for at in (0..good.len()).step_by(2) {
            for value in [[0xff, 0xff], [0, 0x80], [1, 0]] {
                let mut bad = good.to_vec();
                bad[at..at + 2].copy_from_slice(&value);
                // An error, or another record; never a panic, and never a part beyond the bytes.
                if let Ok((_, other)) = Record::decode(&bad) {
                    assert_eq!(other.encoded_bytes(), bad.len());
                }
            }
        }
    }
}

#[test]
fn what_cannot_be_is_told_with_its_place() {
    let record = Record::Zeroes(Zeroes { offset: 1, len_bytes: 2, is_discard: true });
    let changed = |at: usize, bytes: &[u8]| {
        let mut record = record.to_bytes(HEAD).to_vec();
        record[at..at + bytes.len()].copy_from_slice(bytes);
        Record::decode(&record).unwrap_err()
    };
    let error = changed(2, &[20, 0]);
    assert_eq!(error, RecordError::new(2, RecordFault::UnknownType { found: 20 }));
    assert!(error.is_unknown());
    assert_eq!(error.kind(), fastness_base::ErrorKind::Invalid);
    assert_eq!(changed(0, &[2, 0]).fault, RecordFault::Version { found: 2, known: 1 });
    assert_eq!(changed(4, &[31, 0]), RecordError::new(4, RecordFault::Length { found: 31 }));
    let overflow = changed(32, &[0xff; 8]);
    assert_eq!((overflow.offset, overflow.kind()), (40, fastness_base::ErrorKind::Corrupt));
    assert_eq!(changed(48, &[2]).fault, RecordFault::Field { field: "flags", found: 2 });
    let mut padded = Record::Remove(Remove { is_directory: false, name: b"abc" }).to_bytes(HEAD);
    *padded.last_mut().unwrap() = 1;
    assert_eq!(Record::decode(&padded).unwrap_err().fault, RecordFault::Reserved);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn writes_of_any_length_come_back(
        offset in 0..u64::MAX / 2, data in prop::collection::vec(any::<u8>(), 0..600),
        txg in any::<u64>(), number in any::<u64>(), object in any::<u64>(),
    ) {
        let head = Head { txg: Txg(txg), number, object: ObjectId(object) };
        let record = Record::Write(Write { offset, data: WriteData::Inline(&data) });
        let bytes = record.to_bytes(head);
        prop_assert_eq!(Record::decode(&bytes), Ok((head, record)));
    }

    #[test]
    fn names_and_values_of_any_length_come_back(
        name in prop::collection::vec(any::<u8>(), 1..300),
        value in prop::collection::vec(any::<u8>(), 0..300),
        is_long in any::<bool>(),
    ) {
        let records = [
            Record::SetXattr(SetXattr { name: &name, value: &value }),
            Record::Link(Link { object: ObjectId(u64::from(is_long)), name: &name }),
            Record::Remove(Remove { is_directory: is_long, name: &name }),
            Record::SetAcl(SetAcl { acl: &value }),
            Record::Create(Create {
                kind: CreateKind::Symlink, object: ObjectId(1), attributes: Attributes::default(),
                name: &name, target: &name, acl: &value,
            }),
        ];
        for record in records {
            let bytes = record.to_bytes(HEAD);
            prop_assert_eq!(Record::decode(&bytes), Ok((HEAD, record)));
        }
    }

    /// What decodes is what its encoding says, whatever the bytes were.
    #[test]
    fn any_bytes_are_an_error_or_exactly_one_record(
        example in 0..23usize, edits in prop::collection::vec((any::<usize>(), any::<u8>()), 0..6),
    ) {
        let mut bytes = examples()[example].to_bytes(HEAD).to_vec();
        for (at, byte) in edits {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        if let Ok((head, record)) = Record::decode(&bytes) {
            prop_assert_eq!(record.to_bytes(head), bytes.into_boxed_slice());
        }
    }
}
