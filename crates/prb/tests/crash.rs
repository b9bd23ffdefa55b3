//! Every state that a crash can leave, judged: what was acknowledged is there, what was in flight is there
//! whole or not at all, and nothing else is.
//!
//! A scenario runs once on recorded PM. Before each step it marks the trace and notes what an import must
//! find from then on; `pm-model` enumerates the crash images at every point, and each is imported and
//! compared. Removing a fence or a flush from the trace must make the same judgement fail.

mod support;

use std::ops::ControlFlow;

use fastness_pm_model::{
    Budget, Config as Model, CrashPoints, FlushKind, Machine, Persistence, Summary, Trace,
};
use fastness_pm_model::{Op, RecordStyle, Recorder, RecordingRange};
use fastness_prb::*;
use fastness_testkit::{Heap, HeapRange};
use support::scenario::*;
use support::*;

type Scenario = support::scenario::Scenario<RecordingRange>;

fn new(variant: Variant, chunk_count: usize, initial: u8) -> Scenario {
    Scenario::new(variant, CHUNK * chunk_count, initial, |recorder| chunks(recorder, CHUNK))
}

/// Images of one crash point that are looked at before they are sampled.
const ENUMERATED: usize = 1 << 20;
/// The same where others are looked at elsewhere.
const MANY: usize = 1 << 18;
/// The same where one that is wrong suffices.
const SOME: usize = 1 << 16;

/// Explores the crash images behind the set-up; returns the first that an import gets wrong.
fn first_violation(
    trace: &Trace,
    history: &[Expectation],
    variant: Variant,
    exhaustive_limit: usize,
) -> (Option<String>, Summary) {
    let model = Model { persistence: variant.persistence, ..Model::default() };
    let budget = Budget { exhaustive_limit, samples: 4096, seed: 7 };
    let mut violation = None;
    let mut visit = |point: fastness_pm_model::CrashPoint<'_>| {
        let Some(mark) = point.last_mark else { return ControlFlow::Continue(()) };
        let expected = &history[mark as usize];
        let found = import(point.image, CHUNK, &expected.header, expected.first_txg);
        let found = without_witnesses(found);
        let ends = ends(point.image);
        // No crash looks like damage, be it of what nobody needs.
        let is_silent = !ends.iter().any(End::is_damage);
        if is_silent && found.as_ref().is_ok_and(|found| expected.is_met_by(found)) {
            return ControlFlow::Continue(());
        }
        let at = point.op_index;
        violation = Some(format!("operation {at}, mark {mark}: {found:?}, {ends:?}, expected {expected:?}"));
        ControlFlow::Break(())
    };
    let summary = CrashPoints::new(trace, model, budget).explore(&mut visit).unwrap();
    (violation, summary)
}

/// How the chunks of an image end.
fn ends(image: &[u8]) -> Vec<End> {
    let end = |chunk: &HeapRange| {
        let mut traversal = Traversal::new(chunk);
        traversal.by_ref().for_each(drop);
        traversal.end().expect("it has come to the end")
    };
    Heap::new(image.to_vec()).chunks(CHUNK).iter().map(end).collect()
}

/// With one fence, all lines of an entry are pending together: only 8-byte stores leave few enough images.
fn is_enumerable(variant: Variant) -> bool {
    variant.insertion == Insertion::TwoFences || variant.store_bytes == 8
}

fn assert_crash_safe(scenario: Scenario, variant: Variant) -> Summary {
    let (trace, history) = scenario.finish();
    let limit = if is_enumerable(variant) { ENUMERATED } else { MANY };
    let (violation, summary) = first_violation(&trace, &history, variant, limit);
    assert_eq!(violation, None, "{variant:?}");
    assert!(summary.images > 100, "{summary:?}: the scenario explores next to nothing");
    summary
}

/// Inserts entries, changes chunks, collects, and inserts over what was there before.
fn insert_and_collect(variant: Variant) -> Scenario {
    let mut scenario = new(variant, 2, 0);
    scenario.write(1, 24);
    scenario.write(1, 8);
    scenario.write(1, 300);
    scenario.write(2, 70); // does not fit behind the others: the first chunk change
    scenario.write(2, 300);
    assert_eq!(scenario.collect(1), 1);
    scenario.write(3, 24); // fills its chunk to the last byte: no follow header
    scenario.write(3, 9); // over stale entries
    scenario.write(4, 24);
    assert_eq!(scenario.collect(3), 1);
    scenario.write(4, 24);
    scenario
}

fn variants() -> Vec<Variant> {
    let two = Insertion::TwoFences;
    let strong = ChecksumKind::Xxh3;
    let flush = |kind| Variant { style: RecordStyle::StoreFlush(kind), ..NT };
    let eadr =
        Variant { style: RecordStyle::PlainEadr, persistence: Persistence::Eadr, store_bytes: 8, ..NT };
    vec![
        NT,
        Variant { store_bytes: 8, ..NT },
        Variant { checksum: ChecksumKind::Fletcher4, insertion: two, store_bytes: 8, ..NT },
        Variant { checksum: strong, ..NT },
        Variant { checksum: strong, insertion: Insertion::OneFence, ..NT },
        Variant { checksum: strong, insertion: Insertion::OneFence, store_bytes: 8, ..NT },
        flush(FlushKind::Clwb),
        flush(FlushKind::Clflushopt),
        flush(FlushKind::Clflush),
        eadr,
        Variant { checksum: strong, insertion: Insertion::OneFence, ..eadr },
        // NT stores on an eADR platform stay weak until a fence.
        Variant { persistence: Persistence::Eadr, ..NT },
    ]
}

#[test]
fn insertion_chunk_change_and_collection_survive_every_crash() {
    for variant in variants() {
        let summary = assert_crash_safe(insert_and_collect(variant), variant);
        // What is sampled here is enumerated by the variant with 8-byte stores, and by the small scenario
        // below.
        assert!(!is_enumerable(variant) || summary.sampled_points == 0, "{variant:?}: {summary:?}");
    }
}

/// A log that is idle says what it has, in a chunk of its own and beside its records, and goes on.
#[test]
fn witnesses_survive_every_crash() {
    for variant in [NT, Variant { store_bytes: 8, ..NT }] {
        let mut scenario = new(variant, 3, 0);
        scenario.write(1, 24);
        scenario.witness();
        scenario.write(1, 8);
        scenario.write(2, 9);
        scenario.witness();
        assert_eq!(scenario.collect(1), 0);
        scenario.write(3, 300);
        scenario.write(3, 300);
        scenario.witness();
        assert_eq!(scenario.collect(2), 1);
        scenario.write(4, 24);
        assert_crash_safe(scenario, variant);
    }
}

#[test]
fn a_small_insertion_with_one_fence_survives_every_crash() {
    let variant = Variant { checksum: ChecksumKind::Xxh3, insertion: Insertion::OneFence, ..NT };
    let mut scenario = new(variant, 2, 0);
    scenario.write(1, 8);
    scenario.write(2, 8);
    assert_eq!(assert_crash_safe(scenario, variant).sampled_points, 0);
}

/// Chunks that held anything at all before they were formatted.
#[test]
fn old_contents_of_a_chunk_do_not_matter() {
    for initial in [0xff, 0x01] {
        let mut scenario = new(NT, 2, initial);
        scenario.write(1, 24);
        scenario.write(1, 100);
        assert_crash_safe(scenario, NT);
    }
}

/// The insertion's fences: without either, some crash image is recovered wrongly.
#[test]
fn every_fence_of_an_insertion_is_necessary() {
    for variant in variants() {
        if variant.persistence == Persistence::Eadr && variant.style == RecordStyle::PlainEadr {
            continue; // Stores persist in program order there: fences order nothing more.
        }
        let mut scenario = new(variant, 2, 0);
        let start = scenario.recorder.op_count();
        scenario.write(1, 24);
        // An entry over stale ones, so that the follow header matters too.
        scenario.write(1, 24);
        let (trace, history) = scenario.finish();
        let fences: Vec<_> = trace.fences().into_iter().filter(|&fence| fence > start).collect();
        assert_eq!(fences.len(), if variant.insertion == Insertion::TwoFences { 4 } else { 2 });
        for fence in fences {
            let (violation, _) = first_violation(&trace.without_op(fence), &history, variant, SOME);
            if flushes_in_order(variant) {
                continue; // `clflush` is ordered with the stores behind it; a fence is not what it needs.
            }
            assert!(violation.is_some(), "{variant:?}: nobody misses the fence at {fence}");
        }
    }
}

fn flushes_in_order(variant: Variant) -> bool {
    variant.style == RecordStyle::StoreFlush(FlushKind::Clflush)
}

/// With cached stores, every flush of a line that the insertion changes is necessary.
#[test]
fn every_flush_of_an_insertion_is_necessary() {
    let variant = Variant { style: RecordStyle::StoreFlush(FlushKind::Clwb), ..NT };
    let mut scenario = new(variant, 2, 0);
    let start = scenario.recorder.op_count();
    scenario.write(1, 130);
    let (trace, history) = scenario.finish();
    let mut necessary = 0;
    for flush in trace.flushes().into_iter().filter(|&flush| flush > start) {
        let fastness_pm_model::Op::Store { data, .. } = &trace.ops[flush - 1] else {
            panic!("a flush follows its store")
        };
        let (violation, _) = first_violation(&trace.without_op(flush), &history, variant, SOME);
        assert_eq!(violation.is_some(), data.iter().any(|&byte| byte != 0), "flush at {flush}");
        necessary += usize::from(violation.is_some());
    }
    assert_eq!(necessary, 3 + 3, "three lines of the body, three of the header");
}

/// The fence of a collection is for the next writer, who may be another thread: its own fences would not
/// cover the collector's stores. So the chunk must have nothing pending when it is free again.
#[test]
fn a_chunk_is_durably_empty_before_it_is_free() {
    // Lines with stores that may be lost, if the thread stops here and another goes on.
    let pending_after = |trace: &Trace, ops: usize| {
        let mut machine = Machine::new(trace.initial.clone(), Model::default());
        trace.ops[..ops].iter().for_each(|op| machine.apply(op).unwrap());
        machine.pending_lines()
    };
    let mut scenario = new(NT, 2, 0xff);
    let formatted = scenario.recorder.op_count();
    scenario.write(1, 24);
    scenario.write(2, 720); // another chunk
    let before = scenario.recorder.op_count();
    assert_eq!(scenario.collect(1), 1);
    let trace = scenario.recorder.trace();
    assert_eq!(pending_after(&trace, trace.ops.len()), 0);
    let of_the_emptier = |&fence: &usize| fence < formatted || fence > before;
    let fences: Vec<_> = trace.fences().into_iter().filter(of_the_emptier).collect();
    assert_eq!(fences.len(), 2 + 1, "one fence for each chunk that was emptied");
    for fence in fences {
        assert!(pending_after(&trace, fence) > 0, "the fence at {fence} is not needed");
        assert_eq!(pending_after(&trace, fence + 1), 0);
    }
}

/// Crashes during claim, replay and the collection after it: import again, from whatever is there then.
///
/// The owner persists each header update together with what it belongs to, so the header of a crash is the
/// last one that it was given.
#[test]
fn claim_and_replay_survive_every_crash() {
    for insertion in [Insertion::TwoFences, Insertion::OneFence] {
        let variant = Variant { checksum: ChecksumKind::Xxh3, insertion, ..NT };
        let mut first = new(variant, 4, 0);
        for (txg, len) in [(1, 24), (2, 100), (2, 300), (3, 9), (3, 400), (4, 24)] {
            first.write(txg, len);
        }
        // The crash: txg 1 has synced. Entries of txg 1 are in the same chunk as others.
        let (header, image) = (first.now.header.clone(), first.recorder.image());
        let records: Vec<Record> = first.now.records.iter().filter(|(txg, _)| *txg > 1).cloned().collect();

        let recorder = Recorder::with_store_bytes(image, variant.style, variant.store_bytes);
        let prb = Prb::open(config(5), chunks(&recorder, CHUNK)).unwrap();
        let mut hdl = prb.setup_hdl(&header).unwrap();
        let now = Expectation { header, first_txg: 2, records, in_flight: None };
        let mut scenario =
            Scenario { recorder, hdl: prb.setup_hdl(&HdlHeader::NoZil).unwrap(), prb, now, history: vec![] };
        scenario.mark();
        let claimed = hdl.claim(Txg(2), OnLoss::Fail).unwrap();
        assert_eq!(claimed.entries, 5);
        scenario.prb.finish_claiming().unwrap();
        scenario.now.header = claimed.update.unwrap().into_header();
        scenario.mark();
        // A second log is written while the first waits for its replay: free chunks are used.
        assert_eq!(scenario.prb.collect(Txg(2)).unwrap().chunks, 1);
        scenario.mark();
        let other = durable_log(&mut scenario.hdl);
        scenario.hdl.write_entry(Txg(9), &[0xaa; 40], Wait::Fail).unwrap();
        scenario.mark();
        hdl.replay(|entry, update| {
            assert_eq!(body_of(&entry).unwrap(), scenario.now.records.remove(0).1);
            scenario.now.header = update.into_header();
            scenario.mark();
            Ok::<_, ()>(())
        })
        .unwrap();
        scenario.now.header = hdl.replay_done(Txg(7)).unwrap().into_header();
        assert_eq!(scenario.prb.collect(Txg(6)).unwrap().chunks, 0, "held until the header is durable");
        scenario.mark();
        let collected = scenario.prb.collect(Txg(7)).unwrap().chunks;
        assert_eq!(collected, 3);
        scenario.mark();
        let image = scenario.recorder.image();
        assert_eq!(import(&image, CHUNK, &other, 8).unwrap(), [(9, vec![0xaa; 40])]);
        assert_crash_safe(scenario, variant);
    }
}

/// An import crashes again and again, each time at another entry; every import starts from the image and the
/// header that the one before left.
#[test]
fn replay_resumes_over_many_crashes() {
    let mut first = new(NT, 4, 0);
    for i in 0..10 {
        first.write(2 + i / 4, 20);
    }
    let mut header = first.now.header.clone();
    let image = first.recorder.image();
    let mut replayed = Vec::new();
    for _crash in 0..=10 {
        let recorder = Recorder::new(image.clone(), RecordStyle::NonTemporal);
        let prb = Prb::open(config(5), chunks(&recorder, CHUNK)).unwrap();
        let mut hdl = prb.setup_hdl(&header).unwrap();
        let claimed = hdl.claim(Txg(2), OnLoss::Fail).unwrap();
        assert_eq!(claimed.entries, 10 - replayed.len());
        header = claimed.update.unwrap().into_header();
        let mut budget = 1;
        let result = hdl.replay(|entry, update| {
            if budget == 0 {
                return Err("crash");
            }
            budget -= 1;
            replayed.push((entry.txg().0, body_of(&entry).unwrap()));
            header = HdlHeader::decode(&update.header().encode()).unwrap();
            Ok(())
        });
        assert_eq!(result.is_ok(), replayed.len() == 10);
    }
    assert_eq!(replayed, first.now.records);
}

/// The process dies in the middle of an insertion and the power fails later: what the next process saw and
/// acted on (here: claimed) must still be there.
#[test]
fn what_claim_has_seen_survives_a_later_power_cut() {
    let variant = Variant { style: RecordStyle::StoreFlush(FlushKind::Clwb), ..NT };
    let mut first = new(variant, 2, 0);
    first.write(1, 24);
    let before = first.recorder.op_count();
    first.write(1, 24);
    let (dying, header) = (first.recorder.trace(), first.now.header.clone());
    let mut recovered_both = 0;
    for cut in before..=dying.ops.len() {
        // What loads see when the process is gone: everything that it stored.
        let mut machine = Machine::new(dying.initial.clone(), Model::default());
        dying.ops[..cut].iter().for_each(|op| machine.apply(op).unwrap());
        let recorder = Recorder::new(machine.volatile_image(), variant.style);
        let prb = Prb::open(config(5), chunks(&recorder, CHUNK)).unwrap();
        let mut hdl = prb.setup_hdl(&header).unwrap();
        let Ok(claimed) = hdl.claim(Txg(1), OnLoss::Fail) else { panic!("cut at {cut}") };
        recovered_both += usize::from(claimed.entries == 2);
        let header = claimed.update.unwrap().into_header();
        // The power fails now.
        let mut ops = dying.ops[..cut].to_vec();
        let next_process = ops.len();
        ops.extend(recorder.trace().ops);
        let power_cut = Trace { initial: dying.initial.clone(), ops };
        let found = |trace: &Trace| {
            let mut machine = Machine::new(trace.initial.clone(), Model::default());
            trace.ops.iter().for_each(|op| machine.apply(op).unwrap());
            let right = |image: &[u8]| {
                import(image, CHUNK, &header, 1).is_ok_and(|found| found.len() == claimed.entries)
            };
            let mut wrong = 0;
            machine.sample_crash_images(1, 300, &mut |image| {
                wrong += usize::from(!right(image));
                ControlFlow::Continue(())
            });
            wrong
        };
        assert_eq!(found(&power_cut), 0, "cut at {cut}");
        // Without the write-back, or without its fences, a claimed entry is lost.
        let without = |unwanted: fn(&Op) -> bool| {
            let mut trace = power_cut.clone();
            let mut index = 0;
            trace.ops.retain(|op| {
                index += 1;
                index <= next_process || !unwanted(op)
            });
            found(&trace)
        };
        let acknowledged = dying.fences().iter().all(|&fence| fence < cut);
        if claimed.entries == 2 && !acknowledged {
            let (no_flush, no_fence) = (without(|op| matches!(op, Op::Flush { .. })), without(Op::is_fence));
            assert!(no_fence > 0, "cut at {cut}: nobody misses the fence");
            // The dying process may have flushed everything itself and only lack its fence.
            assert!(no_flush > 0 || dying.ops[cut].is_fence(), "cut at {cut}: nobody misses the write-back");
        }
    }
    assert!(recovered_both > 2);
}
