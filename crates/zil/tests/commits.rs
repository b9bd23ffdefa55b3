//! What commits wait for, what they do not wait for, and what is noticed when the medium loses a record.

#[macro_use]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fastness_prb::Config;
use fastness_testkit::{Heap, HeapRange};
use fastness_zil::*;
use support::*;

/// One record to a chunk, so that a test can lose it and nothing else.
const CHUNK: usize = 512;

fn single() -> Config {
    Config { verify_collected: false, ..config(1, 1) }
}

fn objects(count: u64) -> Contents {
    let objects = (1..=count).map(|object| (object, vec![0; 4096])).collect();
    Contents { objects, ..Contents::default() }
}

fn world(heap: &Heap, count: u64) -> World<PmemLogs<HeapRange>> {
    World::new(single(), heap.chunks(CHUNK), objects(count))
}

on_each_kind! {
    a_large_commit_does_not_hold_up_a_small_one
    a_second_commit_waits_for_what_the_first_one_is_writing
    a_failed_record_fails_every_commit_that_needs_it
    nothing_is_logged_behind_a_record_that_is_not
    a_new_log_waits_for_its_header
    commit_lists_go_by_txg_around_the_ring
}

fn write(object: u64, at: usize, byte: u8) -> Op {
    Op::Write(object, at, vec![byte; 100])
}

/// What claim says about the image without the chunk that the record with this byte is in.
fn claim_without(world: &World<PmemLogs<HeapRange>>, heap: &Heap, byte: u8) -> Result<(), ClaimProblem> {
    let bytes = heap.bytes();
    let place = bytes.windows(100).position(|window| window.iter().all(|found| *found == byte)).unwrap();
    let lost = Heap::new(bytes);
    lost.fill(place / CHUNK * CHUNK..place / CHUNK * CHUNK + 256, 0);
    World::import(single(), lost.chunks(CHUNK), world.pool.disk()).map(drop)
}

fn blocked_in_the_background<L: Logs>(
    world: &Arc<World<L>>,
    is_sync: bool,
    object: u64,
) -> std::thread::JoinHandle<Committed> {
    world.pool.0.close_gate(object);
    let tx = world.pool.tx();
    world.pool.apply(&tx, DATASET, &write(object, 0, 0x11)).unwrap();
    world.zil.assign(tx.txg, Itx::need_copy(ObjectId(object), 0, 100, is_sync));
    drop(tx);
    let background = Arc::clone(world);
    let thread = std::thread::spawn(move || background.zil.commit(ObjectId(object)).unwrap());
    world.pool.0.wait_for_visitor();
    thread
}

/// 28: whatever a commit of one object has to write, a commit of another is not held up.
fn a_large_commit_does_not_hold_up_a_small_one<R: Rig>() {
    let world = Arc::new(R::roomy().world(objects(2)));
    let large = blocked_in_the_background(&world, false, 1);
    for _ in 0..3 {
        world.change(&write(2, 0, 0x22));
        // Records of the blocked object are in line, and need not be written for this.
        world.change(&write(1, 200, 0x33));
        assert_eq!(world.zil.commit(ObjectId(2)).unwrap(), Committed::Logged);
    }
    assert_eq!(world.zil.stats().snapshot().records, 3);
    assert!(!large.is_finished());
    world.pool.0.open_gate();
    assert_eq!(large.join().unwrap(), Committed::Logged);
}

/// A commit may not return before what it covers is durable, although another one writes it.
fn a_second_commit_waits_for_what_the_first_one_is_writing<R: Rig>() {
    for (is_sync, object) in [(true, 2), (false, 1), (false, 0)] {
        let world = Arc::new(R::roomy().world(objects(2)));
        let first = blocked_in_the_background(&world, is_sync, 1);
        let has_returned = Arc::new(AtomicBool::new(false));
        let (flag, second_world) = (Arc::clone(&has_returned), Arc::clone(&world));
        let second = std::thread::spawn(move || {
            second_world.zil.commit(ObjectId(object)).unwrap();
            flag.store(true, Ordering::SeqCst);
        });
        std::thread::sleep(std::time::Duration::from_millis(30));
        assert!(!has_returned.load(Ordering::SeqCst), "{is_sync} {object}");
        world.pool.0.open_gate();
        second.join().unwrap();
        first.join().unwrap();
        assert!(world.zil.stats().snapshot().waits > 0);
    }
}

/// 4: an error reaches everybody who waits for the record.
fn a_failed_record_fails_every_commit_that_needs_it<R: Rig>() {
    let world = Arc::new(R::roomy().world(objects(2)));
    let first = blocked_in_the_background(&world, true, 1);
    let second_world = Arc::clone(&world);
    let second = std::thread::spawn(move || second_world.zil.commit(ObjectId(2)).unwrap());
    std::thread::sleep(std::time::Duration::from_millis(20));
    world.pool.0.read_back_fails.store(true, Ordering::SeqCst);
    world.pool.0.open_gate();
    assert!(matches!(first.join().unwrap(), Committed::Synced(_)));
    // Whether it waits for the txg itself or is woken when it has synced: it returns only then.
    second.join().unwrap();
    assert!(world.pool.synced_txg() >= Txg(2));
    let stats = world.zil.stats().snapshot();
    // The second may have tried it, too, before the txg had synced.
    assert!((1..=2).contains(&stats.fallbacks_of(LogCause::ReadBack)) && stats.records == 0, "{stats:?}");
    world.pool.0.read_back_fails.store(false, Ordering::SeqCst);
}

/// A record that is not in the log keeps those behind it out, until its txg has synced.
fn nothing_is_logged_behind_a_record_that_is_not<R: Rig>() {
    let rig = R::roomy();
    let world = rig.world(objects(1));
    world.change_without_copy(1, 0, &[0x44; 100]);
    world.pool.0.read_back_fails.store(true, Ordering::SeqCst);
    world.pool.0.is_suspended.store(true, Ordering::SeqCst);
    assert!(world.zil.commit(ObjectId(1)).is_err());
    world.change(&write(1, 100, 0x22));
    assert!(world.zil.commit(ObjectId(1)).is_err());
    world.pool.0.is_suspended.store(false, Ordering::SeqCst);
    let after = rig.crash(&world);
    assert_eq!(after.replay().unwrap().records, 0, "the second without the first");
    // Whoever can read it back logs both.
    world.pool.0.read_back_fails.store(false, Ordering::SeqCst);
    assert_eq!(world.zil.commit(ObjectId(1)).unwrap(), Committed::Logged);
    let after = rig.crash(&world);
    assert_eq!(after.replay().unwrap().records, 2);
    assert_eq!(after.pool.contents(DATASET), world.pool.contents(DATASET));
}

/// A record too long for any chunk: the commit alone waits, and says why.
#[test]
fn a_record_that_is_too_long_waits_for_its_txg() {
    let heap = Heap::new(vec![0; 64 * CHUNK]);
    let world = world(&heap, 1);
    world.change(&Op::Write(1, 0, vec![9; 2000]));
    assert!(matches!(world.zil.commit(ObjectId(1)).unwrap(), Committed::Synced(_)));
    assert_eq!(world.zil.stats().snapshot().fallbacks_of(LogCause::TooLarge), 1);
    assert!(world.zil.kind().last_error().is_some());
}

/// Records that depend on each other are in different generations: the loss of the first is noticed.
#[test]
fn a_lost_record_is_missed_by_those_that_depend_on_it() {
    let heap = Heap::new(vec![0; 64 * CHUNK]);
    let world = world(&heap, 2);
    for (object, byte) in [(1, 0x11), (2, 0x22), (1, 0x33)] {
        world.change(&write(object, 0, byte));
        world.zil.commit(ObjectId(object)).unwrap();
    }
    for byte in [0x11, 0x22] {
        let problem = claim_without(&world, &heap, byte).unwrap_err();
        assert!(matches!(problem.cause, ClaimCause::Claim(_)), "{problem}");
    }
    // The last one looks like a record that the crash cut short.
    claim_without(&world, &heap, 0x33).unwrap();
}

#[test]
fn a_flush_makes_the_loss_of_what_was_flushed_show() {
    for orders in [false, true] {
        let heap = Heap::new(vec![0; 64 * CHUNK]);
        let world = world(&heap, 1);
        assert!(world.volume_write(1, 0, &[0x11; 100]).1);
        if orders {
            world.zil.flush().unwrap();
        }
        assert!(world.volume_write(1, 0, &[0x22; 100]).1);
        assert_eq!(claim_without(&world, &heap, 0x11).is_err(), orders);
    }
    // With FUA alone, too, if nobody is writing.
    let heap = Heap::new(vec![0; 64 * CHUNK]);
    let world = world(&heap, 1);
    let (txg, logged) = world.volume_write(1, 0, &[0x11; 100]);
    assert_eq!(world.zil.after_fua(txg, logged).unwrap(), Committed::Logged);
    world.volume_write(1, 0, &[0x22; 100]);
    assert!(claim_without(&world, &heap, 0x11).is_err());
}

/// A log that no durable header names is not written to.
fn a_new_log_waits_for_its_header<R: Rig>() {
    let first = R::roomy().world(objects(1));
    let other = DatasetId(8);
    let tx = first.pool.tx();
    let log = first.logs.create(&first.pool, &tx, other).unwrap();
    let zil = Zil::new(other, Arc::new(first.pool.clone()), Arc::clone(&log));
    let logged = zil.log_write(tx.txg, ObjectId(1), 0, b"too early", false);
    assert_eq!(logged, !log.writes_alone());
    zil.assign(tx.txg, itx(&Op::Create("a", 1)));
    let txg = tx.txg;
    drop(tx);
    assert_eq!(zil.commit(ObjectId(1)).unwrap(), Committed::Synced(txg));
    assert_eq!(log.refusal(), None);
    assert!(zil.log_write(Txg(txg.0 + 1), ObjectId(1), 0, b"now", false));
    assert!(matches!(first.logs.create(&first.pool, &first.pool.tx(), other), Err(LogError::Exists { .. })));
}

fn commit_lists_go_by_txg_around_the_ring<R: Rig>() {
    let rig = R::roomy();
    let world = rig.world(objects(1));
    for start in 0..4u8 {
        for txg in 0..3u8 {
            world.change(&write(1, 0, 0x10 + 4 * start + txg));
            world.pool.open_next();
        }
        world.zil.commit(ObjectId(1)).unwrap();
        let after = rig.crash(&world);
        after.replay().unwrap();
        assert_eq!(after.pool.contents(DATASET), world.pool.contents(DATASET), "{start}");
        for _ in 0..start + 3 {
            world.pool.sync();
        }
    }
}

/// What claim has found is kept while txgs pass, until it is replayed.
#[test]
fn claimed_records_survive_txgs_and_further_crashes() {
    let heap = Heap::new(vec![0; 8 * CHUNK]);
    let world = world(&heap, 1);
    world.volume_write(1, 0, &[0x11; 100]);
    let mut disk = world.pool.disk();
    for _ in 0..3 {
        let image = Heap::new(heap.bytes());
        let imported = World::import(single(), image.chunks(CHUNK), disk).unwrap();
        imported.pool.sync();
        imported.pool.sync();
        assert_eq!(imported.logs.prb().free_chunks(), 7);
        disk = imported.pool.disk();
        let last = World::import(single(), image.chunks(CHUNK), disk.clone()).unwrap();
        assert_eq!(last.replay().unwrap().records, 1);
        last.pool.sync();
        assert_eq!(last.logs.prb().free_chunks(), 8, "released with the txg that no longer needs it");
    }
}

/// 3 and 17: a fence fails: no acknowledgement from then on but by txgs; what was acknowledged before is
/// there.
#[test]
fn a_medium_that_fails_is_not_trusted_again() {
    use fastness_pm_model::{Fault, RecordStyle, Recorder};
    let recorder = Recorder::new(vec![0; 16 * CHUNK], RecordStyle::NonTemporal);
    let mut ranges: Vec<_> = (0..16).map(|at| recorder.range(at * CHUNK, CHUNK)).collect();
    ranges.iter_mut().for_each(|range| range.inject(Fault::FailFence { after: 4 }));
    let world = World::new(single(), ranges, Contents::volume(1, 4096));
    let mut committed = Vec::new();
    for at in 0..40usize {
        world.change(&Op::Write(1, at, vec![1]));
        let outcome = world.zil.commit(ObjectId(1)).unwrap();
        committed.push((outcome, world.zil.kind().refusal()));
        assert_eq!(world.zil.flush().unwrap(), Committed::Logged);
    }
    let failed = committed.iter().position(|(_, refusal)| *refusal == Some(LogCause::Failed)).unwrap();
    assert!(failed > 5 && failed < 35, "{failed}");
    let by_txg = |(outcome, refusal): &(Committed, Option<LogCause>)| {
        matches!(outcome, Committed::Synced(_)) && refusal.is_some()
    };
    assert!(committed[failed..].iter().all(by_txg));
    let contents = &world.pool.disk().contents[&DATASET].objects[&1];
    assert!((failed..40).all(|at| contents[at] == 1));
}

/// A record of a file goes past the commit list only when nothing on it has to come first.
#[test]
fn a_write_is_logged_at_once_when_nothing_has_to_come_first() {
    let rig = PmRig::roomy();
    let world = rig.world(objects(2));
    world.change(&Op::Create("a", 9));
    assert_eq!(world.write_at_once(1, 0, &[1; 100]), None, "a name is not durable yet");
    world.change(&write(1, 0, 0x11));
    assert_eq!(world.zil.commit(ObjectId(1)).unwrap(), Committed::Logged);
    assert_eq!(world.write_at_once(1, 0, &[2; 64]), Some(true));
    // What waits for commits of another object does not matter, what waits for this one's does.
    world.change(&write(2, 0, 0x33));
    assert_eq!(world.write_at_once(1, 64, &[3; 99]), Some(true));
    assert_eq!(world.write_at_once(2, 64, &[4; 99]), None);
    world.change(&write(1, 300, 0x44));
    assert_eq!(world.write_at_once(1, 0, &[5; 8]), None, "the record before it is kept");
    let after = rig.crash(&world);
    after.replay().unwrap();
    let contents = after.pool.contents(DATASET);
    assert_eq!(contents.objects[&1][..64], [2; 64]);
    assert_eq!(contents.objects[&1][64..163], [3; 99]);
    assert!(contents.objects[&2].iter().all(|byte| *byte != 0x33 && *byte != 4));
}

/// What is in no log is durable with its txg, and nothing is logged after it before that.
#[test]
fn a_write_that_the_log_does_not_take_keeps_later_ones_out() {
    let rig = PmRig::roomy();
    let world = rig.world(objects(1));
    let tx = world.pool.tx();
    world.zil.note_unlogged(tx.txg);
    drop(tx);
    assert_eq!(world.write_at_once(1, 0, &[1; 8]), None);
    world.pool.sync();
    assert_eq!(world.write_at_once(1, 0, &[2; 8]), Some(true));
    world.zil.kind().suspend(&world.pool).unwrap();
    assert_eq!(world.write_at_once(1, 0, &[3; 8]), Some(false), "a log that is out of use");
    assert_eq!(world.write_at_once(1, 8, &[4; 8]), None);
    let synced = world.pool.synced_txg();
    assert!(matches!(world.zil.commit(ObjectId(1)).unwrap(), Committed::Synced(txg) if txg > synced));
}

/// Kinds that write blocks, and logs whose bypass is off, take such records over the list.
#[test]
fn where_records_are_not_written_alone_they_are_kept() {
    let world = LwbRig::roomy().world(objects(1));
    assert_eq!(world.write_at_once(1, 0, &[1; 8]), None);
    let world = PmRig::roomy().world(objects(1));
    world.zil.set_bypass(false);
    assert_eq!(world.write_at_once(1, 0, &[1; 8]), None);
}
