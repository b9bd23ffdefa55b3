//! A side of a mirror that goes away while the log is written, at any copy: the log goes on with the other
//! one as soon as its owner has recorded that, and whatever a crash leaves on either side is right as long as
//! an import may read it.

mod support;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fastness_pm_model::{
    Budget, Config as Model, CrashPoint, CrashPoints, Fault, RecordStyle, Recorder, RecordingRange, Trace,
};
use fastness_pmem::Mirror;
use fastness_prb::*;
use support::scenario::*;
use support::*;

type Sides = Mirror<RecordingRange>;

const CHUNKS: usize = 3;

/// What is owed, and which sides an import may read.
#[derive(Debug, Clone)]
struct Owed {
    owes: Expectation,
    readable: [bool; 2],
}

/// A mirrored log of which a side goes away.
struct World {
    recorder: Recorder,
    prb: Arc<Prb<Sides>>,
    hdl: Hdl<Sides>,
    now: Owed,
    history: Vec<Owed>,
    /// Copies that the lost side still takes.
    left: Arc<AtomicU64>,
}

fn mirrors(recorder: &Recorder, lost: usize, left: &Arc<AtomicU64>) -> Vec<Sides> {
    let half = CHUNKS * CHUNK;
    let range = |side: usize, at| {
        let mut range = recorder.range(side * half + at, CHUNK);
        if side == lost {
            range.inject(Fault::GoesAway { after: left.clone() });
        }
        range
    };
    (0..half).step_by(CHUNK).map(|at| Mirror::pair(range(0, at), range(1, at))).collect()
}

impl World {
    fn new(variant: Variant, lost: usize) -> World {
        let image = vec![0; 2 * CHUNKS * CHUNK];
        let recorder = Recorder::with_store_bytes(image, variant.style, variant.store_bytes);
        let left = Arc::new(AtomicU64::new(u64::MAX));
        let Variant { checksum, insertion, .. } = variant;
        let config = Config { checksum, insertion, ..config(3) };
        let prb = Prb::format(config, mirrors(&recorder, lost, &left)).unwrap();
        let mut hdl = prb.setup_hdl(&HdlHeader::NoZil).unwrap();
        let header = durable_log(&mut hdl);
        let owes = Expectation { header, first_txg: 1, ..Expectation::default() };
        let now = Owed { owes, readable: [true; 2] };
        let mut world = World { recorder, prb, hdl, now, history: Vec::new(), left };
        world.mark();
        world
    }

    fn mark(&mut self) {
        self.recorder.mark(self.history.len() as u64);
        self.history.push(self.now.clone());
    }

    /// The owner's txg: what was not acknowledged so far is, and the side is never read again.
    fn record(&mut self) {
        let Some(side) = self.prb.lost_side() else { return };
        // Meanwhile everything is refused, and nothing written.
        let refused = self.hdl.write_entry(Txg(self.now.owes.first_txg), b"no", Wait::Fail).unwrap_err();
        assert!(matches!(refused, WriteError::SideLost), "{refused}");
        assert_eq!(refused.kind(), ErrorKind::Retry);
        self.now.readable[side] = false;
        self.mark();
        self.prb.side_is_out(side);
        assert_eq!(self.prb.lost_side(), None);
        self.now.owes.records.extend(self.now.owes.in_flight.take());
        self.mark();
    }

    fn write(&mut self, txg: u64, len: usize) {
        self.record();
        let salt = self.history.len() * 31;
        let body: Vec<u8> = (0..len).map(|i| if i < 12 { (salt + i) as u8 | 1 } else { 0 }).collect();
        self.now.owes.in_flight = Some((txg, body.clone()));
        self.mark();
        match self.hdl.write_dependent_entry(Txg(txg), &body, Wait::Fail) {
            Ok(_) => {
                self.now.owes.records.extend(self.now.owes.in_flight.take());
                self.mark();
            }
            Err(WriteError::OnOneSide { lost, .. }) => {
                assert_eq!(self.prb.lost_side(), Some(lost));
                self.record();
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn collect(&mut self, txg: u64) {
        self.now.owes.first_txg = txg + 1;
        self.now.owes.records.retain(|(of, _)| *of > txg);
        self.mark();
        let collected = self.prb.collect(Txg(txg)).unwrap();
        assert!(collected.faults.is_empty(), "{collected:?}");
        self.mark();
    }

    /// Changes chunks, collects, and writes over what was there before.
    fn program(&mut self) {
        for (txg, len) in [(1, 24), (1, 70), (1, 300), (2, 300)] {
            self.write(txg, len);
        }
        self.collect(1);
        for (txg, len) in [(2, 700), (3, 24), (3, 9)] {
            self.write(txg, len);
        }
        self.collect(2);
        self.write(3, 300);
        self.write(4, 300);
    }
}

fn import_from(image: &[u8], sides: &[usize], owes: &Expectation) -> Result<Vec<Record>, ImportError> {
    let half = image.len() / 2;
    let recorder = Recorder::new(image.to_vec(), RecordStyle::NonTemporal);
    let chunks = (0..half).step_by(CHUNK).map(|at| match sides {
        [only] => Mirror::single(recorder.range(only * half + at, CHUNK)),
        _ => Mirror::pair(recorder.range(at, CHUNK), recorder.range(half + at, CHUNK)),
    });
    import_chunks(chunks.collect(), &owes.header, owes.first_txg)
}

fn first_violation(trace: &Trace, history: &[Owed], seed: u64) -> Option<String> {
    let budget = Budget { exhaustive_limit: 32, samples: 12, seed };
    let mut violation = None;
    let mut visit = |point: CrashPoint<'_>| {
        let Some(mark) = point.last_mark else { return ControlFlow::Continue(()) };
        let Owed { owes, readable } = &history[mark as usize];
        let both = readable == &[true; 2];
        let alone = (0..2).filter(|side| readable[*side]).map(|side| vec![side]);
        for sides in alone.chain(both.then(|| vec![0, 1])) {
            let found = import_from(point.image, &sides, owes);
            if !found.as_ref().is_ok_and(|found| owes.is_met_by(found)) {
                let at = point.op_index;
                violation =
                    Some(format!("sides {sides:?}, operation {at}, mark {mark}: {found:?}, {owes:?}"));
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    };
    CrashPoints::new(trace, Model::default(), budget).explore(&mut visit).unwrap();
    violation
}

fn variants() -> [Variant; 2] {
    let strong = ChecksumKind::Xxh3;
    [
        Variant { store_bytes: 8, ..NT },
        Variant { checksum: strong, insertion: Insertion::OneFence, store_bytes: 8, ..NT },
    ]
}

#[test]
fn a_side_that_goes_away_at_any_copy_costs_nothing() {
    for variant in variants() {
        for lost in [0, 1] {
            let mut losses = 0;
            // Until it comes after the last copy.
            for copies in 1.. {
                let mut world = World::new(variant, lost);
                world.left.store(copies, Ordering::Relaxed);
                world.program();
                let was_lost = !world.now.readable[lost];
                let (trace, history) = (world.recorder.trace(), world.history);
                let violation = first_violation(&trace, &history, copies);
                assert_eq!(violation, None, "{variant:?}: side {lost} lost after {copies} copies");
                if !was_lost {
                    break;
                }
                losses += 1;
            }
            assert!(losses >= 20, "{losses}");
        }
    }
}

/// Nobody writes: collection finds out.
#[test]
fn a_side_that_is_lost_in_a_collection_is_told() {
    let mut world = World::new(NT, 1);
    world.write(1, 300);
    world.left.store(0, Ordering::Relaxed);
    world.collect(1);
    assert_eq!(world.prb.lost_side(), Some(1));
    world.write(2, 300);
    assert_eq!(world.prb.lost_side(), None, "it was recorded");
    let found = import_from(&world.recorder.image(), &[0], &world.now.owes).unwrap();
    assert_eq!(found, world.now.owes.records);
}

/// Its superblock may be written in vain before any chunk is.
#[test]
fn the_owner_may_find_out_first() {
    let world = World::new(NT, 0);
    world.prb.lose_side(0);
    let refused = world.hdl.write_entry(Txg(1), b"no", Wait::Fail).unwrap_err();
    assert!(matches!(refused, WriteError::SideLost), "{refused}");
    world.prb.side_is_out(0);
    world.hdl.write_entry(Txg(1), b"yes", Wait::Fail).unwrap();
    // Told twice, it changes nothing.
    world.prb.lose_side(0);
    assert_eq!(world.prb.lost_side(), None);
    world.hdl.write_entry(Txg(1), b"yes", Wait::Fail).unwrap();
}

#[test]
fn without_any_side_nothing_is_written_any_more() {
    let recorder = Recorder::new(vec![0; 4 * CHUNK], RecordStyle::NonTemporal);
    let lefts = [0, 1].map(|_| Arc::new(AtomicU64::new(u64::MAX)));
    let range = |side: usize, at| {
        let mut range = recorder.range(side * 2 * CHUNK + at, CHUNK);
        range.inject(Fault::GoesAway { after: lefts[side].clone() });
        range
    };
    let pairs = [0, CHUNK].map(|at| Mirror::pair(range(0, at), range(1, at)));
    let prb = Prb::format(config(1), pairs.into()).unwrap();
    let mut hdl = prb.setup_hdl(&HdlHeader::NoZil).unwrap();
    durable_log(&mut hdl);
    lefts[1].store(0, Ordering::Relaxed);
    assert!(matches!(hdl.write_entry(Txg(1), b"a", Wait::Fail), Err(WriteError::OnOneSide { lost: 1, .. })));
    lefts[0].store(0, Ordering::Relaxed);
    prb.side_is_out(1);
    let error = hdl.write_entry(Txg(1), b"b", Wait::Fail).unwrap_err();
    assert!(matches!(error, WriteError::Persist(_)), "{error}");
    assert!(prb.has_failed());
    // Neither what is recorded nor another loss opens it again.
    prb.side_is_out(0);
    assert!(matches!(hdl.write_entry(Txg(1), b"c", Wait::Fail), Err(WriteError::Failed)));
}

/// The owner finds out about both sides, or about the only one: nothing is written any more, whatever it
/// records.
#[test]
fn without_a_side_that_is_left_the_log_is_closed() {
    let recorder = Recorder::new(vec![0; 3 * CHUNK], RecordStyle::NonTemporal);
    let range = |index: usize| recorder.range(index * CHUNK, CHUNK);
    let single = Prb::format(config(1), vec![Mirror::single(range(0))]).unwrap();
    single.lose_side(0);
    assert!(single.has_failed());
    for first in [0, 1] {
        let prb = Prb::format(config(1), vec![Mirror::pair(range(1), range(2))]).unwrap();
        prb.lose_side(first);
        assert!(!prb.has_failed());
        prb.side_is_out(first);
        prb.lose_side(1 - first);
        assert!(prb.has_failed());
    }
}

/// Of writers that wait for a chunk, none waits for ever.
#[test]
fn a_loss_wakes_those_who_wait_for_a_chunk() {
    let recorder = Recorder::new(vec![0; 2 * CHUNK], RecordStyle::NonTemporal);
    let left = Arc::new(AtomicU64::new(u64::MAX));
    let mut second = recorder.range(CHUNK, CHUNK);
    second.inject(Fault::GoesAway { after: left.clone() });
    let chunk = Mirror::pair(recorder.range(0, CHUNK), second);
    let prb = Prb::format(config(1), vec![chunk]).unwrap();
    let mut hdl = prb.setup_hdl(&HdlHeader::NoZil).unwrap();
    durable_log(&mut hdl);
    hdl.write_entry(Txg(1), &[0; 900], Wait::Fail).unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| hdl.write_entry(Txg(2), &[0; 900], Wait::Block));
        while prb.stats().chunk_waits == 0 {
            std::thread::yield_now();
        }
        left.store(0, Ordering::Relaxed);
        prb.lose_side(1);
        assert!(matches!(waiter.join().unwrap(), Err(WriteError::SideLost)));
    });
}

/// A side that is lost while an import repairs it: what either had is found, and nothing is written before it
/// is recorded.
#[test]
fn a_side_that_is_lost_at_import_is_told() {
    let mut world = World::new(NT, 1);
    world.write(1, 300);
    let (mut image, owes) = (world.recorder.image(), world.now.owes);
    let half = image.len() / 2;
    image[half..].fill(0);
    for copies in 0..3 {
        let recorder = Recorder::new(image.clone(), RecordStyle::NonTemporal);
        let left = Arc::new(AtomicU64::new(copies));
        let prb = Prb::open(config(9), mirrors(&recorder, 1, &left)).unwrap();
        assert_eq!(prb.lost_side(), Some(1), "{copies}");
        let mut hdl = prb.setup_hdl(&owes.header).unwrap();
        assert_eq!(hdl.claim(Txg(1), OnLoss::Fail).unwrap().entries, 1);
    }
}
