//! A log that is idle says on the medium what was acknowledged last, so that its loss is missed.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use fastness_blkdev::{BlockDevice, Fault, FaultPlan, MemImage, On, When};
use fastness_lwb::{ClaimError, Log, Options, Txg};
use support::*;

const DISK_BYTES: u64 = 1 << 20;

/// As its owner does when nothing happens; how many calls it took.
fn idle(owner: &Owner) -> u32 {
    (1..10).find(|_| !owner.log.witness_idle()).expect("it comes to an end")
}

/// Whether an import misses the last block with records when the medium has lost all of it.
fn is_missed(owner: &Owner) -> bool {
    let status = owner.log.status();
    let last = (status.blocks - status.witnesses) as usize - 1;
    let mut image = owner.disk.crash(0).unwrap();
    image.zero(owner.log.extents()[last].place.offset, 4096);
    match recover(&image, &owner.header, Txg(owner.synced.0 + 1)) {
        Err(ClaimError::Damaged { ended, .. }) => ended.witness().is_some(),
        Err(error) => panic!("{error}"),
        Ok(_) => false,
    }
}

#[test]
fn what_was_acknowledged_last_has_a_witness_soon() {
    let mut owner = Owner::new(DISK_BYTES, FaultPlan::new(0));
    owner.write(b"one").unwrap();
    owner.write(b"two").unwrap();
    assert!(!is_missed(&owner));
    assert_eq!(idle(&owner), 2, "the first call cannot know that nothing else comes");
    let status = owner.log.status();
    assert_eq!((status.blocks, status.witnesses, status.flushes), (3, 1, 2), "one write, no flush");
    owner.disk.flush().unwrap();
    assert!(is_missed(&owner));
    assert_eq!((idle(&owner), owner.log.status()), (1, status), "once is enough");
    // The chain goes on after it.
    owner.write(b"three").unwrap();
    assert_eq!(owner.check_crash(0).records.len(), 3);
    let status = owner.log.status();
    assert_eq!((status.blocks, status.flushes, status.timeouts), (4, 3, 0), "one flush for both");
    (0..20).for_each(|seed| drop(owner.check_crash(seed)));
}

#[test]
fn a_log_that_is_written_needs_none() {
    let mut owner = Owner::new(DISK_BYTES, FaultPlan::new(0));
    assert!(!owner.log.witness_idle(), "nothing was acknowledged");
    for _ in 0..5 {
        owner.write(b"again").unwrap();
        assert!(owner.log.witness_idle(), "to be asked again");
    }
    assert_eq!(owner.log.status().witnesses, 0);
    // What a txg has made durable elsewhere needs no log, and of the rest the header says it.
    owner.sync();
    assert!(!owner.log.witness_idle());
    let lsn = owner.append_in(Txg(owner.open.0 + 1), b"of the next txg");
    owner.commit(lsn).unwrap();
    owner.sync();
    assert!(!owner.log.witness_idle());
    owner.log.stop();
    assert!(!owner.log.witness_idle());
    assert_eq!(owner.log.status().witnesses, 0);
}

#[test]
fn records_that_wait_for_a_commit_come_after_it() {
    let mut owner = Owner::new(DISK_BYTES, FaultPlan::new(0));
    owner.write(b"one").unwrap();
    assert!(owner.log.witness_idle());
    owner.append(b"two, not committed");
    assert_eq!(idle(&owner), 1);
    owner.write(b"three").unwrap();
    assert_eq!(owner.check_crash(0).records.len(), 3);
}

/// The room that is left is for records.
#[test]
fn a_chain_without_room_has_no_witness_and_stays_up() {
    let disk = disk(MemImage::zeroed(DISK_BYTES), FaultPlan::new(0));
    let narrow = Arc::new(Narrow { inner: space(&disk), left: AtomicI64::new(2) });
    let log = Log::new(narrow, Txg(1), Options { block_bytes_max: 4096, ..options() });
    log.start();
    log.sync_header(Txg(2));
    log.synced(Txg(2));
    for text in [b"one", b"two"] {
        let lsn = log.append(Txg(3), text);
        log.commit(lsn).unwrap();
        (0..4).for_each(|_| {
            let _ = log.witness_idle();
        });
        if text == b"one" {
            assert!(log.status().is_up);
        }
    }
    assert_eq!(log.status().witnesses, 0);
}

/// Block 1 was filled when there was space for block 2 alone, so nothing but block 2 leads to its witness.
#[test]
fn a_witness_that_an_import_would_not_find_does_not_count() {
    let disk = disk(MemImage::zeroed(DISK_BYTES), FaultPlan::new(0));
    let narrow = Arc::new(Narrow { inner: space(&disk), left: AtomicI64::new(2) });
    let log = Log::new(Arc::clone(&narrow), Txg(1), Options { block_bytes_max: 4096, ..options() });
    log.start();
    let header = log.sync_header(Txg(2));
    log.synced(Txg(2));
    let write = |text: &[u8]| log.commit(log.append(Txg(3), text)).unwrap();
    write(b"one");
    narrow.left.store(4, Ordering::SeqCst);
    write(b"two");
    for _ in 0..4 {
        assert!(log.witness_idle(), "not all of it is recorded so that an import misses it");
    }
    assert_eq!(log.status().witnesses, 1, "which is no reason to write more of them");
    disk.flush().unwrap();
    let mut image = disk.crash(0).unwrap();
    image.zero(log.extents()[1].place.offset, 4096);
    assert!(recover(&image, &header, Txg(3)).is_ok(), "this is what `true` warns of");
    // What has synced needs no log.
    log.sync_header(Txg(3));
    log.synced(Txg(3));
    assert!(!log.witness_idle());
}

#[test]
fn one_that_cannot_be_written_costs_nothing_that_was_acknowledged() {
    for fault in [Fault::Errno(5), Fault::Torn] {
        let mut owner = Owner::new(DISK_BYTES, FaultPlan::new(0));
        owner.write(b"one").unwrap();
        owner.disk.set_plan(FaultPlan::new(7).rule(On::Writes, When::Nth(1), fault));
        assert_eq!(idle(&owner), 2);
        assert_eq!((owner.log.status().is_up, owner.log.status().downs), (false, 1));
        assert!(owner.write(b"two").is_err(), "it waits for its txg");
        (0..20).for_each(|seed| assert_eq!(owner.check_crash(seed).records.len(), 1));
        (0..3).for_each(|_| owner.sync());
        owner.write(b"three").unwrap();
        assert!(owner.log.status().is_up);
        assert_eq!(owner.check_crash(0).records.len(), 1);
        owner.check_space();
    }
}

/// Damage to it is no end that a crash leaves, although it has no record.
#[test]
fn damage_to_one_is_told() {
    let mut owner = Owner::new(DISK_BYTES, FaultPlan::new(0));
    owner.write(b"one").unwrap();
    idle(&owner);
    owner.disk.flush().unwrap();
    let image = owner.disk.crash(0).unwrap();
    let at = owner.log.extents()[1].place.offset;
    for byte in (0..4096).step_by(7) {
        let (mut image, mut bytes) = (image.clone(), [0]);
        image.read(at + byte, &mut bytes);
        image.write(at + byte, &[bytes[0] ^ 4]);
        let refused = recover(&image, &owner.header, Txg(owner.synced.0 + 1)).map(drop).unwrap_err();
        assert!(refused.to_string().contains("block 2"), "{refused}");
    }
}
