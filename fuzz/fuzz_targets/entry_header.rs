//! Entry headers: decoding anything, and what was encoded.
#![no_main]

use arbitrary::Arbitrary;
use fastness_fuzz::reseal_entry;
use fastness_prb::{
    Alignment, ChecksumKind, Counters, EntryHeader, EntryId, HEADER_BYTES, Insertion, LogGuid, Txg,
};
use libfuzzer_sys::fuzz_target;

const NUMBER_MAX: u64 = u64::MAX >> 1;

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
            txg: Txg(txg),
            id: EntryId::new(generation, gsid),
            counters: Counters { newest: Txg(fields.newest), counts: fields.counts },
            body_len_bytes: fields.body_len_bytes,
            body_checksum: fields.body_checksum,
            checksum_kind,
            alignment: if fields.optane { Alignment::Optane } else { Alignment::Line },
            insertion: if fields.one_fence { Insertion::OneFence } else { Insertion::TwoFences },
            epoch: fields.epoch,
        };
        let possible = txg <= NUMBER_MAX
            && (1..=NUMBER_MAX).contains(&generation)
            && (1..=NUMBER_MAX).contains(&gsid)
            && (!fields.one_fence || checksum_kind.is_strong());
        assert_eq!(EntryHeader::decode_for_fuzzing(&header.encode()), possible.then_some(header));
    }
});
