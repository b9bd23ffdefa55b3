//! The life of a log without accidents, and its errors.

use std::convert::Infallible;

use fastness_pm_model::Fault;
use fastness_pmem::Region;
use fastness_prb::{HdlHeader, OnLoss};

use super::*;
use crate::{
    AppendError, CreateError, ErrorKind, FormatError, Hidden, RecordId, RecoverError, Survey, TrimError,
};

#[test]
fn records_come_back_in_order_until_they_are_trimmed() {
    let (recorder, mut log) = new_log(SMALL);
    let mut ids: Vec<RecordId> = Vec::new();
    for number in 0..4 {
        ids.push(log.append(&record(number)).unwrap());
    }
    assert!(ids.is_sorted());
    assert_eq!(records_of(open_image(&recorder.image()).unwrap()), records(0..4));
    assert!(log.trim().unwrap().faults.is_empty());
    assert_eq!(records_of(open_image(&recorder.image()).unwrap()), records(0..0));
    assert!(log.append_ordered(&record(4)).unwrap() > ids[3]);
    assert_eq!(records_of(open_image(&recorder.image()).unwrap()), records(4..5));
}

#[test]
fn a_recovery_that_is_not_finished_changes_nothing_and_one_that_is_starts_anew() {
    let (recorder, log) = new_log(SMALL);
    let last = log.append(b"one").unwrap();
    drop(log);
    let before = recorder.image();
    let open = || RecordLog::open(whole(&recorder, SMALL), &reopen_options(0)).unwrap();
    assert_eq!(records_of(open()), [b"one"]);
    drop(open());
    assert!(matches!(open().finish(), Err(RecoverError::NotReplayed)));
    assert_eq!(recorder.image(), before);

    let mut recovery = open();
    assert_eq!((recovery.records(), recovery.record_bytes(), recovery.gaps()), (1, 3, 0));
    recovery
        .replay(|id, _| {
            assert_eq!(id, last);
            Ok::<_, Infallible>(())
        })
        .unwrap();
    drop(recovery);
    let mut recovery = open();
    assert!(recovery.is_resumed());
    assert_eq!(recovery.replay(|_, _| Ok::<_, Infallible>(())).unwrap().records, 1);
    let log = recovery.finish().unwrap();
    assert_eq!(records_of(open_image(&recorder.image()).unwrap()).len(), 0);
    assert!(log.append(b"two").unwrap() > last);
    assert_eq!(log.log_number(), 2);
}

#[test]
fn replay_goes_on_with_the_record_that_could_not_be_carried_out() {
    let (recorder, log) = new_log(SMALL);
    append_all(&log, 0..3);
    drop(log);
    let mut recovery = RecordLog::open(whole(&recorder, SMALL), &reopen_options(0)).unwrap();
    let mut seen = Vec::new();
    let failed = recovery.replay(|_, bytes| {
        if seen.len() == 1 {
            return Err(std::io::Error::other("busy"));
        }
        seen.push(bytes.to_vec());
        Ok(())
    });
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::Retry);
    recovery
        .replay(|_, bytes| {
            seen.push(bytes.to_vec());
            Ok::<_, Infallible>(())
        })
        .unwrap();
    assert_eq!(seen, records(0..3));
    recovery.finish().unwrap();
}

#[test]
fn a_full_log_says_so_and_a_trim_makes_all_of_it_free() {
    let (recorder, mut log) = new_log(SMALL);
    for round in 0..5 {
        let mut appended = 0;
        let error = loop {
            match log.append(&record(appended)) {
                Ok(_) => appended += 1,
                Err(error) => break error,
            }
        };
        assert_eq!((appended, error.kind()), (6, ErrorKind::NoSpace), "round {round}: {error}");
        assert_eq!(records_of(open_image(&recorder.image()).unwrap()), records(0..6));
        log.trim().unwrap();
        assert_eq!(log.free_chunks(), 2);
    }
    let too_large = log.append(&[0; 1024]).unwrap_err();
    assert!(matches!(too_large, AppendError::TooLarge { max_bytes: 768, .. }), "{too_large}");
    log.append(&[0; 768]).unwrap();
}

#[test]
fn turns_are_trimmed_one_after_the_other_and_records_are_read_meanwhile() {
    let (recorder, mut log) = new_log(SMALL);
    let live = |log: &RecordLog<_>| -> Vec<Vec<u8>> {
        let read = |live: &crate::LiveEntry| {
            let mut buffer = vec![0; live.body_len_bytes()];
            log.read_live(live, &mut buffer).unwrap();
            buffer
        };
        log.live_records().iter().map(read).collect()
    };
    append_all(&log, 0..2);
    let first = log.next_turn().unwrap();
    append_all(&log, 2..4);
    assert!(log.turn() > first);
    let second = log.next_turn().unwrap();
    append_all(&log, 4..5);
    assert_eq!(log.next_turn(), None, "three turns");
    assert_eq!(live(&log), records(0..5));
    log.trim_turns(first).unwrap();
    assert_eq!(live(&log), records(2..5));
    assert_eq!(records_of(open_image(&recorder.image()).unwrap()), records(2..5));
    log.trim_turns(first).unwrap();
    log.empty_trimmed().unwrap();
    append_all(&log, 5..6);
    assert!(matches!(log.append(&record(6)), Err(AppendError::Full { .. })));
    log.trim_turns(second).unwrap();
    assert_eq!(log.empty_trimmed().unwrap().chunks, 1);
    assert_eq!(records_of(open_image(&recorder.image()).unwrap()), records(4..6));
    let third = log.next_turn().unwrap();
    log.trim_turns(third).unwrap();
    assert_eq!(records_of(open_image(&recorder.image()).unwrap()), records(0..0));
    let mut line = [7; 64].to_vec();
    log.append_parts([&line, b"the rest"]).unwrap();
    line.extend(b"the rest");
    assert_eq!(records_of(open_image(&recorder.image()).unwrap()), [line]);
}

#[test]
fn a_recovery_can_be_looked_at_before_it_is_carried_out() {
    let (recorder, log) = new_log(SMALL);
    append_all(&log, 0..3);
    drop(log);
    let mut recovery = RecordLog::open(whole(&recorder, SMALL), &reopen_options(0)).unwrap();
    for _ in 0..2 {
        let mut seen = Vec::new();
        recovery
            .look(|_, bytes| {
                seen.push(bytes.to_vec());
                Ok::<_, Infallible>(())
            })
            .unwrap();
        assert_eq!(seen, records(0..3));
    }
    assert!(matches!(recovery.look(|_, _| Err(1)), Err(RecoverError::Callback { source: 1, .. })));
    assert_eq!(recovery.replay(|_, _| Ok::<_, Infallible>(())).unwrap().records, 3);
}

#[test]
fn discard_gives_up_what_was_not_handed_out() {
    let (recorder, log) = new_log(SMALL);
    log.append(b"one").unwrap();
    drop(log);
    let recovery = RecordLog::open(whole(&recorder, SMALL), &reopen_options(0)).unwrap();
    recovery.discard().unwrap().append(b"two").unwrap();
    assert_eq!(records_of(open_image(&recorder.image()).unwrap()), [b"two"]);
}

#[test]
fn a_log_is_overwritten_only_if_asked_for() {
    let (recorder, log) = new_log(SMALL);
    log.append(b"precious").unwrap();
    drop(log);
    let again = RecordLog::create(whole(&recorder, SMALL), &create_options());
    assert!(matches!(again, Err(CreateError::Exists)));
    assert_eq!(records_of(open_image(&recorder.image()).unwrap()).len(), 1);
    RecordLog::create(whole(&recorder, SMALL), &create_options().overwrite(true)).unwrap();
    assert_eq!(records_of(open_image(&recorder.image()).unwrap()).len(), 0);
}

#[test]
fn a_failed_fence_closes_the_log() {
    for fences_before in 0..2 {
        let recorder = recorder(vec![0; SMALL]);
        let mut log = RecordLog::create(whole(&recorder, SMALL), &create_options()).unwrap();
        log.append(b"acknowledged").unwrap();
        drop(log);
        let mut range = whole(&recorder, SMALL);
        // Opening fences the front once, finishing twice.
        range.inject(Fault::FailFence { after: 3 + fences_before });
        log = match RecordLog::open(range, &reopen_options(0)).unwrap().discard() {
            Ok(log) => log,
            Err(error) => panic!("{error}"),
        };
        log.append(b"also acknowledged").unwrap();
        assert_eq!(log.trim().unwrap_err().kind(), ErrorKind::MediaFailed);
        assert!(matches!(log.append(b"late"), Err(AppendError::Closed)));
        assert!(matches!(log.trim(), Err(TrimError::Closed)));
    }
}

#[test]
fn one_unreadable_line_in_front_costs_nothing() {
    let (recorder, log) = new_log(SMALL);
    log.append(b"one").unwrap();
    drop(log);
    for line in (0..16384).step_by(64) {
        let mut range = whole(&recorder, SMALL);
        range.inject(Fault::Poison(line..line + 64));
        let recovery = RecordLog::open(range, &reopen_options(0)).unwrap();
        assert!(matches!(recovery.damaged_blocks(), [FormatError::Read { .. }]));
        assert_eq!(records_of(recovery), [b"one"]);
    }
}

#[test]
fn a_damaged_header_in_the_middle_of_a_chunk_is_no_silent_end() {
    let (recorder, log) = new_log(SMALL);
    append_all(&log, 0..3);
    let mut image = recorder.image();
    image[16384 + 320] ^= 1;
    let error = open_image(&image).unwrap_err();
    assert!(matches!(error, OpenError::Hidden(Hidden::End(fastness_prb::Hidden::Behind { .. }))), "{error}");
    assert!(error.is_loss());
    let recovery = open_partly(&image).unwrap();
    assert_eq!(recovery.hidden().len(), 1);
    assert_eq!(records_of(recovery), records(0..1));
    // Recovered with the loss accepted, it is not reported again.
    let recorder = super::recorder(image);
    let partly = reopen_options(0).on_loss(OnLoss::DropTail);
    let mut recovery = RecordLog::open(whole(&recorder, SMALL), &partly).unwrap();
    recovery.replay(|_, _| Ok::<_, Infallible>(())).unwrap();
    drop(recovery);
    assert_eq!(records_of(open_image(&recorder.image()).unwrap()), records(0..1));
}

/// Nothing is behind it, and no entry counts those of the last generation.
#[test]
fn a_damaged_header_at_the_end_of_a_chunk_is_no_silent_end() {
    let (recorder, log) = new_log(SMALL);
    append_all(&log, 0..3);
    let image = recorder.image();
    for bit in 0..256 * 8 {
        let mut image = image.clone();
        image[16384 + 640 + bit / 8] ^= 1 << (bit % 8);
        let error = open_image(&image).unwrap_err();
        assert!(
            matches!(error, OpenError::Hidden(Hidden::End(fastness_prb::Hidden::Damage { .. }))),
            "bit {bit}: {error}"
        );
        assert!(error.is_loss() && error.to_string().contains("0x4280"), "{error}");
    }
    let mut image = image;
    image[16384 + 640] ^= 1;
    assert_eq!(records_of(open_partly(&image).unwrap()), records(0..2));
}

/// Clearing poison turns lines to zeroes; a chunk that begins with them looks unused.
#[test]
fn a_chunk_without_its_first_header_is_no_silent_loss() {
    let (recorder, log) = new_log(SMALL);
    append_all(&log, 0..3);
    let mut image = recorder.image();
    image[16384..16384 + 256].fill(0);
    let error = open_image(&image).unwrap_err();
    assert!(matches!(error, OpenError::Hidden(Hidden::End(fastness_prb::Hidden::Behind { .. }))), "{error}");
}

#[test]
fn an_empty_place_in_front_of_records_is_no_silent_end() {
    let (recorder, log) = new_log(SMALL);
    append_all(&log, 0..3);
    let mut image = recorder.image();
    // What `ndctl clear-errors` does to an unreadable line.
    image[16384 + 320..16384 + 640].fill(0);
    let error = open_image(&image).unwrap_err();
    assert!(matches!(error, OpenError::Hidden(Hidden::End(fastness_prb::Hidden::Behind { .. }))), "{error}");
    // After a trim, what is behind the end is obsolete and no sign of a loss.
    let (recorder, mut log) = new_log(SMALL);
    append_all(&log, 0..6);
    log.trim().unwrap();
    append_all(&log, 6..7);
    assert_eq!(records_of(open_image(&recorder.image()).unwrap()), records(6..7));
}

#[test]
fn a_log_can_be_shared_by_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<RecordLog<fastness_pmem::PmRange>>();
}

#[test]
fn a_survey_shows_what_is_there_and_never_writes() {
    let (recorder, log) = new_log(SMALL);
    append_all(&log, 0..4);
    drop(log);
    let ops = recorder.op_count();
    let survey = Survey::new(whole(&recorder, SMALL));
    assert!(survey.superblocks().iter().all(Result::is_ok) && survey.slots().iter().all(Result::is_ok));
    assert!(matches!(survey.slot().unwrap().header, HdlHeader::Logging { .. }));
    let chunks: Vec<_> = (0..survey.chunks()).map(|index| survey.chunk(index)).collect();
    assert!(chunks.iter().all(|chunk| !chunk.is_damaged()));
    assert_eq!(chunks.iter().map(|chunk| chunk.entries.len()).collect::<Vec<_>>(), [3, 1]);
    assert_eq!(survey.read_body(1, &chunks[1].entries[0].entry).unwrap(), record(3));
    assert_eq!(recorder.op_count(), ops);
}

#[test]
fn threads_append_in_parallel_and_lose_nothing() {
    let region = Region::anonymous(4 << 20).unwrap();
    let options = CreateOptions::new().chunk_bytes(64 << 10).alignment(Alignment::Line);
    let mut log = RecordLog::create(region.into_range(), &options).unwrap();
    for _ in 0..3 {
        let ids: Vec<Vec<RecordId>> = std::thread::scope(|scope| {
            let log = &log;
            let append = move |thread: u64| {
                (0..500).map(|n| log.append(&record(thread * 1000 + n)).unwrap()).collect()
            };
            let threads: Vec<_> = (0..6).map(|thread| scope.spawn(move || append(thread))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(ids.iter().all(|of_thread: &Vec<_>| of_thread.is_sorted()));
        let mut all: Vec<_> = ids.concat();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 3000);
        let chunks = log.geometry().chunks as usize;
        log.trim().unwrap();
        assert_eq!(log.free_chunks(), chunks);
    }
    assert_eq!(log.close().entries, 9000);
}
