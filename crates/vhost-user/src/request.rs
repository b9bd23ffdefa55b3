//! A request to a block device: taken from a chain, carried out, answered. Source: VIRTIO 1.2, 5.2.6.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::buffer::{Buffer, DATA_MAX};
use crate::config::{RANGE_SECTORS_MAX, SECTOR_BYTES, SEGMENTS_MAX};
use crate::disk::{Disk, DiskError};
use crate::memory::Memory;
use crate::ring::RingError;

const HEADER_BYTES: u64 = 16;
const SEGMENT_BYTES: u64 = 16;
const SERIAL_BYTES: u64 = 20;

const STATUS_OK: u8 = 0;
const STATUS_IO_ERROR: u8 = 1;
const STATUS_UNSUPPORTED: u8 = 2;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    Flush,
    Serial,
    Discard,
    WriteZeroes,
    Unknown,
}

/// What a request came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Done {
    /// Bytes that were written to the chain.
    pub(crate) len: u32,
    pub(crate) has_failed: bool,
    /// Bytes that were read, written, discarded or zeroed.
    pub(crate) bytes: u64,
}

impl Kind {
    /// In the order of their numbers here.
    pub(crate) const ALL: [Kind; 7] =
        [Kind::Read, Kind::Write, Kind::Flush, Kind::Serial, Kind::Discard, Kind::WriteZeroes, Kind::Unknown];

    /// As in the protocol, in lower case.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Flush => "flush",
            Kind::Serial => "get_id",
            Kind::Discard => "discard",
            Kind::WriteZeroes => "write_zeroes",
            Kind::Unknown => "unknown",
        }
    }

    fn of(number: u32) -> Kind {
        match number {
            0 => Kind::Read,
            1 => Kind::Write,
            4 => Kind::Flush,
            8 => Kind::Serial,
            11 => Kind::Discard,
            13 => Kind::WriteZeroes,
            _ => Kind::Unknown,
        }
    }
}

/// A request whose chain is in a [`Buffer`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) kind: Kind,
    offset: u64,
}

impl Request {
    /// The request of the chain in `buffer`.
    ///
    /// # Errors
    /// The chain has no place for the header or for the answer.
    pub(crate) fn of(memory: &Memory, buffer: &Buffer) -> Result<Request, RingError> {
        let mut header = [0; HEADER_BYTES as usize];
        buffer.chain.readable.read(memory, 0, &mut header)?;
        if buffer.chain.writable.len() == 0 {
            return Err(RingError::Chain);
        }
        let [k0, k1, k2, k3, _, _, _, _, s @ ..] = header;
        let sector = u64::from_le_bytes(s);
        // One that cannot be multiplied is past the end of any disk.
        let offset = sector.saturating_mul(SECTOR_BYTES);
        Ok(Request { kind: Kind::of(u32::from_le_bytes([k0, k1, k2, k3])), offset })
    }

    /// Carries it out and stores the answer.
    pub(crate) fn carry_out(
        &self,
        disk: &dyn Disk,
        memory: &Memory,
        buffer: &mut Buffer,
        is_write_through: bool,
    ) -> Result<Done, RingError> {
        let work = AssertUnwindSafe(|| self.run(disk, memory, buffer, is_write_through));
        // A disk that panics has failed; the panic was reported.
        let outcome = catch_unwind(work).unwrap_or(Ok(Err(DiskError::Io)))?;
        let (status, bytes) = match outcome {
            Ok(bytes) => (STATUS_OK, bytes),
            Err(DiskError::Io) => (STATUS_IO_ERROR, 0),
            Err(DiskError::Unsupported) => (STATUS_UNSUPPORTED, 0),
        };
        let writable = &buffer.chain.writable;
        writable.write(memory, writable.len() - 1, &[status])?;
        let written = match self.kind {
            Kind::Read | Kind::Serial => bytes,
            _ => 0,
        };
        let len = u32::try_from(written + 1).unwrap_or(u32::MAX);
        Ok(Done { len, has_failed: status != STATUS_OK, bytes })
    }

    /// Whether `len` bytes at `offset` are whole sectors of the disk.
    fn fits(disk: &dyn Disk, offset: u64, len: u64) -> Result<(), DiskError> {
        let end = offset.checked_add(len).ok_or(DiskError::Io)?;
        let size = disk.size_bytes() / SECTOR_BYTES * SECTOR_BYTES;
        if end <= size && len.is_multiple_of(SECTOR_BYTES) { Ok(()) } else { Err(DiskError::Io) }
    }

    /// Bytes that were read, written, discarded or zeroed. The outer error is the chain's, the inner one the
    /// disk's.
    fn run(
        &self,
        disk: &dyn Disk,
        memory: &Memory,
        buffer: &mut Buffer,
        is_write_through: bool,
    ) -> Result<Result<u64, DiskError>, RingError> {
        let changes = matches!(self.kind, Kind::Write | Kind::Discard | Kind::WriteZeroes);
        if changes && disk.is_read_only() {
            return Ok(Err(DiskError::Io));
        }
        match self.kind {
            Kind::Read => self.read(disk, memory, buffer),
            Kind::Write => self.write(disk, memory, buffer, is_write_through),
            Kind::Flush => Ok(disk.flush().map(|()| 0)),
            Kind::Serial => {
                let mut serial = [0; SERIAL_BYTES as usize];
                let text = disk.serial();
                let len = text.len().min(serial.len());
                serial[..len].copy_from_slice(&text.as_bytes()[..len]);
                let writable = &buffer.chain.writable;
                if writable.len() - 1 < SERIAL_BYTES {
                    return Ok(Err(DiskError::Io));
                }
                writable.write(memory, 0, &serial)?;
                Ok(Ok(SERIAL_BYTES))
            }
            Kind::Discard | Kind::WriteZeroes => self.ranges(disk, memory, buffer, is_write_through),
            Kind::Unknown => Ok(Err(DiskError::Unsupported)),
        }
    }

    fn read(
        &self,
        disk: &dyn Disk,
        memory: &Memory,
        buffer: &mut Buffer,
    ) -> Result<Result<u64, DiskError>, RingError> {
        let len = buffer.chain.writable.len() - 1;
        if let Err(error) = Request::fits(disk, self.offset, len) {
            return Ok(Err(error));
        }
        let mut done = 0;
        while done < len {
            let (chain, data) = buffer.parts(len - done);
            if let Err(error) = disk.read(self.offset + done, data) {
                return Ok(Err(error));
            }
            chain.writable.write(memory, done, data)?;
            done += data.len() as u64;
        }
        Ok(Ok(len))
    }

    fn write(
        &self,
        disk: &dyn Disk,
        memory: &Memory,
        buffer: &mut Buffer,
        is_write_through: bool,
    ) -> Result<Result<u64, DiskError>, RingError> {
        let len = buffer.chain.readable.len() - HEADER_BYTES;
        if let Err(error) = Request::fits(disk, self.offset, len) {
            return Ok(Err(error));
        }
        let mut done = 0;
        while done < len {
            let (chain, data) = buffer.parts(len - done);
            // A copy: the guest may change its bytes while the disk takes their checksum.
            chain.readable.read(memory, HEADER_BYTES + done, data)?;
            if let Err(error) = disk.write(self.offset + done, data, is_write_through) {
                return Ok(Err(error));
            }
            done += data.len() as u64;
        }
        Ok(Ok(len))
    }

    fn ranges(
        &self,
        disk: &dyn Disk,
        memory: &Memory,
        buffer: &mut Buffer,
        is_write_through: bool,
    ) -> Result<Result<u64, DiskError>, RingError> {
        let len = buffer.chain.readable.len() - HEADER_BYTES;
        if !len.is_multiple_of(SEGMENT_BYTES)
            || len > SEGMENT_BYTES * u64::from(SEGMENTS_MAX)
            || len > DATA_MAX
        {
            return Ok(Err(DiskError::Io));
        }
        let (chain, segments) = buffer.parts(len);
        chain.readable.read(memory, HEADER_BYTES, segments)?;
        let mut bytes = 0;
        for segment in segments.as_chunks::<16>().0 {
            match self.range(disk, segment, is_write_through) {
                Ok(len) => bytes += len,
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok(Ok(bytes))
    }

    /// Returns the length of the range.
    fn range(&self, disk: &dyn Disk, segment: &[u8; 16], is_write_through: bool) -> Result<u64, DiskError> {
        let [s0, s1, s2, s3, s4, s5, s6, s7, n0, n1, n2, n3, f @ ..] = *segment;
        let sector = u64::from_le_bytes([s0, s1, s2, s3, s4, s5, s6, s7]);
        let (sectors, flags) = (u32::from_le_bytes([n0, n1, n2, n3]), u32::from_le_bytes(f));
        // Bit 0: the range may become a hole; for zeroes only. Others are reserved (5.2.6.2).
        let allowed = if self.kind == Kind::WriteZeroes { 1 } else { 0 };
        if flags & !allowed != 0 {
            return Err(DiskError::Unsupported);
        }
        if sectors > RANGE_SECTORS_MAX {
            return Err(DiskError::Io);
        }
        let offset = sector.checked_mul(SECTOR_BYTES).ok_or(DiskError::Io)?;
        let len = u64::from(sectors) * SECTOR_BYTES;
        Request::fits(disk, offset, len)?;
        match self.kind {
            _ if len == 0 => {}
            Kind::Discard => disk.discard(offset, len, is_write_through)?,
            _ => disk.write_zeroes(offset, len, is_write_through)?,
        }
        Ok(len)
    }
}
