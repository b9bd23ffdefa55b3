//! Chunks on two sides: what a crash leaves on both, chosen independently, and then one side lost, scribbled
//! over, with flipped bits, or a copy from earlier. Nothing acknowledged is lost, nothing obsolete comes
//! back.

mod support;

use std::ops::ControlFlow;

use fastness_pm_model::{
    Budget, Config as Model, CrashPoints, Fault, FlushKind, Machine, RecordStyle, Recorder, RecordingRange,
    Trace,
};
use fastness_pmem::{Medium, Mirror};
use fastness_prb::*;
use fastness_testkit::SeededEntropy;
use support::scenario::*;
use support::*;

type Sides = Mirror<RecordingRange>;

/// Both sides lie in one recorded region, one behind the other, so that a fence is the thread's.
fn sides(recorder: &Recorder) -> Vec<Sides> {
    let half = recorder.image().len() / 2;
    let range = |at| recorder.range(at, CHUNK);
    (0..half).step_by(CHUNK).map(|at| Mirror::pair(range(at), range(half + at))).collect()
}

fn on(image: &[u8]) -> Recorder {
    Recorder::new(image.to_vec(), RecordStyle::NonTemporal)
}

fn import_both(image: &[u8], header: &HdlHeader, first_txg: u64) -> Result<Vec<Record>, ImportError> {
    import_chunks(sides(&on(image)), header, first_txg)
}

/// One side, as if the other were gone.
fn import_alone(image: &[u8], side: usize, owes: &Expectation) -> Result<Vec<Record>, ImportError> {
    let half = image.len() / 2;
    let recorder = on(&image[side * half..][..half]);
    let single = chunks(&recorder, CHUNK).into_iter().map(Mirror::single).collect();
    import_chunks(single, &owes.header, owes.first_txg)
}

fn new(variant: Variant, chunk_count: usize) -> Scenario<Sides> {
    Scenario::new(variant, 2 * CHUNK * chunk_count, 0, sides)
}

/// What can happen to a side besides a crash. The other side is as the crash left it.
#[derive(Debug, Clone, Copy)]
enum Harm {
    None,
    Zeroed,
    Scribbled,
    Flipped {
        bit: usize,
    },
    /// A copy of the side as it was durable at an earlier time.
    Copy {
        of: usize,
    },
}

fn harmed(image: &[u8], side: usize, harm: Harm, copies: &[Vec<u8>]) -> Vec<u8> {
    let mut image = image.to_vec();
    let half = image.len() / 2;
    let bytes = &mut image[side * half..][..half];
    match harm {
        Harm::None => {}
        Harm::Zeroed => bytes.fill(0),
        Harm::Scribbled => bytes.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at * 7 + 3) as u8),
        Harm::Flipped { bit } => bytes[bit / 8 % half] ^= 1 << (bit % 8),
        Harm::Copy { of } => bytes.copy_from_slice(&copies[of % copies.len()][side * half..][..half]),
    }
    image
}

/// What loads saw at each mark, when everything before was durable.
fn copies(trace: &Trace, initial: usize) -> Vec<Vec<u8>> {
    let mut machine = Machine::new(trace.initial.clone(), Model::default());
    let mut copies = Vec::new();
    for (index, op) in trace.ops.iter().enumerate() {
        machine.apply(op).unwrap();
        if index >= initial && matches!(op, fastness_pm_model::Op::Mark(_)) {
            copies.push(machine.volatile_image());
        }
    }
    copies
}

/// Judges every crash image with every harm in turn; returns the first that is wrong.
fn first_violation(trace: &Trace, history: &[Expectation], variant: Variant, seed: u64) -> Option<String> {
    let model = Model { persistence: variant.persistence, ..Model::default() };
    let budget = Budget { exhaustive_limit: 64, samples: 24, seed };
    let copies = copies(trace, 0);
    let dice = SeededEntropy::new(seed);
    let mut violation = None;
    let mut visit = |point: fastness_pm_model::CrashPoint<'_>| {
        let Some(mark) = point.last_mark else { return ControlFlow::Continue(()) };
        let owes = &history[mark as usize];
        let mut judge = |what: &str, found: Result<Vec<Record>, ImportError>| {
            if !found.as_ref().is_ok_and(|found| owes.is_met_by(found)) {
                let at = point.op_index;
                violation = Some(format!("{what}, operation {at}, mark {mark}: {found:?}, owed {owes:?}"));
            }
        };
        for side in [0, 1] {
            judge(&format!("only side {side} is there"), import_alone(point.image, side, owes));
            let bit = dice.next_u64() as usize;
            let of = (dice.next_u64() % (mark + 1)) as usize;
            for harm in [Harm::None, Harm::Zeroed, Harm::Scribbled, Harm::Flipped { bit }, Harm::Copy { of }]
            {
                let image = harmed(point.image, side, harm, &copies);
                let found = import_both(&image, &owes.header, owes.first_txg);
                judge(&format!("{harm:?} side {side}"), found);
            }
        }
        if violation.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    CrashPoints::new(trace, model, budget).explore(&mut visit).unwrap();
    violation
}

fn variants() -> Vec<Variant> {
    let strong = ChecksumKind::Xxh3;
    vec![
        NT,
        Variant { store_bytes: 8, ..NT },
        Variant { checksum: strong, insertion: Insertion::OneFence, ..NT },
        Variant { style: RecordStyle::StoreFlush(FlushKind::Clwb), ..NT },
    ]
}

/// Entries of random lengths and txgs, and collections, until chunks have been used several times.
fn program(variant: Variant, seed: u64, steps: usize) -> Scenario<Sides> {
    let dice = SeededEntropy::new(seed);
    let mut scenario = new(variant, 3);
    let mut open = 1;
    for _ in 0..steps {
        match dice.next_u64() % 4 {
            0 => {
                scenario.collect(open);
                open += 1;
            }
            _ => {
                while scenario.prb.free_chunks() == 0 {
                    scenario.collect(open);
                    open += 1;
                }
                scenario.write(open, 8 + (dice.next_u64() % 400) as usize);
            }
        }
    }
    scenario
}

#[test]
fn no_crash_with_a_side_lost_or_damaged_loses_an_entry() {
    for (index, variant) in variants().into_iter().enumerate() {
        for seed in 0..12 {
            let (trace, history) = program(variant, 100 * index as u64 + seed, 14).finish();
            assert_eq!(first_violation(&trace, &history, variant, seed), None, "{variant:?} seed {seed}");
        }
    }
}

/// Each fence covers both sides; without it, some side is wrong alone, or both are.
#[test]
fn every_fence_of_an_insertion_is_necessary_for_both_sides() {
    for variant in variants() {
        let mut scenario = new(variant, 2);
        let start = scenario.recorder.op_count();
        scenario.write(1, 24);
        scenario.write(1, 24);
        let (trace, history) = scenario.finish();
        let fences: Vec<_> = trace.fences().into_iter().filter(|&fence| fence > start).collect();
        let each = if variant.insertion == Insertion::TwoFences { 2 } else { 1 };
        assert_eq!(fences.len(), 2 * each, "one for both sides");
        for fence in fences {
            let violation = first_violation(&trace.without_op(fence), &history, variant, 1);
            assert!(violation.is_some(), "{variant:?}: nobody misses the fence at {fence}");
        }
    }
}

/// A crash in the middle of an insertion, then an import, which the power ends at any moment: in its repair,
/// or after claim, which has put what it found into the header. From then on either side must have all of
/// that.
#[test]
fn what_one_side_had_is_on_both_before_claim() {
    for variant in [
        Variant { store_bytes: 8, ..NT },
        Variant { checksum: ChecksumKind::Xxh3, insertion: Insertion::OneFence, store_bytes: 8, ..NT },
    ] {
        // One chunk: the fences of others would cover it.
        let mut first = new(variant, 1);
        first.write(1, 24);
        let before = first.recorder.op_count();
        first.write(1, 40);
        let (trace, history) = first.finish();
        let owed = history.iter().find(|owes| owes.records.len() == 1 && owes.in_flight.is_some()).unwrap();
        let mut repaired = 0;
        let mut visit = |point: fastness_pm_model::CrashPoint<'_>| {
            if point.op_index > before {
                repaired += import_with_crashes(point.image, owed);
            }
            ControlFlow::Continue(())
        };
        let budget = Budget { exhaustive_limit: 32, samples: 32, seed: 3 };
        CrashPoints::new(&trace, Model::default(), budget).explore(&mut visit).unwrap();
        // One side ahead of the other: samples seldom hit a header that is whole on one of them only.
        for image in sides_out_of_step(&trace, before) {
            repaired += import_with_crashes(&image, owed);
        }
        assert!(repaired > 100, "{variant:?}: {repaired}");
    }
}

/// Each side as after any of the stores between two fences: images that a crash can leave, as no store waits
/// for one to the other side.
fn sides_out_of_step(trace: &Trace, from: usize) -> Vec<Vec<u8>> {
    let mut fences = vec![from];
    fences.extend(trace.fences().into_iter().filter(|&fence| fence > from));
    let seen = |ops: usize| {
        let mut machine = Machine::new(trace.initial.clone(), Model::default());
        trace.ops[..ops].iter().for_each(|op| machine.apply(op).unwrap());
        machine.volatile_image()
    };
    let mut images = Vec::new();
    for between in fences.windows(2) {
        let states: Vec<_> = (between[0]..=between[1]).step_by(5).chain([between[1]]).map(seen).collect();
        for first in &states {
            for second in &states {
                let half = first.len() / 2;
                images.push([&first[..half], &second[half..]].concat());
            }
        }
    }
    images
}

/// Imports an image, and judges every crash of that; returns how many entries were repaired.
fn import_with_crashes(image: &[u8], owed: &Expectation) -> u64 {
    let recorder = on(image);
    recorder.mark(0);
    let prb = Prb::open(config(9), sides(&recorder)).unwrap();
    let repairs = prb.side_repairs();
    let mut hdl = prb.setup_hdl(&owed.header).unwrap();
    let claimed = hdl.claim(Txg(1), OnLoss::Fail).unwrap();
    let header = claimed.update.unwrap().into_header();
    recorder.mark(1);
    // During the repair, what was owed before; after claim, exactly what it found.
    let mut judge = |after: fastness_pm_model::CrashPoint<'_>| {
        let sealed = after.last_mark == Some(1);
        let header = if sealed { &header } else { &owed.header };
        let owes = Expectation { header: header.clone(), ..owed.clone() };
        let right = |found: Result<Vec<Record>, ImportError>| {
            found.is_ok_and(|found| owes.is_met_by(&found) && (!sealed || found.len() == claimed.entries))
        };
        assert!(right(import_both(after.image, &owes.header, 1)), "crash at {}", after.op_index);
        for side in [0, 1] {
            let found = import_alone(after.image, side, &owes);
            assert!(right(found), "crash at {}, side {side} alone, sealed: {sealed}", after.op_index);
        }
        ControlFlow::Continue(())
    };
    let budget = Budget { exhaustive_limit: 64, samples: 16, seed: 5 };
    CrashPoints::new(&recorder.trace(), Model::default(), budget).explore(&mut judge).unwrap();
    repairs.entries.iter().sum()
}

/// A side that is empty gets everything; then the other may go.
#[test]
fn a_repaired_side_stands_alone() {
    let scenario = program(NT, 7, 12);
    let owes = scenario.now.clone();
    for side in [0, 1] {
        for harm in [Harm::Zeroed, Harm::Scribbled] {
            let recorder = on(&harmed(&scenario.recorder.image(), side, harm, &[]));
            let prb = Prb::open(config(9), sides(&recorder)).unwrap();
            let repairs = prb.side_repairs();
            assert!(repairs.entries[side] > 0 && repairs.entries[1 - side] == 0, "{repairs:?}");
            assert_eq!(repairs.chunks_apart, 0);
            let found = import_alone(&recorder.image(), side, &owes).unwrap();
            assert_eq!(found, owes.records, "{harm:?}");
        }
    }
}

/// To look at a log changes nothing, and finds the same.
#[test]
fn without_repair_nothing_is_stored() {
    let scenario = program(NT, 7, 12);
    let image = harmed(&scenario.recorder.image(), 1, Harm::Zeroed, &[]);
    let recorder = on(&image);
    let prb = Prb::open(Config { repairs_sides: false, ..config(9) }, sides(&recorder)).unwrap();
    let mut hdl = prb.setup_hdl(&scenario.now.header).unwrap();
    let claimed = hdl.claim(Txg(scenario.now.first_txg), OnLoss::Fail).unwrap();
    assert_eq!(claimed.entries, scenario.now.records.len());
    assert_eq!(recorder.image(), image);
}

/// Every bit of a side, and poison in every line: told, and nothing is lost.
#[test]
fn no_damage_of_one_side_is_missed_or_costs_an_entry() {
    let mut scenario = new(NT, 1);
    for len in [24, 100, 70] {
        scenario.write(1, len);
    }
    let (image, owes) = (scenario.recorder.image(), scenario.now.clone());
    let used: usize = 3 * HEADER_BYTES + 64 + 128 + 128;
    let half = image.len() / 2;
    for side in [0, 1] {
        for bit in (0..used * 8).step_by(5) {
            let image = harmed(&image, side, Harm::Flipped { bit }, &[]);
            let recorder = on(&image);
            let report = side_report(&sides(&recorder)[0]);
            assert_eq!(report.faults.len(), 1, "side {side} bit {bit}");
            assert_eq!(report.faults[0].side, side);
            assert_eq!(import_both(&image, &owes.header, 1).unwrap(), owes.records, "side {side} bit {bit}");
        }
        for line in (0..used).step_by(64) {
            let recorder = on(&image);
            let mut poisoned = recorder.range(side * half, CHUNK);
            let other = recorder.range((1 - side) * half, CHUNK);
            poisoned.inject(Fault::Poison(line..line + 64));
            let mirror =
                if side == 0 { Mirror::pair(poisoned, other) } else { Mirror::pair(other, poisoned) };
            let report = side_report(&mirror);
            assert!(report.faults.iter().any(|fault| fault.is_damage), "line {line}");
            assert_eq!(import_chunks(vec![mirror], &owes.header, 1).unwrap(), owes.records, "line {line}");
        }
    }
}

/// A fault of one side is told when the chunk is collected, and the chunk is used on; one of both takes it
/// out of use.
#[test]
fn collection_reads_both_sides() {
    for harmed in [[true, false], [false, true], [true, true]] {
        let recorder = Recorder::new(vec![0; 4 * CHUNK], RecordStyle::NonTemporal);
        let half = 2 * CHUNK;
        let mut first = true;
        let chunks = (0..half).step_by(CHUNK).map(|at| {
            let mut pair = [recorder.range(at, CHUNK), recorder.range(half + at, CHUNK)];
            for (range, is_harmed) in pair.iter_mut().zip(harmed) {
                if first && is_harmed {
                    range.inject(Fault::Truncate { end: HEADER_BYTES });
                }
            }
            first = false;
            let [first, second] = pair;
            Mirror::pair(first, second)
        });
        let prb = Prb::format(config(1), chunks.collect()).unwrap();
        let mut hdl = prb.setup_hdl(&HdlHeader::NoZil).unwrap();
        durable_log(&mut hdl);
        hdl.write_entry(Txg(1), &[0xaa; 40], Wait::Fail).unwrap();
        hdl.write_entry(Txg(2), &[0xaa; 900], Wait::Fail).unwrap();
        let collected = prb.collect(Txg(1)).unwrap();
        let stats = prb.stats();
        if harmed == [true, true] {
            assert_eq!((collected.faults.len(), collected.side_faults.len()), (1, 0));
            assert_eq!((stats.media_faults, stats.side_faults), (1, [0, 0]));
            continue;
        }
        assert_eq!((collected.chunks, collected.faults.len()), (1, 0));
        assert_eq!(collected.side_faults.len(), 1);
        assert_eq!(collected.side_faults[0].side, usize::from(harmed[1]));
        assert_eq!(stats.side_faults, harmed.map(u64::from));
    }
}

/// A chunk is durably empty on both sides when it is free.
#[test]
fn both_sides_of_a_chunk_are_durably_empty_before_it_is_free() {
    let pending_after = |trace: &Trace, ops: usize| {
        let mut machine = Machine::new(trace.initial.clone(), Model::default());
        trace.ops[..ops].iter().for_each(|op| machine.apply(op).unwrap());
        machine.pending_lines()
    };
    let mut scenario = new(NT, 2);
    scenario.write(1, 24);
    scenario.write(2, 720);
    let before = scenario.recorder.op_count();
    assert_eq!(scenario.collect(1), 1);
    let trace = scenario.recorder.trace();
    assert_eq!(pending_after(&trace, trace.ops.len()), 0);
    let fences: Vec<_> = trace.fences().into_iter().filter(|&fence| fence > before).collect();
    assert_eq!(fences.len(), 1, "one for both sides");
    assert!(pending_after(&trace, fences[0]) >= 2, "a line of each side");
    let first_header = |image: &[u8], side: usize| image[side * 2 * CHUNK..][..HEADER_BYTES].to_vec();
    let image = scenario.recorder.image();
    assert_eq!([first_header(&image, 0), first_header(&image, 1)], [vec![0; 256], vec![0; 256]]);
}

#[test]
fn the_sum_is_computed_once_and_the_length_is_that_of_a_side() {
    let recorder = Recorder::new(vec![0; 2 * CHUNK], RecordStyle::NonTemporal);
    let mut mirror = Mirror::pair(recorder.range(0, CHUNK), recorder.range(CHUNK, CHUNK));
    #[derive(Default)]
    struct Count(usize);
    impl fastness_pmem::Summer for Count {
        fn update(&mut self, block: &[u8]) {
            self.0 += block.len();
        }
    }
    let mut count = Count::default();
    mirror.copy(64, &[7; 100], 128, &mut count);
    assert_eq!((count.0, mirror.len_bytes(), mirror.sides()), (100, CHUNK, 2));
    let image = recorder.image();
    assert_eq!(image[..CHUNK], image[CHUNK..]);
    assert_eq!(image[64..164], [7; 100]);
}
