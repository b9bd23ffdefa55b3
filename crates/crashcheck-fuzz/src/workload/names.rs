//! Paths of workloads.

use fastness_crashcheck_workload::Command;
use fastness_crashcheck_workload::jlang::Path;
use fastness_pm_model::Rng;

use super::fields::paths_mut;
use crate::{numbers, pick};

/// Files and directories of most workloads.
const SHORT: [&str; 10] = ["foo", "bar", "A", "B", "A/foo", "A/bar", "A/C", "A/C/foo", "B/foo", "B/C"];
/// Directories within each other.
const DEPTH_MAX: usize = 12;

/// All texts of this file are paths.
fn path(text: &str) -> Path {
    Path::new(text).unwrap_or_else(|_| Path::root())
}

/// The paths of these operations, in order, with repetitions: what is used often comes often.
pub(super) fn used(operations: &[Command]) -> Vec<Path> {
    let mut operations = operations.to_vec();
    operations.iter_mut().flat_map(paths_mut).map(|path| path.clone()).collect()
}

/// A path of these operations, most of the time; otherwise a short one, one at a limit, or a deep one.
pub(super) fn any(operations: &[Command], rng: &mut Rng) -> Path {
    let used = used(operations);
    match rng.below(16) {
        0 => long(rng),
        1 => deep(rng),
        2 => Path::root(),
        3..=11 if !used.is_empty() => pick(rng, &used).clone(),
        _ => path(SHORT[rng.index(SHORT.len())]),
    }
}

/// A name whose length is at a limit, in the directory of the workload or in A.
pub(super) fn long(rng: &mut Rng) -> Path {
    let len = numbers::name_bytes(rng);
    let letter = *pick(rng, &["n", "m"]);
    let directory = *pick(rng, &["", "", "A/"]);
    path(&format!("{directory}{}", letter.repeat(len)))
}

/// A directory in a directory, and so on.
pub(super) fn deep(rng: &mut Rng) -> Path {
    let depth = 2 + rng.index(DEPTH_MAX - 1);
    path(&vec!["d"; depth].join("/"))
}

/// `mkdir` for all directories above a path that these operations do not mention.
pub(super) fn parents(of: &Path, operations: &[Command]) -> Vec<Command> {
    let used = used(operations);
    let above = std::iter::successors(of.parent(), Path::parent);
    let mut missing: Vec<Path> = above.filter(|directory| !used.contains(directory)).collect();
    missing.reverse();
    missing.into_iter().map(|directory| Command::Mkdir { directory, mode: 0o755 }).collect()
}
