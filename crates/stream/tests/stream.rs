//! What is written is read; anything else is refused.

use fastness_stream::{
    Begin, DATA_BYTES_MAX, Part, RECORD_BYTES, Reader, Result, StreamError, Token, Writer, begin_bytes,
};
use proptest::prelude::*;

fn begin() -> Begin {
    let name = "tank/v@a".to_owned();
    Begin { to: 7, from: Some(5), name, size_bytes: 1 << 20, block_bytes: 4096, resumes_at: 0 }
}

/// A range: data, or a hole of this length.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Owned {
    Data(u64, Vec<u8>),
    Hole(u64, u64),
}

fn write(begin: &Begin, parts: &[Owned]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::begin(&mut bytes, begin).unwrap();
    for part in parts {
        match part {
            Owned::Data(at, data) => writer.data(*at, data).unwrap(),
            Owned::Hole(at, len) => writer.hole(*at, *len).unwrap(),
        }
    }
    writer.end().unwrap();
    bytes
}

/// What a reader hands out, and how it ends.
fn read(bytes: &[u8]) -> (Option<Begin>, Vec<Owned>, Result<usize>) {
    let mut rest = bytes;
    let mut reader = match Reader::begin(&mut rest) {
        Ok(reader) => reader,
        Err(error) => return (None, Vec::new(), Err(error)),
    };
    let (begin, mut parts) = (reader.about().clone(), Vec::new());
    let end = loop {
        match reader.next() {
            Ok(Some(Part::Data(at, data))) => parts.push(Owned::Data(at, data.to_vec())),
            Ok(Some(Part::Hole(at, len))) => parts.push(Owned::Hole(at, len)),
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    drop(reader);
    (Some(begin), parts, end.map(|()| rest.len()))
}

fn example() -> (Begin, Vec<Owned>) {
    let parts = vec![
        Owned::Data(0, vec![1; 300]),
        Owned::Hole(4096, 8192),
        Owned::Data(65536, vec![2; 4096]),
        Owned::Data(69632, b"the end".to_vec()),
    ];
    (begin(), parts)
}

fn parts() -> impl Strategy<Value = Vec<Owned>> {
    let one = (0..5000u64, any::<bool>(), 1..3000usize, any::<u8>());
    proptest::collection::vec(one, 0..12).prop_map(|all| {
        let mut at = 0;
        let made = all.into_iter().map(|(gap, is_hole, len, byte)| {
            let from = at + gap;
            at = from + len as u64;
            if is_hole { Owned::Hole(from, len as u64) } else { Owned::Data(from, vec![byte; len]) }
        });
        made.collect()
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read(parts in parts(), to in 1..u64::MAX, from in any::<u64>(), name in "[a-z/@]{0,40}") {
        let from = Some(from).filter(|from| *from != 0 && *from != to);
        let begin = Begin { to, from, name, ..begin() };
        let mut bytes = write(&begin, &parts);
        let len = begin_bytes(&begin.name) + RECORD_BYTES as u64 + parts.iter().map(|part| match part {
            Owned::Data(_, data) => (RECORD_BYTES + data.len()) as u64,
            Owned::Hole(..) => RECORD_BYTES as u64,
        }).sum::<u64>();
        prop_assert_eq!(bytes.len() as u64, len);
        bytes.extend(b"what follows is not read");
        let (found, read, end) = read(&bytes);
        prop_assert_eq!((found, read), (Some(begin), parts));
        prop_assert_eq!(end.unwrap(), 24);
    }

    /// Whatever is done to a stream: what is handed out was written, in its order, and the end is an error.
    #[test]
    fn a_changed_stream_is_refused(parts in parts(), at in any::<prop::sample::Index>(), mask in 1..=255u8, cut in any::<bool>()) {
        let mut bytes = write(&begin(), &parts);
        let at = at.index(bytes.len());
        if cut { bytes.truncate(at) } else { bytes[at] ^= mask }
        let (_, read, end) = read(&bytes);
        prop_assert!(end.is_err());
        prop_assert_eq!(&read[..], &parts[..read.len()]);
    }

    #[test]
    fn anything_is_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(read(&bytes).2.is_err());
    }

    #[test]
    fn tokens_are_read_back(to in any::<u64>(), from in any::<u64>(), offset in any::<u64>(), name in ".{0,30}") {
        let token = Token { to, from: Some(from).filter(|from| *from != 0), offset, name };
        prop_assert_eq!(token.to_string().parse::<Token>().unwrap(), token);
    }
}

/// Records that are doubled, left out, exchanged, or from another stream of the same snapshot.
#[test]
fn records_stand_where_they_were_written() {
    let (begin, parts) = example();
    let bytes = write(&begin, &parts);
    let mut ends = vec![begin_bytes(&begin.name) as usize];
    for part in &parts {
        let payload = if let Owned::Data(_, data) = part { data.len() } else { 0 };
        ends.push(ends[ends.len() - 1] + RECORD_BYTES + payload);
    }
    let record = |nth: usize| &bytes[ends[nth]..ends[nth + 1]];
    let (front, back) = (&bytes[..ends[1]], &bytes[ends[2]..]);
    let missing = [front, back].concat();
    let doubled = [front, record(1), record(1), back].concat();
    let exchanged = [&bytes[..ends[0]], record(1), record(0), back].concat();
    let mut other = parts.clone();
    other[0] = Owned::Data(0, vec![9; 300]);
    let spliced = [front, &write(&begin, &other)[ends[1]..]].concat();
    for (bytes, number) in [(missing, 2), (doubled, 3), (exchanged, 1), (spliced, 2)] {
        let (_, read, end) = read(&bytes);
        assert!(matches!(end, Err(StreamError::Damaged { record }) if record == number), "{end:?}");
        assert_eq!(read, parts[..read.len()]);
    }
}

/// Every bit of an example, and every length.
#[test]
fn no_bit_and_no_byte_goes_unnoticed() {
    let (begin, parts) = example();
    let bytes = write(&begin, &parts);
    for at in 0..bytes.len() {
        let (_, _, end) = read(&bytes[..at]);
        assert!(matches!(end, Err(StreamError::Truncated { .. })), "{at}: {end:?}");
        for bit in 0..8 {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            assert!(read(&changed).2.is_err(), "bit {bit} of byte {at}");
        }
    }
}

/// Streams with right sums that no writer of ours makes.
#[test]
fn ranges_rise_and_lie_within_the_volume() {
    let refused = |begin: &Begin, parts: &[Owned]| match read(&write(begin, parts)).2 {
        Err(StreamError::Invalid { what, .. }) => what,
        other => panic!("{other:?}"),
    };
    let data = |at, len| Owned::Data(at, vec![1; len]);
    let begin = begin();
    assert!(refused(&begin, &[data(1 << 20, 1)]).contains("beyond"));
    assert!(refused(&begin, &[Owned::Hole(u64::MAX, 2)]).contains("beyond"));
    assert!(refused(&begin, &[Owned::Hole(4096, u64::MAX - 1)]).contains("beyond"));
    assert!(refused(&begin, &[data(4096, 10), data(0, 10)]).contains("before"));
    assert!(refused(&begin, &[data(0, 10), data(9, 10)]).contains("before"));
    assert!(refused(&begin, &[Owned::Hole(0, 0)]).contains("empty"));
    assert!(refused(&Begin { resumes_at: 4096, ..begin.clone() }, &[data(0, 10)]).contains("before"));
    assert!(refused(&Begin { resumes_at: (1 << 20) + 1, ..begin.clone() }, &[]).contains("behind"));
    assert!(refused(&Begin { to: 0, ..begin.clone() }, &[]).contains("snapshots"));
    assert!(refused(&Begin { from: Some(7), ..begin }, &[]).contains("snapshots"));
}

#[test]
fn a_range_whose_end_has_no_number_is_not_written() {
    let mut bytes = Vec::new();
    let mut writer = Writer::begin(&mut bytes, &begin()).unwrap();
    writer.data(u64::MAX - 1, &[1]).unwrap();
    let error = writer.data(u64::MAX - 1, &[1, 2]).unwrap_err();
    assert!(matches!(error, StreamError::Invalid { record: 2, .. }), "{error:?}");
    writer.end().unwrap();
    assert_eq!(bytes.len() as u64, begin_bytes(&begin().name) + 2 * RECORD_BYTES as u64 + 1);
}

#[test]
fn long_data_goes_in_records_of_bounded_length() {
    let begin = Begin { size_bytes: 1 << 30, ..begin() };
    let data = vec![3; DATA_BYTES_MAX + 10];
    let (_, parts, end) = read(&write(&begin, &[Owned::Data(5, data.clone())]));
    end.unwrap();
    let (first, last) = data.split_at(DATA_BYTES_MAX);
    let expected = [Owned::Data(5, first.to_vec()), Owned::Data(5 + DATA_BYTES_MAX as u64, last.to_vec())];
    assert_eq!(parts, expected);
}

#[test]
fn other_versions_and_other_files_are_named() {
    let (begin, parts) = example();
    let mut bytes = write(&begin, &parts);
    bytes[8] = 2;
    assert!(matches!(read(&bytes).2, Err(StreamError::OtherVersion { found: 2 })));
    assert!(matches!(read(b"PK\x03\x04 a file of another kind").2, Err(StreamError::NoStream)));
    for text in ["", "1-", "2-00", "1-zz", "1-+1", "1-0102030405060708", "1-\u{e4}\u{e4}"] {
        assert!(matches!(text.parse::<Token>(), Err(StreamError::BadToken(_))), "{text}");
    }
    let good = Token { to: 1, from: None, offset: 4096, name: "tank/v@a".to_owned() }.to_string();
    let changed = good.replacen('4', "5", 1);
    assert!(changed.parse::<Token>().is_err() && good.parse::<Token>().is_ok());
}
