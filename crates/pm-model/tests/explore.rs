//! Exploration: nothing is missed, and missing fences are found.

mod support;

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use fastness_pm_model::{
    Budget, Config, CrashPoints, Machine, ModelError, Op, Persistence, Rng, Rules, Summary, Trace, explore,
};
use support::programs::{Mix, SIZE, random_program};

type Seen = BTreeSet<(Option<u64>, Vec<u8>)>;

const EVERYTHING: Budget = Budget { exhaustive_limit: 1 << 20, samples: 0, seed: 0 };

fn collect(points: &CrashPoints<'_>) -> (Seen, Summary) {
    let mut seen = Seen::new();
    let summary = points
        .explore(&mut |point| {
            assert!(seen.insert((point.last_mark, point.image.to_vec())), "visited twice");
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(summary.images, seen.len());
    (seen, summary)
}

fn configs() -> Vec<Config> {
    let mut configs = Vec::new();
    for persistence in [Persistence::Adr, Persistence::Eadr] {
        for rules in [Rules::Arch, Rules::Dissertation] {
            for strict_nt in [false, true] {
                configs.push(Config { persistence, rules, strict_nt });
            }
        }
    }
    configs
}

#[test]
fn the_chosen_points_see_what_every_prefix_sees() {
    let mut rng = Rng::new(7);
    let mix = Mix { max_ops: 12, max_pieces: 12, nt: true };
    for index in 0..1500 {
        let mut ops = random_program(&mut rng, mix);
        for mark in 0..rng.below(4) {
            ops.insert(rng.index(ops.len() + 1), Op::Mark(mark / 2));
        }
        let trace = Trace { initial: vec![0; SIZE], ops };
        for config in configs() {
            let chosen = collect(&CrashPoints::new(&trace, config, EVERYTHING));
            let every = collect(&CrashPoints::new(&trace, config, EVERYTHING).every_op());
            assert_eq!(chosen.0, every.0, "program {index}, {config:?}: {:?}", trace.ops);
            assert!(chosen.1.points <= every.1.points);
            assert_eq!(every.1.exhaustive_points, trace.ops.len() + 1);
        }
    }
}

#[test]
fn every_prefix_by_hand() {
    let mut rng = Rng::new(8);
    let mix = Mix { max_ops: 10, max_pieces: 10, nt: true };
    for _ in 0..300 {
        let trace = Trace { initial: vec![0; SIZE], ops: random_program(&mut rng, mix) };
        for config in configs() {
            let mut by_hand = Seen::new();
            let mut machine = Machine::new(trace.initial.clone(), config);
            for op in std::iter::once(&Op::Mark(0)).chain(&trace.ops) {
                machine.apply(op).unwrap();
                let done = machine.for_each_crash_image(1 << 20, &mut |image| {
                    by_hand.insert((None, image.to_vec()));
                    ControlFlow::Continue(())
                });
                done.unwrap();
            }
            assert_eq!(collect(&CrashPoints::new(&trace, config, EVERYTHING)).0, by_hand);
        }
    }
}

/// Log record, fence, commit word, fence, acknowledgement.
fn log_append() -> Trace {
    let ops = vec![
        Op::nt_store(64, vec![7; 64]),
        Op::sfence(),
        Op::nt_store(0, vec![1; 8]),
        Op::sfence(),
        Op::Mark(1),
    ];
    Trace { initial: vec![0; 128], ops }
}

/// Acknowledged implies present, and the commit word implies the record.
fn violations(trace: &Trace) -> usize {
    let mut violations = 0;
    let summary = explore(trace, &Config::default(), Budget::default(), &mut |point| {
        let committed = point.image[..8] == [1; 8];
        let complete = point.image[64..] == [7; 64];
        let acknowledged = point.last_mark == Some(1);
        violations += usize::from(committed && !complete || acknowledged && !committed);
        ControlFlow::Continue(())
    });
    assert_eq!(summary.unwrap().sampled_points, 0);
    violations
}

#[test]
fn each_fence_is_necessary() {
    let trace = log_append();
    assert_eq!(violations(&trace), 0);
    assert_eq!(trace.fences(), [1, 3]);
    assert_eq!((trace.flushes(), trace.marks()), (vec![], vec![4]));
    for fence in trace.fences() {
        assert!(violations(&trace.without_op(fence)) > 0, "the fence at {fence} is not missed");
    }
}

#[test]
fn too_many_images_are_sampled() {
    let ops = (0..64).map(|line| Op::nt_store(64 * line, vec![1; 64])).collect();
    let trace = Trace { initial: vec![0; 4096], ops };
    let budget = Budget { exhaustive_limit: 1000, samples: 50, seed: 1 };
    let run = |budget| {
        let mut images = Vec::new();
        let summary = explore(&trace, &Config::default(), budget, &mut |point| {
            assert!(!point.exhaustive);
            assert_eq!(point.op_index, 64);
            images.push(point.image.to_vec());
            ControlFlow::Continue(())
        });
        (summary.unwrap(), images)
    };
    let (summary, images) = run(budget);
    assert_eq!((summary.points, summary.exhaustive_points, summary.sampled_points), (1, 0, 1));
    assert_eq!(images[..2], [vec![0; 4096], vec![1; 4096]]);
    assert!(images.len() > 40, "{} different samples", images.len());
    assert_eq!(run(budget).1, images, "not repeatable");
    assert_ne!(run(Budget { seed: 2, ..budget }).1, images);
}

#[test]
fn a_visitor_can_stop() {
    let mut calls = 0;
    let summary = explore(&log_append(), &Config::default(), Budget::default(), &mut |_| {
        calls += 1;
        if calls == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(
        summary.unwrap(),
        Summary { points: 1, images: 3, exhaustive_points: 1, stopped: true, ..Summary::default() }
    );
}

#[test]
fn an_operation_outside_of_pm_is_an_error() {
    let trace = Trace { initial: vec![0; 64], ops: vec![Op::store(60, vec![0; 8])] };
    let error = explore(&trace, &Config::default(), EVERYTHING, &mut |_| ControlFlow::Continue(()));
    assert_eq!(error, Err(ModelError::OutOfRange { addr: 60, len_bytes: 8, image_bytes: 64 }));
}
