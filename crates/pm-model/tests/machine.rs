//! The machine's own promises: bounds, limits, samples, odd sizes.

mod support;

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use fastness_pm_model::{Config, Enumerated, Machine, ModelError, Op, Persistence, Rng, Rules, TooMany};
use support::enumerated;
use support::programs::{Mix, SIZE, random_program};

fn machine(size: usize, ops: &[Op], config: Config) -> Machine {
    let mut machine = Machine::new(vec![0; size], config);
    ops.iter().for_each(|op| machine.apply(op).unwrap());
    machine
}

/// The number of allowed images.
fn count_crash_images(machine: &Machine, limit: usize) -> Result<usize, TooMany> {
    machine.for_each_crash_image(limit, &mut |_| ControlFlow::Continue(())).map(|done| done.images)
}

#[test]
fn operations_that_do_not_fit_are_refused() {
    let mut machine = Machine::new(vec![0; 100], Config::default());
    let out = |addr, len_bytes| Err(ModelError::OutOfRange { addr, len_bytes, image_bytes: 100 });
    assert_eq!(machine.apply(&Op::store(96, [1; 5])), out(96, 5));
    assert_eq!(machine.apply(&Op::store(u64::MAX, [1; 5])), out(u64::MAX, 5));
    assert_eq!(machine.apply(&Op::rmw(100, [1])), out(100, 1));
    assert_eq!(machine.apply(&Op::clwb(100)), out(100, 1));
    assert_eq!(machine.apply(&Op::movdir64b(64, [1; 64])), out(64, 64));
    let torn = ModelError::NotAtomic64 { addr: 8, len_bytes: 64 };
    assert_eq!(machine.apply(&Op::movdir64b(8, [1; 64])), Err(torn));
    assert_eq!(machine.pending_lines(), 0);
}

#[test]
fn the_last_line_may_be_short() {
    let images = enumerated(70, &[Op::store(64, [1; 6]), Op::store(0, [2; 8])], Config::default());
    assert_eq!(images.len(), 4);
    assert!(images.iter().all(|image| image.len() == 70));
}

#[test]
fn the_limit_is_exact_and_nothing_is_visited_beyond() {
    let programs: [&[Op]; 2] = [
        &[Op::store(0, [1; 8]), Op::store(64, [1; 8]), Op::store(8, [1; 8])],
        // Six images that no product of lines gives.
        &[Op::store(0, [1; 8]), Op::clflush(0), Op::store(64, [1; 16])],
    ];
    for (ops, count) in programs.map(<[Op]>::to_vec).into_iter().zip([6, 5]) {
        let machine = machine(128, &ops, Config::default());
        let mut visited = 0;
        let mut visit = |_: &[u8]| {
            visited += 1;
            ControlFlow::Continue(())
        };
        assert_eq!(machine.for_each_crash_image(count - 1, &mut visit), Err(TooMany { limit: count - 1 }));
        let all = Ok(Enumerated { images: count, complete: true });
        assert_eq!(machine.for_each_crash_image(count, &mut visit), all);
        assert_eq!(visited, count);
        assert_eq!(count_crash_images(&machine, count), Ok(count));
    }
}

#[test]
fn the_order_is_fixed_and_begins_with_the_minimal_image() {
    let mut rng = Rng::new(9);
    for _ in 0..200 {
        let ops = random_program(&mut rng, Mix { max_ops: 10, max_pieces: 10, nt: true });
        let order = || {
            let machine = machine(SIZE, &ops, Config::default());
            let mut images = Vec::new();
            let done = machine.for_each_crash_image(1 << 20, &mut |image| {
                images.push(image.to_vec());
                ControlFlow::Continue(())
            });
            done.unwrap();
            assert_eq!(images[0], machine.persistent_image());
            images
        };
        assert_eq!(order(), order());
    }
}

#[test]
fn huge_sets_are_refused_without_work() {
    // 2^64 images in one line of unordered non-temporal stores, and as many in eight ordinary lines.
    let config = Config { strict_nt: true, ..Config::default() };
    let one_line: Vec<_> = (1..=64).map(|value| Op::nt_store(0, [value; 64])).collect();
    let eight_lines: Vec<_> = (0..8).map(|line| Op::store(64 * line, [1; 64])).collect();
    for ops in [one_line, eight_lines] {
        let machine = machine(512, &ops, config);
        assert!(machine.count_upper_bound() > 1 << 60);
        assert_eq!(count_crash_images(&machine, 10_000), Err(TooMany { limit: 10_000 }));
    }
}

#[test]
fn stores_that_change_nothing_do_not_multiply() {
    let mut ops: Vec<_> = (0..200).map(|index| Op::store(64 * (index % 50), [0; 64])).collect();
    assert_eq!(count_crash_images(&machine(4096, &ops, Config::default()), 2), Ok(1));
    ops.push(Op::store(8, [1; 8]));
    assert_eq!(count_crash_images(&machine(4096, &ops, Config::default()), 2), Ok(2));
}

/// Every sample is allowed, the first two are the ends, and in the long run all images come.
#[test]
fn samples() {
    let mut rng = Rng::new(10);
    for index in 0..400 {
        let ops = random_program(&mut rng, Mix { max_ops: 10, max_pieces: 9, nt: true });
        for persistence in [Persistence::Adr, Persistence::Eadr] {
            for rules in [Rules::Arch, Rules::Dissertation] {
                for strict_nt in [false, true] {
                    let config = Config { persistence, rules, strict_nt };
                    let allowed = enumerated(SIZE, &ops, config);
                    let machine = machine(SIZE, &ops, config);
                    let mut sampled = Vec::new();
                    machine.sample_crash_images(index, 200, &mut |image| {
                        sampled.push(image.to_vec());
                        ControlFlow::Continue(())
                    });
                    assert_eq!(sampled.len(), 200);
                    assert_eq!(sampled[0], machine.persistent_image());
                    assert_eq!(sampled[1], machine.volatile_image());
                    let distinct: BTreeSet<_> = sampled.into_iter().collect();
                    assert!(distinct.is_subset(&allowed), "{config:?} {ops:?}");
                    let few = allowed.len() <= 6;
                    assert!(
                        !few || distinct == allowed,
                        "{} of {}: {config:?} {ops:?}",
                        distinct.len(),
                        allowed.len()
                    );
                }
            }
        }
    }
}

#[test]
fn a_fence_waits_for_its_own_processor() {
    let (a, b) = (1, 2);
    let store = Op::store(0, [1; 8]);
    let (nt, clwb, sfence) = (Op::nt_store(0, [1; 8]), Op::clwb(0), Op::sfence());
    // Which processor does what, and how many images are possible then.
    let programs: [(&[(u32, &Op)], usize); 7] = [
        (&[(a, &store), (a, &clwb), (a, &sfence)], 1),
        (&[(a, &store), (a, &clwb), (b, &sfence)], 2),
        (&[(a, &store), (b, &clwb), (a, &sfence)], 2),
        (&[(a, &store), (b, &clwb), (b, &sfence)], 1),
        (&[(a, &store), (a, &clwb), (b, &sfence), (a, &sfence)], 1),
        (&[(a, &nt), (b, &sfence)], 2),
        (&[(a, &nt), (a, &sfence)], 1),
    ];
    for (ops, count) in programs {
        let mut machine = Machine::new(vec![0; 64], Config::default());
        for (at, (cpu, op)) in ops.iter().enumerate() {
            let shrinks = machine.fence_can_shrink(*cpu);
            let before = count_crash_images(&machine, 8).unwrap();
            machine.apply_on(*cpu, op).unwrap();
            let after = count_crash_images(&machine, 8).unwrap();
            assert!(*op != &sfence || shrinks == (after < before), "{ops:?} at {at}");
        }
        assert_eq!(count_crash_images(&machine, 8), Ok(count), "{ops:?}");
    }
}
