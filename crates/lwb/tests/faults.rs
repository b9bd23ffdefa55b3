//! Scenarios of failure, by name; the numbers are those of the list of scenarios that any intent log must
//! survive.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use fastness_blkdev::{BlockDevice, ErrorKind, Fault, FaultPlan, MemImage, On, Operation, When};
use fastness_lwb::{
    AHEAD, ClaimError, CommitError, End, Header, Log, Lsn, OnLoss, Options, Record, Space, SpaceError, Txg,
    claim, claim_each,
};
use support::*;

const DISK_BYTES: u64 = 1 << 20;

fn write_some(owner: &mut Owner, count: u8) {
    for number in 0..count {
        owner.write(&[number; 100]).unwrap();
    }
}

fn nth_write_fails(nth: u64) -> FaultPlan {
    FaultPlan::new(0).rule(On::Writes, When::Nth(nth), Fault::Errno(5))
}

#[test]
fn scenario_1_nothing_acknowledged_is_lost_after_a_write_error() {
    for fault in [Fault::Errno(5), Fault::Torn, Fault::Short { units: 3 }] {
        let plan = FaultPlan::new(0).rule(On::Writes, When::Nth(2), fault);
        let mut owner = Owner::new(DISK_BYTES, plan);
        owner.write(b"one").unwrap();
        owner.write(&[7; 5000]).unwrap_err();
        owner.write(b"three").unwrap_err();
        // The second one may be there: three sectors are enough for the rest of it.
        (0..40).for_each(|seed| assert!(owner.check_crash(seed).records.len() <= 2));
        // The next txg has all that was acknowledged; the one after that goes on with a new chain.
        owner.sync();
        let lsn = owner.write(b"four").unwrap();
        assert_eq!(lsn, Lsn(4));
        assert_eq!(owner.check_crash(0).records.len(), 1);
    }
}

/// Records that have not synced when a new chain begins go into it, before any later one.
#[test]
fn scenario_1_what_was_not_acknowledged_goes_into_the_next_chain_in_order() {
    let mut owner = Owner::new(DISK_BYTES, nth_write_fails(2));
    owner.write(b"one").unwrap();
    owner.append_in(owner.open, b"two");
    let next = Txg(owner.open.0 + 1);
    owner.append_in(next, b"three, of the next txg");
    owner.commit(Lsn(3)).unwrap_err();
    owner.append_in(next, b"four, of the next txg, when the log was down");
    owner.sync();
    owner.commit(Lsn(3)).unwrap();
    let records = owner.check_crash(0).records;
    assert_eq!(records.iter().map(|record| record.0.0).collect::<Vec<_>>(), [3, 4]);
    owner.sync();
    assert_eq!(owner.check_crash(0).records, []);
}

/// What was acknowledged in the old chain keeps it until it has synced, even if that takes one more txg.
#[test]
fn scenario_1_a_chain_with_acknowledged_records_is_not_replaced() {
    let mut owner = Owner::new(DISK_BYTES, nth_write_fails(2));
    let next = Txg(owner.open.0 + 1);
    let lsn = owner.append_in(next, b"acknowledged, of the next txg");
    owner.commit(lsn).unwrap();
    owner.write(b"fails").unwrap_err();
    owner.sync();
    owner.write(b"still down").unwrap_err();
    assert_eq!(owner.check_crash(0).records.len(), 1);
    owner.sync();
    owner.write(b"up again").unwrap();
    assert_eq!(owner.check_crash(0).records.len(), 1);
}

#[test]
fn scenario_2_a_commit_without_news_is_not_told_success_from_a_failed_block() {
    let mut owner = Owner::new(DISK_BYTES, nth_write_fails(1));
    let lsn = owner.append(b"one");
    assert!(matches!(owner.commit(lsn), Err(CommitError::Write { .. })));
    assert!(matches!(owner.commit(lsn), Err(CommitError::Write { .. })));
    assert!(matches!(owner.log.commit(Lsn(u64::MAX)), Err(CommitError::Write { .. })));
    owner.sync();
    owner.commit(lsn).expect("its txg has synced");
}

#[test]
fn scenario_3_a_failed_flush_acknowledges_nothing_and_is_not_forgotten() {
    let plan = FaultPlan::new(0).rule(On::Only(Operation::Flush), When::Nth(2), Fault::Errno(5));
    let mut owner = Owner::new(DISK_BYTES, plan);
    owner.write(b"one").unwrap();
    let error = owner.write(b"two").unwrap_err();
    assert!(matches!(error, CommitError::Flush { .. }), "{error:?}");
    assert_eq!(error.kind(), ErrorKind::MediaFailed);
    (0..40).for_each(|seed| drop(owner.check_crash(seed)));
    owner.sync();
    // The device is poisoned: a new chain does not make it trustworthy.
    let error = owner.write(b"three").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    (0..40).for_each(|seed| drop(owner.check_crash(seed)));
}

#[test]
fn scenario_6_without_room_for_the_next_block_the_last_one_still_counts() {
    for left in 1..8 {
        let disk = disk(MemImage::zeroed(DISK_BYTES), FaultPlan::new(0));
        let inner = space(&disk);
        let narrow = Arc::new(Narrow { inner: inner.clone(), left: AtomicI64::new(left) });
        let log = Log::new(Arc::clone(&narrow), Txg(1), Options { block_bytes_max: 4096, ..options() });
        log.start();
        let header = log.sync_header(Txg(2));
        log.synced(Txg(2));
        let (mut appended, mut committed) = (Vec::new(), Lsn(0));
        let error = loop {
            let lsn = log.append(Txg(3), &[1; 3000]);
            appended.push((lsn, Txg(3), vec![1; 3000]));
            match log.commit(lsn) {
                Ok(()) => committed = lsn,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, CommitError::NoSpace(_)), "{error:?}");
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        assert!(committed.0 >= left as u64 - 1, "{left} blocks, {committed:?}");
        let image = disk.crash(0).unwrap();
        let recovered = recover(&image, &header, Txg(3)).unwrap();
        check(&recovered.records, &appended, Txg(2), committed);
        assert!(matches!(recovered.claimed.ended().unwrap().end, End::NoRoom));
        // Still no room when the txg has synced: no chain, and nothing leaks. Then there is room again.
        assert_eq!(log.sync_header(Txg(3)), Header::None);
        log.synced(Txg(3));
        assert_eq!((inner.used_bytes(), log.extents().len()), (0, 0));
        assert!(log.commit(Lsn(u64::MAX)).is_ok(), "all has synced");
        narrow.left.store(100, Ordering::SeqCst);
        assert!(matches!(log.sync_header(Txg(4)), Header::Logging(_)));
        log.synced(Txg(4));
        let lsn = log.append(Txg(5), b"up again");
        log.commit(lsn).unwrap();
        assert_eq!(inner.used_bytes(), total(&log.extents()));
    }
}

/// A record that ends where the room ends is not taken by replay.
#[test]
fn scenario_6_a_record_cut_off_by_the_lack_of_room_is_not_replayed() {
    let disk = disk(MemImage::zeroed(DISK_BYTES), FaultPlan::new(0));
    let narrow = Arc::new(Narrow { inner: space(&disk), left: AtomicI64::new(3) });
    let log = Log::new(narrow, Txg(1), Options { block_bytes_max: 4096, ..options() });
    log.start();
    let header = log.sync_header(Txg(2));
    log.synced(Txg(2));
    log.append(Txg(3), b"whole");
    let lsn = log.append(Txg(3), &[1; 20_000]);
    log.commit(lsn).unwrap_err();
    log.commit(Lsn(1)).expect("it is in a block that was written");
    let records = recover(&disk.crash(0).unwrap(), &header, Txg(3)).unwrap().records;
    assert_eq!(records, [(Lsn(1), Txg(3), b"whole".to_vec())]);
}

/// Scenario 16: blocks that are whole and do not belong where they are.
#[test]
fn scenario_16_stale_and_misdirected_blocks_are_not_taken() {
    // An older chain of the same places.
    let mut owner = Owner::new(DISK_BYTES, FaultPlan::new(0));
    write_some(&mut owner, 6);
    let old = MemImage::of_device(owner.disk.inner()).unwrap();
    let disk = disk(old, FaultPlan::new(0));
    let mut later = Owner::on(disk.clone(), space(&disk), Txg(9));
    later.log.start();
    later.sync();
    let recovered = later.check_crash(0);
    assert!(matches!(recovered.claimed.ended().unwrap().end, End::Unwritten { other: Some(_) }));
    later.write(b"new").unwrap();
    assert_eq!(later.check_crash(0).records.len(), 1);

    // A block that went to the place of another one: neither is taken, and it is said.
    let plan = FaultPlan::new(0).rule(On::Writes, When::Nth(4), Fault::Misdirected { to: 16 << 10 });
    let mut owner = Owner::new(DISK_BYTES, plan);
    write_some(&mut owner, 4);
    assert_eq!(owner.log.extents()[1].place.offset, 16 << 10, "the place of the second block");
    let image = owner.disk.crash(0).unwrap();
    let error = recover(&image, &owner.header, Txg(owner.synced.0 + 1)).map(drop).unwrap_err();
    let ClaimError::Damaged { ended, .. } = &error else { panic!("{error:?}") };
    assert!(matches!(ended.end, End::Misplaced { found } if found.0 == 4) && ended.seq.0 == 2, "{error}");

    // One that went where nothing was: the chain ends before it.
    let plan = FaultPlan::new(0).rule(On::Writes, When::Nth(4), Fault::Misdirected { to: 512 << 10 });
    let mut owner = Owner::new(DISK_BYTES, plan);
    write_some(&mut owner, 3);
    owner.log.append(owner.open, b"lost by the medium");
    owner.log.commit(Lsn(4)).unwrap();
    assert_eq!(owner.check_crash(0).records.len(), 3);
}

#[test]
fn a_lost_block_that_was_durable_is_missed() {
    let mut owner = Owner::new(DISK_BYTES, FaultPlan::new(0));
    write_some(&mut owner, 4);
    let blocks = owner.log.extents();
    let image = owner.disk.crash(0).unwrap();
    let first_txg = Txg(owner.synced.0 + 1);
    // A flipped bit in a block with a later one after it: that one knows that it was durable.
    let mut bad = image.clone();
    bad.write(blocks[1].place.offset + 200, &[0xff]);
    let error = recover(&bad, &owner.header, first_txg).map(drop).unwrap_err();
    let ClaimError::Damaged { ended, .. } = &error else { panic!("{error:?}") };
    assert!(matches!(ended.end, End::Damaged { sector: 0 }), "{error}");
    assert_eq!((ended.seq.0, ended.place), (2, Some(blocks[1].place)));
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    // Given up, the rest is replayed, and claimed as such.
    let target = space(&disk(bad, FaultPlan::new(0)));
    let mut claimed = claim(Arc::clone(&target), &owner.header, first_txg, OnLoss::DropTail).unwrap();
    assert_eq!(claimed.records(), 1);
    claimed.replay(|_, _| Ok::<_, std::convert::Infallible>(())).unwrap();
    claimed.release();
    assert_eq!(target.used_bytes(), 0);
    // Another block of the chain in its place.
    let mut bad = image.clone();
    let mut other = vec![0; 4096];
    image.read(blocks[2].place.offset, &mut other);
    bad.write(blocks[1].place.offset, &other);
    let error = recover(&bad, &owner.header, first_txg).map(drop).unwrap_err();
    assert!(
        matches!(&error, ClaimError::Damaged { ended, .. } if matches!(ended.end, End::Misplaced { found } if found.0 == 3))
    );
    // Zeroes look like a block that was never written; the header knows what was durable when it was stored.
    let mut owner = Owner::new(DISK_BYTES, FaultPlan::new(0));
    write_some(&mut owner, 4);
    let next = Txg(owner.open.0 + 1);
    let lsn = owner.append_in(next, b"keeps its block");
    owner.commit(lsn).unwrap();
    owner.sync();
    let mut bad = owner.disk.crash(0).unwrap();
    bad.zero(owner.log.extents()[0].place.offset, 4096);
    let error = recover(&bad, &owner.header, Txg(owner.synced.0 + 1)).map(drop).unwrap_err();
    assert!(matches!(&error, ClaimError::Lost { durable_seq, .. } if durable_seq.0 == 5), "{error:?}");
}

/// Blocks that are written while the one before is being flushed do not know that it is durable. Only a later
/// one does; the places of all of them are known although the first one says nothing any more.
#[test]
fn a_lost_block_is_missed_by_any_later_one() {
    let owner = Owner::new(DISK_BYTES, FaultPlan::new(0));
    // Two blocks in one go, then one that knows of both.
    owner.log.append(owner.open, &Rng(1).bytes(20_000));
    owner.log.commit(Lsn(1)).unwrap();
    owner.log.append(owner.open, b"knows");
    owner.log.commit(Lsn(2)).unwrap();
    let image = owner.disk.crash(0).unwrap();
    let (blocks, first_txg) = (owner.log.extents(), Txg(owner.synced.0 + 1));
    let claim = |lost: &[usize]| {
        let mut bad = image.clone();
        lost.iter().for_each(|at| bad.zero(blocks[*at].place.offset, u64::from(blocks[*at].len_bytes)));
        recover(&bad, &owner.header, first_txg)
    };
    let written = owner.log.status().blocks as usize;
    assert!(written >= 3, "{written} blocks");
    for lost in [&[0][..], &[1], &[0, 1]] {
        let error = claim(lost).map(drop).unwrap_err();
        let ClaimError::Damaged { ended, lost: records } = &error else { panic!("{error:?}") };
        assert_eq!(
            (ended.seq.0, ended.witness().unwrap().0),
            (lost[0] as u64 + 1, written as u64),
            "{error}"
        );
        assert_eq!((records.after, records.seen), (Lsn(0), Lsn(2)));
        assert_eq!(ended.place, Some(blocks[lost[0]].place));
    }
    // Nobody says of the last one that it was durable.
    assert_eq!(claim(&[written - 1]).unwrap().records.len(), 1);
}

/// A block after the end is damaged: what it said cannot be known.
#[test]
fn a_damaged_block_after_the_end_is_no_end_that_a_crash_leaves() {
    let mut owner = Owner::new(DISK_BYTES, FaultPlan::new(0));
    write_some(&mut owner, 2);
    let mut bad = owner.disk.crash(0).unwrap();
    let blocks = owner.log.extents();
    bad.zero(blocks[0].place.offset, 4096);
    let mut byte = [0];
    bad.read(blocks[1].place.offset + 40, &mut byte);
    bad.write(blocks[1].place.offset + 40, &[byte[0] ^ 1]);
    let error = recover(&bad, &owner.header, Txg(owner.synced.0 + 1)).map(drop).unwrap_err();
    let place = blocks[0].place;
    let expected = format!(
        "the log is damaged at block 1 ({place}): never written, and block 2 is damaged; all records are lost"
    );
    assert_eq!(error.to_string(), expected);
}

/// Every bit of every block, the last one included: the claim is refused, and with consent what is before the
/// damage is replayed.
#[test]
fn every_flipped_bit_is_refused_and_leaves_a_prefix() {
    let mut owner = Owner::new(DISK_BYTES, FaultPlan::new(0));
    for len in [10, 5000, 30] {
        owner.write(&Rng(len).bytes(len as usize)).unwrap();
    }
    let image = owner.disk.crash(0).unwrap();
    let first_txg = Txg(owner.synced.0 + 1);
    let status = owner.log.status();
    assert_eq!(status.block_bytes, status.blocks * 4096, "one unit each");
    for extent in owner.log.extents().into_iter().take(status.blocks as usize) {
        for at in (0..4096).step_by(3) {
            let mut bad = image.clone();
            let mut byte = [0];
            bad.read(extent.place.offset + at, &mut byte);
            byte[0] ^= 1 << (at % 8);
            bad.write(extent.place.offset + at, &byte);
            let space = space(&disk(bad, FaultPlan::new(0)));
            let error = recover_in(&space, &owner.header, first_txg).map(drop).unwrap_err();
            let ClaimError::Damaged { ended, .. } = error else { panic!("{error:?}") };
            assert_eq!(ended.place, Some(extent.place));
            assert!(matches!(ended.end, End::Damaged { sector } if u64::from(sector) == at / 512));
            let mut claimed = claim(space, &owner.header, first_txg, OnLoss::DropTail).unwrap();
            let mut records = Vec::new();
            claimed
                .replay(|record, _| {
                    records.push((record.lsn, record.txg, record.bytes.to_vec()));
                    Ok::<_, std::convert::Infallible>(())
                })
                .unwrap();
            check(&records, &owner.appended, owner.synced, Lsn(0));
        }
    }
}

#[test]
fn an_unreadable_block_fails_the_claim_and_holds_nothing() {
    let mut owner = Owner::new(DISK_BYTES, FaultPlan::new(0));
    owner.write(b"one").unwrap();
    owner.write(b"two").unwrap();
    let image = owner.disk.crash(0).unwrap();
    let place = owner.log.extents()[1].place;
    let plan = FaultPlan::new(0).rule_in(
        place.offset..place.offset + 1,
        On::Only(Operation::Read),
        When::Nth(1),
        Fault::Errno(5),
    );
    let disk = disk(image, plan);
    let space = space(&disk);
    let first_txg = Txg(owner.synced.0 + 1);
    let error = recover_in(&space, &owner.header, first_txg).map(drop).unwrap_err();
    assert!(matches!(&error, ClaimError::Damaged { ended, .. } if ended.place == Some(place)), "{error:?}");
    assert_eq!((error.kind(), space.used_bytes()), (ErrorKind::MediaFailed, 0));
    // Read without an error the next time.
    assert_eq!(recover_in(&space, &owner.header, first_txg).unwrap().records.len(), 2);
}

#[test]
fn replay_that_finds_less_than_was_claimed_says_where() {
    let mut owner = Owner::new(DISK_BYTES, FaultPlan::new(0));
    write_some(&mut owner, 3);
    let disk = disk(owner.disk.crash(0).unwrap(), FaultPlan::new(0));
    let blocks = owner.log.extents();
    let first_txg = Txg(owner.synced.0 + 1);
    let mut claimed = claim(space(&disk), &owner.header, first_txg, OnLoss::Fail).unwrap();
    disk.write_zeroes(blocks[1].place.offset, 4096).unwrap();
    let mut count = 0;
    let error = claimed.replay(|_, _| {
        count += 1;
        Ok::<_, std::convert::Infallible>(())
    });
    let error = error.unwrap_err().to_string();
    let place = blocks[1].place;
    let expected = "never written, but block 3 says that it was durable";
    assert_eq!(error, format!("the log is damaged at block 2 ({place}): {expected}"));
    assert_eq!(count, 1);
    let header = claimed.header();
    let error = claim(space(&disk), &header, first_txg, OnLoss::Fail).map(drop).unwrap_err();
    assert!(matches!(&error, ClaimError::Damaged { ended, .. } if ended.witness().is_some()), "{error:?}");
    // With nothing left that says so, the header still does.
    disk.write_zeroes(blocks[2].place.offset, 4096).unwrap();
    let error = claim(space(&disk), &header, first_txg, OnLoss::Fail).map(drop).unwrap_err();
    assert!(matches!(error, ClaimError::Lost { durable_seq, .. } if durable_seq.0 == 3), "{error:?}");
}

/// Scenario 18: a header that names a chain without a block; a header without a chain.
#[test]
fn scenario_18_an_empty_chain_and_none_are_recovered_to_nothing() {
    let mut owner = Owner::new(DISK_BYTES, FaultPlan::new(0));
    let recovered = owner.check_crash(0);
    assert_eq!(recovered.records, []);
    assert!(recovered.claimed.ended().unwrap().is_clean());
    let again = recover(&owner.disk.crash(0).unwrap(), &recovered.claimed.header(), Txg(99)).unwrap();
    assert_eq!(again.records, []);
    owner.write(b"one").unwrap();
    owner.log.stop();
    owner.write(b"two").unwrap_err();
    // A crash while it is being removed: before its txg, and after.
    assert_eq!(owner.check_crash(0).records.len(), 1);
    owner.sync();
    assert_eq!(owner.header, Header::None);
    assert_eq!((owner.check_crash(0).records, owner.log.space().used_bytes()), (vec![], 0));
}

#[test]
fn a_log_without_a_chain_says_so_and_gets_one_with_the_next_txg() {
    let mut owner = Owner::idle(DISK_BYTES, FaultPlan::new(0));
    owner.sync();
    assert_eq!(owner.header, Header::None, "nobody wants one");
    assert!(matches!(owner.write(b"one"), Err(CommitError::NotStarted)));
    owner.append_in(Txg(owner.open.0 + 1), b"two");
    owner.sync();
    owner.commit(Lsn(2)).unwrap();
    assert_eq!(owner.check_crash(0).records.len(), 1);
}

#[test]
fn blocks_are_freed_when_their_txgs_have_synced_and_not_before() {
    let mut owner = Owner::new(DISK_BYTES, FaultPlan::new(0));
    for _ in 0..50 {
        for number in 0..10u8 {
            owner.write(&[number; 2000]).unwrap();
        }
        let held = owner.log.extents();
        let header = owner.log.sync_header(owner.open);
        assert_eq!(owner.log.extents(), held, "still named by the header before");
        // A crash here may find either header.
        owner.check_crash(1);
        owner.header = header;
        owner.sync();
        assert_eq!(owner.log.extents().len(), AHEAD, "the open end, and what is after it");
    }
    assert!(owner.log.space().claim(owner.log.extents()[0]).is_err());
}

/// The owner refuses a record in the middle of a block: what is before it counts, what is after does not, for
/// good.
#[test]
fn a_record_that_its_owner_refuses_is_damage_at_its_place() {
    let owner = Owner::new(DISK_BYTES, FaultPlan::new(0));
    for text in [b"one", b"two", b"six"] {
        owner.log.append(owner.open, text);
    }
    owner.log.commit(Lsn(3)).unwrap();
    owner.log.append(owner.open, b"in the next block");
    owner.log.commit(Lsn(4)).unwrap();
    let image = owner.disk.crash(0).unwrap();
    let first_txg = Txg(owner.synced.0 + 1);
    let place = owner.log.extents()[0].place;
    let claim = |space: &DiskSpace, header, on_loss, shown: &mut Vec<u64>| {
        let take = &mut |record: Record<'_>| {
            shown.push(record.lsn.0);
            match record.bytes {
                b"two" => Err(SpaceError::new(ErrorKind::MediaFailed, "it is not there")),
                _ => Ok(()),
            }
        };
        claim_each(Arc::clone(space), header, first_txg, on_loss, take)
    };
    let space = space(&disk(image, FaultPlan::new(0)));
    let mut shown = Vec::new();
    let error = claim(&space, &owner.header, OnLoss::Fail, &mut shown).map(drop).unwrap_err();
    assert_eq!((&shown[..], space.used_bytes()), (&[1, 2][..], 0));
    assert_eq!(error.kind(), ErrorKind::MediaFailed, "the owner's");
    let text = format!(
        "the log is damaged at block 1 ({place}): the data of record 2 cannot be had: it is not there; \
         records after 1 are lost"
    );
    assert_eq!(error.to_string(), text);
    let mut claimed = claim(&space, &owner.header, OnLoss::DropTail, &mut shown).unwrap();
    assert_eq!((claimed.records(), claimed.last_lsn()), (1, Lsn(1)));
    let header = claimed.header();
    let mut replayed = Vec::new();
    let each = |record: Record<'_>, _| {
        replayed.push(record.bytes.to_vec());
        Ok::<_, std::convert::Infallible>(())
    };
    claimed.replay(each).unwrap();
    assert_eq!(replayed, [b"one"]);
    claimed.release();
    assert_eq!(space.used_bytes(), 0);
    // A crash before anything was replayed: the record is not asked about again.
    let mut shown = Vec::new();
    let again = claim(&space, &header, OnLoss::Fail, &mut shown).unwrap();
    assert_eq!((&shown[..], again.records(), again.last_lsn()), (&[1][..], 1, Lsn(1)));
}
