//! Writes blocks to the origin: the newest version of each, by address, neighbours together, many at a time.

use std::ops::Range;

use fastness_blkdev::{AlignedBuf, BlockDevice, BlockError, Request};

use crate::block::{BLOCK_BYTES, SECTOR_BYTES, SECTORS};
use crate::blocks::Blocks;
use crate::error::Error;
use crate::target::Target;

/// Bytes that are read from the log and then written together.
const BATCH_BYTES: usize = 4 << 20;
/// Longest single write.
const RUN_BYTES_MAX: usize = 1 << 20;

/// What is to be written, and what it takes.
#[derive(Debug, Default)]
pub(crate) struct WriteBack {
    /// Blocks of generations that are not retired yet; sorted, each once.
    pub(crate) blocks: Vec<u64>,
    /// The last generation that they are of.
    pub(crate) until: u64,
    buffer: Option<AlignedBuf>,
}

/// What a write-back did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) bytes: u64,
    pub(crate) writes: u64,
}

/// Bytes of the buffer, and where they go.
struct Run {
    offset: u64,
    bytes: Range<usize>,
}

impl WriteBack {
    /// Gives the origin what generations up to `until` have changed and nothing newer has.
    ///
    /// Persistence: durable on the origin on return. After an error the same call can be made again.
    ///
    /// # Errors
    /// Those of the origin; [`Error::Read`] and [`Error::Damaged`] of the log, after everything else was
    /// written.
    pub(crate) fn run(&mut self, blocks: &Blocks, target: &Target, until: u64) -> Result<Written, Error> {
        self.until = until;
        blocks.index.take_touched(until, &mut self.blocks);
        self.blocks.sort_unstable();
        self.blocks.dedup();
        let opened = target.get()?;
        let device = opened.device();
        let written = self.write(blocks, device, until);
        let is_gone = matches!(&written, Err(Error::Origin(error)) if error.is_gone());
        drop(opened);
        if is_gone {
            target.forget();
        }
        written
    }

    fn write(&mut self, blocks: &Blocks, device: &dyn BlockDevice, until: u64) -> Result<Written, Error> {
        write_zeroes(blocks, device, until)?;
        device.crash_point("write_back_after_zeroes");
        let mut batch = Batch::new(device, self.buffer.take());
        let mut damage = None;
        for block in &self.blocks {
            match blocks.newest(*block, until, batch.room()?) {
                Ok(has) => batch.add(*block, has),
                // The others are written. What is damaged stays in the log until something newer replaces it.
                Err(error @ (Error::Read(_) | Error::Damaged { .. })) => damage = damage.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
        let written = batch.finish(&mut self.buffer)?;
        device.crash_point("write_back_after_writes");
        device.flush()?;
        device.crash_point("write_back_after_flush");
        damage.map_or(Ok(written), Err)
    }
}

/// Before the blocks: those that are newer than a range are written over it.
fn write_zeroes(blocks: &Blocks, device: &dyn BlockDevice, until: u64) -> Result<(), BlockError> {
    let info = device.info();
    for (start, range) in blocks.due_ranges(until) {
        let (offset, len) = (start * BLOCK_BYTES, (range.end - start) * BLOCK_BYTES);
        // What was discarded reads as zeroes here, so it must there.
        match range.is_discard && info.can_discard && info.discard_zeroes {
            true => device.discard(offset, len)?,
            false => device.write_zeroes(offset, len)?,
        }
    }
    Ok(())
}

/// Writes that are submitted together.
struct Batch<'a> {
    device: &'a dyn BlockDevice,
    buffer: AlignedBuf,
    used: usize,
    runs: Vec<Run>,
    written: Written,
}

impl<'a> Batch<'a> {
    fn new(device: &'a dyn BlockDevice, buffer: Option<AlignedBuf>) -> Batch<'a> {
        let align = device.info().memory_align_bytes.max(SECTOR_BYTES as usize);
        let buffer = buffer.unwrap_or_else(|| AlignedBuf::zeroed(BATCH_BYTES, align));
        Batch { device, buffer, used: 0, runs: Vec::new(), written: Written::default() }
    }

    /// Room for a block.
    fn room(&mut self) -> Result<&mut [u8], BlockError> {
        if self.used == BATCH_BYTES {
            self.submit()?;
        }
        Ok(&mut self.buffer[self.used..self.used + BLOCK_BYTES as usize])
    }

    /// Takes the sectors of a block whose bytes are in the room.
    fn add(&mut self, block: u64, has: [bool; SECTORS]) {
        let sector_bytes = SECTOR_BYTES as usize;
        for sector in (0..SECTORS).filter(|sector| has[*sector]) {
            let offset = block * BLOCK_BYTES + (sector * sector_bytes) as u64;
            let start = self.used + sector * sector_bytes;
            match self.runs.last_mut() {
                Some(Run { offset: first, bytes })
                    if *first + bytes.len() as u64 == offset
                        && bytes.end == start
                        && bytes.len() < RUN_BYTES_MAX =>
                {
                    bytes.end += sector_bytes;
                }
                _ => self.runs.push(Run { offset, bytes: start..start + sector_bytes }),
            }
        }
        if has.contains(&true) {
            self.used += BLOCK_BYTES as usize;
        }
    }

    fn submit(&mut self) -> Result<(), BlockError> {
        let buffer = &self.buffer;
        let mut requests: Vec<_> = self
            .runs
            .iter()
            .map(|run| Request::Write { offset: run.offset, data: &buffer[run.bytes.clone()], fua: false })
            .collect();
        self.device.run_batch(&mut requests).into_iter().collect::<Result<Vec<()>, _>>()?;
        self.written.writes += self.runs.len() as u64;
        self.written.bytes += self.runs.iter().map(|run| run.bytes.len() as u64).sum::<u64>();
        self.runs.clear();
        self.used = 0;
        Ok(())
    }

    /// Writes the rest; gives the buffer back for the next time.
    fn finish(mut self, buffer: &mut Option<AlignedBuf>) -> Result<Written, BlockError> {
        self.submit()?;
        *buffer = Some(self.buffer);
        Ok(self.written)
    }
}
