//! An operation log: what a write in place is about to do, with its data.
//!
//! Source: MeLo@V, in the dissertation's chapter IV: the metadata that the VFS layer has, and a COMMIT
//! marker of 8 bytes. There the data are in memory that is persistent anyway; here they are in the log,
//! durable before the marker is set.
//!
//! Shape: 64 bytes, one cache line, then the data; little endian:
//! ```text
//! offset size field
//!      0    8 COMMIT: 1 if the operation is to be made again after a crash, otherwise 0
//!      8    8 key of the file
//!     16    8 inode
//!     24    8 generation of the inode
//!     32    8 offset of the write, in bytes
//!     40    8 length of the file after it
//!     48    8 timestamp
//!     56    2 for each chunk, which one of its slot it is in
//!     58    2 zero
//!     60    4 CRC-32C of the cache's id and bytes 8 to 59
//!     64    8 length of the data
//!     72    4 CRC-32C of the data
//!     76   52 zero
//!    128    n data
//! ```

use fastness_pmem::NoSum;

use crate::backing::FileId;
use crate::error::Error;
use crate::medium::CacheMedium;
use crate::tag::{LINE, Seed};

/// Chunks that one operation changes.
pub(crate) const OPERATION_CHUNKS: usize = 16;
/// Operations that can be made at a time.
pub(crate) const OPERATION_LOGS: usize = 8;

/// Bytes of a log whose operations are at most `chunks` chunks of `chunk_bytes` long.
pub(crate) fn log_bytes(chunk_bytes: u64) -> u64 {
    2 * LINE as u64 + OPERATION_CHUNKS as u64 * chunk_bytes
}

/// A write in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Operation {
    pub(crate) key: u64,
    pub(crate) file: FileId,
    pub(crate) offset: u64,
    pub(crate) size: u64,
    pub(crate) timestamp: u64,
    /// A bit for each chunk: which one of its slot.
    pub(crate) places: u16,
}

impl Operation {
    fn encode(&self, seed: Seed) -> [u8; LINE] {
        let mut line = [0; LINE];
        let Operation { key, file, offset, size, timestamp, .. } = *self;
        for (at, word) in [key, file.inode, file.generation, offset, size, timestamp].into_iter().enumerate()
        {
            line[at * 8 + 8..at * 8 + 16].copy_from_slice(&word.to_le_bytes());
        }
        line[56..58].copy_from_slice(&self.places.to_le_bytes());
        let sum = seed.sum(&line[8..60]);
        line[60..].copy_from_slice(&sum.to_le_bytes());
        line
    }

    fn decode(line: &[u8; LINE], seed: Seed) -> Option<Operation> {
        let word = |at: usize| u64::from_le_bytes(line[at..at + 8].try_into().expect("eight bytes"));
        let is_whole = seed.sum(&line[8..60]).to_le_bytes() == line[60..] && line[58..60] == [0; 2];
        is_whole.then(|| Operation {
            key: word(8),
            file: FileId { inode: word(16), generation: word(24) },
            offset: word(32),
            size: word(40),
            timestamp: word(48),
            places: u16::from_le_bytes([line[56], line[57]]),
        })
    }
}

/// One of the logs.
#[derive(Debug)]
pub(crate) struct OperationLog<M> {
    range: M,
    seed: Seed,
}

impl<M: CacheMedium> OperationLog<M> {
    pub(crate) fn new(range: M, seed: Seed) -> OperationLog<M> {
        OperationLog { range, seed }
    }

    pub(crate) fn damaged(&self) -> Error {
        Error::Operation { region_offset: self.range.region_offset() }
    }

    /// Notes an operation that is about to be made.
    ///
    /// Persistence: durable on return, as is everything that the caller stored before; from then on a crash
    /// leaves the operation to be made again.
    pub(crate) fn commit(&mut self, operation: &Operation, data: &[u8]) -> Result<(), Error> {
        let mut line = operation.encode(self.seed);
        let mut of_data = [0; LINE];
        of_data[..8].copy_from_slice(&(data.len() as u64).to_le_bytes());
        of_data[8..12].copy_from_slice(&self.seed.sum(data).to_le_bytes());
        self.range.copy(0, &line, LINE, &mut NoSum);
        self.range.copy(LINE, &of_data, LINE, &mut NoSum);
        self.range.copy(2 * LINE, data, data.len().next_multiple_of(LINE), &mut NoSum);
        // PERSIST: the operation and its data are durable before COMMIT is set, and so is what was loaded
        // into chunks for it. Excludes that a part of it is made again.
        self.range.fence()?;
        line[0] = 1;
        self.range.copy(0, &line, LINE, &mut NoSum);
        // PERSIST: COMMIT is set before anything is changed in place. Excludes a chunk that is changed in
        // part.
        Ok(self.range.fence()?)
    }

    /// Notes that the operation has been made.
    ///
    /// Persistence: durable on return.
    pub(crate) fn end(&mut self) -> Result<(), Error> {
        let mut line = [0; LINE];
        self.range.read(0, &mut line)?;
        line[0] = 0;
        self.range.copy(0, &line, LINE, &mut NoSum);
        // PERSIST: COMMIT is cleared before the operation is acknowledged, and before a later one changes the
        // same bytes. Excludes that this one is made again after that.
        Ok(self.range.fence()?)
    }

    /// Forgets the operation that is damaged.
    ///
    /// Persistence: durable on return.
    pub(crate) fn forget(&mut self) -> Result<(), Error> {
        self.range.copy(0, &[0; LINE], LINE, &mut NoSum);
        // PERSIST: it is gone before anything else is recovered. Excludes damage that the next recovery finds
        // again, after what this one has changed.
        Ok(self.range.fence()?)
    }

    /// The operation that a crash has interrupted, with its data.
    pub(crate) fn interrupted(&mut self) -> Result<Option<(Operation, Vec<u8>)>, Error> {
        // PERSIST: what a process that died left in the CPU's caches; a later power cut must not take it away
        // while the operation is made again. Excludes half of one, and no word of it.
        self.range.write_back(0, self.range.len_bytes());
        self.range.fence()?;
        let mut lines = [[0; LINE]; 2];
        self.range.read(0, lines.as_flattened_mut())?;
        match u64::from_le_bytes(lines[0][..8].try_into().expect("eight bytes")) {
            0 => return Ok(None),
            1 => {}
            _ => return Err(self.damaged()),
        }
        let operation = Operation::decode(&lines[0], self.seed).ok_or_else(|| self.damaged())?;
        let len = u64::from_le_bytes(lines[1][..8].try_into().expect("eight bytes"));
        let room = (self.range.len_bytes() - 2 * LINE) as u64;
        if len == 0 || len > room {
            return Err(self.damaged());
        }
        let mut data = vec![0; len as usize];
        self.range.read(2 * LINE, &mut data)?;
        if self.seed.sum(&data).to_le_bytes() != lines[1][8..12] {
            return Err(self.damaged());
        }
        Ok(Some((operation, data)))
    }
}
