//! Parts of the allowed images: a scope gives what it says, and nothing that is not allowed.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use fastness_pm_model::{Config, Machine, Op, Persistence, Rng, Rules, Scope};
use support::programs::{Mix, SIZE, random_program};
use support::{Images, enumerated};

fn configs() -> impl Iterator<Item = Config> {
    let persistence = [Persistence::Adr, Persistence::Eadr];
    let rules = [Rules::Arch, Rules::Dissertation];
    persistence.into_iter().flat_map(move |persistence| {
        rules
            .into_iter()
            .flat_map(move |rules| [false, true].map(|strict_nt| Config { persistence, rules, strict_nt }))
    })
}

fn machine(ops: &[Op], config: Config) -> Machine {
    let mut machine = Machine::new(vec![0; SIZE], config);
    ops.iter().for_each(|op| machine.apply(op).unwrap());
    machine
}

fn images_of(machine: &Machine, scope: Scope<'_>) -> Vec<Vec<u8>> {
    let mut images = Vec::new();
    machine
        .enumerate(scope, 1 << 20, &mut |image| {
            images.push(image.memory.clone());
            ControlFlow::Continue(())
        })
        .unwrap();
    images
}

/// The lines of an image that a scope varies.
fn projection(image: &[u8], lines: &BTreeSet<u64>) -> Vec<u8> {
    lines.iter().flat_map(|line| image[*line as usize * 64..][..64].to_vec()).collect()
}

#[test]
fn every_combination_of_the_lines_of_a_scope_occurs_once_in_an_allowed_image() {
    let mut rng = Rng::new(4);
    for round in 0..1500 {
        let ops = random_program(&mut rng, Mix { max_ops: 10, max_pieces: 9, nt: round % 3 != 0 });
        let lines: BTreeSet<u64> = (0..SIZE as u64 / 64).filter(|_| rng.one_in(2)).collect();
        for config in configs() {
            let all = enumerated(SIZE, &ops, config);
            let found = images_of(&machine(&ops, config), Scope { lines: Some(&lines), whole_nt: false });
            assert!(found.iter().all(|image| all.contains(image)), "{ops:?} {config:?}");
            let projected: Images = found.iter().map(|image| projection(image, &lines)).collect();
            assert_eq!(projected.len(), found.len(), "one twice: {ops:?} {config:?}");
            let expected: Images = all.iter().map(|image| projection(image, &lines)).collect();
            assert_eq!(projected, expected, "{ops:?} {config:?}");
        }
    }
}

#[test]
fn whole_runs_of_non_temporal_stores_are_a_part_of_all() {
    let mut rng = Rng::new(5);
    let mut left_out = 0;
    for _ in 0..1500 {
        let ops = random_program(&mut rng, Mix { max_ops: 10, max_pieces: 9, nt: true });
        for config in configs() {
            let all = enumerated(SIZE, &ops, config);
            let machine = machine(&ops, config);
            let found: Images =
                images_of(&machine, Scope { lines: None, whole_nt: true }).into_iter().collect();
            assert!(found.is_subset(&all), "{ops:?} {config:?}");
            assert!(found.contains(machine.persistent_image()), "{ops:?} {config:?}");
            assert!(found.contains(&machine.volatile_image()), "{ops:?} {config:?}");
            left_out += all.len() - found.len();
        }
    }
    assert!(left_out > 1000, "only {left_out} images were left out");
}

#[test]
fn whole_runs_are_all_or_nothing() {
    let n = |word: u64, value: u8| Op::nt_store(word * 8, [value; 8]);
    let words = |ops: &[Op]| -> BTreeSet<Vec<u8>> {
        let machine = machine(ops, Config::default());
        let images = images_of(&machine, Scope { lines: None, whole_nt: true });
        images.iter().map(|image| image.iter().step_by(8).take(4).copied().collect()).collect()
    };
    let set = |images: &[[u8; 4]]| images.iter().map(|image| image.to_vec()).collect::<BTreeSet<_>>();
    assert_eq!(words(&[n(0, 1), n(1, 1), n(2, 1)]), set(&[[0, 0, 0, 0], [1, 1, 1, 0]]));
    // A cached store between two runs.
    let ops = [n(0, 1), n(1, 1), Op::store(16, [1; 8]), n(3, 1)];
    assert_eq!(words(&ops), set(&[[0; 4], [1, 1, 0, 0], [1, 1, 1, 0], [1; 4]]));
    // One store of three pieces.
    assert_eq!(words(&[Op::nt_store(0, [1; 24])]), set(&[[0; 4], [1, 1, 1, 0]]));
}

#[test]
fn samples_of_a_scope_are_allowed_and_vary_its_lines_alone() {
    let mut rng = Rng::new(6);
    for seed in 0..600 {
        let ops = random_program(&mut rng, Mix { max_ops: 12, max_pieces: 10, nt: true });
        let lines: BTreeSet<u64> = (0..SIZE as u64 / 64).filter(|_| rng.one_in(2)).collect();
        for config in configs() {
            let all = enumerated(SIZE, &ops, config);
            for scope in [
                Scope { lines: Some(&lines), whole_nt: false },
                Scope { lines: Some(&lines), whole_nt: true },
                Scope { lines: None, whole_nt: true },
            ] {
                let _ = machine(&ops, config).sample(scope, seed, 40, &mut |image| {
                    assert!(all.contains(image.memory), "{scope:?} {ops:?} {config:?}");
                    ControlFlow::Continue(())
                });
            }
        }
    }
}

#[test]
fn an_image_says_whether_it_has_a_non_temporal_store_that_is_not_complete() {
    let ops = [Op::nt_store(0, [1; 8]), Op::sfence(), Op::nt_store(64, [2; 8]), Op::store(128, [3; 8])];
    let mut found = BTreeMap::new();
    machine(&ops, Config::default())
        .enumerate(Scope::default(), 100, &mut |image| {
            found.insert((image.memory[0], image.memory[64], image.memory[128]), image.has_nt);
            ControlFlow::Continue(())
        })
        .unwrap();
    let expected = [((1, 0, 0), false), ((1, 0, 3), false), ((1, 2, 0), true), ((1, 2, 3), true)];
    assert_eq!(found, BTreeMap::from(expected));
}
