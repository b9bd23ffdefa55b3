//! Objects: sparse bytes.
//!
//! ```text
//! buffers   memory of blocks, reused
//! cleared   cleared ranges that are not freed yet
//! copied    copies that share blocks with their source
//! create    creating, opening, destroying
//! cut       punch, truncate
//! extent    blocks on the medium, compression
//! handle    writes by users
//! in_log    blocks in memory, or in a log
//! kept      what is charged for rows that snapshots keep
//! logged    writes that the log has, and memory has not
//! object    layers in DRAM
//! origin    where copied bytes came from
//! ranges    a set of numbers
//! read      reads by users
//! segments  which parts are stored
//! stored    blocks that are durable in place before their txg, and their addresses
//! storing   tokens of blocks that are being stored
//! taken     how much space an open object takes
//! usage     the same, counted
//! ```

pub(crate) mod buffers;
pub(crate) mod cleared;
pub(crate) mod copied;
pub(crate) mod create;
pub(crate) mod cut;
pub(crate) mod extent;
pub(crate) mod handle;
pub(crate) mod in_log;
pub(crate) mod kept;
pub(crate) mod logged;
pub(crate) mod object;
pub(crate) mod origin;
pub(crate) mod ranges;
pub(crate) mod read;
pub(crate) mod segments;
pub(crate) mod stored;
pub(crate) mod storing;
pub(crate) mod taken;
pub(crate) mod usage;
