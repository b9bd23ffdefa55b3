//! Fuzzing for crash tests: what is done to a program or a file system before it crashes is changed at
//! random, and what reaches something new is kept and changed again.
//!
//! Motivation: generated workloads ([`ace`](fastness_crashcheck_workload::ace)) have whole blocks and short
//! names. Bugs of published file systems for persistent memory were found by fuzzing alone: lengths that are
//! no multiple of a line, empty and huge writes, names at their limits. So these come first here
//! ([`numbers`], [`workload`]).
//!
//! Design: a run is judged by its [`Features`], hashes of what it reached: blocks of code, and how often each
//! ran; stores that were pending at a fence, and what they still lacked. The second kind is what a coverage
//! of code does not see: a flush that is missing for some lengths only is no block of its own. Who runs
//! things, and traces them, is not known here.
//!
//! Everything is decided by the seed: the same features in the same order give the same inputs.
//!
//! # Code map
//! ```text
//! features   what a run reached                    numbers    limits, and what lies beside them
//! corpus     what is kept, what is changed next    bytes/     inputs of programs: text, or any bytes
//! shrink     less that still fails                 workload/  workloads of file systems, in J-lang
//! ```
//!
//! Source: M. Zalewski, American Fuzzy Lop (buckets of counts, favoured inputs); LeBlanc et al., "Chipmunk"
//! (EuroSys 2023), 5 (bugs that only fuzzing found).

#![forbid(unsafe_code)]

pub mod bytes;
pub mod corpus;
pub mod features;
pub mod numbers;
pub mod shrink;
pub mod workload;

pub use corpus::Corpus;
pub use features::Features;
pub use shrink::minimal;

use fastness_pm_model::Rng;

/// One of several.
fn pick<'a, T>(rng: &mut Rng, of: &'a [T]) -> &'a T {
    &of[rng.index(of.len())]
}
