//! Crash images of whole operations: each operation runs on a pool whose persistent memory is recorded and
//! whose disk has a volatile cache. Every image that a crash can leave is imported and replayed. After an
//! operation was synced its tree is there; before that the whole of it is there, or nothing.
//!
//! Programs: the 18 of the source's table, and ACE's sequences of one operation. Each step of the former, and
//! the last one of the latter, is synced and judged on its own. Bounds: of persistent memory, a point with at
//! most 48 images is enumerated, another one sampled 16 times; of the disk, 3 states at each of up to 8
//! writes and flushes of a step.
//!
//! Source: persistent-memory file systems dissertation, 10.2.1 and 10.2.2.

#[path = "../support/mod.rs"]
mod support;

mod ace;
mod images;
mod table;

use fastness_zpl::FileSystem;

/// A program: each step is one operation.
struct Program {
    name: String,
    steps: Vec<Step>,
    /// The first that is judged.
    from: usize,
}

type Step = Box<dyn Fn(&FileSystem) + Send + Sync>;

fn step(act: impl Fn(&FileSystem) + Send + Sync + 'static) -> Step {
    Box::new(act)
}

/// Judges programs on all processors; returns how many images there were.
fn judge_all(programs: &[Program], judge: impl Fn(&Program) -> usize + Sync) -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering};

    let (next, images) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        while let Some(program) = programs.get(next.fetch_add(1, Ordering::Relaxed)) {
            images.fetch_add(judge(program), Ordering::Relaxed);
        }
    };
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    images.into_inner()
}

#[test]
fn each_operation_of_the_table_survives_every_crash_of_persistent_memory() {
    let images = judge_all(&table::programs(), images::of_memory);
    assert!(images > 500, "{images} images");
}

#[test]
fn each_operation_of_the_table_survives_crashes_of_the_disk() {
    let images = judge_all(&table::programs(), images::of_disk);
    assert!(images > 500, "{images} images");
}

#[test]
fn each_operation_of_ace_survives_every_crash_of_persistent_memory() {
    let images = judge_all(&ace::programs(), images::of_memory);
    assert!(images > 1000, "{images} images");
}

#[test]
fn each_operation_of_ace_survives_crashes_of_the_disk() {
    let images = judge_all(&ace::programs(), images::of_disk);
    assert!(images > 500, "{images} images");
}
