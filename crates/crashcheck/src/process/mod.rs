//! Programs under test, and what they run in: they may hang, write without end, or die.
//!
//! Each is in a process group of its own, which does not outlive its owner here; every wait has an end. A
//! guard, if one was begun, ends them even if this process is killed.

mod ending;
mod folder;
mod group;
mod guard;
mod run;

pub use ending::Ending;
pub use folder::Folder;
pub(crate) use group::Group;
pub use guard::{begin_guard, serve_guard};
pub(crate) use run::run_visibly;
pub use run::{Output, run};
