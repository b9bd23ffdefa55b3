//! Transaction groups: changes that become durable together.
//!
//! ```text
//! branching snapshots and clones that a txg makes
//! dirty     what a txg writes out
//! freeing   what a txg frees, in steps
//! from_log  bytes of blocks that only a log has
//! keeping   rows that change while snapshots need them
//! keeping_files  the same for objects and rows of file systems
//! output    writes blocks to new places
//! pipeline  open, quiescing, syncing; holds, back-pressure
//! promoting a clone and the volume that it began in change places
//! pruning   removes what no snapshot needs any more, in steps
//! publish   what follows a sync
//! pulse     whether the thread moves
//! rolling_back  a branch becomes what a snapshot of it is
//! sync      takes a txg from DRAM to the vdevs
//! thread    the thread that ends txgs
//! transact  changes in transactions of their own, tried again where that helps
//! ```

mod branching;
pub(crate) mod dirty;
pub(crate) mod freeing;
mod from_log;
mod keeping;
mod keeping_files;
pub(crate) mod output;
pub(crate) mod pipeline;
mod promoting;
mod pruning;
pub(crate) mod publish;
pub(crate) mod pulse;
mod rolling_back;
pub(crate) mod sync;
pub(crate) mod thread;
mod transact;
