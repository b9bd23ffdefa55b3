//! Writing a trace.

use std::io::Write;

use crate::encode::{Encoder, check};
use crate::error::{Result, TraceError};
use crate::event::Event;
use crate::frame::{Counted, FrameKind, MAGIC, VERSION};
use crate::header::Header;

/// A frame is written when it has so many bytes.
const FRAME_BYTES: usize = 256 << 10;

/// Writes a trace, event by event.
///
/// Persistence: none; a trace without [`finish`](Self::finish) is cut off, and a reader says so.
/// Memory: one frame, 256 KiB and one event at most.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: Counted<W>,
    frame: Encoder,
    /// Events in whole frames.
    written: u64,
    /// All events.
    count: u64,
}

impl<W: Write> Writer<W> {
    /// Begins a trace. Small writes are few: no buffer is needed below.
    ///
    /// # Errors
    /// [`TraceError::Invalid`] for a header that no reader would take; those of `out`.
    pub fn new(out: W, header: &Header) -> Result<Writer<W>> {
        header.check().map_err(|what| TraceError::Invalid { number: 0, what })?;
        let mut out = Counted { inner: out, offset: 0 };
        let mut prologue = [0; 16];
        prologue[..8].copy_from_slice(&MAGIC);
        prologue[8..10].copy_from_slice(&VERSION.to_le_bytes());
        out.write(&prologue)?;
        out.write_frame(FrameKind::Header, 0, &header.encode())?;
        Ok(Writer { out, frame: Encoder::default(), written: 0, count: 0 })
    }

    /// Appends an event.
    ///
    /// # Errors
    /// [`TraceError::Invalid`]: nothing was appended; those of the output: the trace is cut off there.
    pub fn push(&mut self, event: &Event<'_>) -> Result<()> {
        check(event).map_err(|what| TraceError::Invalid { number: self.count, what })?;
        self.frame.push(event);
        self.count += 1;
        if self.frame.bytes.len() >= FRAME_BYTES { self.write_frame() } else { Ok(()) }
    }

    /// Hands everything so far to the output: a reader at the other end of a pipe sees it.
    ///
    /// # Errors
    /// Those of the output.
    pub fn flush(&mut self) -> Result<()> {
        self.write_frame()?;
        let offset = self.out.offset;
        self.out.inner.flush().map_err(|source| TraceError::Io { what: "write", offset, source })
    }

    /// Ends the trace. Returns the output.
    ///
    /// # Errors
    /// Those of the output.
    pub fn finish(mut self) -> Result<W> {
        self.write_frame()?;
        self.out.write_frame(FrameKind::End, self.count, &[])?;
        self.flush()?;
        Ok(self.out.inner)
    }

    /// Events so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    fn write_frame(&mut self) -> Result<()> {
        if self.count > self.written {
            self.out.write_frame(FrameKind::Events, self.written, &self.frame.bytes)?;
            self.written = self.count;
            self.frame.clear();
        }
        Ok(())
    }
}
