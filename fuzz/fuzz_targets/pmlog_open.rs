//! Opening, surveying and recovering a record log with anything in its region.
#![no_main]

use std::convert::Infallible;

use arbitrary::Arbitrary;
use fastness_fuzz::{Damage, body};
use fastness_pmlog::{CreateOptions, OpenOptions, RecordLog, Survey};
use fastness_prb::{Alignment, ChecksumKind, OnLoss};
use fastness_testkit::{Heap, SeededEntropy};
use libfuzzer_sys::fuzz_target;

const FRONT: usize = 16384;
const REGION: usize = FRONT + 3 * 2048;

#[derive(Debug, Arbitrary)]
enum Step {
    Append { len: u16 },
    Barrier,
    Trim,
    Reopen,
}

#[derive(Debug, Arbitrary)]
enum Input {
    Bytes { bytes: Vec<u8>, fields: Vec<(u16, u64)> },
    Written { strong: bool, steps: Vec<Step>, damage: Damage, reseal_front: bool, cut: u8 },
}

fn options(seed: u64) -> OpenOptions {
    OpenOptions::new().committers(1).entropy(SeededEntropy::new(seed)).clock(|| 0)
}

/// Makes the magic, the version and the checksums of the blocks in front fit.
fn reseal(bytes: &mut [u8], frames: bool) {
    let magics = [b"FSTNPLOG", b"FSTNPHDR", b"FSTNPHDR", b"FSTNPLOG"];
    for (block, magic) in bytes.chunks_exact_mut(4096).zip(magics) {
        if frames {
            block[..10].copy_from_slice(&[&magic[..], &[1, 0]].concat());
        }
        let crc = crc32c::crc32c(&block[..4092]);
        block[4092..].copy_from_slice(&crc.to_le_bytes());
    }
}

fn survey(heap: &Heap, len: usize) {
    let survey = Survey::new(heap.range(0..len));
    for index in 0..survey.chunks().min(64) {
        let chunk = survey.chunk(index);
        for entry in &chunk.entries {
            assert_eq!(survey.read_body(index, &entry.entry).map(drop), entry.body);
        }
    }
}

/// Opens with both policies, looks, then recovers for good; `oracle` judges the records.
fn open(heap: &Heap, len: usize, oracle: impl Fn(OnLoss, &[Vec<u8>]), sound: bool) {
    survey(heap, len);
    for policy in [OnLoss::Fail, OnLoss::DropTail] {
        let range = || heap.range(0..len);
        let Ok(recovery) = RecordLog::open(range(), &options(2).on_loss(policy)) else { continue };
        let mut records = Vec::new();
        let mut take = |_, record: &[u8]| {
            records.push(record.to_vec());
            Ok::<_, Infallible>(())
        };
        recovery.inspect(&mut take).expect("what opening accepted can be read");
        oracle(policy, &records);
        let before = std::mem::take(&mut records);
        if policy == OnLoss::Fail && before.len() % 2 == 0 {
            continue; // Leave it to the other policy.
        }
        let mut recovery =
            RecordLog::open(range(), &options(3).on_loss(policy)).expect("it was opened before");
        let mut take = |_, record: &[u8]| {
            records.push(record.to_vec());
            Ok::<_, Infallible>(())
        };
        recovery.replay(&mut take).expect("what opening accepted can be read");
        assert_eq!(records, before);
        // Discarding what was not handed out must work as well.
        let log = if before.len() % 3 == 0 { recovery.discard() } else { recovery.finish() };
        let mut log = log.expect("nothing on the heap fails");
        log.append_ordered(b"after").expect("an empty log has room");
        log.trim().expect("nothing on the heap fails");
        let _ = log.append(b"again");
        drop(log);
        if sound {
            heap.cure();
            let recovery = RecordLog::open(range(), &options(4)).expect("the log was just written");
            assert_eq!(recovery.records(), 1);
        }
        return;
    }
}

fuzz_target!(|input: Input| match input {
    Input::Bytes { mut bytes, fields } => {
        bytes.truncate(1 << 17);
        bytes.resize(bytes.len().next_multiple_of(64), 0);
        for (at, value) in fields {
            // Numbers are at multiples of eight in front of each block.
            let at = usize::from(at % 4) * 4096 + usize::from(at / 4) % 40 * 8;
            if let Some(field) = bytes.get_mut(at..at + 8) {
                field.copy_from_slice(&value.to_le_bytes());
            }
        }
        reseal(&mut bytes, true);
        let len = bytes.len();
        open(&Heap::new(bytes), len, |_, _| {}, false);
    }
    Input::Written { strong, steps, damage, reseal_front, cut } => {
        let heap = Heap::new(vec![0; REGION]);
        let checksum = if strong { ChecksumKind::Xxh3 } else { ChecksumKind::Crc32c };
        let create = CreateOptions::new().chunk_bytes(2048).alignment(Alignment::Line).checksum(checksum);
        let mut log = RecordLog::create(heap.range(0..REGION), &create.open(options(1))).unwrap();
        let mut appended = Vec::new();
        for (number, step) in steps.iter().take(40).enumerate() {
            match *step {
                Step::Append { len } => {
                    let record = body(number, 2 + usize::from(len) % 700);
                    if log.append(&record).is_ok() {
                        appended.push(record);
                    }
                }
                Step::Barrier => log.barrier(),
                Step::Trim => {
                    assert!(log.trim().unwrap().faults.is_empty());
                    appended.clear();
                }
                Step::Reopen => {
                    drop(log);
                    let recovery =
                        RecordLog::open(heap.range(0..REGION), &options(10 + number as u64)).unwrap();
                    log = recovery.discard().unwrap();
                    appended.clear();
                }
            }
        }
        drop(log);
        damage.apply(&heap);
        if reseal_front {
            heap.edit(|bytes| reseal(bytes, false));
        }
        let len = if cut == 0 || cut > 200 { REGION } else { REGION * usize::from(cut) / 200 / 64 * 64 };
        let forged = reseal_front || damage.reseal;
        let oracle = |policy, records: &[Vec<u8>]| {
            if forged {
                return;
            }
            let mut rest = appended.iter();
            let known = records.iter().all(|record| rest.any(|known| known == record));
            assert!(known, "{policy:?} handed out what was not appended, or in another order");
            assert!(!damage.is_none() || records.len() == appended.len(), "records are missing");
        };
        open(&heap, len, oracle, !forged && damage.is_none());
    }
});
