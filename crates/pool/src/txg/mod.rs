//! Transaction groups: changes that become durable together.
//!
//! ```text
//! dirty     what a txg writes out
//! freeing   what a txg frees, in steps
//! output    writes blocks to new places
//! pipeline  open, quiescing, syncing; holds, back-pressure
//! publish   what follows a sync
//! pulse     whether the thread moves
//! sync      takes a txg from DRAM to the vdevs
//! thread    the thread that ends txgs
//! ```

pub(crate) mod dirty;
pub(crate) mod freeing;
pub(crate) mod output;
pub(crate) mod pipeline;
pub(crate) mod publish;
pub(crate) mod pulse;
pub(crate) mod sync;
pub(crate) mod thread;
