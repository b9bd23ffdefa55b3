//! The log's life cycle as its owner sees it: the walk-through of the thesis (7.2.1), what is refused, and
//! what happens to chunks.

mod support;

use std::sync::Arc;

use fastness_pm_model::{Fault, RecordingRange};
use fastness_pmem::{PmRange, Region};
use fastness_prb::*;
use support::*;

const CHUNK: usize = 4096;

fn open(recorder: &fastness_pm_model::Recorder) -> Arc<Prb<RecordingRange>> {
    Prb::open(config(2), chunks(recorder, CHUNK)).unwrap()
}

fn format(recorder: &fastness_pm_model::Recorder) -> Arc<Prb<RecordingRange>> {
    Prb::format(config(1), chunks(recorder, CHUNK)).unwrap()
}

/// The thirteen steps of the thesis's test, on a region of real (anonymous) memory.
#[test]
fn walk_through() {
    let chunk: PmRange = Region::anonymous(1 << 20).unwrap().into_range();
    let prb = Prb::format(Config::default(), vec![chunk]).unwrap();
    let mut hdl = prb.setup_hdl(&HdlHeader::NoZil).unwrap();
    let header = durable_log(&mut hdl);
    assert_eq!(
        hdl.write_dependent_entry(Txg(2), &[23], Wait::Block).unwrap(),
        Written::Entry(EntryId::new(1, 1))
    );
    assert_eq!(
        hdl.write_dependent_entry(Txg(2), &[42], Wait::Block).unwrap(),
        Written::Entry(EntryId::new(2, 1))
    );
    hdl.teardown(None);
    let ranges = prb.close().unwrap();

    let prb = Prb::open(Config::default(), ranges).unwrap();
    let mut hdl = prb.setup_hdl(&header).unwrap();
    let claimed = hdl.claim(Txg(2), OnLoss::Fail).unwrap();
    assert_eq!((claimed.entries, claimed.body_bytes, claimed.gaps, claimed.dropped), (2, 2, 0, 0));
    let claimed_header = claimed.update.unwrap().into_header();
    prb.finish_claiming().unwrap();
    let mut seen = Vec::new();
    let replayed = hdl.replay(|entry, update| {
        let HdlHeader::Replaying(replaying) = update.header() else { panic!("{update:?}") };
        assert_eq!(replaying.last_replayed(), entry.id());
        seen.push((body_of(&entry).unwrap(), entry.id(), entry.txg()));
        Ok::<_, ()>(())
    });
    assert_eq!(replayed.unwrap(), Replayed { entries: 2, reappeared: 0 });
    assert_eq!(seen, [(vec![23], EntryId::new(1, 1), Txg(2)), (vec![42], EntryId::new(2, 1), Txg(2))]);
    assert!(matches!(claimed_header, HdlHeader::Replaying(_)));

    assert_eq!(hdl.replay_done(Txg(5)).unwrap().into_header(), HdlHeader::NoZil);
    assert_eq!(
        prb.collect(Txg(4)).unwrap().chunks,
        0,
        "the header that no longer needs the entries is not durable"
    );
    assert_eq!(prb.collect(Txg(5)).unwrap().chunks, 1);
    assert_eq!((hdl.state(), prb.free_chunks()), ("nozil", 1));
    assert!(hdl.create_log().unwrap().is_some());
}

#[test]
fn operations_in_the_wrong_state_are_errors() {
    let recorder = recorder(CHUNK, 2);
    let prb = format(&recorder);
    let mut hdl = prb.setup_hdl(&HdlHeader::NoZil).unwrap();
    let state = |error: Misuse| matches!(error, Misuse::State { .. });
    assert!(matches!(hdl.write_entry(Txg(1), b"x", Wait::Fail), Err(WriteError::Misuse(m)) if state(m)));
    assert!(state(hdl.start_generation().unwrap_err()));
    assert!(state(hdl.header_synced().unwrap_err()));
    // Nothing to claim, replay or discard is no error.
    assert_eq!(hdl.claim(Txg(1), OnLoss::Fail).unwrap().update, None);
    assert_eq!(hdl.replay(|_, _| Ok::<_, ()>(())).unwrap().entries, 0);
    assert_eq!(hdl.destroy_log(Txg(1)).unwrap().into_header(), HdlHeader::NoZil);

    let header = hdl.create_log().unwrap().unwrap().into_header();
    assert!(hdl.create_log().unwrap().is_none(), "idempotent");
    let not_durable = hdl.write_entry(Txg(1), b"x", Wait::Fail).unwrap_err();
    assert_eq!(not_durable.kind(), ErrorKind::Invalid, "the header with the GUID is not durable yet");
    hdl.header_synced().unwrap();
    hdl.write_entry(Txg(1), b"x", Wait::Fail).unwrap();
    assert!(matches!(hdl.replay(|_, _| Ok::<_, ()>(())), Err(ReplayError::Misuse(m)) if state(m)));
    assert!(state(hdl.replay_done(Txg(1)).unwrap_err()));
    assert!(matches!(hdl.claim(Txg(1), OnLoss::Fail), Err(ClaimError::Misuse(m)) if state(m)));
    assert!(matches!(prb.setup_hdl(&header), Err(Misuse::ClaimingOver { .. })));
    let (prb, error) = prb.close().unwrap_err();
    assert_eq!(error, Misuse::StillInUse { hdls: 1 });
    drop(hdl);
    prb.close().unwrap();

    let prb = open(&recorder);
    let mut hdl = prb.setup_hdl(&header).unwrap();
    assert!(matches!(prb.setup_hdl(&header), Err(Misuse::AlreadySetUp { .. })));
    assert!(state(hdl.create_log().unwrap_err()));
    assert!(state(hdl.destroy_log(Txg(1)).unwrap_err()));
    assert_eq!(prb.finish_claiming(), Err(Misuse::ClaimingNotOver { unclaimed: 1 }));
    assert!(matches!(prb.collect(Txg(1)), Err(CollectError::Misuse(Misuse::ClaimingNotOver { .. }))));
    assert!(matches!(hdl.replay(|_, _| Ok::<_, ()>(())), Err(ReplayError::Misuse(m)) if state(m)));
    let _ = hdl.claim(Txg(1), OnLoss::Fail).unwrap();
    prb.finish_claiming().unwrap();
    assert_eq!(hdl.replay_done(Txg(2)), Err(Misuse::ReplayNotFinished));
    assert!(state(hdl.create_log().unwrap_err()));
}

#[test]
fn setups_that_cannot_work_are_refused() {
    let try_config = |config: Config| Prb::format(config, chunks(&recorder(CHUNK, 1), CHUNK)).map(|_| ());
    for ncommitters in [0, 33] {
        let error = try_config(Config { ncommitters, ..config(1) }).unwrap_err();
        assert!(matches!(error, SetupError::Committers { .. }));
    }
    for checksum in [ChecksumKind::Crc32c, ChecksumKind::Fletcher4] {
        let error = try_config(Config { insertion: Insertion::OneFence, checksum, ..config(1) }).unwrap_err();
        assert!(matches!(error, SetupError::WeakChecksum { .. }));
    }
    let none: Vec<RecordingRange> = Vec::new();
    assert!(matches!(Prb::format(config(1), none), Err(SetupError::ChunkCount { count: 0 })));
    let recorder = recorder(CHUNK, 1);
    let (small, rest) = recorder.range(0, CHUNK).split(256);
    let error = Prb::format(config(1), vec![small]).map(|_| ()).unwrap_err();
    assert!(matches!(error, SetupError::Chunk { index: 0, len_bytes: 256, .. }));
    let (_, misaligned) = rest.split(64);
    let optane = Config { alignment: Alignment::Optane, ..config(1) };
    let error = Prb::format(optane, vec![misaligned]).map(|_| ()).unwrap_err();
    assert!(matches!(error, SetupError::Chunk { region_offset: 320, .. }));
}

#[test]
fn bodies_of_every_length_up_to_the_limit_come_back() {
    for alignment in [Alignment::Line, Alignment::Optane] {
        for checksum in ChecksumKind::ALL {
            for insertion in [Insertion::TwoFences, Insertion::OneFence] {
                if insertion == Insertion::OneFence && !checksum.is_strong() {
                    continue;
                }
                let recorder = recorder(CHUNK, 24);
                let config = Config { alignment, checksum, insertion, ..config(1) };
                let prb = Prb::format(config, chunks(&recorder, CHUNK)).unwrap();
                let mut hdl = prb.setup_hdl(&HdlHeader::NoZil).unwrap();
                let header = durable_log(&mut hdl);
                let mut expected = Vec::new();
                for len in [0, 1, 63, 64, 65, 255, 256, 257, 1000, 3583, 3584, 3585, 3839, 3840] {
                    let body: Vec<u8> = (0..len).map(|i| (i * 7 + len) as u8).collect();
                    hdl.write_entry(Txg(1), &body, Wait::Fail).unwrap();
                    expected.push((1, body));
                }
                let error = hdl.write_entry(Txg(1), &[0; 3841], Wait::Fail).unwrap_err();
                assert!(matches!(error, WriteError::TooLarge { body_bytes: 3841, max_bytes: 3840 }));
                let found = import(&recorder.image(), CHUNK, &header, 1).unwrap();
                assert_eq!(found, expected, "{alignment:?} {checksum:?} {insertion:?}");
            }
        }
    }
}

/// Obsolete entries are no-ops; entries that are neither obsolete nor in the corridor are errors.
#[test]
fn txgs_outside_of_the_corridor() {
    let recorder = recorder(CHUNK, 2);
    let prb = format(&recorder);
    let mut hdl = prb.setup_hdl(&HdlHeader::NoZil).unwrap();
    let header = durable_log(&mut hdl);
    let write = |hdl: &Hdl<_>, txg: u64| hdl.write_entry(Txg(txg), &[txg as u8], Wait::Fail);
    for txg in [10, 9, 8, 10] {
        write(&hdl, txg).unwrap();
    }
    let before = recorder.op_count();
    assert!(matches!(write(&hdl, 7), Err(WriteError::TxgOutsideCorridor { txg: Txg(7), newest: Txg(10) })));
    prb.collect(Txg(8)).unwrap();
    assert_eq!(write(&hdl, 7).unwrap(), Written::Obsolete);
    assert_eq!(write(&hdl, 8).unwrap(), Written::Obsolete);
    write(&hdl, 11).unwrap();
    assert!(recorder.op_count() > before);
    // The refused and the obsolete entry are neither there nor counted.
    hdl.write_dependent_entry(Txg(11), &[99], Wait::Fail).unwrap();
    let found = import(&recorder.image(), CHUNK, &header, 9).unwrap();
    assert_eq!(found.iter().map(|(txg, _)| *txg).collect::<Vec<_>>(), [10, 9, 10, 11, 11]);
}

#[test]
fn a_generation_without_entries_is_not_started_again() {
    let recorder = recorder(CHUNK, 2);
    let prb = format(&recorder);
    let mut hdl = prb.setup_hdl(&HdlHeader::NoZil).unwrap();
    durable_log(&mut hdl);
    hdl.start_generation().unwrap();
    assert_eq!(hdl.write_entry(Txg(1), b"", Wait::Fail).unwrap(), Written::Entry(EntryId::new(1, 1)));
    hdl.start_generation().unwrap();
    hdl.start_generation().unwrap();
    assert_eq!(hdl.write_entry(Txg(1), b"", Wait::Fail).unwrap(), Written::Entry(EntryId::new(2, 1)));
    assert_eq!(hdl.write_entry(Txg(1), b"", Wait::Fail).unwrap(), Written::Entry(EntryId::new(2, 2)));
}

#[test]
fn a_prb_says_how_full_it_is() {
    let recorder = recorder(CHUNK, 16);
    let prb = format(&recorder);
    let mut hdl = prb.setup_hdl(&HdlHeader::NoZil).unwrap();
    durable_log(&mut hdl);
    let mut seen = vec![prb.used_per_1024()];
    while hdl.write_entry(Txg(1), &[7; 3000], Wait::Fail).is_ok() {
        seen.push(prb.used_per_1024());
    }
    assert!(seen.is_sorted() && seen[0] == 0, "{seen:?}");
    assert_eq!(prb.used_per_1024(), 1024);
    prb.collect(Txg(1)).unwrap();
    assert_eq!(prb.used_per_1024(), 0);
}

#[test]
fn a_full_prb_fails_or_waits_and_a_synced_txg_frees_it() {
    let recorder = recorder(CHUNK, 2);
    let prb = format(&recorder);
    let mut hdl = prb.setup_hdl(&HdlHeader::NoZil).unwrap();
    durable_log(&mut hdl);
    let body = [7; 3000];
    hdl.write_entry(Txg(1), &body, Wait::Fail).unwrap();
    hdl.write_entry(Txg(2), &body, Wait::Fail).unwrap();
    let error = hdl.write_entry(Txg(2), &body, Wait::Fail).unwrap_err();
    assert!(matches!(error, WriteError::NoFreeChunk));
    assert_eq!(error.kind(), ErrorKind::Retry);
    std::thread::scope(|scope| {
        let writers: Vec<_> =
            (0..2).map(|_| scope.spawn(|| hdl.write_entry(Txg(3), &body, Wait::Block).unwrap())).collect();
        while prb.stats().chunk_waits < 3 {
            std::thread::yield_now();
        }
        assert_eq!(prb.collect(Txg(1)).unwrap(), Collected { chunks: 1, ..Collected::default() });
        assert_eq!(prb.collect(Txg(2)).unwrap(), Collected { chunks: 1, ..Collected::default() });
        writers.into_iter().for_each(|writer| assert!(matches!(writer.join(), Ok(Written::Entry(_)))));
    });
    let stats = prb.stats();
    assert_eq!((stats.entries, stats.body_bytes, stats.chunks_collected), (4, 12000, 2));
}

/// Threads with an older txg open write behind others: the last entry of a chunk need not be the newest.
#[test]
fn a_chunk_is_kept_for_its_newest_entry_not_for_its_last() {
    for full in [false, true] {
        let recorder = recorder(CHUNK, 2);
        let prb = format(&recorder);
        let mut hdl = prb.setup_hdl(&HdlHeader::NoZil).unwrap();
        let header = durable_log(&mut hdl);
        hdl.write_entry(Txg(2), b"newest", Wait::Fail).unwrap();
        hdl.write_entry(Txg(1), b"last", Wait::Fail).unwrap();
        if full {
            hdl.write_entry(Txg(3), &[3; 3500], Wait::Fail).unwrap();
        }
        assert_eq!(prb.collect(Txg(1)).unwrap().chunks, 0);
        let found = import(&recorder.image(), CHUNK, &header, 2).unwrap();
        assert_eq!(found[0], (2, b"newest".to_vec()));
        assert_eq!(prb.collect(Txg(2)).unwrap().chunks, 1);
    }
}

/// Bytes written to PM and fences of one entry, exactly.
#[test]
fn bytes_and_fences_of_an_entry() {
    use fastness_pm_model::Op;
    for (alignment, body, bytes) in [
        (Alignment::Line, 24, 256 + 64 + 256),
        (Alignment::Optane, 24, 256 + 256 + 256),
        (Alignment::Line, 4096, 4608),
    ] {
        for (insertion, checksum, fences) in
            [(Insertion::TwoFences, ChecksumKind::Crc32c, 2), (Insertion::OneFence, ChecksumKind::Xxh3, 1)]
        {
            let recorder = recorder(16384, 1);
            let config = Config { alignment, insertion, checksum, ..config(1) };
            let prb = Prb::format(config, chunks(&recorder, 16384)).unwrap();
            let mut hdl = prb.setup_hdl(&HdlHeader::NoZil).unwrap();
            durable_log(&mut hdl);
            let before = recorder.op_count();
            hdl.write_entry(Txg(1), &vec![1; body], Wait::Fail).unwrap();
            let ops = &recorder.trace().ops[before..];
            let stored: usize =
                ops.iter().map(|op| if let Op::Store { data, .. } = op { data.len() } else { 0 }).sum();
            assert_eq!((stored, ops.iter().filter(|op| op.is_fence()).count()), (bytes, fences));
            let stats = prb.stats();
            assert_eq!(stats.written_bytes, bytes as u64);
            assert_eq!(stats.padding_bytes as usize, body.next_multiple_of(alignment.bytes()) - body);
        }
    }
}

/// A fence that fails (msync, EIO): the write is an error, and nothing is acknowledged any more.
#[test]
fn a_failed_fence_closes_the_prb() {
    for after in [0, 1] {
        let recorder = recorder(CHUNK, 2);
        let mut ranges = chunks(&recorder, CHUNK);
        // Formatting fences each chunk once; the faults are for what comes then.
        ranges[0].inject(Fault::FailFence { after: 1 + after });
        let prb = Prb::format(config(1), ranges).unwrap();
        let mut hdl = prb.setup_hdl(&HdlHeader::NoZil).unwrap();
        let header = durable_log(&mut hdl);
        let error = hdl.write_entry(Txg(1), b"lost?", Wait::Block).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::MediaFailed);
        let error = hdl.write_entry(Txg(1), b"no", Wait::Block).unwrap_err();
        assert!(matches!(error, WriteError::Failed));
        let found = import(&recorder.image(), CHUNK, &header, 1).unwrap();
        assert!(found.is_empty() || found == [(1, b"lost?".to_vec())]);
    }
    // While the PRB is formatted, and when a chunk is collected.
    let recorder = recorder(CHUNK, 1);
    let mut ranges = chunks(&recorder, CHUNK);
    ranges[0].inject(Fault::FailFence { after: 0 });
    assert!(matches!(Prb::format(config(1), ranges), Err(SetupError::Persist(_))));
}

#[test]
fn a_failed_fence_in_a_collection_closes_the_prb_and_wakes_waiters() {
    let recorder = recorder(CHUNK, 1);
    let mut ranges = chunks(&recorder, CHUNK);
    // Format, two for the entry, then the collection's.
    ranges[0].inject(Fault::FailFence { after: 3 });
    let prb = Prb::format(config(1), ranges).unwrap();
    let mut hdl = prb.setup_hdl(&HdlHeader::NoZil).unwrap();
    durable_log(&mut hdl);
    hdl.write_entry(Txg(1), &[0; 3000], Wait::Fail).unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| hdl.write_entry(Txg(2), &[0; 3000], Wait::Block));
        while prb.stats().chunk_waits == 0 {
            std::thread::yield_now();
        }
        assert!(matches!(prb.collect(Txg(1)), Err(CollectError::Persist(_))));
        assert!(matches!(waiter.join().unwrap(), Err(WriteError::Failed)));
    });
}

#[test]
fn many_logs_share_chunks_and_recover_their_own_entries() {
    let recorder = recorder(CHUNK, 16);
    let prb = Prb::format(Config { ncommitters: 3, ..config(1) }, chunks(&recorder, CHUNK)).unwrap();
    let mut hdls: Vec<_> = (0..5).map(|_| prb.setup_hdl(&HdlHeader::NoZil).unwrap()).collect();
    let headers: Vec<_> = hdls.iter_mut().map(durable_log).collect();
    std::thread::scope(|scope| {
        for (who, hdl) in hdls.iter_mut().enumerate() {
            scope.spawn(move || {
                for i in 0..30u8 {
                    hdl.write_dependent_entry(Txg(1 + u64::from(i) / 12), &[who as u8, i], Wait::Fail)
                        .unwrap();
                }
            });
        }
    });
    for (who, header) in headers.iter().enumerate() {
        let found = import(&recorder.image(), CHUNK, header, 2).unwrap();
        let expected: Vec<_> = (12..30u8).map(|i| (1 + u64::from(i) / 12, vec![who as u8, i])).collect();
        assert_eq!(found, expected);
    }
}

/// Threads write one log in one generation; then a generation that depends on all of them.
#[test]
fn one_log_is_written_from_many_threads() {
    const THREADS: u8 = 4;
    const EACH: u8 = 40;
    let region = Region::anonymous(1 << 22).unwrap().into_range();
    let (a, rest) = region.split_at(1 << 20).unwrap();
    let (b, c) = rest.split_at(1 << 20).unwrap();
    let config = Config { ncommitters: 2, ..Config::default() };
    let prb = Prb::format(config.clone(), vec![a, b, c]).unwrap();
    let mut hdl = prb.setup_hdl(&HdlHeader::NoZil).unwrap();
    let header = durable_log(&mut hdl);
    for generation in 1..=3 {
        hdl.start_generation().unwrap();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let hdl = &hdl;
                scope.spawn(move || {
                    for i in 0..EACH {
                        let body = [generation, thread, i];
                        hdl.write_entry(Txg(5 + u64::from(generation % 2)), &body, Wait::Fail).unwrap();
                    }
                });
            }
        });
    }
    drop(hdl);
    let prb = Prb::open(config, prb.close().unwrap()).unwrap();
    let mut hdl = prb.setup_hdl(&header).unwrap();
    assert_eq!(hdl.claim(Txg(5), OnLoss::Fail).unwrap().gaps, 0);
    let mut bodies = Vec::new();
    hdl.replay(|entry, _| body_of(&entry).map(|body| bodies.push(body))).unwrap();
    assert!(bodies.is_sorted_by_key(|body| body[0]), "generations are in order");
    let one_thread = |t: u8| {
        bodies.iter().filter(|body| body[0] == 2 && body[1] == t).map(|body| body[2]).collect::<Vec<_>>()
    };
    assert!(
        (0..THREADS).all(|t| one_thread(t) == (0..EACH).collect::<Vec<_>>()),
        "so is what one thread wrote"
    );
    assert_eq!(bodies.len(), 3 * usize::from(THREADS) * usize::from(EACH));
}
