//! What tests and fuzz targets share; a dev-dependency only, never part of a program.
//!
//! [`Heap`] is memory that a test damages behind the back of the code that uses it, [`Edit`] the ways in
//! which media and stray writes damage it, [`SeededEntropy`] randomness that is the same in every run,
//! [`schedules`] scenarios with threads.

#![forbid(unsafe_code)]

mod edit;
mod entropy;
mod heap;
mod schedules;

pub use edit::Edit;
pub use entropy::SeededEntropy;
pub use heap::{Heap, HeapRange};
pub use schedules::schedules;
