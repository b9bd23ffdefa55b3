//! Programs under test, and what they run in: they may hang, write without end, or die.
//!
//! Each is in a process group of its own, which does not outlive its owner here; every wait has an end.

mod ending;
mod group;
mod run;

pub use ending::Ending;
pub(crate) use group::Group;
pub(crate) use run::run_visibly;
pub use run::{Output, run};
