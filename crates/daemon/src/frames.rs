//! Bulk data on a control socket, after a line of JSON: frames of a length, 4 bytes little-endian, and that
//! many bytes; one of no bytes is the last.
//!
//! Whoever reads can tell an end from a connection that is lost, and lines can follow.

use std::io::{self, BufRead, Read, Write};

/// Most bytes of a frame.
const FRAME_BYTES_MAX: usize = 1 << 20;

/// Writes frames; what is short is gathered first.
pub(crate) struct FrameWriter<W: Write> {
    output: W,
    pending: Vec<u8>,
}

impl<W: Write> FrameWriter<W> {
    pub(crate) fn new(output: W) -> FrameWriter<W> {
        FrameWriter { output, pending: Vec::new() }
    }

    fn send(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        self.output.write_all(&(self.pending.len() as u32).to_le_bytes())?;
        self.output.write_all(&self.pending)?;
        self.pending.clear();
        Ok(())
    }

    /// Writes the last frame.
    pub(crate) fn end(mut self) -> io::Result<()> {
        self.send()?;
        self.output.write_all(&[0; 4])?;
        self.output.flush()
    }
}

impl<W: Write> Write for FrameWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.pending.len() == FRAME_BYTES_MAX {
            self.send()?;
        }
        let len = bytes.len().min(FRAME_BYTES_MAX - self.pending.len());
        self.pending.extend_from_slice(&bytes[..len]);
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send()?;
        self.output.flush()
    }
}

/// Reads frames, up to the last one.
pub(crate) struct FrameReader<R> {
    input: R,
    left: usize,
    is_at_end: bool,
}

impl<R: BufRead> FrameReader<R> {
    pub(crate) fn new(input: R) -> FrameReader<R> {
        FrameReader { input, left: 0, is_at_end: false }
    }
}

impl<R: BufRead> Read for FrameReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 && !self.is_at_end && !buffer.is_empty() {
            let mut len = [0; 4];
            self.input.read_exact(&mut len)?;
            self.left = u32::from_le_bytes(len) as usize;
            self.is_at_end = self.left == 0;
            if self.left > FRAME_BYTES_MAX {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame is too long"));
            }
        }
        let wanted = buffer.len().min(self.left);
        if wanted == 0 {
            return Ok(0);
        }
        let read = self.input.read(&mut buffer[..wanted])?;
        if read == 0 {
            // The other side is gone, in the middle of a frame.
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= read;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_follows_is_left() {
        let data: Vec<u8> = (0..3 * FRAME_BYTES_MAX + 77).map(|at| (at % 251) as u8).collect();
        for part in [1000, FRAME_BYTES_MAX, data.len()] {
            let mut bytes = Vec::new();
            let mut writer = FrameWriter::new(&mut bytes);
            data.chunks(part).for_each(|part| writer.write_all(part).unwrap());
            writer.end().unwrap();
            bytes.extend(b"line");
            let mut rest = &bytes[..];
            let mut found = Vec::new();
            FrameReader::new(&mut rest).read_to_end(&mut found).unwrap();
            assert!(found == data && rest == b"line");
        }
    }

    #[test]
    fn a_lost_connection_is_no_end() {
        let mut bytes = Vec::new();
        let mut writer = FrameWriter::new(&mut bytes);
        writer.write_all(b"some bytes").unwrap();
        writer.end().unwrap();
        for len in 0..bytes.len() {
            let error = FrameReader::new(&bytes[..len]).read_to_end(&mut Vec::new()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{len}");
        }
        let long = FrameReader::new(&[0xff; 8][..]).read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(long.kind(), io::ErrorKind::InvalidData);
    }
}
