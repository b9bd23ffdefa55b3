//! Chains of log-write blocks with damaged and forged bytes, checksums made right again if asked: claim and
//! replay end with an answer, hold what they say, and without forgery give back only what was appended.
#![no_main]

use std::convert::Infallible;
use std::sync::Arc;

use arbitrary::Arbitrary;
use fastness_blkdev::{MemDevice, MemImage};
use fastness_lwb::{Claim, DeviceSpace, Header, Log, LogGuid, Lsn, OnLoss, Options, Txg, claim};
use libfuzzer_sys::fuzz_target;
use twox_hash::XxHash3_64;

const DISK_BYTES: u64 = 256 << 10;

#[derive(Debug, Arbitrary)]
struct Input {
    records: Vec<(u16, bool)>,
    edits: Vec<(u32, [u8; 4], u8)>,
    forge: bool,
    header: Option<Vec<u8>>,
    last_seq: Option<u8>,
    last_lsn: u8,
    flip: Option<u32>,
}

fn guid() -> LogGuid {
    LogGuid::from_bytes([0x5a; 16]).expect("not zero")
}

/// A chain and its header; `bytes` of each record are its number.
///
/// Also how many of them are in the chain for certain.
fn write(records: &[(u16, bool)]) -> (MemImage, Header, u64) {
    let space = DeviceSpace::new(MemDevice::new("disk", DISK_BYTES), 0..DISK_BYTES).expect("a space");
    let log = Log::new(space, Txg(1), Options { block_bytes_max: 8192, guid, ..Options::default() });
    log.start();
    let header = log.sync_header(Txg(2));
    log.synced(Txg(2));
    for (number, (len, commits)) in records.iter().take(24).enumerate() {
        let lsn = log.append(Txg(3), &vec![number as u8; usize::from(*len % 12_000)]);
        if *commits {
            // It may have no room.
            let _ = log.commit(lsn);
        }
    }
    let _ = log.commit(Lsn(u64::MAX));
    (log.space().device().image(), header, log.status().durable.0)
}

/// Makes all trailers fit of every block; offsets are those of `docs/format.md`.
fn forge(bytes: &mut [u8]) {
    for at in (0..bytes.len()).step_by(4096) {
        let block = &mut bytes[at..];
        let used = u32::from_le_bytes([block[12], block[13], block[14], block[15]]) as usize;
        let written = (used.div_ceil(496) * 512).next_multiple_of(4096);
        if block[..8] == *b"FASTLWBK" && (4096..=block.len()).contains(&written) {
            let tag = XxHash3_64::oneshot(&block[16..40]);
            for (index, sector) in block[..written].chunks_exact_mut(512).enumerate() {
                let tag = tag.wrapping_add(index as u64);
                let sum = XxHash3_64::oneshot(&sector[..496]) ^ tag;
                sector[496..504].copy_from_slice(&tag.to_le_bytes());
                sector[504..].copy_from_slice(&sum.to_le_bytes());
            }
        }
    }
}

/// A bit anywhere flips, and nothing else: all records are there, or the claim is refused.
fn flip(image: &MemImage, header: &Header, bit: u32, records: u64) {
    let mut bytes = image.to_vec();
    let bit = bit as usize % (bytes.len() * 8);
    bytes[bit / 8] ^= 1 << (bit % 8);
    let device = MemDevice::from_image("disk", MemImage::from_bytes(&bytes), 512);
    let space = Arc::new(DeviceSpace::new(device, 0..DISK_BYTES).expect("a space"));
    if let Ok(claimed) = claim(space, header, Txg(3), OnLoss::Fail) {
        assert!(claimed.records() >= records, "bit {bit} costs records without a word");
    }
}

fuzz_target!(|input: Input| {
    let (image, mut header, durable) = write(&input.records);
    if let Some(bit) = input.flip {
        flip(&image, &header, bit, durable);
    }
    let mut bytes = image.to_vec();
    for (at, value, len) in input.edits.iter().take(16) {
        let at = *at as usize % (bytes.len() - 4);
        let len = usize::from(*len) % 5;
        bytes[at..at + len].copy_from_slice(&value[..len]);
    }
    if input.forge {
        forge(&mut bytes);
    }
    if let Some(bytes) = &input.header
        && let Ok(decoded) = Header::decode(bytes)
    {
        assert_eq!(Header::decode(&decoded.encode()), Ok(decoded));
        header = decoded;
    }
    if let (Some(last_seq), Header::Logging(chain)) = (input.last_seq, header) {
        let last_lsn = Lsn(input.last_lsn.into());
        let last_seq = fastness_lwb::BlockSeq(last_seq.into());
        header = Header::Claimed(Claim { chain, first_txg: Txg(3), last_seq, last_lsn, replayed: Lsn(0) });
    }
    for on_loss in [OnLoss::Fail, OnLoss::DropTail] {
        let device = MemDevice::from_image("disk", MemImage::from_bytes(&bytes), 512);
        let space = Arc::new(DeviceSpace::new(device, 0..DISK_BYTES).expect("a space"));
        let claimed = claim(Arc::clone(&space), &header, Txg(3), on_loss);
        let Ok(mut claimed) = claimed else {
            assert_eq!(space.used_bytes(), 0, "a claim that failed holds nothing");
            continue;
        };
        let held: u64 = claimed.extents().iter().map(|extent| u64::from(extent.len_bytes)).sum();
        assert_eq!(space.used_bytes(), held);
        let mut last = Lsn(0);
        let replayed = claimed.replay(|record, header| {
            assert!(record.lsn > last, "in order");
            last = record.lsn;
            assert_eq!(Header::decode(&header.encode()), Ok(header));
            if !input.forge {
                let number = record.lsn.0 as usize - 1;
                let (len, _) = input.records[number];
                assert!(record.bytes.len() == usize::from(len % 12_000));
                assert!(record.bytes.iter().all(|byte| *byte == number as u8));
            }
            Ok::<_, Infallible>(())
        });
        assert!(replayed.is_ok(), "what was claimed can be replayed: {:?}", replayed.err());
        claimed.release();
        assert_eq!(space.used_bytes(), 0);
    }
});
