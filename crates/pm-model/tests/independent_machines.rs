//! The enumerator against two other statements of the rules, on random programs.

mod support;

use fastness_pm_model::{Config, Persistence, Rng, Rules};
use support::programs::{Mix, SIZE, random_program};
use support::{assert_same, axioms, enumerated, enumerated_on, naive};

fn config(persistence: Persistence, rules: Rules, strict_nt: bool) -> Config {
    Config { persistence, rules, strict_nt }
}

fn compare_with_schedules(seed: u64, programs: usize, mix: Mix, config: Config) {
    let mut rng = Rng::new(seed);
    for index in 0..programs {
        let ops = random_program(&mut rng, mix);
        let expected = naive::crash_images(SIZE, &ops, config);
        let actual = enumerated(SIZE, &ops, config);
        assert_same(&actual, &expected, &format!("program {index} of seed {seed}: {ops:?}"));
    }
}

const CACHED: Mix = Mix { max_ops: 8, max_pieces: 7, nt: false };
const MIXED: Mix = Mix { max_ops: 7, max_pieces: 6, nt: true };

#[test]
fn schedules_adr_without_non_temporal_stores() {
    compare_with_schedules(1, 6000, CACHED, Config::default());
}

#[test]
fn schedules_adr() {
    compare_with_schedules(2, 4000, MIXED, Config::default());
}

#[test]
fn schedules_adr_strict() {
    compare_with_schedules(3, 4000, MIXED, config(Persistence::Adr, Rules::Arch, true));
}

#[test]
fn schedules_eadr() {
    compare_with_schedules(4, 4000, MIXED, config(Persistence::Eadr, Rules::Arch, false));
}

#[test]
fn schedules_eadr_strict() {
    compare_with_schedules(5, 4000, MIXED, config(Persistence::Eadr, Rules::Arch, true));
}

#[test]
fn axioms_in_every_mode() {
    let mut rng = Rng::new(6);
    let mix = Mix { max_ops: 10, max_pieces: 11, nt: true };
    for index in 0..6000 {
        let ops = random_program(&mut rng, mix);
        for persistence in [Persistence::Adr, Persistence::Eadr] {
            for rules in [Rules::Arch, Rules::Dissertation] {
                for strict_nt in [false, true] {
                    let config = config(persistence, rules, strict_nt);
                    let expected = axioms::crash_images(SIZE, &ops, config);
                    let actual = enumerated(SIZE, &ops, config);
                    assert_same(&actual, &expected, &format!("program {index}, {config:?}: {ops:?}"));
                }
            }
        }
    }
}

/// R13: each operation by one of three processors.
#[test]
fn axioms_with_processors() {
    let mut rng = Rng::new(7);
    let mix = Mix { max_ops: 10, max_pieces: 10, nt: true };
    let mut different = 0;
    for index in 0..6000 {
        let ops = random_program(&mut rng, mix);
        let cpus: Vec<u32> = ops.iter().map(|_| rng.below(3) as u32).collect();
        for persistence in [Persistence::Adr, Persistence::Eadr] {
            for rules in [Rules::Arch, Rules::Dissertation] {
                for strict_nt in [false, true] {
                    let config = config(persistence, rules, strict_nt);
                    let expected = axioms::crash_images_on(SIZE, &ops, &cpus, config);
                    let actual = enumerated_on(SIZE, &ops, &cpus, config);
                    assert_same(
                        &actual,
                        &expected,
                        &format!("program {index}, {config:?}: {ops:?} by {cpus:?}"),
                    );
                    different += usize::from(expected != axioms::crash_images(SIZE, &ops, config));
                }
            }
        }
    }
    assert!(different > 1000, "processors make no difference: {different}");
}
