//! Kind pmem: one HDL for each dataset, on the PRB in the pool's persistent memory.
//!
//! Life of a log, in terms of what is in the pool (header) and on PM (entries):
//! 1. *Created* with its dataset, in the same transaction, so that no commit ever waits for a header: the
//!    dataset's owner waits for its creation anyway, or commits wait for the txg until it has synced.
//! 2. *Claimed* at import, before the first txg: one scan of PM for all datasets; what was found goes into
//!    the headers with the first txg, in one transaction for all of them.
//! 3. *Replayed* when the dataset is opened: each record's effect and the place after it are in one
//!    transaction; after the last record, one transaction destroys the old log and creates a new one.
//!    Entries without a body (`idle`) are no records; they only count what precedes them.
//! 4. *Destroyed* with its dataset.
//!
//! A crash in any of these states finds the header of the last synced txg, and with it the entries that it
//! needs: PM is emptied only after the txg that no longer needs it has synced ([`PmemLogs::txg_synced`]).
//!
//! Source: zil-pmem thesis, 6.3.3 and 6.3.4.

mod commit;
mod idle;
mod import;
mod log;
mod logs;
mod replay;

pub use import::Import;
pub use log::PmemLog;
pub use logs::PmemLogs;
