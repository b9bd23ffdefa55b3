//! Records: one change each, in an encoding that no kind of log looks into.
//!
//! Shape: a head of 32 bytes that all records share, then the fields of the type, then bytes of variable
//! length (data, names, values); little endian, every field aligned to its size, the whole a multiple of 8
//! bytes. Reserved fields and padding are zero on the medium, and a decoder insists on it: no bytes of the
//! process's memory leak into a log, and a record of a version that gives them a meaning is not misread. Byte
//! for byte: `docs/format.md`.
//!
//! Decoding trusts nothing and borrows: names and data point into the buffer that was read. What it refuses
//! must not be encoded, which does not check it: an empty name, more than 10^9 - 1 nanoseconds, a range
//! whose end overflows. Such a record would be damage to the next import.
//!
//! # Records of other owners
//! The types have the names of what files and volumes do. The log only looks at the order that a type
//! demands, and at the data of writes; what the fields mean is agreed between who makes a record and who
//! replays it. So the owner of another kind of datasets takes the types whose fields have room for its
//! changes: a row may be a [`SetXattr`] with key and value, a list of changes a [`SetAcl`], whose bytes are
//! opaque.
//!
//! | types | order |
//! |---|---|
//! | [`Create`], [`Remove`], [`Link`], [`Rename`] (10 types) | All of them have one order in a dataset, whatever objects they name, and every commit covers them. Replay applies each one after all those before it. |
//! | the other nine | They *may be reordered* ([`RecordType::may_be_reordered`]): only records that touch the same object have an order. One may be in the log after later records of other objects, and without earlier ones. |
//!
//! Of the second sort a record names its object in the head, and replay ignores it if that object is gone:
//! the record that removed it may come first. Hence the owner decides from records of the first sort alone
//! which objects exist. A record of the second sort may be kept in two ways: with
//! [`Itx::sync`](crate::Itx::sync) every commit covers it; with [`Itx::unordered`](crate::Itx::unordered)
//! only commits of its object do. What must come before it, beyond its own object, is named in `touches`, or
//! with [`behind`](crate::Itx::behind).
//!
//! Made by the log alone: a [`Write`] whose data is [`Indirect`](WriteData::Indirect), because an import
//! claims the blocks at its address. Of [`Itx::need_copy`](crate::Itx::need_copy) and of
//! [`Zil::log_write`](crate::Zil::log_write) the log makes records that a handler must know: `Write` in
//! pieces, inline or indirect; and, unless the dataset is a volume, a [`Truncate`] to the end of an object
//! that was cut since. If the object is gone, the commit waits for the txg instead. A record that is longer
//! than the kind of the log can take is not logged either, and its commit waits: kind pmem takes what fits
//! into a chunk of its region, kind lwb [`RECORD_BYTES_MAX`].
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
