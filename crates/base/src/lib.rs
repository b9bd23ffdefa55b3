//! What all crates of Fastness share: kinds of errors, numbers that must not be mixed up, counters.
//!
//! ```text
//! error      what a caller must do about an error
//! counter    how often and how long
//! any_error  an error of any surface, for programs
//! hash       a hash for keys that are numbers
//! ids        txgs, datasets, objects, logs
//! logged     bytes that a log has
//! moment     dates and times of day
//! patience   what another process lets go of in a moment
//! room       maps that keep what is gone for a while
//! ```

#![forbid(unsafe_code)]

mod any_error;
mod counter;
mod error;
mod hash;
mod ids;
mod logged;
mod moment;
mod patience;
mod room;

pub use any_error::AnyError;
pub use counter::{Counter, Counts};
pub use error::{ErrorKind, HasKind, UnknownKind, chain, panic_text};
pub use hash::NumberHasher;
pub use ids::{DatasetId, LogGuid, ObjectId, Txg};
pub use logged::{LogPlace, LostInLog, ReadLogged};
pub use moment::Moment;
pub use patience::{PAUSE, is_busy, patiently};
pub use room::Roomy;
