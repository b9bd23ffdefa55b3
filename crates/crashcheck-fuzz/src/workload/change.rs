//! One change of a workload each.

use fastness_crashcheck_workload::Command;
use fastness_crashcheck_workload::jlang::OpenFlags;
use fastness_pm_model::Rng;

use super::fields::{Number, numbers_mut, paths_mut};
use super::{Mutator, names, operation};
use crate::{numbers, pick};

/// The operations of some kind, by index. None if there are none.
fn some_of(
    operations: &mut [Command],
    is_wanted: impl Fn(&mut Command) -> bool,
    rng: &mut Rng,
) -> Option<usize> {
    let found: Vec<usize> = operations
        .iter_mut()
        .enumerate()
        .filter_map(|(index, one)| is_wanted(one).then_some(index))
        .collect();
    (!found.is_empty()).then(|| *pick(rng, &found))
}

/// An offset or a length becomes an odd one.
pub(super) fn odd((number, kind): (&mut u64, Number), mutator: &Mutator, rng: &mut Rng) {
    // Most of what is far away fills the file system, or is beyond its end.
    let max = match kind {
        Number::Length if rng.one_in(4) => mutator.len_max,
        Number::Length => mutator.len_max.min(1 << 16),
        Number::Offset if rng.one_in(4) => mutator.offset_max,
        Number::Offset => mutator.offset_max.min(1 << 20),
    };
    *number = numbers::odd(*number, max, rng);
}

pub(super) fn number(operations: &mut [Command], mutator: &Mutator, rng: &mut Rng) {
    let Some(at) = some_of(operations, |one| !numbers_mut(one).is_empty(), rng) else { return };
    let mut numbers = numbers_mut(&mut operations[at]);
    let index = rng.index(numbers.len());
    odd(numbers.swap_remove(index), mutator, rng);
}

/// A path becomes another one, here alone.
pub(super) fn path(operations: &mut [Command], rng: &mut Rng) {
    let other = names::any(operations, rng);
    let Some(at) = some_of(operations, |one| !paths_mut(one).is_empty(), rng) else { return };
    let mut paths = paths_mut(&mut operations[at]);
    let index = rng.index(paths.len());
    *paths.swap_remove(index) = other;
}

/// A path becomes one at a limit wherever it is.
pub(super) fn name(operations: &mut [Command], rng: &mut Rng) {
    let used = names::used(operations);
    if used.is_empty() {
        return;
    }
    let (from, to) = (pick(rng, &used).clone(), names::long(rng));
    for path in operations.iter_mut().flat_map(paths_mut).filter(|path| **path == from) {
        *path = to.clone();
    }
}

/// Both paths of an operation become one: a link to, a rename over, itself.
pub(super) fn same(operations: &mut [Command], rng: &mut Rng) {
    let Some(at) = some_of(operations, |one| paths_mut(one).len() > 1, rng) else { return };
    let mut paths = paths_mut(&mut operations[at]);
    let first = paths[0].clone();
    *paths.swap_remove(1) = first;
}

pub(super) fn flags(operations: &mut [Command], rng: &mut Rng) {
    let has_flags = |one: &mut Command| matches!(one, Command::Open { .. } | Command::Falloc { .. });
    let Some(at) = some_of(operations, has_flags, rng) else { return };
    match &mut operations[at] {
        Command::Open { flags, .. } => {
            let bit = OpenFlags::from_bits_truncate(1 << rng.below(9));
            *flags = OpenFlags::RDWR.with(OpenFlags::CREAT).with(bit);
        }
        Command::Falloc { flags, .. } => *flags = operation::falloc_flags(rng),
        _ => {}
    }
}

pub(super) fn insert(operations: &mut Vec<Command>, new: Vec<Command>, rng: &mut Rng) {
    // Most often at the end, where all that it needs is there.
    let at = if rng.one_in(2) { operations.len() } else { rng.index(operations.len() + 1) };
    operations.splice(at..at, new);
}

pub(super) fn drop_one(operations: &mut Vec<Command>, rng: &mut Rng) {
    if !operations.is_empty() {
        operations.remove(rng.index(operations.len()));
    }
}

/// An operation comes once more.
pub(super) fn repeat(operations: &mut Vec<Command>, rng: &mut Rng) {
    if !operations.is_empty() {
        let again = pick(rng, operations).clone();
        insert(operations, vec![again], rng);
    }
}

pub(super) fn swap(operations: &mut [Command], rng: &mut Rng) {
    if !operations.is_empty() {
        let (one, two) = (rng.index(operations.len()), rng.index(operations.len()));
        operations.swap(one, two);
    }
}

/// The beginning of one, and the end of another.
pub(super) fn splice(operations: &mut Vec<Command>, other: &[Command], rng: &mut Rng) {
    operations.truncate(rng.index(operations.len() + 1));
    operations.extend_from_slice(&other[rng.index(other.len() + 1)..]);
}
