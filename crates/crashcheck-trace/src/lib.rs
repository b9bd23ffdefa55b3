//! The format of traces: what a program, or a whole guest, did to persistent memory (PM) and to disks, in one
//! order.
//!
//! Motivation: a tracer and the readers of its traces are different programs, and run at different times.
//! So a trace is a file, or a pipe, that describes itself, can be read while it is written, stays small,
//! and shows whether it is complete.
//!
//! Design: a header names the regions of PM and the disks; then frames of events, each with its own
//! compression and checksum; then an end with the number of events. Within a frame events are a few bytes
//! each: addresses relative to the one before, stacks once. A reader holds one frame in memory.
//!
//! Nothing in a trace is trusted: damage, a missing end, and lengths without bound are errors with the offset
//! in the file.
//!
//! Layout: `docs/trace-format.md`. [`vinter`] reads and writes the format of the predecessor Vinter.
//! Source: PM file systems dissertation, 8.2 (tracing); design notes on crash testing, 2 and 3.

#![forbid(unsafe_code)]

mod bytes;
pub mod coverage;
mod decode;
mod encode;
mod error;
mod event;
mod frame;
mod header;
pub mod hypercall;
pub mod module;
mod reader;
pub mod vinter;
mod writer;

pub use error::{Result, TraceError};
pub use event::{
    BLOCK_BYTES_MAX, BlockEvent, Event, FenceKind, FlushKind, Hypercall, Kind, MEMORY_BYTES_MAX, Origin,
    STACK_MAX, TEXT_BYTES_MAX,
};
pub use header::{Device, Header, Region};
pub use reader::Reader;
pub use writer::Writer;

/// A trace with these bytes as its events, and right checksums, which fuzzing would not get past.
#[cfg(fuzzing)]
pub fn with_events_for_fuzzing(header: &[u8], count: u64, events: &[u8]) -> Vec<u8> {
    let mut prologue = [0; 16];
    prologue[..8].copy_from_slice(&frame::MAGIC);
    prologue[8..10].copy_from_slice(&frame::VERSION.to_le_bytes());
    let mut out = frame::Counted { inner: Vec::new(), offset: 0 };
    let mut write = || -> Result<()> {
        out.write(&prologue)?;
        out.write_frame(frame::FrameKind::Header, 0, header)?;
        out.write_frame(frame::FrameKind::Events, 0, events)?;
        out.write_frame(frame::FrameKind::End, count, &[])
    };
    write().expect("memory takes everything");
    out.inner
}
