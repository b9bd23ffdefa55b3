//! What the log has of the origin: the index, ranges of zeroes, and the log itself to read them from.

use std::ops::Range;

use fastness_sync::atomic::{AtomicBool, Ordering};
use fastness_sync::{RwLock, read, write};

use crate::block::{BLOCK_BYTES, Block, Order, Piece, SECTOR_BYTES, SECTORS, Source};
use crate::error::Error;
use crate::index::Index;
use crate::ranges::{Ranges, ZeroRange};
use crate::record::{Record, What};
use crate::views::{Fault, Views};

/// Shortest range of zeroes that is kept as a range: shorter ones are cheap in the index.
const RANGE_BYTES_MIN: u64 = 64 << 10;

/// Blocks of which the log has the newest bytes.
pub(crate) struct Blocks {
    pub(crate) index: Index,
    ranges: RwLock<Ranges>,
    /// Whether there are ranges: most caches have none, and look here alone.
    has_ranges: AtomicBool,
    pub(crate) views: Views,
}

impl std::fmt::Debug for Blocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Blocks").field("len", &self.index.len()).finish_non_exhaustive()
    }
}

/// Blocks that a byte range touches, with the sectors in each.
fn sectors_of(offset: u64, len: u64) -> impl Iterator<Item = (u64, Range<u64>)> {
    let end = offset + len;
    (offset / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES)).map(move |block| {
        let start = block * BLOCK_BYTES;
        let (from, to) = (offset.max(start), end.min(start + BLOCK_BYTES));
        (block, (from - start) / SECTOR_BYTES..(to - start) / SECTOR_BYTES)
    })
}

impl Blocks {
    pub(crate) fn new(views: Views) -> Blocks {
        let (index, ranges) = (Index::new(), RwLock::default());
        Blocks { index, ranges, has_ranges: AtomicBool::new(false), views }
    }

    /// Ranges of zeroes that the origin does not have.
    pub(crate) fn ranges(&self) -> usize {
        read(&self.ranges).len()
    }

    /// Takes in a change that is in the log; `at` is the region offset of `data`. The caller holds off the
    /// end of the generation.
    #[inline]
    pub(crate) fn put(&self, record: &Record, order: Order, at: u64, data: &[u8]) {
        if record.what != What::Data {
            return self.put_zeroes(record, order);
        }
        for (block, sectors) in sectors_of(record.offset, record.len) {
            let from = block * BLOCK_BYTES + sectors.start * SECTOR_BYTES - record.offset;
            let len = (sectors.end - sectors.start) * SECTOR_BYTES;
            let crc = crc32c::crc32c(&data[from as usize..(from + len) as usize]);
            self.index.put(block, piece(order, Source::Log { at: at + from, crc }, &sectors));
        }
    }

    /// Whole blocks of a long range are kept as a range, and what is left of it in the index.
    fn put_zeroes(&self, record: &Record, order: Order) {
        let end = record.offset + record.len;
        let whole = record.offset.div_ceil(BLOCK_BYTES)..end / BLOCK_BYTES;
        let is_long = record.len >= RANGE_BYTES_MIN;
        if is_long {
            let mut ranges = write(&self.ranges);
            ranges.put(whole.clone(), order, record.what == What::Discard);
            self.has_ranges.store(true, Ordering::SeqCst);
        }
        let edges = match is_long {
            true => [record.offset..whole.start * BLOCK_BYTES, whole.end * BLOCK_BYTES..end],
            false => [record.offset..end, end..end],
        };
        for edge in edges {
            for (block, sectors) in sectors_of(edge.start, edge.end - edge.start) {
                self.index.put(block, piece(order, Source::Zeroes, &sectors));
            }
        }
    }

    /// Fills `buf` with what the log has from `offset` on; the rest, in `holes`, the origin has. Neighbouring
    /// holes are one.
    ///
    /// # Errors
    /// [`Error::Read`], [`Error::Damaged`].
    pub(crate) fn read(
        &self,
        offset: u64,
        buf: &mut [u8],
        holes: &mut Vec<Range<usize>>,
    ) -> Result<(), Error> {
        // Held while blocks are looked at: a range and what is newer are let go of together.
        let ranges = self.has_ranges.load(Ordering::SeqCst).then(|| read(&self.ranges));
        for (block, sectors) in sectors_of(offset, buf.len() as u64) {
            let zeroed = ranges.as_ref().and_then(|ranges| ranges.order_of(block));
            let start = (block * BLOCK_BYTES + sectors.start * SECTOR_BYTES - offset) as usize;
            let sectors = sectors.start as usize..sectors.end as usize;
            let part = &mut buf[start..start + sectors.len() * SECTOR_BYTES as usize];
            self.index.look(block, |found| {
                self.read_block(block, found, zeroed, u64::MAX, sectors, part, |hole| {
                    let hole = start + hole.start..start + hole.end;
                    match holes.last_mut() {
                        Some(last) if last.end == hole.start => last.end = hole.end,
                        _ => holes.push(hole),
                    }
                })
            })?;
        }
        Ok(())
    }

    /// Fills `buf` with sectors of a block, from changes up to `until`; calls `hole` with the bytes of `buf`
    /// that no such change has.
    #[expect(clippy::too_many_arguments, reason = "a block, what is known of it, and what is wanted")]
    fn read_block(
        &self,
        block: u64,
        found: Option<&Block>,
        zeroed: Option<Order>,
        until: u64,
        sectors: Range<usize>,
        buf: &mut [u8],
        mut hole: impl FnMut(Range<usize>),
    ) -> Result<(), Error> {
        let sector_bytes = SECTOR_BYTES as usize;
        let mut at = sectors.start;
        while at < sectors.end {
            let piece_at = |sector: usize| {
                let piece = found.and_then(|found| found.sector(sector));
                piece.filter(|piece| is_newest(piece, zeroed, until))
            };
            let piece = piece_at(at);
            let same = (at..sectors.end).take_while(|sector| piece_at(*sector) == piece).count();
            let bytes = (at - sectors.start) * sector_bytes..(at - sectors.start + same) * sector_bytes;
            match piece {
                Some(piece) => self.read_piece(block, piece, at, &mut buf[bytes])?,
                None if zeroed.is_some() => buf[bytes].fill(0),
                None => hole(bytes),
            }
            at += same;
        }
        Ok(())
    }

    /// Fills `buf` with the bytes of a change from sector `first` of its block on.
    fn read_piece(&self, block: u64, piece: &Piece, first: usize, buf: &mut [u8]) -> Result<(), Error> {
        let Source::Log { at, crc } = piece.source else {
            buf.fill(0);
            return Ok(());
        };
        let mut all = [0; BLOCK_BYTES as usize];
        let all = &mut all[..usize::from(piece.sectors) * SECTOR_BYTES as usize];
        let is_all = buf.len() == all.len();
        let target = if is_all { &mut *buf } else { &mut *all };
        self.views.read(at, crc, target).map_err(|fault| match fault {
            Fault::Unreadable(error) => Error::Read(error),
            Fault::Wrong => {
                let offset = block * BLOCK_BYTES + u64::from(piece.first) * SECTOR_BYTES;
                Error::Damaged { offset, len_bytes: target.len() as u64, region_offset: at }
            }
        })?;
        if !is_all {
            let from = (first - usize::from(piece.first)) * SECTOR_BYTES as usize;
            buf.copy_from_slice(&all[from..from + buf.len()]);
        }
        Ok(())
    }

    /// Ranges of zeroes that generations up to `until` have made.
    pub(crate) fn due_ranges(&self, until: u64) -> Vec<(u64, ZeroRange)> {
        match self.has_ranges.load(Ordering::SeqCst) {
            true => read(&self.ranges).due(until),
            false => Vec::new(),
        }
    }

    /// Fills `buf` with what the log has of a block from generations up to `until`, if that is the newest;
    /// returns the sectors.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) fn newest(&self, block: u64, until: u64, buf: &mut [u8]) -> Result<[bool; SECTORS], Error> {
        let ranges = self.has_ranges.load(Ordering::SeqCst).then(|| read(&self.ranges));
        let zeroed = ranges.as_ref().and_then(|ranges| ranges.order_of(block));
        self.index.look(block, |found| {
            let has: [bool; SECTORS] = std::array::from_fn(|sector| {
                let piece = found.and_then(|found| found.sector(sector));
                piece.is_some_and(|piece| is_newest(piece, zeroed, until))
            });
            self.read_block(block, found, zeroed, until, 0..SECTORS, buf, |_| ())?;
            Ok(has)
        })
    }

    /// Lets go of what the origin has: of changes of `until` and before.
    pub(crate) fn retire(&self, blocks: &[u64], until: u64) {
        if !self.has_ranges.load(Ordering::SeqCst) {
            return self.index.retire(blocks, until);
        }
        // Readers that have seen a range wait: what is newer than it goes with it.
        let mut ranges = write(&self.ranges);
        self.index.retire(blocks, until);
        ranges.retire(until);
        if ranges.is_empty() {
            self.has_ranges.store(false, Ordering::SeqCst);
        }
    }
}

/// Whether a change is of `until` or before, and newer than the range of zeroes around it.
fn is_newest(piece: &Piece, zeroed: Option<Order>, until: u64) -> bool {
    piece.order.txg <= until && zeroed.is_none_or(|zeroed| zeroed < piece.order)
}

fn piece(order: Order, source: Source, sectors: &Range<u64>) -> Piece {
    Piece { order, source, first: sectors.start as u8, sectors: (sectors.end - sectors.start) as u8 }
}
