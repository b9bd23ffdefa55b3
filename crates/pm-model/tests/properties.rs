//! Properties of arbitrary programs, shrunk on failure.

mod support;

use fastness_pm_model::{Config, FenceKind, FlushKind, Op, Persistence, Rules};
use proptest::prelude::*;
use support::{assert_same, axioms, enumerated, naive};

const SIZE: usize = 192;

fn op() -> impl Strategy<Value = Op> {
    let store = (0_u64..180, 1_usize..=12, 0_u8..3, any::<bool>())
        .prop_map(|(addr, len, value, nt)| Op::Store { addr, data: vec![value; len], nt, atomic64: false });
    let word = (0_u64..3, 0_u64..2, 1_u8..3, any::<bool>()).prop_map(|(line, word, value, nt)| Op::Store {
        addr: 64 * line + 8 * word,
        data: vec![value; 8],
        nt,
        atomic64: false,
    });
    let kind = prop_oneof![Just(FlushKind::Clwb), Just(FlushKind::Clflushopt), Just(FlushKind::Clflush)];
    let flush = (kind, 0_u64..192).prop_map(|(kind, addr)| Op::Flush { kind, addr });
    let kind = prop_oneof![Just(FenceKind::Sfence), Just(FenceKind::Mfence), Just(FenceKind::Lfence)];
    let rmw = (0_u64..24, 1_u8..3).prop_map(|(word, value)| Op::rmw(8 * word, [value; 8]));
    let whole = (0_u64..3, 1_u8..3).prop_map(|(line, value)| Op::movdir64b(64 * line, [value; 64]));
    prop_oneof![2 => store, 5 => word, 4 => flush, 2 => kind.prop_map(Op::Fence), 1 => rmw, 1 => whole]
}

fn config() -> impl Strategy<Value = Config> {
    (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(eadr, narrow, strict_nt)| Config {
        persistence: if eadr { Persistence::Eadr } else { Persistence::Adr },
        rules: if narrow { Rules::Dissertation } else { Rules::Arch },
        strict_nt,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_three_statements_of_the_rules_agree(ops in prop::collection::vec(op(), 1..7), config in config()) {
        let images = enumerated(SIZE, &ops, config);
        assert_same(&images, &axioms::crash_images(SIZE, &ops, config), &"axioms");
        if config.rules == Rules::Arch {
            assert_same(&images, &naive::crash_images(SIZE, &ops, config), &"schedules");
        }
    }

    /// Only fences make images impossible; the argument of `explore` rests on it.
    #[test]
    fn sets_grow_until_a_fence(ops in prop::collection::vec(op(), 1..9), config in config()) {
        let before = enumerated(SIZE, &ops[..ops.len() - 1], config);
        let after = enumerated(SIZE, &ops, config);
        if !ops[ops.len() - 1].is_fence() {
            assert!(before.is_subset(&after));
        } else if config.rules == Rules::Arch && !matches!(ops[ops.len() - 1], Op::Rmw { .. }) {
            assert!(after.is_subset(&before));
        }
    }

    /// The strict switch and weaker platforms only add images.
    #[test]
    fn weaker_models_allow_more(ops in prop::collection::vec(op(), 1..9), config in config()) {
        let images = enumerated(SIZE, &ops, config);
        assert!(images.is_subset(&enumerated(SIZE, &ops, Config { strict_nt: true, ..config })));
        if config.rules == Rules::Arch && !ops.iter().any(|op| matches!(op, Op::Flush { kind: FlushKind::Clflush, .. })) {
            assert!(images.is_subset(&enumerated(SIZE, &ops, Config { persistence: Persistence::Adr, ..config })));
        }
    }
}
