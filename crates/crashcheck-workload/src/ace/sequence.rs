//! All sequences of a length, one after the other.

use super::dependencies::Resolver;
use super::{FileSet, Kind, Operation, operations};
use crate::jlang::Workload;

/// A workload, and what it was made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generated {
    /// As `seq2-0001`: stable, as names of files may be.
    pub name: String,
    /// The operations that it is about, without their dependencies.
    pub core: Vec<Operation>,
    /// How many of them cannot succeed.
    pub fails: usize,
    /// To be run, or printed.
    pub workload: Workload,
}

/// The workloads of all sequences of a length, in a fixed order; an iterator, as there may be many.
#[derive(Debug, Clone)]
pub struct Sequences {
    kinds: &'static [Kind],
    length: u32,
    /// Parameters of each kind, of the published files, and whether the set has it.
    choices: Vec<Vec<(Operation, bool)>>,
    /// Number of the next workload among the published, from 0.
    next: u64,
    /// Number of published workloads.
    end: u64,
    /// Workloads of the set that are left.
    left: u64,
}

impl Sequences {
    /// All workloads of `length` operations: of all kinds, but for three or more over dwrite, link, unlink
    /// and rename.
    ///
    /// # Panics
    /// If `length` is 0 or above 8.
    pub fn new(length: u32, set: FileSet) -> Self {
        assert!((1..=8).contains(&length), "sequences of 1 to 8 operations");
        let kinds = if length < 3 { &Kind::ALL[..] } else { &Kind::OF_THREE[..] };
        let choices: Vec<Vec<_>> = kinds
            .iter()
            .map(|kind| {
                let of_set = operations(*kind, set);
                let in_set = |operation: Operation| (operation.clone(), of_set.contains(&operation));
                operations(*kind, FileSet::Published).into_iter().map(in_set).collect()
            })
            .collect();
        let count = |all: bool| {
            let total = choices.iter().flatten().filter(|(_, in_set)| all || *in_set).count();
            (total as u64).pow(length)
        };
        Self { kinds, length, next: 0, end: count(true), left: count(false), choices }
    }

    /// One workload by its number among the published ones, from 1, whatever the set; `None` if there is no
    /// such number.
    pub fn get(&self, number: u64) -> Option<Generated> {
        let index = number.checked_sub(1).filter(|index| *index < self.end)?;
        Some(self.generate(index, self.core(index).into_iter().map(|(operation, _)| operation).collect()))
    }

    /// The operations of a workload: first its skeleton, by the sizes of those before it, then its
    /// parameters.
    fn core(&self, mut index: u64) -> Vec<(Operation, bool)> {
        let total: u64 = self.choices.iter().map(|choices| choices.len() as u64).sum();
        let mut skeleton = Vec::new();
        // Workloads that share the kinds chosen so far, for each choice of parameters of these.
        let mut product = 1;
        for position in 0..self.length {
            let rest = total.pow(self.length - 1 - position);
            for (kind, choices) in self.choices.iter().enumerate() {
                let block = product * choices.len() as u64 * rest;
                if index < block {
                    skeleton.push(kind);
                    product *= choices.len() as u64;
                    break;
                }
                index -= block;
            }
        }
        let mut core: Vec<_> = skeleton
            .iter()
            .rev()
            .map(|kind| {
                let choices = &self.choices[*kind];
                let choice = &choices[(index % choices.len() as u64) as usize];
                index /= choices.len() as u64;
                choice.clone()
            })
            .collect();
        core.reverse();
        core
    }

    fn generate(&self, index: u64, core: Vec<Operation>) -> Generated {
        let mut resolver = Resolver::default();
        for (position, operation) in core.iter().enumerate() {
            resolver.resolve(operation, position + 1 == core.len());
        }
        let fails = resolver.fails;
        let workload = Workload { define: FileSet::defined(), run: resolver.finish(), ..Workload::default() };
        let digits = self.end.to_string().len();
        Generated { name: format!("seq{}-{:0digits$}", self.length, index + 1), core, fails, workload }
    }

    /// The kinds that sequences are made of.
    pub fn kinds(&self) -> &'static [Kind] {
        self.kinds
    }
}

impl Iterator for Sequences {
    type Item = Generated;

    fn next(&mut self) -> Option<Generated> {
        while self.next < self.end {
            let index = self.next;
            self.next += 1;
            let core = self.core(index);
            if core.iter().all(|(_, in_set)| *in_set) {
                self.left -= 1;
                return Some(
                    self.generate(index, core.into_iter().map(|(operation, _)| operation).collect()),
                );
            }
        }
        None
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.left).ok();
        (left.unwrap_or(usize::MAX), left)
    }
}
