//! Reading a chain after a crash: walk, claim, replay.
//!
//! Crash cases:
//! 1. Before the header of the first chain is durable: there is no log, and nothing in it was acknowledged.
//! 2. While blocks are written: the chain ends at the first block that is missing or incomplete. Every
//!    acknowledged record precedes it, because a block is acknowledged after all earlier ones. A torn block
//!    has some whole sectors and others that were never written; a sector that was written and has changed is
//!    damage, and so is the end if a later block says that it was durable.
//! 3. After a txg has synced, its header starts further down the chain; only then are the blocks before it
//!    free.
//! 4. During claim: nothing but the header is written; the next import claims again.
//! 5. During replay: the header with the last replayed record is stored with the changes of that record.
//! 6. After replay: the blocks are free once the header that no longer names them is durable.

mod claim;
mod end;
mod error;
mod gather;
mod later;
mod read;
mod replay;
mod survey;
mod walk;

pub use claim::{Claimed, OnLoss, claim, claim_each};
pub use end::End;
pub use error::{ClaimError, Ended, LostRecords, ReplayError};
pub use gather::Record;
pub use later::Later;
pub use replay::Replayed;
pub use survey::{BlockSurvey, Found, survey};
