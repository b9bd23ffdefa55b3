//! Records of the intent log and headers of logs: decoding anything, and carrying nothing out that was not
//! said.
#![no_main]

use arbitrary::Arbitrary;
use fastness_prb::HdlHeader;
use fastness_zil::record::{Head, Record};
use fastness_zil::{KindId, StoredHeader};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
struct Input {
    bytes: Vec<u8>,
    /// Makes version, type and length fit, or nothing behind these checks is ever reached.
    record_type: Option<u16>,
}

/// The kind's own part: what decodes is what these bytes say, and a header without a log says so.
fn check_header(header: &StoredHeader<'_>) {
    let is_none = match header.kind {
        KindId::Pmem => HdlHeader::decode(header.bytes) == Ok(HdlHeader::NoZil),
        KindId::Lwb => match fastness_lwb::Header::decode(header.bytes) {
            Ok(decoded) => {
                assert_eq!(decoded.encode(), header.bytes[..fastness_lwb::HEADER_BYTES]);
                decoded == fastness_lwb::Header::None
            }
            Err(_) => false,
        },
    };
    assert_eq!(header.names_no_log(), is_none);
}

fuzz_target!(|input: Input| {
    let Input { mut bytes, record_type } = input;
    if let Ok(header) = StoredHeader::decode(&bytes) {
        assert_eq!(header.encode(), bytes);
        check_header(&header);
    }
    // Both kinds, whatever the prefix says.
    check_header(&StoredHeader { kind: KindId::Pmem, bytes: &bytes });
    check_header(&StoredHeader { kind: KindId::Lwb, bytes: &bytes });
    if let Some(body) = bytes.get(..100) {
        let mut header = body.to_vec();
        header.extend(crc32c::crc32c(body).to_le_bytes());
        check_header(&StoredHeader { kind: KindId::Lwb, bytes: &header });
    }
    if let Some(record_type) = record_type {
        bytes.resize(bytes.len().max(32).next_multiple_of(8), 0);
        let len = bytes.len() as u32;
        bytes[..2].copy_from_slice(&1u16.to_le_bytes());
        bytes[2..4].copy_from_slice(&(1 + record_type % 19).to_le_bytes());
        bytes[4..8].copy_from_slice(&len.to_le_bytes());
    }
    match Record::decode(&bytes) {
        // What decodes is exactly what these bytes say.
        Ok((head, record)) => {
            assert_eq!(*record.to_bytes(head), *bytes);
            assert_eq!(Head::decode(&bytes), Ok((record.record_type(), head, bytes.len())));
        }
        Err(error) => {
            assert!(error.offset <= bytes.len(), "{error}");
            let _ = (error.kind(), error.to_string());
        }
    }
});
