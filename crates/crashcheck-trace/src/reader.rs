//! Reading a trace.

use std::io::Read;

use crate::bytes::Input;
use crate::decode::Decoder;
use crate::error::{Result, TraceError};
use crate::event::Event;
use crate::frame::{Counted, FrameKind, HEAD_BYTES, MAGIC, VERSION};
use crate::header::Header;

/// Reads a trace, event by event; also while it is written at the other end of a pipe.
///
/// Memory: two frames, 8 MiB each at most.
#[derive(Debug)]
pub struct Reader<R: Read> {
    input: Counted<R>,
    header: Header,
    stored: Vec<u8>,
    raw: Vec<u8>,
    /// How much of `raw` was read, and where the frame begins in the file.
    at: usize,
    frame_offset: u64,
    decoder: Decoder,
    count: u64,
    has_ended: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the header. A file should be buffered: heads of frames are small reads.
    ///
    /// # Errors
    /// [`TraceError::NotATrace`], [`TraceError::Version`]; a header that is damaged or cut off.
    pub fn new(input: R) -> Result<Reader<R>> {
        let mut input = Counted { inner: input, offset: 0 };
        let mut prologue = [0; 16];
        let is_there = input.fill(&mut prologue, "the first bytes")?;
        if !is_there || prologue[..8] != MAGIC {
            return Err(TraceError::NotATrace { found: prologue[..if is_there { 8 } else { 0 }].to_vec() });
        }
        let version = u16::from_le_bytes([prologue[8], prologue[9]]);
        if version != VERSION {
            return Err(TraceError::Version { found: version, known: VERSION });
        }
        if prologue[10..] != [0; 6] {
            let what = format!("{:02x?} after the version", &prologue[10..]);
            return Err(TraceError::Damaged { offset: 10, what });
        }
        let (mut stored, mut raw) = (Vec::new(), Vec::new());
        let frame = input.read_frame(&mut stored, &mut raw)?;
        let damaged = |what| TraceError::Damaged { offset: frame.offset, what };
        if (frame.kind, frame.first) != (FrameKind::Header, 0) {
            return Err(damaged("the first frame is no header".to_owned()));
        }
        let header = Header::decode(&raw).map_err(damaged)?;
        raw.clear();
        let (at, frame_offset, decoder, count, has_ended) = (0, 0, Decoder::default(), 0, false);
        Ok(Reader { input, header, stored, raw, at, frame_offset, decoder, count, has_ended })
    }

    /// What the trace is about.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Events that were read.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The next event; `None` at the end, which is known to be the end.
    ///
    /// # Errors
    /// [`TraceError::CutOff`], [`TraceError::Damaged`] with the offset of the frame; then the rest cannot be
    /// read.
    // Not an `Iterator`: an event borrows from the frame.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Event<'_>>> {
        while self.at == self.raw.len() {
            if self.has_ended {
                return Ok(None);
            }
            self.next_frame()?;
        }
        let Reader { raw, at, decoder, count, frame_offset, .. } = self;
        let mut input = Input(&raw[*at..]);
        let result = decoder.next(&mut input);
        *at = raw.len() - input.0.len();
        let event = result.map_err(|what| {
            // What follows cannot be told apart.
            *at = raw.len();
            TraceError::Damaged { offset: *frame_offset, what: format!("event {count}: {what}") }
        })?;
        *count += 1;
        Ok(Some(event))
    }

    fn next_frame(&mut self) -> Result<()> {
        let frame = self.input.read_frame(&mut self.stored, &mut self.raw);
        self.at = self.raw.len();
        let frame = frame?;
        let damaged = |what| TraceError::Damaged { offset: frame.offset, what };
        if frame.first != self.count {
            return Err(damaged(format!("{} events come before it, it says {}", self.count, frame.first)));
        }
        match frame.kind {
            FrameKind::Header => return Err(damaged("a second header".to_owned())),
            FrameKind::Events if self.raw.is_empty() => {
                return Err(damaged("a frame without events".to_owned()));
            }
            FrameKind::Events => {}
            FrameKind::End => {
                let mut extra = [0; 1];
                if !self.raw.is_empty() || self.input.fill(&mut extra, "the end")? {
                    return Err(TraceError::Damaged {
                        offset: frame.offset + HEAD_BYTES as u64,
                        what: "more bytes follow the end".to_owned(),
                    });
                }
                self.has_ended = true;
            }
        }
        self.decoder.clear();
        (self.at, self.frame_offset) = (0, frame.offset);
        Ok(())
    }
}
