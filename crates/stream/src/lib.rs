//! The format in which snapshots of volumes go from one pool to another.
//!
//! Motivation: an increment that is applied wrongly destroys a volume without anybody noticing. So a reader
//! hands out only what a writer has written, in its order and in its place, and refuses anything else.
//!
//! Design: a preamble, and records. Each record has a checksum that begins with that of the record before it:
//! a record that is damaged, missing, doubled or from another stream does not fit. Ranges rise and do not
//! overlap, and lie within the volume. A stream that does not end with its last record is not whole.
//! No checksum is a signature: whoever can write a stream can forge one.
//!
//! Memory: one record, of [`DATA_BYTES_MAX`] at most.
//!
//! # Layout
//! All numbers are little-endian. Preamble: 8 bytes `FASTSTRM`, version 4, zero 4. Then records:
//!
//! | offset | size | field |
//! |--:|--:|---|
//! | 0 | 1 | kind: 1 begin, 2 data, 3 hole, 4 end |
//! | 1 | 3 | zero |
//! | 4 | 4 | length of the payload, which follows the 40 bytes |
//! | 8 | 8 | number of the record, from 0 |
//! | 16 | 8 | offset in the volume; begin: where the stream goes on; end: 0 |
//! | 24 | 8 | length of the range; begin: size of the volume; end: bytes of data in the stream |
//! | 32 | 8 | XXH3-64 of the 32 bytes before and the payload, with the sum before as its seed; the first one's seed is that of the preamble |
//!
//! Payload of begin: block size 4, zero 4, GUID of the snapshot 8, GUID of the one that it is an increment on
//! 8 (0: none), then the full name of the snapshot in UTF-8. That of data: the bytes.
//!
//! # Code map
//! `reader`, `writer`, `token` (where an interrupted stream goes on), `record` (what both share).

#![forbid(unsafe_code)]

mod error;
mod reader;
mod record;
mod token;
mod writer;

pub use error::{Result, StreamError};
pub use reader::{Part, Reader};
pub use record::{Begin, DATA_BYTES_MAX, NAME_BYTES_MAX, RECORD_BYTES, VERSION, begin_bytes};
pub use token::Token;
pub use writer::Writer;
