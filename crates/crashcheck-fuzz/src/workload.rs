//! Workloads of file systems, in J-lang.
//!
//! Changes know what operations are about: a file that is written to is opened first, a deep directory gets
//! its parents. What is left to chance is whether an operation succeeds: one that fails must leave nothing
//! either.
//!
//! What comes, besides ACE's operations: offsets and lengths beside multiples of lines, blocks and pages,
//! empty writes and huge ones, offsets at which 32 bits end; names of 1, 255 and 256 bytes, and directories
//! in directories; links and renames to what is there, to itself, to a directory, below itself; truncations
//! up and down; all kinds of `fallocate`; operations on files that are removed but open.

mod change;
mod fields;
mod names;
mod operation;
mod shrink;

use std::collections::{BTreeMap, BTreeSet};

use fastness_crashcheck_workload::jlang::{COMMANDS_MAX, LENGTH_MAX, PATHS_MAX, Path};
use fastness_crashcheck_workload::{Command, Workload};
use fastness_pm_model::Rng;

pub use shrink::shrink;

/// How workloads are changed.
#[derive(Debug, Clone)]
pub struct Mutator {
    /// Most operations of a workload; a few more where one needs others before it.
    pub operations_max: usize,
    /// Longest write, in bytes.
    pub len_max: u64,
    /// Highest offset and length of a file, in bytes.
    pub offset_max: u64,
}

impl Default for Mutator {
    fn default() -> Self {
        Self { operations_max: 24, len_max: LENGTH_MAX / 4, offset_max: 1 << 40 }
    }
}

impl Mutator {
    /// Changes `workload`, once or a few times; operations of `other` may come in. Each operation of the
    /// result is followed by a checkpoint, and nothing prepares.
    pub fn mutate(&self, workload: &Workload, other: &Workload, rng: &mut Rng) -> Workload {
        let mut operations = operations(workload);
        let other = self::operations(other);
        let changes = if rng.one_in(2) { 1 } else { 1 + rng.index(4) };
        for _ in 0..changes {
            self.change(&mut operations, &other, rng);
            operations.truncate(self.operations_max.min(COMMANDS_MAX / 2));
        }
        self::workload(operations)
    }

    fn change(&self, operations: &mut Vec<Command>, other: &[Command], rng: &mut Rng) {
        match rng.below(16) {
            0..=3 => change::insert(operations, operation::any(operations, self, rng), rng),
            4..=6 => change::number(operations, self, rng),
            7 => change::path(operations, rng),
            8 => change::same(operations, rng),
            9 => change::flags(operations, rng),
            10 => change::insert(operations, operation::scene(operations, self, rng), rng),
            11 => change::drop_one(operations, rng),
            12 => change::repeat(operations, rng),
            13 => change::swap(operations, rng),
            14 => change::name(operations, rng),
            _ => change::splice(operations, other, rng),
        }
    }
}

/// What a workload does, without marks and checkpoints.
pub fn operations(workload: &Workload) -> Vec<Command> {
    let is_operation =
        |command: &&Command| !matches!(command, Command::None | Command::Mark | Command::Checkpoint(_));
    workload.setup.iter().chain(&workload.run).filter(is_operation).cloned().collect()
}

/// The workload that does this, with a checkpoint after each operation.
///
/// Paths that would have the same name in J-lang, which are the same without their slashes, become one; more
/// than a workload may have become the first ones.
pub fn workload(mut operations: Vec<Command>) -> Workload {
    let mut names: BTreeMap<String, Path> = BTreeMap::new();
    for path in operations.iter_mut().flat_map(fields::paths_mut) {
        let known = names.get(&path.short()).or_else(|| {
            let is_full = names.len() >= PATHS_MAX;
            if is_full { names.values().next() } else { None }
        });
        match known {
            Some(known) => *path = known.clone(),
            None => drop(names.insert(path.short(), path.clone())),
        }
    }
    let define: BTreeSet<Path> = names.into_values().collect();
    let numbered = operations.into_iter().zip(1..);
    let run = numbered.flat_map(|(operation, number)| [operation, Command::Checkpoint(number)]);
    Workload {
        define: define.into_iter().collect(),
        declare: Vec::new(),
        setup: Vec::new(),
        run: std::iter::once(Command::Mark).chain(run).collect(),
    }
}

/// Where to begin: short workloads of whole blocks and short names.
pub fn seeds() -> Vec<Workload> {
    const TEXTS: [&str; 5] = [
        "# define\nfoo\n# run\nopen foo O_RDWR|O_CREAT 0644\nwrite foo 0 4096\nwrite foo 4096 4096\nclose foo\n",
        "# define\nA\nA/foo\nbar\n# run\nmkdir A 0755\nopen Afoo O_RDWR|O_CREAT 0644\nwrite Afoo 0 8192\n\
         close Afoo\nrename Afoo bar\nrmdir A\n",
        "# define\nfoo\nbar\n# run\nopen foo O_RDWR|O_CREAT 0644\nwrite foo 0 4096\nlink foo bar\nunlink foo\n\
         close foo\n",
        "# define\nfoo\n# run\nopen foo O_RDWR|O_CREAT 0644\nwrite foo 0 8192\ntruncate foo 4096\n\
         truncate foo 16384\nfalloc foo 0 16384 4096\nclose foo\n",
        "# define\nfoo\nbar\n# run\nopen foo O_RDWR|O_CREAT 0644\nfsetxattr foo\nsymlink foo bar\n\
         removexattr foo\nclose foo\n",
    ];
    TEXTS
        .iter()
        .filter_map(|text| Workload::parse(text).ok())
        .map(|seed| workload(operations(&seed)))
        .collect()
}

#[cfg(test)]
mod tests;
