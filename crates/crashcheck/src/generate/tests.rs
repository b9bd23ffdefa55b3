use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use fastness_crashcheck_trace::{
    BlockEvent, Device, Event, Header, Hypercall, Kind, Origin, Reader, Region, Writer, hypercall,
};
use fastness_pm_model::{Budget, Config, FlushKind, Op, Persistence, Rng, Rules, Trace, explore};

use super::collect::{CrashImage, CrashImages};
use super::*;
use crate::Result;
use crate::trace::record;

const LEN_BYTES: usize = 512;

fn program(rng: &mut Rng, ops_max: usize) -> Trace {
    let mut initial = vec![0; LEN_BYTES];
    initial[rng.index(LEN_BYTES)] = 9;
    let addr = |rng: &mut Rng| rng.below(3) * 64 + rng.below(3) * 8;
    let ops = (0..rng.index(ops_max) + 1).map(|at| match rng.below(10) {
        0..4 => Op::store(addr(rng), [at as u8 + 1; 8]),
        4..6 => Op::nt_store(addr(rng), [at as u8 + 1; 8]),
        6 => Op::clwb(addr(rng)),
        7 => match rng.below(3) {
            0 => Op::Flush { kind: FlushKind::Clflushopt, addr: addr(rng) },
            1 => Op::clflush(addr(rng)),
            _ => Op::rmw(addr(rng), [at as u8 + 1; 8]),
        },
        8 => Op::Mark(at as u64),
        _ => Op::sfence(),
    });
    Trace { ops: ops.collect(), initial }
}

fn generated(trace: &Trace, options: &Options) -> CrashImages {
    collected(&record(trace, "pm", Vec::new()).unwrap(), options)
}

fn collected(file: &[u8], options: &Options) -> CrashImages {
    let mut found = CrashImages::default();
    generate(&mut Reader::new(file).unwrap(), options, None, &mut found).unwrap();
    found
}

fn bytes(contents: &Contents, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    contents.memory.read(0, &mut bytes);
    bytes
}

/// For each last checkpoint, the images.
fn by_checkpoint(found: &CrashImages) -> BTreeMap<Option<u64>, BTreeSet<Vec<u8>>> {
    let mut sets: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for image in &found.images {
        for occurrence in &image.occurrences {
            let checkpoint = found.points[occurrence.point].0.checkpoint;
            sets.entry(checkpoint).or_default().insert(bytes(&image.contents, LEN_BYTES));
        }
    }
    sets
}

#[test]
fn all_images_are_those_that_the_model_explores() {
    let mut rng = Rng::new(1);
    let configs = [Persistence::Adr, Persistence::Eadr].into_iter().flat_map(|persistence| {
        [Rules::Arch, Rules::Dissertation].map(|rules| Config { persistence, rules, ..Config::default() })
    });
    let configs: Vec<_> = configs.collect();
    for _ in 0..300 {
        let trace = program(&mut rng, 14);
        for config in &configs {
            let budget = Budget { exhaustive_limit: 1 << 20, samples: 0, seed: 0 };
            let mut expected: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
            explore(&trace, config, budget, &mut |crash| {
                expected.entry(crash.last_mark).or_default().insert(crash.image.to_vec());
                ControlFlow::Continue(())
            })
            .unwrap();
            let options = Options { config: *config, images_per_point: 1 << 20, ..Options::default() };
            let found = generated(&trace, &options);
            assert_eq!(by_checkpoint(&found), expected, "{trace:?} {config:?}");
            assert!(found.points.iter().all(|(point, _)| point.is_exhaustive && !point.is_cut));
        }
    }
}

#[test]
fn a_bound_leaves_out_and_says_so_and_makes_nothing_that_is_not_allowed() {
    let mut rng = Rng::new(2);
    let mut cut = 0;
    for seed in 0..300 {
        let trace = program(&mut rng, 20);
        let all =
            by_checkpoint(&generated(&trace, &Options { images_per_point: 1 << 20, ..Options::default() }));
        let options = Options { images_per_point: 5, seed, ..Options::default() };
        let found = generated(&trace, &options);
        for (checkpoint, images) in by_checkpoint(&found) {
            assert!(images.is_subset(&all[&checkpoint]), "{trace:?}");
        }
        for (point, images) in &found.points {
            assert!(*images <= options.images_per_point + 2, "{point:?}");
            cut += usize::from(point.is_cut);
            assert!(!(point.is_cut && point.is_exhaustive));
        }
        let again = generated(&trace, &options);
        let hashes = |found: &CrashImages| found.images.iter().map(|image| image.hash).collect::<Vec<_>>();
        assert_eq!(hashes(&found), hashes(&again), "another time, another result");
        assert_eq!(found.points, again.points);
    }
    assert!(cut > 100, "only {cut} points were cut");
}

#[test]
fn what_comes_before_the_test_has_no_failure_points() {
    let header = Header { regions: vec![region()], ..Header::default() };
    let mut writer = Writer::new(Vec::new(), &header).unwrap();
    let store = |address| Kind::Store { address, data: &[1], is_non_temporal: true, is_atomic64: false };
    let fence = Kind::Fence(fastness_crashcheck_trace::FenceKind::Sfence);
    for kind in [store(0), fence, Kind::Hypercall(Hypercall::Start), store(64), fence] {
        writer.push(&Event::of(kind)).unwrap();
    }
    let file = writer.finish().unwrap();
    let outline = outline(&mut Reader::new(&file[..]).unwrap()).unwrap();
    let options = Options { outline, ..Options::default() };
    let found = collected(&file, &options);
    let points: Vec<_> = found.points.iter().map(|(point, _)| (point.event, point.kind)).collect();
    assert_eq!(points, [(4, PointKind::Fence), (5, PointKind::End)]);
    assert!(found.images.iter().all(|image| bytes(&image.contents, 1) == [1]));
}

/// What a fence between the return of a call and the program's word hides.
#[test]
fn a_checkpoint_is_where_the_last_call_that_used_pm_returned() {
    let store = Kind::Store { address: 0, data: &[1], is_non_temporal: true, is_atomic64: false };
    let fence = Kind::Fence(fastness_crashcheck_trace::FenceKind::Locked);
    let returns = Kind::Hypercall(Hypercall::Other { action: hypercall::RETURN, value: "" });
    let checkpoint = |number| Kind::Hypercall(Hypercall::Checkpoint(number));
    let found = |kinds: &[Kind<'_>]| {
        let header = Header { regions: vec![region()], ..Header::default() };
        let mut writer = Writer::new(Vec::new(), &header).unwrap();
        kinds.iter().for_each(|kind| writer.push(&Event::of(*kind)).unwrap());
        let file = writer.finish().unwrap();
        let outline = outline(&mut Reader::new(&file[..]).unwrap()).unwrap();
        let options = Options { outline, ..Options::default() };
        collected(&file, &options)
    };
    let at = |found: &CrashImages| {
        let points = found.points.iter().map(|(point, _)| (point.event, point.checkpoint, point.kind));
        points.filter(|(_, _, kind)| matches!(kind, PointKind::Checkpoint(_))).collect::<Vec<_>>()
    };
    let images_at = |found: &CrashImages, event| {
        let point = found.points.iter().position(|(point, _)| point.event == event).unwrap();
        found.images.iter().filter(|image| image.occurrences.iter().any(|one| one.point == point)).count()
    };
    let [zero, one] = [0, 1].map(PointKind::Checkpoint);
    // Without the fence it may be lost when the call returns; without returns nobody would see that.
    let missing = found(&[checkpoint(0), store, returns, fence, checkpoint(1), fence]);
    assert_eq!((at(&missing), images_at(&missing, 2)), (vec![(0, None, zero), (2, Some(0), one)], 2));
    let (fence_after, _) = missing.points.iter().find(|(point, _)| point.event == 3).unwrap();
    assert_eq!(fence_after.checkpoint, Some(1), "of the next operation");
    let right = found(&[checkpoint(0), store, fence, returns, checkpoint(1)]);
    assert_eq!((at(&right), images_at(&right, 3)), (vec![(0, None, zero), (3, Some(0), one)], 1));
    let hidden = found(&[checkpoint(0), store, fence, checkpoint(1)]);
    assert_eq!((at(&hidden), images_at(&hidden, 3)), (vec![(0, None, zero), (3, Some(0), one)], 1));
    // The last return counts; one without a return stays, even if another has its number.
    let several = found(&[checkpoint(0), store, returns, store, returns, checkpoint(1), checkpoint(1)]);
    assert_eq!(at(&several), [(0, None, zero), (4, Some(0), one), (6, Some(1), one)]);
}

#[test]
fn a_test_begins_with_its_start_or_else_with_its_first_checkpoint() {
    let begins = |kinds: &[Kind<'_>]| {
        let header = Header { regions: vec![region()], ..Header::default() };
        let mut writer = Writer::new(Vec::new(), &header).unwrap();
        kinds.iter().for_each(|kind| writer.push(&Event::of(*kind)).unwrap());
        let file = writer.finish().unwrap();
        outline(&mut Reader::new(&file[..]).unwrap()).unwrap().first_event
    };
    let fence = Kind::Fence(fastness_crashcheck_trace::FenceKind::Sfence);
    let checkpoint = |number| Kind::Hypercall(Hypercall::Checkpoint(number));
    assert_eq!(begins(&[fence, fence]), 0);
    assert_eq!(begins(&[fence, checkpoint(3), fence, checkpoint(4)]), 1);
    assert_eq!(begins(&[fence, checkpoint(3), Kind::Hypercall(Hypercall::Start)]), 2);
}

fn region() -> Region {
    Region { name: "pm".to_owned(), start: 0, len_bytes: 1 << 16 }
}

/// A journal: a mark at 0, 20 lines of data after it.
const DATA_LINES: u64 = 20;

/// Reads the mark, and the data if it is set. Counts its runs.
#[derive(Default)]
struct Journal(usize);

impl Recovery for Journal {
    fn lines_read(&mut self, contents: &Contents) -> Result<BTreeSet<u64>> {
        self.0 += 1;
        let is_valid = bytes(contents, 1)[0] != 0;
        Ok(if is_valid { (0..=DATA_LINES).collect() } else { BTreeSet::from([0]) })
    }
}

/// What the recovery finds in each image: nothing, or for each line of data its value.
fn seen(found: &CrashImages) -> BTreeSet<Option<Vec<u8>>> {
    let look = |image: &CrashImage| {
        let bytes = bytes(&image.contents, 64 * (DATA_LINES as usize + 1));
        (bytes[0] != 0).then(|| bytes.iter().step_by(64).skip(1).copied().collect())
    };
    found.images.iter().map(look).collect()
}

fn data(value: u8) -> impl Iterator<Item = Op> {
    (1..=DATA_LINES).map(move |line| Op::store(line * 64, [value; 8]))
}

fn flushed() -> impl Iterator<Item = Op> {
    (0..=DATA_LINES).map(|line| Op::clwb(line * 64)).chain([Op::sfence()])
}

fn journal(ops: Vec<Op>) -> (CrashImages, usize) {
    let file = record(&Trace { initial: vec![0; 4096], ops }, "pm", Vec::new()).unwrap();
    let mut journal = Journal::default();
    let options = Options { images_per_point: 64, ..Options::default() };
    let mut found = CrashImages::default();
    generate(&mut Reader::new(&file[..]).unwrap(), &options, Some(&mut journal), &mut found).unwrap();
    (found, journal.0)
}

#[test]
fn lines_that_no_recovery_reads_are_not_varied() {
    let ops = data(1).chain(flushed()).chain([Op::store(0, [1; 8])]).chain(flushed()).collect();
    let (found, runs) = journal(ops);
    assert_eq!(seen(&found), BTreeSet::from([None, Some(vec![1; DATA_LINES as usize])]));
    assert!(found.images.len() <= 4, "{} images", found.images.len());
    let (first, rest) = found.points.split_first().unwrap();
    assert!(!first.0.is_exhaustive && !first.0.is_cut && rest.iter().all(|point| point.0.is_exhaustive));
    assert_eq!(runs, 2);
}

#[test]
fn lines_that_a_recovery_reads_only_of_an_image_with_less_are_varied() {
    // The mark is cleared, and the data overwritten, without a fence between them.
    let valid = data(1).chain(flushed()).chain([Op::store(0, [1; 8])]).chain(flushed());
    let (found, _) = journal(valid.chain([Op::store(0, [0; 8])]).chain(data(2)).chain(flushed()).collect());
    let torn =
        seen(&found).into_iter().flatten().filter(|data| data.contains(&1) && data.contains(&2)).count();
    assert!(torn > 10, "data that is partly overwritten while the mark is set: {torn}");
    assert!(found.points.iter().any(|(point, _)| point.is_cut), "2 to the power of 21 are too many");
}

#[test]
fn non_temporal_stores_are_whole_where_there_are_many_unless_wanted_in_part() {
    let line = |line: u64| (0..8).map(move |word| Op::nt_store(line * 64 + word * 8, [1; 8]));
    let ops: Vec<Op> = (0..4).flat_map(line).chain([Op::sfence()]).collect();
    let fence = ops.len() as u64 - 1;
    let images = |non_temporal| {
        let trace = Trace { initial: vec![0; 512], ops: ops.clone() };
        let options = Options { images_per_point: 10_000, non_temporal, ..Options::default() };
        generated(&trace, &options).images.len()
    };
    assert_eq!(images(NonTemporal::Whole), 9_usize.pow(4), "few enough for all");
    let images = |non_temporal| {
        let trace = Trace { initial: vec![0; 512], ops: ops.clone() };
        let options = Options { images_per_point: 16, non_temporal, ..Options::default() };
        let found = generated(&trace, &options);
        (found.images.len(), found.points[0].0.is_cut)
    };
    assert_eq!(images(NonTemporal::Whole), (16, false));
    assert_eq!(images(NonTemporal::PartialAt(BTreeSet::from([fence + 1]))), (16, false));
    assert!(images(NonTemporal::PartialAt(BTreeSet::from([fence]))).1);
    assert!(images(NonTemporal::Partial).1);
}

#[test]
fn fast_images_are_in_program_order_once_for_each_stack() {
    let mut writer =
        Writer::new(Vec::new(), &Header { regions: vec![region()], ..Header::default() }).unwrap();
    let stacks = [[0x10, 0x20], [0x10, 0x30]];
    for turn in 0..6_u8 {
        let origin = Origin { pc: Some(5), stack: Some(&stacks[usize::from(turn) / 4]), ..Origin::default() };
        let (address, data) = (u64::from(turn) * 64, [turn + 1]);
        let store = Kind::Store { address, data: &data, is_non_temporal: false, is_atomic64: false };
        let flush = Kind::Flush { kind: fastness_crashcheck_trace::FlushKind::Clwb, address };
        for kind in [store, flush] {
            writer.push(&Event { kind, origin }).unwrap();
        }
    }
    let file = writer.finish().unwrap();
    let options = Options { pick: Pick::Fast, ..Options::default() };
    let found = collected(&file, &options);
    let stored =
        |image: &CrashImage| bytes(&image.contents, 6 * 64).iter().filter(|byte| **byte != 0).count();
    assert_eq!(found.images.iter().map(stored).collect::<Vec<_>>(), [1, 5, 6]);
    let kinds: Vec<_> = found.points.iter().map(|(point, _)| point.kind).collect();
    assert_eq!(kinds, [PointKind::Flush, PointKind::Flush, PointKind::End]);
}

#[test]
fn images_of_memory_and_of_disks_are_combined_with_the_extremes_of_the_other() {
    let device = Device { name: "disk".to_owned(), len_bytes: 1 << 20, block_bytes: 512 };
    let header = Header { tool: String::new(), regions: vec![region()], devices: vec![device] };
    let mut writer = Writer::new(Vec::new(), &header).unwrap();
    let store = |address| Kind::Store { address, data: &[1], is_non_temporal: false, is_atomic64: false };
    let block = |command, event| Kind::Block { device: 0, command, event };
    let data = [7; 1024];
    let write = BlockEvent::Write { offset: 0, data: &data, is_fua: false };
    let done = BlockEvent::Completion { is_ok: true };
    let clwb = |address| Kind::Flush { kind: fastness_crashcheck_trace::FlushKind::Clwb, address };
    for kind in [
        store(0),
        store(64),
        block(1, write),
        block(1, done),
        block(2, BlockEvent::Flush),
        // Point 0: of the disk, 4 images, each with none and all of PM.
        block(2, done),
        clwb(0),
        clwb(64),
        // Point 1: of PM, 4 images; the disk is certain.
        Kind::Fence(fastness_crashcheck_trace::FenceKind::Sfence),
    ] {
        writer.push(&Event::of(kind)).unwrap();
    }
    let file = writer.finish().unwrap();
    let found = collected(&file, &Options::default());
    let points: Vec<_> =
        found.points.iter().map(|(point, images)| (point.kind, *images, point.is_exhaustive)).collect();
    let expected =
        [(PointKind::Completion, 8, false), (PointKind::Fence, 4, true), (PointKind::End, 1, true)];
    assert_eq!(points, expected);
    // Nothing and all of both are in the first eight; with a certain disk there are two more.
    assert_eq!(found.images.len(), 10);
}

#[test]
fn what_cannot_be_is_refused_with_the_number_of_the_event() {
    let refused = |header: &Header, kinds: &[Kind<'_>]| {
        let mut writer = Writer::new(Vec::new(), header).unwrap();
        kinds.iter().for_each(|kind| writer.push(&Event::of(*kind)).unwrap());
        let file = writer.finish().unwrap();
        let options = Options { memory_max_bytes: 1 << 20, ..Options::default() };
        let mut found = CrashImages::default();
        let reader = &mut Reader::new(&file[..]).unwrap();
        let error = generate(reader, &options, None, &mut found).unwrap_err();
        std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string)
    };
    let header = Header { regions: vec![region()], ..Header::default() };
    let store = |address| Kind::Store { address, data: &[1; 8], is_non_temporal: false, is_atomic64: false };
    let crossing = refused(&header, &[store(0), store((1 << 16) - 4)]);
    assert!(crossing.contains("event 1") && crossing.contains("partly"), "{crossing}");
    let block = Kind::Block { device: 3, command: 0, event: BlockEvent::Flush };
    assert!(refused(&header, &[block]).contains("no disk 3"));
    let device = Device { name: "disk".to_owned(), len_bytes: 1 << 20, block_bytes: 512 };
    let with_disk = Header { devices: vec![device], ..header.clone() };
    let initial = |device, offset| Kind::DiskInitial { device, offset, data: &[1; 512] };
    assert!(refused(&with_disk, &[initial(1, 0)]).contains("no disk 1"));
    let outside = refused(&with_disk, &[initial(0, 0), initial(0, 1 << 20)]);
    assert!(outside.contains("event 1") && outside.contains("512 bytes at 1048576"), "{outside}");
    let large = Region { len_bytes: 1 << 21, ..region() };
    assert!(refused(&Header { regions: vec![large], ..Header::default() }, &[]).contains("1048576"));
}
