//! What is done to a pool while it is in use, besides changing its datasets.
//!
//! ```text
//! change   add, attach, detach, replace, remove
//! check    allocated = referenced
//! damage   blocks without a right copy: the list
//! damaged  what a pool does with it
//! kept     the check of what is kept for snapshots of file systems
//! online   devices that go away and come back
//! relabel  labels of a running pool
//! scrub    scrub, resilver
//! status   what a pool reports about itself
//! trim     what is free is discarded
//! ```

pub(crate) mod change;
pub(crate) mod check;
pub(crate) mod damage;
pub(crate) mod damaged;
pub(crate) mod grow;
mod kept;
mod online;
pub(crate) mod relabel;
pub(crate) mod scrub;
pub(crate) mod status;
pub(crate) mod trim;
