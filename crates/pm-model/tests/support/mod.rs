//! Two independent statements of the rules, and random programs to compare them on.
//!
//! Nothing here uses the enumerator: `naive` searches all schedules of a machine made of buffers and
//! caches, `axioms` tries all subsets of all pieces against the rules' pairwise relations.
#![allow(dead_code, reason = "each test file uses a part")]

pub(crate) mod axioms;
pub(crate) mod naive;
pub(crate) mod programs;

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use fastness_pm_model::{Config, Machine, Op};

/// A set of PM images.
pub(crate) type Images = BTreeSet<Vec<u8>>;

/// The images that the enumerator gives after `ops`; panics if one comes twice.
pub(crate) fn enumerated(size: usize, ops: &[Op], config: Config) -> Images {
    enumerated_on(size, ops, &vec![0; ops.len()], config)
}

/// The same, where each operation has its processor.
pub(crate) fn enumerated_on(size: usize, ops: &[Op], cpus: &[u32], config: Config) -> Images {
    let mut machine = Machine::new(vec![0; size], config);
    ops.iter().zip(cpus).for_each(|(op, &cpu)| machine.apply_on(cpu, op).unwrap());
    let mut images = Images::new();
    let done = machine
        .for_each_crash_image(1 << 20, &mut |image| {
            assert!(images.insert(image.to_vec()), "the same image twice");
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(done.images, images.len());
    assert!(machine.count_upper_bound() >= images.len() as u128);
    assert!(images.contains(machine.persistent_image()) && images.contains(&machine.volatile_image()));
    images
}

/// Panics with what differs, in a form short enough to read.
pub(crate) fn assert_same(actual: &Images, expected: &Images, what: &dyn std::fmt::Display) {
    let sparse = |image: &Vec<u8>| -> Vec<(usize, u8)> {
        image.iter().copied().enumerate().filter(|(_, byte)| *byte != 0).collect()
    };
    let missing: Vec<_> = expected.difference(actual).map(sparse).collect();
    let extra: Vec<_> = actual.difference(expected).map(sparse).collect();
    assert!(missing.is_empty() && extra.is_empty(), "{what}\nmissing: {missing:?}\nextra: {extra:?}");
}
