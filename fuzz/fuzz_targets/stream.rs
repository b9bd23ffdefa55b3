//! Streams of snapshots: anything; ones that were damaged; and ones with right sums and numbers that no
//! program of ours writes.
#![no_main]

use arbitrary::Arbitrary;
use fastness_stream::{Begin, Part, Reader, Token, Writer};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
struct Input {
    to: u64,
    from: Option<u64>,
    name: String,
    size_bytes: u64,
    block_bytes: u32,
    resumes_at: u64,
    parts: Vec<(u64, RawPart)>,
    edits: Vec<(u32, u8)>,
    cut: Option<u32>,
    raw: Option<Vec<u8>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Arbitrary)]
enum RawPart {
    Data(Vec<u8>),
    Hole(u64),
}

fuzz_target!(|input: Input| {
    let _ = input.name.parse::<Token>();
    let Input { to, from, name, size_bytes, block_bytes, resumes_at, .. } = input;
    // 0 is none.
    let from = from.filter(|from| *from != 0);
    let begin = Begin { to, from, name, size_bytes, block_bytes, resumes_at };
    let mut bytes = Vec::new();
    let Ok(mut writer) = Writer::begin(&mut bytes, &begin) else { return };
    for (at, part) in &input.parts {
        let written = match part {
            RawPart::Data(data) => writer.data(*at, data),
            RawPart::Hole(len) => writer.hole(*at, *len),
        };
        // A range whose end has no number.
        if written.is_err() {
            return;
        }
    }
    writer.end().unwrap();
    let whole = bytes.clone();
    for (at, mask) in &input.edits {
        let at = *at as usize % bytes.len();
        bytes[at] ^= mask;
    }
    if let Some(cut) = input.cut {
        bytes.truncate(cut as usize);
    }
    // Sums that fit by search are forged: then only the numbers are looked at.
    let is_forged = input.raw.is_some();
    if let Some(raw) = input.raw {
        bytes = raw;
    }
    let Ok(mut reader) = Reader::begin(&bytes[..]) else { return };
    assert!(is_forged || *reader.about() == begin, "what it says of itself was written");
    let begin = reader.about().clone();
    // Data of no bytes is not written.
    let mut written = input.parts.iter().filter(|(_, part)| *part != RawPart::Data(Vec::new()));
    let mut next = begin.resumes_at;
    let is_whole = loop {
        let (at, found) = match reader.next() {
            Ok(Some(Part::Data(at, data))) => (at, RawPart::Data(data.to_vec())),
            Ok(Some(Part::Hole(at, len))) => (at, RawPart::Hole(len)),
            Ok(None) => break true,
            Err(_) => break false,
        };
        assert!(is_forged || written.next() == Some(&(at, found.clone())), "in its order");
        let len = match found {
            RawPart::Data(data) => data.len() as u64,
            RawPart::Hole(len) => len,
        };
        assert!(at >= next && len > 0 && at + len <= begin.size_bytes);
        next = at + len;
    };
    if is_whole && !is_forged {
        assert!(written.next().is_none(), "nothing is missing");
        assert!(bytes.starts_with(&whole));
    }
});
