//! Chains with damaged and forged bytes: an answer, never a panic; and what comes back without forgery was
//! appended. What `fuzz/fuzz_targets/lwb_blocks.rs` does with coverage, here with chance.

mod support;

use std::convert::Infallible;
use std::sync::Arc;

use fastness_blkdev::{BlockDevice, FaultPlan, MemImage};
use fastness_lwb::{AHEAD, BlockSeq, Chain, Claim, End, Header, Lsn, OnLoss, Txg, claim, survey};
use support::*;

const DISK_BYTES: u64 = 128 << 10;

fn edit(bytes: &mut [u8], rng: &mut Rng) {
    // Mostly headers, because there is most to go wrong.
    let unit = rng.below(bytes.len() as u64 / 4096) as usize * 4096;
    let at = unit + if rng.below(4) > 0 { rng.below(200) } else { rng.below(4088) } as usize;
    match rng.below(4) {
        0 => bytes[at] = rng.next() as u8,
        1 => bytes[at..at + 4].copy_from_slice(&(rng.below(9000) as u32).to_le_bytes()),
        2 => bytes[at..at + 8].copy_from_slice(&rng.below(12).to_le_bytes()),
        _ => {
            let from = rng.below(bytes.len() as u64 / 4096) as usize * 4096;
            bytes.copy_within(from..from + 4096, unit);
        }
    }
}

#[test]
fn damaged_and_forged_chains_end_with_an_answer() {
    for seed in 0..4000 {
        let mut rng = Rng(seed);
        let mut owner = Owner::new(DISK_BYTES, FaultPlan::new(0));
        for _ in 0..rng.below(12) {
            let len = rng.below(3) * rng.below(5000);
            let lsn = owner.append(&rng.bytes(len as usize));
            if rng.below(2) == 0 {
                // There may be no room.
                let _ = owner.commit(lsn);
            }
        }
        let mut bytes = MemImage::of_device(owner.disk.inner()).unwrap().to_vec();
        (0..rng.below(5)).for_each(|_| edit(&mut bytes, &mut rng));
        let is_forged = rng.below(3) > 0;
        if is_forged {
            forge(&mut bytes);
        }
        let Header::Logging(chain) = owner.header else { panic!("{:?}", owner.header) };
        let last_seq = BlockSeq(chain.first_seq.0 - 1 + rng.below(8));
        let last_lsn = Lsn(rng.below(8));
        let claimed_before = Claim { chain, first_txg: Txg(3), last_seq, last_lsn, replayed: Lsn(0) };
        let headers = [owner.header, Header::Claimed(claimed_before)];
        for (header, on_loss) in headers
            .iter()
            .flat_map(|header| [OnLoss::Fail, OnLoss::DropTail].map(|on_loss| (header, on_loss)))
        {
            let disk = disk(MemImage::from_bytes(&bytes), FaultPlan::new(0));
            assert_eq!(disk.len_bytes(), DISK_BYTES);
            let space = space(&disk);
            let Ok(mut claimed) = claim(Arc::clone(&space), header, Txg(3), on_loss) else {
                assert_eq!(space.used_bytes(), 0, "a claim that failed holds nothing");
                continue;
            };
            assert_eq!(space.used_bytes(), total(claimed.extents()));
            let mut records = Vec::new();
            let replayed = claimed.replay(|record, header| {
                assert_eq!(Header::decode(&header.encode()), Ok(header));
                records.push((record.lsn, record.txg, record.bytes.to_vec()));
                Ok::<_, Infallible>(())
            });
            assert!(replayed.is_ok(), "seed {seed}: {:?}", replayed.err());
            if !is_forged {
                check(&records, &owner.appended, owner.synced, Lsn(0));
            }
            claimed.release();
            assert_eq!(space.used_bytes(), 0);
        }
    }
}

/// The last number that there is, in a block that names itself as the next: the walk ends all the same.
#[test]
fn a_forged_chain_that_leads_into_itself_ends() {
    let mut owner = Owner::new(DISK_BYTES, FaultPlan::new(0));
    owner.write(b"one").unwrap();
    let Header::Logging(chain) = owner.header else { panic!("{:?}", owner.header) };
    let mut bytes = MemImage::of_device(owner.disk.inner()).unwrap().to_vec();
    let at = chain.first.place.offset as usize;
    bytes[at + 32..at + 40].fill(0xff);
    for next in 0..AHEAD {
        let at = at + 56 + 16 * next;
        bytes[at..at + 8].copy_from_slice(&chain.first.place.offset.to_le_bytes());
        bytes[at + 12..at + 16].copy_from_slice(&chain.first.len_bytes.to_le_bytes());
    }
    forge(&mut bytes);
    let last = BlockSeq(u64::MAX);
    let chain = Chain { first_seq: last, durable_seq: BlockSeq(1), ..chain };
    let space = space(&disk(MemImage::from_bytes(&bytes), FaultPlan::new(0)));
    let mut blocks = 0;
    let ended = survey(&space, &chain, |_| blocks += 1);
    assert!(matches!(ended.end, End::OutOfBounds) && blocks == 0, "{ended}");
    let chain = Chain { first_seq: BlockSeq(last.0 - 1), ..chain };
    let ended = survey(&space, &chain, |_| blocks += 1);
    assert!(matches!(ended.end, End::Misplaced { found } if found == last) && blocks == 0, "{ended}");
}
