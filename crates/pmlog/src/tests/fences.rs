//! Each fence of this crate is needed: without it, some crash breaks the oracle.
//!
//! Two are covered by later ones while all stores come from one thread on x86, where a fence waits for every
//! store of the thread: those between the slots in a creation (each by the other), and the front's in opening
//! (by the chunks'). They stay, because a fence of one range promises nothing about another.

use std::convert::Infallible;
use std::ops::ControlFlow;

use fastness_pm_model::{Budget, Config, FlushKind, Trace, explore};

use super::crash::{History, Step, explore_all, run};
use super::*;

/// The fences of a step; step 0 is the creation.
fn fences_of(history: &History, step: usize) -> Vec<usize> {
    let start = step.checked_sub(1).map_or(0, |before| history.ends[before]);
    let fences = history.trace.fences();
    fences.into_iter().filter(|fence| (start..history.ends[step]).contains(fence)).collect()
}

fn without(trace: &Trace, ops: &[usize]) -> Trace {
    let mut ops = ops.to_vec();
    ops.sort_unstable();
    ops.iter().rev().fold(trace.clone(), |trace, &op| trace.without_op(op))
}

/// True if the history survives all crashes although `ops` were never executed.
fn survives_without(history: &History, steps: &[Step], ops: &[usize]) -> bool {
    explore_all(history, &without(&history.trace, ops), steps, Config::default()).is_ok()
}

#[test]
fn the_superblocks_are_wiped_before_chunks_are_emptied() {
    let steps = [Step::Append, Step::Append, Step::Append, Step::Append, Step::Overwrite];
    let history = run(&steps);
    assert!(survives_without(&history, &steps, &[]));
    assert!(!survives_without(&history, &steps, &fences_of(&history, 5)[..1]));
}

#[test]
fn the_superblocks_are_durable_before_the_log_is_used() {
    let steps = [Step::Append];
    let history = run(&steps);
    let fences = fences_of(&history, 0);
    let [_wipe, _chunk_0, _chunk_1, slot_a, slot_b, superblocks] = fences[..] else { panic!("{fences:?}") };
    assert!(!survives_without(&history, &steps, &[superblocks]));
    assert!(!survives_without(&history, &steps, &[slot_a, slot_b]));
    // Covered by each other.
    assert!(survives_without(&history, &steps, &[slot_a]));
    assert!(survives_without(&history, &steps, &[slot_b]));
}

#[test]
fn an_update_of_the_header_needs_both_fences() {
    let steps = [Step::Append, Step::Recover, Step::Trim, Step::Trim];
    let history = run(&steps);
    assert!(survives_without(&history, &steps, &[]));
    let fences = fences_of(&history, 3);
    assert_eq!(fences.len(), 2, "nothing to collect");
    for fence in fences {
        assert!(!survives_without(&history, &steps, &[fence]));
    }
}

#[test]
fn a_trim_makes_the_header_durable_before_it_empties_chunks() {
    let steps = [Step::Append, Step::Append, Step::Append, Step::Append, Step::Trim];
    let history = run(&steps);
    let fences = fences_of(&history, 5);
    let [first, second, _chunk_0, _chunk_1] = fences[..] else { panic!("{fences:?}") };
    // The first alone keeps the header before the chunks; the slots need both.
    assert!(survives_without(&history, &steps, &[second]));
    assert!(!survives_without(&history, &steps, &[first, second]));
}

#[test]
fn a_recovery_makes_the_header_durable_before_it_empties_chunks() {
    let steps = [Step::Append, Step::Append, Step::Append, Step::Append, Step::Recover];
    let history = run(&steps);
    let fences = fences_of(&history, 5);
    // Opening: front and two chunks; the claim; the new log; two chunks.
    let [_, _, _, claim_a, claim_b, new_a, new_b, _, _] = fences[..] else { panic!("{fences:?}") };
    assert!(survives_without(&history, &steps, &[]));
    for torn in [[claim_a, claim_b], [new_a, new_b]] {
        assert!(!survives_without(&history, &steps, &torn));
    }
    assert!(!survives_without(&history, &steps, &[claim_a]));
    assert!(!survives_without(&history, &steps, &[new_a]));
}

/// A writer that was killed before its last flushes and fence, and the recovery that saw its record.
///
/// Returns the trace, and where the recovery begins and ends in it.
fn killed_writer(style: RecordStyle) -> (Trace, usize, usize) {
    let recorder = Recorder::with_store_bytes(vec![0; SMALL], style, 8);
    let log = RecordLog::create(whole(&recorder, SMALL), &create_options()).unwrap();
    log.append(b"seen").unwrap();
    drop(log);
    let written = recorder.op_count();
    let recovery = RecordLog::open(whole(&recorder, SMALL), &reopen_options(0)).unwrap();
    assert_eq!(records_of(recovery), [b"seen"]);
    let recovered = recorder.op_count();
    recorder.mark(1);
    let trace = recorder.trace();
    // The last fence, and the flushes between it and the one before, did not happen.
    let fences: Vec<usize> = trace.fences().into_iter().filter(|&fence| fence < written).collect();
    let [.., before, last] = fences[..] else { panic!("{fences:?}") };
    let lost = trace.flushes().into_iter().filter(|op| (before..last).contains(op)).chain([last]);
    let lost: Vec<usize> = lost.collect();
    (without(&trace, &lost), written - lost.len(), recovered - lost.len())
}

/// True if a record that a recovery handed out survives every later power cut.
fn what_was_seen_stays(trace: &Trace) -> bool {
    let budget = Budget { exhaustive_limit: 3000, samples: 400, seed: 1 };
    let mut stays = true;
    let check = |point: fastness_pm_model::CrashPoint<'_>| {
        let seen = point.last_mark == Some(1);
        stays &= !seen || open_image(point.image).is_ok_and(|recovery| records_of(recovery) == [b"seen"]);
        ControlFlow::Continue(())
    };
    let mut check = check;
    explore(trace, &Config::default(), budget, &mut check).unwrap();
    stays
}

#[test]
fn opening_makes_durable_what_it_hands_out() {
    for style in [RecordStyle::NonTemporal, RecordStyle::StoreFlush(FlushKind::Clwb)] {
        let (trace, start, end) = killed_writer(style);
        let of_recovery = |op: &usize| (start..end).contains(op);
        let fences: Vec<usize> = trace.fences().into_iter().filter(of_recovery).collect();
        let flushes: Vec<usize> = trace.flushes().into_iter().filter(of_recovery).collect();
        assert_eq!(fences.len(), 3, "front and two chunks");
        assert!(what_was_seen_stays(&trace));
        assert!(!what_was_seen_stays(&without(&trace, &fences)), "{style:?}: nothing waits");
        // Non-temporal stores need no flush.
        let needs_flush = style != RecordStyle::NonTemporal;
        assert_eq!(what_was_seen_stays(&without(&trace, &flushes)), !needs_flush, "{style:?}");
        assert!(what_was_seen_stays(&without(&trace, &fences[..1])), "covered by the chunks' fences");
    }
}

/// A creation that was killed before its last flushes and fence; its log was then opened and written to.
#[test]
fn opening_makes_the_superblock_durable() {
    let recorder = Recorder::with_store_bytes(vec![0; SMALL], RecordStyle::StoreFlush(FlushKind::Clwb), 8);
    drop(RecordLog::create(whole(&recorder, SMALL), &create_options()).unwrap());
    let created = recorder.op_count();
    let recovery = RecordLog::open(whole(&recorder, SMALL), &reopen_options(0)).unwrap();
    let opened = recorder.op_count();
    recovery.finish().unwrap().append(b"seen").unwrap();
    recorder.mark(1);
    let trace = recorder.trace();
    let fences: Vec<usize> = trace.fences().into_iter().filter(|&fence| fence < created).collect();
    let [.., before, last] = fences[..] else { panic!("{fences:?}") };
    let flushes =
        |ops: std::ops::Range<usize>| trace.flushes().into_iter().filter(move |op| ops.contains(op));
    let killed: Vec<usize> = flushes(before..last).chain([last]).collect();
    assert!(what_was_seen_stays(&without(&trace, &killed)));
    let and_not_written_back: Vec<usize> = killed.iter().copied().chain(flushes(created..opened)).collect();
    assert!(!what_was_seen_stays(&without(&trace, &and_not_written_back)));
}

#[test]
fn a_replay_was_not_begun_twice_with_different_records() {
    // Claimed, then crashed: the next recovery finds the claim and the same records.
    let steps = [Step::Append, Step::Append, Step::Replay, Step::Replay];
    let history = run(&steps);
    assert!(survives_without(&history, &steps, &[]));
    let mut image = history.trace.initial.clone();
    for op in &history.trace.ops {
        if let Op::Store { addr, data, .. } = op {
            image[*addr as usize..*addr as usize + data.len()].copy_from_slice(data);
        }
    }
    assert!(open_image(&image).unwrap().is_resumed());
    // The later loss of a claimed record is detected, although no record depends on it.
    let mut lost = image.clone();
    lost[16384 + 320..16384 + 640].fill(0);
    assert!(open_image(&lost).unwrap_err().is_loss());
    let unused = open_image(&image).unwrap().inspect(|_, _| Ok::<_, Infallible>(()));
    assert_eq!(unused.unwrap().records, 2);
}
