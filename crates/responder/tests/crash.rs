//! Every image that a crash can leave, in every case of the protocol.

mod support;

use std::ops::ControlFlow;
use std::sync::Arc;

use fastness_pm_model::{Budget, Config, FlushKind, Machine, Op, RecordStyle, Recorder, Summary, explore};
use fastness_responder::*;
use support::death::violation_after_death;
use support::history::*;
use support::{NAMES_BYTES, Pm, Power, options, set_protocol};

const VARIANTS: [Variant; 3] = [
    NT,
    Variant { store_bytes: 64, strict_nt: true, ..NT },
    Variant { style: RecordStyle::StoreFlush(FlushKind::Clwb), store_bytes: 8, ..NT },
];

fn survive(slots: usize, names: &[&'static str], steps: &[Step]) -> Vec<Summary> {
    let explored = VARIANTS.map(|variant| {
        let history = run(slots, names, steps, variant);
        let (violation, summary) = history.first_violation(variant);
        assert_eq!(violation, None, "{variant:?}");
        assert!(summary.images > 100, "{summary:?}: the history explores next to nothing");
        summary
    });
    explored.into()
}

/// Cases 1 and 2-1, with a flush between: what was overwritten must not come back.
fn overwrites() -> Vec<Step> {
    vec![
        Step::write("a", 0, 1, 64),
        Step::write("a", 8, 2, 16),
        Step::write("a", 0, 3, 64),
        Step::Flush,
        Step::write("a", 60, 4, 4),
        Step::write("a", 0, 5, 64),
    ]
}

/// Cases 2-2, 3-1, 3-2 and 3-3: three files with one slot.
fn collisions() -> Vec<Step> {
    vec![
        Step::write("a", 0, 1, 64),
        Step::write("b", 0, 2, 10),
        Step::write("a", 8, 3, 16),
        Step::write("b", 4, 4, 2),
        Step::write("b", 0, 5, 8),
        Step::write("a", 0, 6, 8),
        Step::write("c", 0, 7, 64),
    ]
}

/// Over nothing, over other chunks, and with others in the way.
fn several_chunks() -> Vec<Step> {
    vec![
        Step::write("a", 10, 1, 170),
        Step::write("a", 30, 2, 100),
        Step::Flush,
        Step::write("a", 0, 3, 192),
        Step::write("b", 0, 4, 250),
    ]
}

#[test]
fn overwrites_survive_every_crash() {
    let [enumerated, ..] = survive(1, &["a"], &overwrites())[..] else { unreachable!() };
    assert_eq!(enumerated.sampled_points, 0, "{enumerated:?}");
}

#[test]
fn collisions_survive_every_crash() {
    survive(1, &["a", "b", "c"], &collisions());
}

#[test]
fn writes_of_several_chunks_survive_every_crash() {
    survive(4, &["a", "b"], &several_chunks());
}

fn truncations_and_growth() -> Vec<Step> {
    vec![
        Step::write("a", 0, 1, 150),
        Step::Truncate("a", 70),
        Step::write("a", 140, 2, 4),
        Step::Flush,
        Step::Truncate("a", 0),
        Step::write("a", 60, 3, 8),
        Step::Truncate("a", 300),
        Step::Reopen,
        Step::write("a", 2, 4, 1),
    ]
}

#[test]
fn truncations_and_growth_survive_every_crash() {
    survive(4, &["a"], &truncations_and_growth());
}

fn removals_and_renames() -> Vec<Step> {
    vec![
        Step::write("a", 0, 1, 100),
        Step::write("b", 0, 2, 30),
        Step::Rename("b", "a"),
        Step::write("a", 10, 3, 30),
        Step::Unlink("a"),
        Step::Create("a"),
        Step::write("a", 5, 4, 10),
        Step::Create("b"),
        Step::write("b", 0, 5, 70),
        Step::Flush,
        Step::Unlink("b"),
    ]
}

#[test]
fn removed_and_replaced_files_survive_every_crash() {
    survive(4, &["a", "b"], &removals_and_renames());
}

/// MeLo@V: the same histories.
#[test]
fn writes_in_place_survive_every_crash() {
    set_protocol(ProtocolKind::Melo);
    survive(1, &["a"], &overwrites());
    survive(1, &["a", "b", "c"], &collisions());
    survive(4, &["a", "b"], &several_chunks());
    survive(4, &["a"], &truncations_and_growth());
    survive(4, &["a", "b"], &removals_and_renames());
}

/// PMAL: the same histories.
#[test]
fn journalled_writes_survive_every_crash() {
    set_protocol(ProtocolKind::Pmal);
    survive(1, &["a"], &overwrites());
    survive(1, &["a", "b", "c"], &collisions());
    survive(4, &["a", "b"], &several_chunks());
    survive(4, &["a"], &truncations_and_growth());
    survive(4, &["a", "b"], &removals_and_renames());
}

/// COMMIT of an operation log, or pj_commit of a journal, is set.
fn is_committed(image: &[u8]) -> bool {
    let logs = image.len() - NAMES_BYTES - 8 * (128 + 16 * CHUNK as usize);
    // The region has a page in reserve, for the alignment of the chunks.
    image[logs - 4096..].chunks(64).any(|line| line[0] == 1 && line[1..8] == [0; 7] && line[16..24] != [0; 8])
}

/// An operation that is made again, or chunks that are given up, at any moment of that.
fn recoveries_in_place_survive(protocol: ProtocolKind) {
    set_protocol(protocol);
    let steps = [Step::write("a", 0, 1, 192), Step::Flush, Step::write("a", 20, 2, 150)];
    for variant in [NT, VARIANTS[2]] {
        let history = run(4, &["a"], &steps, variant);
        let (mut explored, mut committed) = (0, 0);
        let budget = Budget { exhaustive_limit: 300, samples: 60, seed: 2 };
        explore(&history.trace, &Config::default(), budget, &mut |point| {
            let Some(mark) = point.last_mark.filter(|_| is_committed(point.image)) else {
                return ControlFlow::Continue(());
            };
            committed += 1;
            if committed % 7 == 0 {
                let moment = &history.moments[mark as usize];
                let (violation, summary) = violation_in_recovery(point.image, moment, variant);
                assert_eq!(violation, None, "operation {}", point.op_index);
                explored += summary.images;
            }
            ControlFlow::Continue(())
        })
        .unwrap();
        assert!(committed > 20 && explored > 100, "{committed} {explored}");
    }
}

#[test]
fn interrupted_operations_are_made_again_after_every_crash() {
    recoveries_in_place_survive(ProtocolKind::Melo);
}

#[test]
fn uncommitted_writes_are_given_up_after_every_crash() {
    recoveries_in_place_survive(ProtocolKind::Pmal);
}

/// A crash leaves two copies of a chunk; no step of the recovery touches them, and the newer one stays.
#[test]
fn a_chunk_with_two_copies_needs_no_recovery() {
    let steps = [Step::write("a", 0, 1, 64), Step::write("a", 0, 2, 64)];
    let history = run(1, &["a"], &steps, NT);
    let recorded = |image: &[u8], variant: Variant| {
        Recorder::with_store_bytes(image.to_vec(), variant.style, variant.store_bytes)
    };
    let acknowledged = history.moments.last().unwrap().allowed[0].clone();
    let mut with_two = 0;
    explore(&history.trace, &Config::default(), BUDGET, &mut |point| {
        let valid = |chunk: usize| point.image[16384 + chunk * 64] & 1 == 1;
        if valid(0) && valid(1) {
            with_two += 1;
            let moment = &history.moments[point.last_mark.unwrap() as usize];
            assert!(moment.allowed.contains(&acknowledged));
            let below = moment.backing.copied();
            check(point.image, &below.copied(), std::slice::from_ref(&acknowledged)).unwrap();
            // Nothing is stored in a recovery, but for the opening.
            let recorder = Recorder::new(point.image.to_vec(), RecordStyle::NonTemporal);
            drop(open(&recorder, &below).unwrap());
            let is_of_openings = |addr: u64| (12288..12416).contains(&addr);
            let is_store = |op: &&Op| matches!(op, Op::Store { addr, .. } if !is_of_openings(*addr));
            assert_eq!(recorder.trace().ops.iter().filter(is_store).count(), 0);
            // A full directory does not matter: the older copy gives way without a flush.
            let (cache, _) = open(&recorder, &below).unwrap();
            let handle = cache.open_file("a".as_ref(), None, 0).unwrap();
            below.set_hook(|call| if call == Call::Sync { Verdict::Refuse(28) } else { Verdict::Do });
            cache.write(&handle, 0, &[3; 10]).unwrap();
            drop(cache);
            // It is overwritten, or flushed and overwritten, or makes room, with crashes at every moment.
            for steps in [
                vec![Step::write("a", 0, 3, 10), Step::Flush],
                vec![Step::Flush, Step::write("a", 0, 3, 10)],
                vec![Step::Create("b"), Step::write("b", 0, 4, 10), Step::write("a", 9, 5, 10)],
            ] {
                let recorder = recorded(point.image, NT);
                let backing = moment.backing.crashed(|| true);
                let history = run_on(&recorder, &backing, &steps);
                let (violation, _) = history.first_violation(NT);
                assert_eq!(violation, None, "{steps:?}");
            }
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    assert!(with_two > 0, "no crash leaves both");
}

/// The recovery of every image of a write of several chunks crashes at any moment, and the next one goes on.
#[test]
fn interrupted_recoveries_survive_every_crash() {
    let steps = [Step::write("a", 0, 1, 192), Step::write("a", 20, 2, 150)];
    for variant in [NT, VARIANTS[2]] {
        let history = run(4, &["a"], &steps, variant);
        let (mut explored, mut undone) = (0, 0);
        explore(&history.trace, &Config::default(), BUDGET, &mut |point| {
            let is_incomplete = |chunk: usize| point.image[16384 + chunk * 64] & 9 == 9;
            let moment = &history.moments[point.last_mark.unwrap_or(0) as usize];
            if (0..8).any(is_incomplete) {
                undone += 1;
                let (violation, summary) = violation_in_recovery(point.image, moment, variant);
                assert_eq!(violation, None, "operation {}", point.op_index);
                explored += summary.images;
            }
            ControlFlow::Continue(())
        })
        .unwrap();
        assert!(undone > 5 && explored > 30, "{undone} {explored}");
    }
}

/// Recoveries that complete a removal or a truncation.
#[test]
fn interrupted_completions_survive_every_crash() {
    let steps =
        [Step::write("a", 0, 1, 150), Step::write("b", 0, 2, 30), Step::Truncate("a", 70), Step::Unlink("b")];
    let history = run(4, &["a", "b"], &steps, NT);
    let mut explored = 0;
    explore(&history.trace, &Config::default(), BUDGET, &mut |point| {
        if point.image[8192] != 0 {
            let moment = &history.moments[point.last_mark.unwrap() as usize];
            let (violation, summary) = violation_in_recovery(point.image, moment, NT);
            assert_eq!(violation, None, "operation {}", point.op_index);
            explored += summary.images;
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    assert!(explored > 50, "{explored}");
}

/// What a thread stored is durable when the call returns: the next one who has the group may be another
/// thread, whose fences do not cover it.
#[test]
fn no_call_leaves_stores_pending() {
    let flushed =
        [Step::Flush, Step::Reopen, Step::write("a", 3, 9, 100), Step::Flush, Step::Truncate("a", 5)];
    let all = [
        (ProtocolKind::Fr, overwrites()),
        (ProtocolKind::Fr, several_chunks()),
        (ProtocolKind::Melo, several_chunks()),
        (ProtocolKind::Pmal, several_chunks()),
    ];
    for (protocol, steps) in all {
        set_protocol(protocol);
        let steps = [steps, flushed.to_vec()].concat();
        let history = run(4, &["a", "b"], &steps, NT);
        for (step, (_, end)) in steps.iter().zip(&history.steps) {
            let mut machine = Machine::new(history.trace.initial.clone(), Config::default());
            history.trace.ops[..*end].iter().for_each(|op| machine.apply(op).unwrap());
            assert_eq!(machine.pending_lines(), 0, "{step:?}");
        }
    }
}

/// The process dies in a call, another one takes the cache up, and the power fails then: what was recovered
/// must still be there.
#[test]
fn what_a_recovery_has_seen_survives_a_later_power_cut() {
    let variant = VARIANTS[2];
    for (protocol, steps) in [
        (ProtocolKind::Fr, vec![Step::write("a", 0, 1, 64), Step::write("a", 0, 2, 20)]),
        (ProtocolKind::Fr, vec![Step::write("a", 0, 1, 170), Step::Truncate("a", 4)]),
        (ProtocolKind::Melo, vec![Step::write("a", 0, 1, 170), Step::write("a", 10, 2, 140)]),
        (ProtocolKind::Pmal, vec![Step::write("a", 0, 1, 170), Step::write("a", 10, 2, 140)]),
    ] {
        set_protocol(protocol);
        let history = run(4, &["a"], &steps, variant);
        let (start, end) = history.steps[1];
        // The log of an operation is longer than a line: every fifth store meets each of its lines.
        let step = if protocol == ProtocolKind::Melo { 5 } else { 1 };
        for cut in (start..end).step_by(step) {
            let violation = violation_after_death(&history, cut, variant);
            assert_eq!(violation, None, "cut at {cut}");
        }
    }
}

/// What a directory may say that belongs to a region: one of its copies of the id, one of its openings.
fn marks(image: &[u8]) -> impl Iterator<Item = Mark> {
    let id = |at: usize| image[at..at + 16].try_into().unwrap();
    let number = |at: usize| u64::from_le_bytes(image[at..at + 8].try_into().unwrap());
    [16, 4096 + 16].into_iter().flat_map(move |cache| {
        [12288, 12352].map(|at| Mark {
            cache: CacheId(id(cache)),
            opening: Opening { number: number(at), id: id(at + 8) },
        })
    })
}

/// A creation, also over an earlier cache, and the end of one.
#[test]
fn creation_and_detaching_survive_every_crash() {
    let (recorder, backing) = created(1, &["a"], NT);
    let steps = [Step::write("a", 0, 1, 64), Step::Create("b"), Step::write("b", 3, 2, 4)];
    let before = run_on(&recorder, &backing, &steps);
    let tree = before.moments.last().unwrap().allowed[0].clone();
    let below: Tree = tree.keys().map(|name| (name.clone(), Vec::new())).collect();
    let recorder = Recorder::with_store_bytes(recorder.image(), NT.style, NT.store_bytes);
    let region = |recorder: &Recorder| Pm::whole(recorder, &Arc::new(Power::default()));
    let before_flush = backing.copied();
    let overwrite = options(CHUNK).overwrite(true);
    drop(Cache::create(region(&recorder), Arc::new(backing.clone()), &overwrite).unwrap());
    recorder.mark(1);
    let (cache, _) = open(&recorder, &backing).unwrap();
    let handle = cache.open_file("a".as_ref(), None, 0).unwrap();
    cache.write(&handle, 0, &[7; 64]).unwrap();
    recorder.mark(2);
    cache.flush().unwrap();
    recorder.mark(3);
    cache.detach().map_err(|failed| failed.1).unwrap();
    let mut images = 0;
    explore(&recorder.trace(), &Config::default(), BUDGET, &mut |point| {
        images += 1;
        let after = Recorder::new(point.image.to_vec(), RecordStyle::NonTemporal);
        // The directory belongs to the old cache or to the new one; what is in PM has to fit either.
        let mut found = marks(point.image).map(|mark| {
            let is_early = point.last_mark.is_none_or(|mark| mark == 1);
            let below = if is_early { before_flush.copied() } else { backing.copied() };
            below.set_mark(Some(mark)).unwrap();
            open(&after, &below)
                .map(|(cache, recovered)| (support::history::tree(&cache, &below).unwrap(), recovered))
        });
        let first = found.next().unwrap();
        let found = found.fold(first, |one, other| one.or(other));
        let mut written = below.clone();
        Step::write("a", 0, 7, 64).apply(&mut written);
        match (point.last_mark, found) {
            // The old cache with everything, or the new one with nothing.
            (None, Ok((found, _))) => assert!(found == tree || found == below, "{found:x?}"),
            (Some(1), Ok((found, _))) => assert!(found == below || found == written, "{found:x?}"),
            (None | Some(3), Err(Error::Superblock { .. })) => {}
            (Some(2 | 3), Ok((found, _))) => assert_eq!(found, written),
            (mark, other) => panic!("{mark:?}: {other:?}"),
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    assert!(images > 30, "{images}");
}

/// When the directory is told that it has no cache, the region must have none for good.
#[test]
fn a_detached_region_is_durably_none() {
    let (recorder, backing) = created(1, &["a"], NT);
    let (cache, _) = open(&recorder, &backing).unwrap();
    let trace_when_told = Arc::new(std::sync::Mutex::new(None));
    let (seen, of_pm) = (trace_when_told.clone(), recorder.clone());
    backing.set_hook(move |call| {
        if call == Call::Names {
            *seen.lock().unwrap() = Some(of_pm.trace());
        }
        Verdict::Do
    });
    cache.detach().map_err(|failed| failed.1).unwrap();
    let trace = trace_when_told.lock().unwrap().take().unwrap();
    let mut machine = Machine::new(trace.initial.clone(), Config::default());
    trace.ops.iter().for_each(|op| machine.apply(op).unwrap());
    assert_eq!(machine.pending_lines(), 0);
    let image = machine.persistent_image().to_vec();
    assert!(matches!(
        open(&Recorder::new(image, RecordStyle::NonTemporal), &backing),
        Err(Error::Superblock { .. })
    ));
}
