//! Records: one change each, in an encoding that no kind of log looks into.
//!
//! Shape: a head of 32 bytes that all records share, then the fields of the type, then bytes of variable
//! length (data, names, values); little endian, every field aligned to its size, the whole a multiple of 8
//! bytes. Reserved fields and padding are zero on the medium, and a decoder insists on it: no bytes of the
//! process's memory leak into a log, and a record of a version that gives them a meaning is not misread. Byte
//! for byte: `docs/format.md`.
//!
//! Decoding trusts nothing and borrows: names and data point into the buffer that was read.
//!
//! Source: reference of intent log behaviour, section 2; zil-pmem thesis, 2.3.3.

mod cursor;
mod decode;
mod encode;
mod error;
mod head;
mod types;
mod write;

pub use error::{RecordError, RecordFault};
pub use head::{HEAD_BYTES, Head, RECORD_BYTES_MAX, RECORD_VERSION, RecordType};
pub use types::{
    Attributes, CloneRange, Create, CreateKind, Link, Record, Remove, Rename, RenameKind, SetAcl, SetAttr,
    SetXattr, Time, TimedWrite, Truncate, Write, WriteData, Zeroes, attribute,
};
pub use write::{WRITE_HEAD_BYTES, encode_write, encode_write_around, encode_write_head};

#[cfg(test)]
mod tests;
