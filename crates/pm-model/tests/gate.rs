//! Every crash image of writes through a gate: what has returned is there, whatever the policy.

use std::ops::ControlFlow;

use fastness_pm_model::{Budget, Config, RecordStyle, Recorder, explore};
use fastness_pmem::gate::{Gate, Policy};

const LEN: usize = 8192;

/// Blocks of one byte value each, written one after the other to two places; a mark after each return.
fn crash_images_of(policy: Policy, block: usize) -> (u64, u64) {
    let recorder = Recorder::new(vec![0; LEN], RecordStyle::NonTemporal);
    let gate = Gate::new(policy).unwrap();
    let mut range = recorder.range(0, LEN);
    for round in 1..=3_u8 {
        gate.write_pm(&mut range, usize::from(round % 2) * (LEN / 2), &vec![round; block]).unwrap();
        recorder.mark(u64::from(round));
    }
    let (mut images, mut torn) = (0, 0);
    let budget = Budget { exhaustive_limit: 1 << 12, ..Budget::default() };
    explore(&recorder.trace(), &Config::default(), budget, &mut |point| {
        let acknowledged = point.last_mark.unwrap_or(0) as u8;
        for round in 1..=acknowledged {
            // A later write to the same place may have begun.
            let at = usize::from(round % 2) * (LEN / 2);
            let written = &point.image[at..at + block];
            let is_there = written.iter().all(|byte| *byte == round || *byte == round + 2);
            assert!(is_there, "the write {round} has returned");
            torn += u64::from(written.iter().any(|byte| *byte != written[0]));
        }
        images += 1;
        ControlFlow::Continue(())
    })
    .unwrap();
    (images, torn)
}

#[test]
fn a_write_that_has_returned_survives_every_crash() {
    for policy in [Policy::Direct, Policy::Semaphore { writers_max: 1 }] {
        let said = format!("{policy:?}");
        let (images, torn) = crash_images_of(policy, 256);
        assert!(images > 50 && torn > 10, "{said}: {images} images, {torn} in the middle of the next write");
    }
}

/// A worker fences what it stored: the fence of the caller would not cover it.
#[test]
fn a_write_that_a_worker_made_survives_every_crash() {
    let workers = Policy::Workers { writers_max: 1, is_adaptive: false, cpus: Vec::new() };
    let (images, torn) = crash_images_of(workers, 4096);
    assert!(images > 50 && torn > 10, "{images} images, {torn} in the middle of the next write");
}
