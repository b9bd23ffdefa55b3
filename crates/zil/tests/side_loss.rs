//! Kind pmem on a mirror of which a side goes away at any copy: what was acknowledged is there after a crash,
//! from every side that an import may read, once each; and the log goes on with the txg in which the pool has
//! recorded the loss.

mod support;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use fastness_pm_model::{Fault, RecordStyle, Recorder, RecordingRange};
use fastness_pmem::Mirror;
use fastness_prb::Config;
use fastness_zil::*;
use support::*;

type Sides = Mirror<RecordingRange>;

const CHUNK: usize = 2048;
const CHUNKS: usize = 8;
const BLOCK: usize = 8;
const NONE: usize = usize::MAX;

fn single() -> Config {
    Config { verify_collected: false, ..config(1, 1) }
}

fn mirrors(recorder: &Recorder, lost: usize, left: &Arc<AtomicU64>) -> Vec<Sides> {
    let range = |side: usize, at| {
        let mut range = recorder.range((side * CHUNKS + at) * CHUNK, CHUNK);
        if side == lost {
            range.inject(Fault::GoesAway { after: left.clone() });
        }
        range
    };
    (0..CHUNKS).map(|at| Mirror::pair(range(0, at), range(1, at))).collect()
}

struct Bench {
    recorder: Recorder,
    world: World<PmemLogs<Sides>>,
    /// The side that the pool says durably is out.
    out: Arc<AtomicUsize>,
    expected: Vec<u8>,
}

/// A pool whose txgs record a lost side, as its owner does.
fn bench(lost: usize, copies: u64) -> Bench {
    let recorder = Recorder::new(vec![0; 2 * CHUNKS * CHUNK], RecordStyle::NonTemporal);
    let left = Arc::new(AtomicU64::new(u64::MAX));
    let world = World::new(single(), mirrors(&recorder, lost, &left), Contents::volume(1, 4096));
    left.store(copies, Ordering::Relaxed);
    let (syncing, out) = (Arc::new(Mutex::new(None)), Arc::new(AtomicUsize::new(NONE)));
    let (prb, noted) = (world.logs.prb().clone(), syncing.clone());
    world.pool.sync_hook(move |_, _| *noted.lock().unwrap() = prb.lost_side());
    let (prb, is_out) = (world.logs.prb().clone(), out.clone());
    world.pool.hook(move |_| {
        if let Some(side) = syncing.lock().unwrap().take() {
            is_out.store(side, Ordering::Relaxed);
            prb.side_is_out(side);
        }
    });
    Bench { recorder, world, out, expected: Vec::new() }
}

impl Bench {
    /// Imports what a crash now leaves, from each side that an import may read, alone and together.
    fn judge(&self, when: &str) {
        let image = self.recorder.image();
        let out = self.out.load(Ordering::Relaxed);
        let alone = [vec![0], vec![1]].into_iter().filter(|sides| sides[0] != out);
        for sides in alone.chain((out == NONE).then(|| vec![0, 1])) {
            let recorder = Recorder::new(image.clone(), RecordStyle::NonTemporal);
            let range = |side: usize, at| recorder.range((side * CHUNKS + at) * CHUNK, CHUNK);
            let chunks = (0..CHUNKS).map(|at| match sides[..] {
                [only] => Mirror::single(range(only, at)),
                _ => Mirror::pair(range(0, at), range(1, at)),
            });
            let disk = self.world.pool.disk();
            let world = World::import(single(), chunks.collect(), disk).unwrap_or_else(|problem| {
                panic!("{when}, sides {sides:?}: {problem}");
            });
            let mut apply = Apply::new(&world.pool, DATASET);
            world.zil.kind().replay(&world.pool, &mut apply).unwrap();
            let mut seen: Vec<_> = apply.seen.iter().map(|op| format!("{op:?}")).collect();
            let all = seen.len();
            seen.sort();
            seen.dedup();
            assert_eq!(seen.len(), all, "{when}, sides {sides:?}: replayed twice");
            let found = &world.pool.contents(DATASET).objects[&1];
            assert_eq!(found[..self.expected.len()], self.expected, "{when}, sides {sides:?}");
        }
    }

    /// Writes the next block, acknowledged in one of the ways that there are.
    fn step(&mut self, step: usize) -> Committed {
        let (at, data) = (step * BLOCK, [step as u8 + 1; BLOCK]);
        let done = match step % 3 {
            0 => {
                self.world.change(&Op::Write(1, at, data.to_vec()));
                self.world.zil.commit(ObjectId(1)).unwrap()
            }
            1 => {
                self.world.change_without_copy(1, at, &data);
                self.world.zil.commit(ObjectId(1)).unwrap()
            }
            _ => {
                self.world.pool.sync();
                self.world.volume_write(1, at, &data);
                self.world.zil.flush().unwrap()
            }
        };
        self.expected.extend(data);
        done
    }
}

#[test]
fn a_side_that_goes_away_at_any_copy_costs_no_write() {
    for lost in [0, 1] {
        let mut losses = 0;
        for copies in 1.. {
            let mut bench = bench(lost, copies);
            let mut waited = 0;
            for step in 0..12 {
                waited += usize::from(matches!(bench.step(step), Committed::Synced(_)));
                bench.judge(&format!("side {lost} lost after {copies} copies, step {step}"));
            }
            if bench.out.load(Ordering::Relaxed) == NONE {
                break;
            }
            losses += 1;
            assert!(waited <= 1, "{waited}: it goes on with the next txg");
            assert_eq!(bench.world.zil.kind().refusal(), None);
        }
        assert!(losses > 20, "{losses}");
    }
}

/// Somebody else commits the same object while the record is on one side only: that is no acknowledgement
/// either.
#[test]
fn a_record_on_one_side_is_acknowledged_to_nobody() {
    let mut bench = bench(1, 4);
    bench.world.pool.sync_hook(|_, _| {});
    // The second record meets the loss, and the pool cannot sync.
    bench.step(0);
    bench.world.change(&Op::Write(1, 100, vec![7; 8]));
    bench.world.pool.dies_with(|| true);
    for _ in 0..2 {
        bench.world.zil.commit(ObjectId(1)).unwrap_err();
    }
    assert_eq!(bench.world.zil.stats().snapshot().fallbacks_of(LogCause::SideLost), 2);
    // Recorded, it is: without being written again.
    let entries = bench.world.logs.prb().stats().entries;
    bench.world.logs.prb().side_is_out(1);
    assert_eq!(bench.world.zil.commit(ObjectId(1)).unwrap(), Committed::Logged);
    assert_eq!(bench.world.logs.prb().stats().entries, entries);
}
