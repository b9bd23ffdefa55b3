//! Entry headers: decoding anything, and what was encoded.
#![no_main]

use arbitrary::Arbitrary;
use fastness_fuzz::reseal_entry;
use fastness_prb::{
    Alignment, ChecksumKind, Counters, EntryHeader, EntryId, HEADER_BYTES, Insertion, LogGuid, Txg,
};
use libfuzzer_sys::fuzz_target;

const NUMBER_MAX: u64 = (1 << 56) - 1;
const BODY_LEN_MAX: u64 = (1 << 40) - 1;

#[derive(Debug, Arbitrary)]
enum Input {
    Bytes { bytes: [u8; HEADER_BYTES], reseal: bool },
    Fields(Fields),
}

#[derive(Debug, Arbitrary)]
struct Fields {
    log: [u8; 16],
    numbers: [u64; 3],
    newest: u64,
    counts: [u64; 3],
    body_len_bytes: u64,
    body_checksum: [u8; 32],
    kind: u8,
    optane: bool,
    one_fence: bool,
    epoch: u64,
}

fuzz_target!(|input: Input| match input {
    Input::Bytes { mut bytes, reseal } => {
        if reseal {
            reseal_entry(&mut bytes);
        }
        if let Some(header) = EntryHeader::decode_for_fuzzing(&bytes) {
            assert_eq!(header.encode(), bytes);
        }
    }
    Input::Fields(fields) => {
        let Some(log) = LogGuid::from_bytes(fields.log) else { return };
        let [txg, generation, gsid] = fields.numbers;
        let checksum_kind = ChecksumKind::ALL[usize::from(fields.kind) % 3];
        let header = EntryHeader {
            log,
            txg: Txg(txg & NUMBER_MAX),
            id: EntryId::new(generation & NUMBER_MAX, gsid & NUMBER_MAX),
            counters: Counters {
                newest: Txg(fields.newest & NUMBER_MAX),
                counts: fields.counts.map(|count| count & NUMBER_MAX),
            },
            body_len_bytes: fields.body_len_bytes & BODY_LEN_MAX,
            // What a body of any kind may have.
            body_checksum: checksum_kind.of(&fields.body_checksum),
            checksum_kind,
            alignment: if fields.optane { Alignment::Optane } else { Alignment::Line },
            insertion: if fields.one_fence { Insertion::OneFence } else { Insertion::TwoFences },
            epoch: fields.epoch & NUMBER_MAX,
        };
        let possible = header.id.generation.0 > 0
            && header.id.gsid.0 > 0
            && (!fields.one_fence || checksum_kind.is_strong());
        assert_eq!(EntryHeader::decode_for_fuzzing(&header.encode()), possible.then_some(header));
    }
});
