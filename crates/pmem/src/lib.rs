//! Persistent-memory (PM) regions and the primitives that make stores to them durable.
//!
//! A PM structure is written against [`Medium`]: an exclusively owned range of byte-addressable memory.

mod medium;

pub use medium::{LINE_BYTES, Medium, NoSum, PersistError, ReadError, ReadErrorKind, Summer};
