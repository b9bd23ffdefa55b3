//! Several threads commit to one dataset; the power fails anywhere.
//!
//! The threads are real and their interleaving differs from run to run, or shuttle's, where a seed repeats it
//! (`scripts/shuttle`). What a crash can leave of an interleaving is enumerated (`support/tagged.rs`). Judged
//! is, of each image: import and replay succeed, with an owner that refuses what cannot happen in its state;
//! what was acknowledged is there; each record whole or not at all; and of the records that touch one object,
//! a prefix in the order in which they were assigned.

mod support;

use std::collections::HashSet;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::ops::ControlFlow;
use std::sync::Arc;

use fastness_prb::{ChecksumKind, Config, Insertion};
use fastness_sync::{Mutex, thread};
use fastness_testkit::{Heap, schedules};
use fastness_zil::*;
use support::tagged::{Looked, TaggedRange, Visit, every_image, tagged};
use support::*;

const CHUNK: usize = 4096;
const CHUNKS: usize = 4;

fn prb_config(seed: u64, insertion: Insertion) -> Config {
    let checksum = if insertion == Insertion::OneFence { ChecksumKind::Xxh3 } else { ChecksumKind::Crc32c };
    Config { checksum, insertion, ..config(seed, 3) }
}

fn recovered(image: &[u8], disk: &Disk) -> Result<Contents, String> {
    let ranges = Heap::new(image.to_vec()).chunks(CHUNK);
    let world = World::import(config(99, 2), ranges, disk.clone()).map_err(|error| format!("{error:?}"))?;
    world.replay().map_err(|error| format!("{error:?}"))?;
    Ok(world.pool.contents(DATASET))
}

/// Judges every image; panics with the first that is wrong.
fn judge(
    world: &World<PmemLogs<TaggedRange>>,
    looked: impl FnOnce(&mut Visit<'_>) -> Looked,
    is_right: impl Fn(&[u64], &Contents) -> Result<(), String>,
) -> Looked {
    let disk = world.pool.disk();
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    let mut seen = HashSet::new();
    looked(&mut |marks, image| {
        if seen.insert(hasher.hash_one((marks, image))) {
            let found = recovered(image, &disk).unwrap_or_else(|error| panic!("after {marks:?}: {error}"));
            is_right(marks, &found).unwrap_or_else(|error| panic!("after {marks:?}: {error}\n{found:?}"));
        }
        ControlFlow::Continue(())
    })
}

/// One thread of the scenario: what it does between commits, and the object of each commit.
type Script = Vec<(Vec<Op>, u64)>;

/// Most images of one crash point, where the schedules are many.
const LIMIT: usize = if cfg!(shuttle) { 20 } else { 300 };

/// What was looked at in all schedules of a scenario.
fn in_schedules(seed: u64, scenario: impl Fn() -> Looked + Send + Sync + 'static) -> Looked {
    let total = Arc::new(std::sync::Mutex::new(Looked::default()));
    let sum = Arc::clone(&total);
    schedules(seed, move || {
        let looked = scenario();
        sum.lock().unwrap().add(looked);
    });
    *total.lock().unwrap()
}

fn commits_of_threads(scripts: &[Script], insertion: Insertion, seed: u64, limit: usize) -> Looked {
    let (recorder, threads, ranges) = tagged(CHUNK, CHUNKS, seed);
    let objects = (1..=3).map(|object| (object, vec![0; 64])).collect();
    let contents = Contents { objects, ..Contents::default() };
    let world = Arc::new(World::new(prb_config(seed, insertion), ranges, contents));
    let from = recorder.op_count();
    let history = Mutex::new(History::default());
    thread::scope(|scope| {
        for script in scripts {
            let (world, history, threads, recorder) = (&world, &history, &threads, &recorder);
            scope.spawn(move || {
                for (ops, object) in script {
                    for op in ops {
                        let mut history = history.lock().unwrap();
                        world.change(op);
                        history.ops.push(op.clone());
                    }
                    let commit = {
                        let mut history = history.lock().unwrap();
                        let is_covered = |op: &Op| touches(op, *object) || matches!(op, Op::Create(..));
                        let covered =
                            (0..history.ops.len()).filter(|&i| is_covered(&history.ops[i])).collect();
                        history.commits.push(covered);
                        history.commits.len() - 1
                    };
                    assert_eq!(world.zil.commit(ObjectId(*object)).unwrap(), Committed::Logged);
                    threads.mark(recorder, commit as u64);
                }
            });
        }
    });
    let history = history.into_inner().unwrap();
    let is_right = |marks: &[u64], found: &Contents| history.explains(marks, found);
    judge(&world, |visit| every_image(&recorder, &threads, from, limit, visit), is_right)
}

fn write(object: u64, nth: usize) -> Op {
    Op::Write(object, nth * 8, vec![object as u8 * 16 + nth as u8 + 1; 8])
}

#[test]
fn commits_of_different_objects_survive_every_crash() {
    let mut overlapping = 0;
    for seed in 0..12 {
        let script = |object| vec![(vec![write(object, 0)], object), (vec![write(object, 1)], object)];
        let limit = if cfg!(shuttle) { LIMIT } else { 20_000 };
        let scripts = vec![script(1), script(2)];
        let looked =
            in_schedules(seed, move || commits_of_threads(&scripts, Insertion::TwoFences, seed, limit));
        assert!(cfg!(shuttle) || looked.sampled == 0, "{looked:?}: a small scope is enumerated");
        overlapping += looked.overlapping;
    }
    assert!(overlapping > 0, "the threads never wrote at one time");
}

#[test]
fn commits_that_depend_on_each_other_survive_every_crash() {
    let mut overlapping = 0;
    for seed in 0..12 {
        let insertion = if seed % 3 == 2 { Insertion::OneFence } else { Insertion::TwoFences };
        let first = vec![
            (vec![Op::Create("a", 10), write(10, 0), write(1, 0), write(1, 1)], 1),
            (vec![write(10, 1), write(2, 0)], 10),
        ];
        let second = vec![(vec![write(2, 1), Op::Create("b", 11), write(11, 0)], 11), (vec![write(2, 2)], 0)];
        let third = vec![(vec![Op::Create("c", 12)], 3), (vec![write(3, 0), write(12, 0)], 3)];
        let scripts = vec![first, second, third];
        let looked = in_schedules(seed, move || commits_of_threads(&scripts, insertion, seed, LIMIT));
        overlapping += looked.overlapping;
    }
    assert!(overlapping > 0, "the threads never wrote at one time");
}

/// See the test.
fn volume_writes_of_threads(seed: u64) -> Looked {
    let (recorder, threads, ranges) = tagged(CHUNK, CHUNKS, seed);
    let world = World::new(prb_config(seed, Insertion::TwoFences), ranges, Contents::volume(1, 64));
    let from = recorder.op_count();
    let (locks, order) = (RangeLocks::default(), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for thread in 0..3usize {
            let (locks, order, world, threads, recorder) = (&locks, &order, &world, &threads, &recorder);
            scope.spawn(move || {
                for round in 0..3usize {
                    // Two threads overlap; the third one is elsewhere, so that its stores are mixed with
                    // theirs.
                    let stripe = if thread == 2 { 1 << 20 } else { 0 };
                    let offset = if thread == 2 { 40 } else { 8 * (round % 2) };
                    let guard = locks.lock(stripe, 16);
                    let data = vec![(1 + thread * 3 + round) as u8; 16];
                    let number = {
                        let mut order = order.lock().unwrap();
                        order.push((offset, data.clone()));
                        order.len() as u64 - 1
                    };
                    assert!(world.volume_write(1, offset, &data).1);
                    threads.mark(recorder, number);
                    drop(guard);
                    if (round + thread) % 2 == 1 {
                        assert_eq!(world.zil.flush().unwrap(), Committed::Logged);
                    }
                }
            });
        }
    });
    let order = order.into_inner().unwrap();
    let now = world.pool.contents(DATASET).objects[&1].clone();
    let is_right = |marks: &[u64], found: &Contents| {
        let unknown: Vec<u64> = (0..order.len() as u64).filter(|number| !marks.contains(number)).collect();
        // What was not acknowledged is there or not; at most three were in flight, and none behind them.
        let explains = |subset: u32| {
            let mut bytes = vec![0; 64];
            for (number, (offset, data)) in order.iter().enumerate() {
                let is_unknown = unknown.iter().position(|&other| other == number as u64);
                if is_unknown.is_none_or(|bit| subset & (1 << bit) != 0) {
                    bytes[*offset..offset + 16].copy_from_slice(data);
                }
            }
            bytes == found.objects[&1]
        };
        if (0..1u32 << unknown.len()).any(explains) { Ok(()) } else { Err(format!("{order:?}")) }
    };
    let looked = judge(&world, |visit| every_image(&recorder, &threads, from, LIMIT, visit), is_right);
    // Everything was acknowledged: replay comes to what readers saw.
    let end = recovered(&recorder.image(), &world.pool.disk()).unwrap();
    assert_eq!(end.objects[&1], now);
    looked
}

/// Volumes: writes past the commit list, overlapping ones under range locks, with flushes between.
#[test]
fn writes_past_the_commit_list_survive_every_crash_in_the_order_that_readers_saw() {
    let mut overlapping = 0;
    for seed in 0..16 {
        overlapping += in_schedules(seed, move || volume_writes_of_threads(seed)).overlapping;
    }
    assert!(overlapping > 0, "the threads never wrote at one time");
}
