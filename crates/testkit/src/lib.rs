//! What tests and fuzz targets share; a dev-dependency only, never part of a program.
//!
//! [`Heap`] is memory that a test damages while other code uses it; [`Edit`] is the damage that media and
//! stray writes do; [`Rng`] yields the same pseudo-random numbers for the same seed in every run, and
//! [`SeededEntropy`] passes such numbers to a PRB; [`schedules`] runs scenarios with threads; `media` has
//! disks and persistent memory that lose their power together.

#![forbid(unsafe_code)]

mod edit;
mod entropy;
mod heap;
#[cfg(feature = "media")]
pub mod media;
mod rng;
mod schedules;

pub use edit::Edit;
pub use entropy::SeededEntropy;
pub use heap::{Heap, HeapRange};
pub use rng::Rng;
pub use schedules::schedules;
