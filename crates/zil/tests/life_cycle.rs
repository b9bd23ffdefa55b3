//! The life of a log, scenario by scenario. The numbers are those of the reference of intent log behaviour,
//! section 4.

#[macro_use]
mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fastness_testkit::{Heap, HeapRange};
use fastness_zil::record::Zeroes;
use fastness_zil::*;
use support::*;

const CHUNK: usize = 8192;

on_each_kind! {
    what_was_committed_comes_back_and_the_rest_may_not
    a_synced_txg_is_neither_written_nor_replayed
    suspends_against_writers_lose_nothing_and_do_not_hang
    replay_goes_on_behind_what_was_durable
    a_fallback_to_a_suspended_pool_is_an_error
    commits_beside_syncing_txgs
    records_of_a_removed_object_are_not_written
    data_comes_before_the_name_and_one_object_keeps_its_order
    while_a_log_is_suspended_commits_wait_for_their_txg_and_the_medium_is_not_needed
    crafted_records_are_reported_with_their_place
    small_writes_fill_the_log_and_fall_back
    a_record_that_cannot_be_replayed_stops_replay_until_somebody_chooses
    an_import_of_thousands_of_datasets_waits_for_no_txg
    data_that_was_not_copied_is_read_back
    what_a_write_replaced_does_not_come_back_where_it_was_cut_off
    a_destroyed_dataset_has_its_log_until_that_is_durable
    a_write_whose_end_was_cut_off_its_volume_waits_for_its_txg
}

fn heap() -> Heap {
    Heap::new(vec![0; 16 * CHUNK])
}

fn world(heap: &Heap, contents: Contents) -> World<PmemLogs<HeapRange>> {
    World::new(config(1, 2), heap.chunks(CHUNK), contents)
}

fn import(heap: &Heap, disk: Disk) -> World<PmemLogs<HeapRange>> {
    World::import(config(2, 2), heap.chunks(CHUNK), disk).unwrap()
}

/// The crash: PM as it is, the pool as of its last synced txg.
fn crash(world: World<PmemLogs<HeapRange>>, heap: &Heap) -> World<PmemLogs<HeapRange>> {
    let disk = world.pool.disk();
    import(&Heap::new(heap.bytes()), disk)
}

fn what_was_committed_comes_back_and_the_rest_may_not<R: Rig>() {
    let rig = R::roomy();
    let world = rig.world(Contents::default());
    world.change(&Op::Create("a", 1));
    world.change(&Op::Write(1, 0, b"hello".to_vec()));
    world.change(&Op::Create("b", 2));
    world.change(&Op::Write(2, 0, b"not committed".to_vec()));
    assert_eq!(world.zil.commit(ObjectId(1)).unwrap(), Committed::Logged);
    let stats = world.zil.stats().snapshot();
    assert_eq!((stats.commits, stats.records, stats.fallbacks_total()), (1, 3, 0));
    let world = rig.crash(&world);
    assert_eq!(world.zil.kind().unreplayed_records(), 3);
    assert_eq!(world.replay().unwrap().records, 3);
    let contents = world.pool.contents(DATASET);
    assert_eq!(contents.objects, [(1, b"hello".to_vec()), (2, vec![])].into());
    assert_eq!(world.pool.0.waits.load(Ordering::SeqCst), 0);
}

fn a_synced_txg_is_neither_written_nor_replayed<R: Rig>() {
    let rig = R::roomy();
    let world = rig.world(Contents::default());
    world.change(&Op::Create("a", 1));
    world.change(&Op::Write(1, 0, b"old".to_vec()));
    world.zil.commit(ObjectId::NONE).unwrap();
    world.change(&Op::Create("b", 2));
    world.pool.sync();
    assert_eq!(world.zil.pending_records(), 0);
    world.zil.commit(ObjectId::NONE).unwrap();
    assert_eq!(world.zil.stats().snapshot().records, 2);
    world.change(&Op::Write(1, 1, b"ew".to_vec()));
    world.zil.commit(ObjectId(1)).unwrap();
    let world = rig.crash(&world);
    assert_eq!(world.replay().unwrap().records, 1);
    assert_eq!(world.pool.contents(DATASET).objects[&1], b"oew");
}

/// 7: suspend against commit, and with records that nobody has committed.
fn while_a_log_is_suspended_commits_wait_for_their_txg_and_the_medium_is_not_needed<R: Rig>() {
    let rig = R::roomy();
    let world = rig.world(Contents::volume(1, 64));
    world.change(&Op::Write(1, 0, b"logged".to_vec()));
    world.zil.commit(ObjectId(1)).unwrap();
    world.change(&Op::Write(1, 0, b"not yet".to_vec()));
    world.zil.kind().suspend(&world.pool).unwrap();
    assert_eq!(world.zil.commit(ObjectId(1)).unwrap(), Committed::Logged, "the suspend has synced it");
    world.change(&Op::Write(1, 0, b"third".to_vec()));
    assert!(matches!(world.zil.commit(ObjectId(1)).unwrap(), Committed::Synced(_)));
    let (txg, _) = world.volume_write(1, 8, b"bypass");
    assert_eq!(world.zil.flush().unwrap(), Committed::Synced(txg));
    assert_eq!(world.zil.stats().snapshot().fallbacks_of(LogCause::Suspended), 2);
    // The medium is gone: nothing is missed.
    let without = R::roomy().import(world.pool.disk()).unwrap();
    assert_eq!(without.pool.contents(DATASET).objects[&1][..14], *b"thirdet\0bypass");
    world.zil.kind().resume(&world.pool).unwrap();
    world.change(&Op::Write(1, 0, b"4".to_vec()));
    assert!(matches!(world.zil.commit(ObjectId(1)).unwrap(), Committed::Synced(_)), "not durable yet");
    world.change(&Op::Write(1, 0, b"5".to_vec()));
    assert_eq!(world.zil.commit(ObjectId(1)).unwrap(), Committed::Logged);
    let world = rig.crash(&world);
    assert!(matches!(world.zil.kind().suspend(&world.pool), Err(LogError::Busy { .. })));
    assert_eq!(world.replay().unwrap().records, 1);
}

fn suspends_against_writers_lose_nothing_and_do_not_hang<R: Rig>() {
    let rig = R::roomy();
    let world = Arc::new(rig.world(Contents::volume(1, 4096)));
    std::thread::scope(|scope| {
        for thread in 0..3usize {
            let world = Arc::clone(&world);
            scope.spawn(move || {
                for round in 0..60u8 {
                    if thread == 0 {
                        world.zil.kind().suspend(&world.pool).unwrap();
                        world.zil.kind().resume(&world.pool).unwrap();
                    } else if thread == 1 {
                        world.volume_write(1, 100, &[round; 8]);
                        world.zil.flush().unwrap();
                    } else {
                        world.change(&Op::Write(1, 200, vec![round; 8]));
                        world.zil.commit(ObjectId(1)).unwrap();
                    }
                }
            });
        }
    });
    let world = rig.crash(&world);
    world.replay().unwrap();
    let contents = world.pool.contents(DATASET);
    assert_eq!((contents.objects[&1][100], contents.objects[&1][200]), (59, 59));
}

/// 14: a crash in the middle of replay, and one behind it.
fn replay_goes_on_behind_what_was_durable<R: Rig>() {
    let rig = R::roomy();
    let world = rig.world(Contents::volume(1, 64));
    for at in 0..5u8 {
        world.change(&Op::Write(1, at.into(), vec![at + 1]));
        world.zil.commit(ObjectId(1)).unwrap();
    }
    let rig = rig.crashed();
    let world = rig.import(world.pool.disk()).unwrap();
    assert_eq!(world.zil.kind().unreplayed_records(), 5);
    // Three are replayed and durable, the fourth replayed and lost again.
    let mut apply = Apply { refuses: Some(4), ..Apply::new(&world.pool, DATASET) };
    let failure = world.zil.kind().replay(&world.pool, &mut apply).unwrap_err();
    assert_eq!((failure.number, failure.dataset, failure.choices()), (4, DATASET, &Choice::ALL[..]));
    assert!(matches!(failure.cause, ReplayCause::Handler(_)) && failure.place.is_some());
    // Nothing may be logged before the owner has chosen.
    assert!(matches!(world.zil.commit(ObjectId(1)), Ok(Committed::Logged)), "nothing to commit");
    world.pool.sync();
    world.replay().unwrap();
    let rig = rig.crashed();
    let world = rig.import(world.pool.disk()).unwrap();
    assert_eq!(world.zil.kind().unreplayed_records(), 2);
    world.change(&Op::Write(1, 9, vec![9]));
    assert!(matches!(world.zil.commit(ObjectId(1)), Err(CommitError::NotReplayed)));
    assert_eq!(world.replay().unwrap().records, 2);
    assert_eq!(world.pool.contents(DATASET).objects[&1][..5], [1, 2, 3, 4, 5]);
    // Replayed, and that is durable: nothing is left, and the next log takes records.
    world.pool.sync();
    world.change(&Op::Write(1, 5, vec![6]));
    assert_eq!(world.zil.commit(ObjectId(1)).unwrap(), Committed::Logged);
    let rig = rig.crashed();
    let world = rig.import(world.pool.disk()).unwrap();
    assert_eq!(world.replay().unwrap().records, 1);
    assert_eq!(world.pool.contents(DATASET).objects[&1][..6], [1, 2, 3, 4, 5, 6]);
}

/// 14: a crash in the middle of replay; a later record is damaged then.
#[test]
fn replay_goes_on_behind_what_was_durable_and_reports_the_damage() {
    let heap = heap();
    let world = world(&heap, Contents::volume(1, 64));
    for at in 0..5u8 {
        world.change(&Op::Write(1, at.into(), vec![at + 1]));
        world.zil.commit(ObjectId(1)).unwrap();
    }
    let world = crash(world, &heap);
    // Three are replayed and durable, the fourth replayed and lost again.
    let mut apply = Apply { refuses: Some(4), ..Apply::new(&world.pool, DATASET) };
    let failure = world.zil.kind().replay(&world.pool, &mut apply).unwrap_err();
    assert_eq!((failure.number, failure.dataset, failure.choices()), (4, DATASET, &Choice::ALL[..]));
    assert!(matches!(failure.cause, ReplayCause::Handler(_)) && failure.place.is_some());
    world.pool.sync();
    world.replay().unwrap();
    let world = crash(world, &heap);
    assert_eq!(world.zil.kind().unreplayed_records(), 2);
    // The fifth is damaged after it was claimed.
    let damaged = Heap::new(heap.bytes());
    let disk = world.pool.disk();
    let world = import(&damaged, disk.clone());
    let text = damaged.bytes();
    let place = text.windows(8).rposition(|bytes| bytes == [5, 0, 0, 0, 0, 0, 0, 0]).unwrap();
    let bit = place * 8;
    damaged.flip(bit);
    let failure = world.replay().unwrap_err();
    assert!(matches!(failure.cause, ReplayCause::Body(_)), "{failure}");
    assert_eq!((failure.number, failure.kind()), (2, ErrorKind::Corrupt));
    assert_eq!(world.zil.kind().unreplayed_records(), 1);
    // Nothing may be logged before the owner has chosen; what it may choose:
    assert!(matches!(world.zil.commit(ObjectId(1)), Ok(Committed::Logged)), "nothing to commit");
    world.change(&Op::Write(1, 9, vec![9]));
    assert!(matches!(world.zil.commit(ObjectId(1)), Err(CommitError::NotReplayed)));
    damaged.flip(bit);
    assert_eq!(world.replay().unwrap().records, 1, "retry, when the cause is gone");
    assert_eq!(world.pool.contents(DATASET).objects[&1][..5], [1, 2, 3, 4, 5]);
    // Or: the import finds the damage, and refuses; or gives the tail up.
    damaged.flip(bit);
    let headers = [(DATASET, disk.headers.0.get(&DATASET).cloned())];
    let pool = PoolRef::new(disk.clone());
    let first = Txg(disk.synced + 1);
    let mut import = PmemLogs::import(config(3, 2), damaged.chunks(CHUNK), first, headers).unwrap();
    let problem = import.problems().next().unwrap().clone();
    assert!(matches!(problem.cause, ClaimCause::Claim(_)) && problem.choices() == Choice::ALL);
    for choice in [Choice::ReadOnly, Choice::Retry] {
        assert_eq!(import.resolve(DATASET, choice).unwrap_err().to_string(), problem.to_string());
    }
    import.resolve(DATASET, Choice::DropTail).unwrap();
    assert_eq!(import.summaries()[0].dropped, 1);
    let logs = import.finish(&pool, &pool.tx()).unwrap();
    let replayed = logs.get(DATASET).unwrap().replay(&pool, &mut Apply::new(&pool, DATASET)).unwrap();
    assert_eq!(replayed.records, 1);
    assert_eq!(pool.contents(DATASET).objects[&1][..5], [1, 2, 3, 4, 0]);
}

/// 15: a record that fails, and one of an unknown type.
fn a_record_that_cannot_be_replayed_stops_replay_until_somebody_chooses<R: Rig>() {
    let rig = R::roomy();
    let world = rig.world(Contents::volume(1, 64));
    world.volume_write(1, 0, b"first");
    world.zil.flush().unwrap();
    let mut unknown = [0; 64];
    let len = record::encode_write(record::Head::new(Txg(2), ObjectId(1)), 0, b"", None, &mut unknown);
    unknown[2] = 99;
    world.zil.kind().log_alone(Txg(2), [&[], &unknown[..len]]).unwrap();
    world.volume_write(1, 8, b"behind");
    world.zil.flush().unwrap();
    let world = rig.crash(&world);
    let failure = world.replay().unwrap_err();
    assert!(matches!(&failure.cause, ReplayCause::Record(error) if error.is_unknown()), "{failure}");
    assert_eq!((failure.number, failure.kind()), (2, ErrorKind::Invalid));
    let failure = world.replay().unwrap_err();
    assert_eq!(failure.number, 1, "of this call; the first is not replayed again");
    assert_eq!(world.zil.kind().drop_tail(&world.pool).unwrap(), 2);
    assert_eq!(world.pool.contents(DATASET).objects[&1][..16], *b"first\0\0\0\0\0\0\0\0\0\0\0");
    world.pool.sync();
    assert!(world.volume_write(1, 0, b"on").1);
}

/// 16: crafted: the checksum of the entry is right, the record in it is not; or says another txg than the
/// entry.
fn crafted_records_are_reported_with_their_place<R: Rig>() {
    for (at, byte, kind) in
        [(4, 0xff, ErrorKind::Corrupt), (40, 99, ErrorKind::Corrupt), (8, 3, ErrorKind::Corrupt)]
    {
        let rig = R::roomy();
        let world = rig.world(Contents::volume(1, 64));
        let mut bytes = [0; 72];
        let len =
            record::encode_write(record::Head::new(Txg(2), ObjectId(1)), 0, b"12345678", None, &mut bytes);
        bytes[at] = byte;
        world.zil.kind().log_alone(Txg(2), [&[], &bytes[..len]]).unwrap();
        let world = rig.crash(&world);
        let failure = world.replay().unwrap_err();
        assert_eq!((failure.kind(), failure.number), (kind, 1), "{failure}");
        assert!(world.pool.contents(DATASET).objects[&1].iter().all(|&byte| byte == 0));
    }
}

/// 18: a header that names a log without entries; a header without anything behind it; a damaged one.
#[test]
fn headers_without_entries_and_damaged_headers() {
    let heap = heap();
    let first = world(&heap, Contents::volume(1, 64));
    let disk = first.pool.disk();
    let world = import(&self::heap(), disk.clone());
    assert_eq!(world.zil.kind().refusal(), Some(LogCause::NotReplayed));
    assert_eq!(world.replay().unwrap().records, 0);
    world.pool.sync();
    assert!(world.volume_write(1, 0, b"x").1);
    // Of an older use: entries of a log that no header names are not replayed.
    let nameless = Disk { headers: Headers::default(), ..disk.clone() };
    let world = import(&heap, nameless);
    world.pool.sync();
    assert_eq!(world.zil.kind().refusal(), None);
    let mut damaged = disk.clone();
    *damaged.headers.0.get_mut(&DATASET).unwrap().last_mut().unwrap() ^= 1;
    let problem = World::import(config(4, 2), heap.chunks(CHUNK), damaged).err().unwrap();
    assert!(matches!(problem.cause, ClaimCause::Header(_)) && problem.kind() == ErrorKind::Corrupt);
    // Two datasets with the header of one log.
    let twice = [1, 2].map(|id| (DatasetId(id), disk.headers.0.get(&DATASET).cloned()));
    let mut import = PmemLogs::import(config(5, 2), heap.chunks(CHUNK), Txg(disk.synced + 1), twice).unwrap();
    assert_eq!(import.problems().map(|problem| problem.dataset).collect::<Vec<_>>(), [DatasetId(2)]);
    import.resolve(DatasetId(2), Choice::DropTail).unwrap();
    let pool = PoolRef::new(disk);
    assert!(import.finish(&pool, &pool.tx()).is_ok());
}

/// 22: nothing of the process's memory but records reaches PM.
#[test]
fn no_byte_of_an_earlier_record_is_in_the_padding_of_a_later_one() {
    let heap = heap();
    let world = world(&heap, Contents::volume(1, 4096));
    assert!(world.volume_write(1, 0, &[0xab; 4096]).1);
    let before = heap.bytes();
    assert!(world.volume_write(1, 0, &[1, 2, 3]).1);
    let changed: Vec<u8> =
        heap.bytes().iter().zip(&before).filter(|(new, old)| new != old).map(|(new, _)| *new).collect();
    // The second record follows the first; all that is new besides its header is data and zeroes.
    let marks = heap.bytes().windows(8).filter(|bytes| **bytes == [1, 2, 3, 0, 0, 0, 0, 0]).count();
    assert_eq!(marks, 1);
    assert!(changed.iter().filter(|&&byte| byte == 0xab).count() < 4, "what is 0xab is in checksums");
}

/// 23: one-byte writes fill the log by their heads; whoever finds it full waits for a txg, and nothing is
/// lost.
fn small_writes_fill_the_log_and_fall_back<R: Rig>() {
    let rig = R::tight();
    let world = rig.world(Contents::volume(1, 1024));
    let mut synced = 0;
    for at in 0..200usize {
        world.volume_write(1, at, &[at as u8 | 1]);
        synced += usize::from(matches!(world.zil.flush().unwrap(), Committed::Synced(_)));
    }
    let stats = world.zil.stats().snapshot();
    assert!((1..40).contains(&synced), "{synced}");
    assert!(stats.stalls() > 0, "{stats:?}");
    for at in 200..400usize {
        world.change(&Op::Write(1, at, vec![at as u8 | 1]));
        world.zil.commit(ObjectId(1)).unwrap();
    }
    assert!(world.zil.stats().snapshot().fallbacks_of(LogCause::NoRoom) > 0);
    let world = rig.crash(&world);
    world.replay().unwrap();
    let contents = world.pool.contents(DATASET);
    assert!((0..400).all(|at| contents.objects[&1][at] == at as u8 | 1));
}

/// 8: the pool suspends while a commit falls back to it: no success, and the log goes on when the pool does.
fn a_fallback_to_a_suspended_pool_is_an_error<R: Rig>() {
    let world = R::roomy().world(Contents::volume(1, 64));
    world.zil.kind().suspend(&world.pool).unwrap();
    world.change(&Op::Write(1, 0, vec![1]));
    world.pool.0.is_suspended.store(true, Ordering::SeqCst);
    let error = world.zil.commit(ObjectId(1)).unwrap_err();
    assert!(matches!(error, CommitError::Pool { .. }) && error.kind() == ErrorKind::Closed, "{error}");
    let (txg, logged) = world.volume_write(1, 0, b"x");
    assert!(world.zil.flush().is_err() && world.zil.after_fua(txg, logged).is_err());
    assert_eq!(world.zil.stats().snapshot().errors, 3);
    world.pool.0.is_suspended.store(false, Ordering::SeqCst);
    assert!(matches!(world.zil.commit(ObjectId(1)).unwrap(), Committed::Synced(_)));
    assert!(matches!(world.zil.flush().unwrap(), Committed::Logged | Committed::Synced(_)));
}

/// 25: a commit while its txg syncs, over and over.
fn commits_beside_syncing_txgs<R: Rig>() {
    let rig = R::roomy();
    let world = Arc::new(rig.world(Contents::volume(1, 4096)));
    std::thread::scope(|scope| {
        let syncer = Arc::clone(&world);
        scope.spawn(move || (0..300).for_each(|_| syncer.pool.sync()));
        for thread in 0..2usize {
            let world = Arc::clone(&world);
            scope.spawn(move || {
                for round in 0..200usize {
                    world.change(&Op::Write(1, thread * 1000 + round, vec![round as u8 | 1]));
                    world.zil.commit(ObjectId(1)).unwrap();
                }
            });
        }
    });
    let world = rig.crash(&world);
    world.replay().unwrap();
    let contents = world.pool.contents(DATASET);
    for thread in 0..2 {
        assert!((0..200).all(|round| contents.objects[&1][thread * 1000 + round] == round as u8 | 1));
    }
    assert_eq!(world.zil.kind().pending_entries(), 0);
}

/// 26: thousands of datasets are imported with one transaction and no wait.
fn an_import_of_thousands_of_datasets_waits_for_no_txg<R: Rig>() {
    // Of the block log's first blocks, most find no room: their logs begin when somebody needs them.
    let rig = R::roomy();
    let contents: Contents = Contents::volume(1, 64);
    let world = rig.world(contents.clone());
    let tx = world.pool.tx();
    for id in 100..3100 {
        world.logs.create(&world.pool, &tx, DatasetId(id)).unwrap();
    }
    drop(tx);
    world.pool.sync();
    assert!(world.volume_write(1, 0, b"only one has a record").1);
    assert_eq!(world.zil.flush().unwrap(), Committed::Logged);
    let mut disk = world.pool.disk();
    disk.contents.extend((100..3100).map(|id| (DatasetId(id), contents.clone())));
    let world = rig.crashed().import(disk).unwrap();
    assert_eq!(world.logs.datasets().len(), 3001);
    let of = |id: DatasetId| world.logs.get(id).unwrap().unreplayed_records();
    assert_eq!(world.logs.datasets().into_iter().map(of).sum::<u64>(), 1);
    let waits = || (world.pool.0.waits.load(Ordering::SeqCst), world.pool.0.syncs.load(Ordering::SeqCst));
    assert_eq!(waits(), (0, 0));
    let log = world.logs.get(DatasetId(2000)).unwrap();
    assert_eq!(log.replay(&world.pool, &mut Apply::new(&world.pool, DatasetId(2000))).unwrap().records, 0);
    assert_eq!(world.replay().unwrap().records, 1);
    assert_eq!(waits(), (0, 0));
}

/// 9: an object that is gone takes with it what only it needed; what others need stays.
fn records_of_a_removed_object_are_not_written<R: Rig>() {
    let rig = R::roomy();
    let world = rig.world(Contents::default());
    world.change(&Op::Create("a", 1));
    world.change(&Op::Write(1, 0, vec![1; 100]));
    world.change(&Op::Remove("a", 1));
    world.zil.forget(ObjectId(1));
    // The number is used again.
    world.change(&Op::Create("b", 1));
    world.change(&Op::Write(1, 0, b"new".to_vec()));
    world.zil.commit(ObjectId(1)).unwrap();
    assert_eq!(world.zil.stats().snapshot().records, 4);
    let world = rig.crash(&world);
    world.replay().unwrap();
    assert_eq!(world.pool.contents(DATASET).objects, [(1, b"new".to_vec())].into());
}

/// 11: the data of what is renamed comes before the new name. 12: async, then with `O_SYNC`, then async.
fn data_comes_before_the_name_and_one_object_keeps_its_order<R: Rig>() {
    let rig = R::roomy();
    let world = rig.world(Contents::default());
    world.change(&Op::Create("a", 1));
    world.change(&Op::Create("t", 2));
    world.change(&Op::Write(2, 0, b"data".to_vec()));
    world.change(&Op::Rename("t", "a", 2));
    world.change(&Op::Create("f", 3));
    world.change(&Op::Write(3, 0, b"1".to_vec()));
    world.zil.promote(ObjectId(3));
    world.change(&Op::Write(3, 0, b"22".to_vec()));
    world.change(&Op::Write(3, 1, b"3".to_vec()));
    world.zil.commit(ObjectId(3)).unwrap();
    let world = rig.crash(&world);
    let mut apply = Apply::new(&world.pool, DATASET);
    world.zil.kind().replay(&world.pool, &mut apply).unwrap();
    let place = |op: &Op| apply.seen.iter().position(|seen| seen == op).unwrap();
    assert!(place(&Op::Write(2, 0, b"data".to_vec())) < place(&Op::Rename("t", "a", 2)));
    assert_eq!(world.pool.contents(DATASET).objects, [(2, b"data".to_vec()), (3, b"23".to_vec())].into());
}

/// Need-copy: read back in pieces at commit, cut off where the object ends now; a failed read-back is a wait.
fn data_that_was_not_copied_is_read_back<R: Rig>() {
    let rig = R::roomy();
    let world = rig.world(Contents::volume(1, 0));
    let data: Vec<u8> = (0..20_000u32).map(|at| (at % 251) as u8 | 1).collect();
    let assign = |len: u64| {
        let tx = world.pool.tx();
        world.pool.apply(&tx, DATASET, &Op::Write(1, 0, data.clone())).unwrap();
        world.zil.assign(tx.txg, Itx::need_copy(ObjectId(1), 0, len, false));
    };
    assign(20_000);
    assert_eq!(world.zil.commit(ObjectId(1)).unwrap(), Committed::Logged);
    assert!(world.zil.stats().snapshot().bytes > 20_000);
    assign(30_000);
    world.change(&Op::Truncate(1, 12_000));
    world.zil.commit(ObjectId(1)).unwrap();
    world.pool.0.read_back_fails.store(true, Ordering::SeqCst);
    assign(10);
    let crashed = rig.crash(&world);
    crashed.replay().unwrap();
    assert_eq!(crashed.pool.contents(DATASET).objects[&1], data[..12_000]);
    assert!(matches!(world.zil.commit(ObjectId(1)).unwrap(), Committed::Synced(_)));
    assert_eq!(world.zil.stats().snapshot().fallbacks_of(LogCause::ReadBack), 1);
}

/// A new name needs the bytes of its file, and not that the file was cut after that.
fn what_a_write_replaced_does_not_come_back_where_it_was_cut_off<R: Rig>() {
    let rig = R::roomy();
    let world = rig.world(Contents::default());
    world.change(&Op::Create("a", 5));
    world.change(&Op::Write(5, 0, vec![1; 100_000]));
    world.pool.sync();
    let tx = world.pool.tx();
    world.pool.apply(&tx, DATASET, &Op::Write(5, 10, vec![2; 90_000])).unwrap();
    world.zil.assign(tx.txg, Itx::need_copy(ObjectId(5), 10, 90_000, false));
    drop(tx);
    world.change(&Op::Rename("a", "b", 5));
    world.change(&Op::Truncate(5, 50));
    world.zil.commit(ObjectId(9)).unwrap();
    let crashed = rig.crash(&world);
    crashed.replay().unwrap();
    let contents = crashed.pool.contents(DATASET);
    assert_eq!(contents.names["b"], 5);
    let bytes = &contents.objects[&5];
    assert_eq!(bytes.len(), 50, "what is after the cut is older than the name");
    assert!(bytes[10..].iter().all(|byte| *byte == 2));
}

/// Zeroes and long writes of a volume; and its log goes with it.
fn a_destroyed_dataset_has_its_log_until_that_is_durable<R: Rig>() {
    let rig = R::roomy();
    let world = rig.world(Contents::volume(1, 100_000));
    let data: Vec<u8> = (0..50_000u32).map(|at| (at % 251) as u8 | 1).collect();
    assert!(world.volume_write(1, 10, &data).1);
    let tx = world.pool.tx();
    world.pool.apply(&tx, DATASET, &Op::Zeroes(1, 20, 30)).unwrap();
    let zeroes = Zeroes { offset: 20, len_bytes: 30, is_discard: true };
    assert!(world.zil.log_zeroes(tx.txg, ObjectId(1), zeroes));
    drop(tx);
    assert_eq!(world.zil.after_fua(Txg(2), true).unwrap(), Committed::Logged);
    let expected = world.pool.contents(DATASET);
    let crashed = rig.crash(&world);
    crashed.replay().unwrap();
    assert!(crashed.pool.contents(DATASET) == expected);
    // Destroyed, and a crash before that is durable: the log is there with its dataset.
    let tx = world.pool.tx();
    world.logs.destroy(&world.pool, &tx, DATASET).unwrap();
    drop(tx);
    assert_eq!(world.zil.kind().refusal(), Some(LogCause::Destroyed));
    let crashed = rig.crash(&world);
    assert!(crashed.replay().unwrap().records > 1);
    assert!(crashed.pool.contents(DATASET) == expected);
    world.pool.sync();
    assert!(world.pool.disk().headers.0.is_empty());
}

/// A resize that no record may stand for yet, between a write with FUA and its commit.
fn a_write_whose_end_was_cut_off_its_volume_waits_for_its_txg<R: Rig>() {
    let rig = R::roomy();
    let world = rig.world(Contents::volume(1, 200_000));
    world.zil.set_bypass(false);
    let (txg, is_logged) = world.volume_write(1, 10_000, &[7; 150_000]);
    world.pool.open_next();
    let cut = world.pool.tx();
    world.pool.apply(&cut, DATASET, &Op::Truncate(1, 50_000)).unwrap();
    drop(cut);
    assert_eq!(world.zil.after_fua(txg, is_logged).unwrap(), Committed::Synced(txg));
    assert_eq!(world.zil.stats().snapshot().fallbacks_of(LogCause::Gone), 1);
    let crashed = rig.crash(&world);
    crashed.replay().unwrap();
    let bytes = &crashed.pool.contents(DATASET).objects[&1];
    assert_eq!(bytes.len(), 200_000, "the resize was not durable");
    assert!(bytes[10_000..160_000].iter().all(|byte| *byte == 7));
}
