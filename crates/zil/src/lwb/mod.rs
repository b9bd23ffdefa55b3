//! Kind lwb: one chain of log-write blocks for each dataset, in a space that all datasets of a pool share.
//!
//! Life of a log, in terms of what is in the pool (header) and in the space (blocks):
//! 1. *Created* with its dataset. It has a chain from the first txg that has the dataset; until that has
//!    synced, commits wait for their txgs.
//! 2. *Written*: the beginning of the chain moves forward as txgs sync. So the header belongs to the txg that
//!    is being written, not to a transaction: [`LwbLogs::sync`] gives the changed headers to the pool, and
//!    [`LwbLogs::txg_synced`] then frees what no header names any more.
//! 3. *Claimed* at import, before the first txg and before anything is allocated.
//! 4. *Replayed* when the dataset is opened: each record's effect and the header with its number are in one
//!    transaction. The txg after the last one names a new chain; when it has synced, the old blocks are
//!    freed.
//! 5. *Destroyed* with its dataset.
//!
//! A crash in any of these states finds the header of the last synced txg, and every block that it needs:
//! blocks are freed only after the txg that no longer names them has synced.
//!
//! A large write need not go through the log: its data is stored where the txg will have it, made durable,
//! and only then is its record appended, with the address instead of the data (`data`). An import claims that
//! data with the chain (`held`).
//!
//! Failures: a block that cannot be written or flushed, or for which there is no space, takes the log *down*;
//! commits then wait for their txgs, and the next suitable txg starts a new chain (`fastness_lwb`).

mod commit;
mod data;
mod held;
mod idle;
mod import;
mod log;
mod logs;
mod replay;
mod written;

pub use import::Import;
pub use log::LwbLog;
pub use logs::LwbLogs;
