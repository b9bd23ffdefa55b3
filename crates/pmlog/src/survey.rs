//! The offline view: everything in a region, healthy or not, without recovering it.

use fastness_prb::{BodyError, ChunkEnd, ChunkId, End, Located, Traversal, entries_behind, read_body};

use crate::error::{FormatError, OpenError};
use crate::front::divide;
use crate::front::{choose_slot, choose_superblock, read_slots, read_superblocks};
use crate::geometry::{DATA_OFFSET, Geometry};
use crate::medium::LogMedium;
use crate::slot::HeaderSlot;
use crate::superblock::Superblock;

/// An entry found in a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntrySurvey {
    /// Its place in the chunk, and its header.
    pub entry: Located,
    /// Where it is in the region.
    pub region_offset: u64,
    /// Whether its body is whole.
    pub body: Result<(), BodyError>,
}

/// The contents of a chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkSurvey {
    /// Region offset of the chunk.
    pub region_offset: u64,
    /// Length of the chunk in bytes.
    pub len_bytes: u64,
    /// The entries of any log, front to back.
    pub entries: Vec<EntrySurvey>,
    /// Where and why they end.
    pub end: ChunkEnd,
    /// An entry of the current log behind the end, which means that the end is damage.
    pub behind: Option<(u64, Located)>,
}

impl ChunkSurvey {
    /// True if something in the chunk is not as a writer, crashed or not, would leave it.
    pub fn is_damaged(&self) -> bool {
        self.end.end.is_damage()
            || self.behind.is_some()
            || self.entries.iter().any(|entry| entry.body.is_err())
    }
}

/// A region under inspection; nothing is ever written to it.
#[derive(Debug)]
pub struct Survey<R> {
    superblocks: [Result<Superblock, FormatError>; 2],
    slots: [Result<HeaderSlot, FormatError>; 2],
    superblock: Result<Superblock, OpenError>,
    slot: Result<HeaderSlot, OpenError>,
    chunks: Vec<R>,
    len_bytes: u64,
}

impl<R: LogMedium> Survey<R> {
    /// Inspects the region in all of `range`.
    ///
    /// A completely unusable region has errors for blocks and no chunks; a truncated one has its remaining
    /// chunks.
    pub fn new(range: R) -> Self {
        let len_bytes = range.len_bytes() as u64;
        let superblocks = read_superblocks(&range);
        let superblock = choose_superblock(superblocks).map(|(superblock, _)| superblock);
        let slots = read_slots(&range, superblock.as_ref().ok().map(|superblock| superblock.uuid));
        let slot = choose_slot(slots.clone()).map(|(_, slot, _)| slot);
        let chunks = match &superblock {
            Ok(Superblock { geometry, .. }) if len_bytes >= DATA_OFFSET => {
                let left = (len_bytes - DATA_OFFSET) / geometry.chunk_bytes;
                divide(range, &Geometry { chunks: geometry.chunks.min(left), ..*geometry }).1
            }
            _ => Vec::new(),
        };
        Self { superblocks, slots, superblock, slot, chunks, len_bytes }
    }

    /// The two copies of the superblock.
    pub fn superblocks(&self) -> &[Result<Superblock, FormatError>; 2] {
        &self.superblocks
    }

    /// The two header slots.
    pub fn slots(&self) -> &[Result<HeaderSlot, FormatError>; 2] {
        &self.slots
    }

    /// The superblock that opening would use.
    ///
    /// # Errors
    /// Why opening would fail.
    pub fn superblock(&self) -> Result<&Superblock, &OpenError> {
        self.superblock.as_ref()
    }

    /// The header slot that opening would use.
    ///
    /// # Errors
    /// Why opening would fail.
    pub fn slot(&self) -> Result<&HeaderSlot, &OpenError> {
        self.slot.as_ref()
    }

    /// Length of the region in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Number of chunks present.
    pub fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// Reads a chunk: every entry, its body's checksum, and what is behind the end.
    ///
    /// # Panics
    /// Caller bug only: there is no such chunk.
    pub fn chunk(&self, index: usize) -> ChunkSurvey {
        let chunk = &self.chunks[index];
        let region_offset = chunk.region_offset();
        let mut traversal = Traversal::new(chunk);
        let mut buffer = Vec::new();
        let entries: Vec<_> = traversal
            .by_ref()
            .map(|entry| EntrySurvey {
                entry,
                region_offset: region_offset + entry.offset as u64,
                body: check_body(chunk, &entry, &mut buffer),
            })
            .collect();
        let end = ChunkEnd {
            chunk: ChunkId(index as u32),
            region_offset: region_offset + traversal.offset() as u64,
            entries: entries.len() as u64,
            end: traversal.end().unwrap_or(End::Full),
        };
        let behind = self.behind(chunk, traversal.offset());
        let behind = behind.map(|entry| (region_offset + entry.offset as u64, entry));
        ChunkSurvey { region_offset, len_bytes: chunk.len_bytes() as u64, entries, end, behind }
    }

    fn behind(&self, chunk: &R, end: usize) -> Option<Located> {
        let slot = self.slot.as_ref().ok()?;
        let fastness_prb::HdlHeader::Logging { log } = slot.header else { return None };
        let is_needed = |entry: &Located| entry.header.log == log && entry.header.txg > slot.synced;
        entries_behind(chunk, end).find(is_needed)
    }

    /// Copies the body of an entry of a chunk.
    ///
    /// # Errors
    /// [`BodyError`].
    ///
    /// # Panics
    /// Caller bug only: there is no such chunk.
    pub fn read_body(&self, chunk: usize, entry: &Located) -> Result<Vec<u8>, BodyError> {
        let mut buffer = Vec::new();
        check_body(&self.chunks[chunk], entry, &mut buffer)?;
        buffer.truncate(entry.header.body_len_bytes as usize);
        Ok(buffer)
    }
}

fn check_body<R: LogMedium>(chunk: &R, entry: &Located, buffer: &mut Vec<u8>) -> Result<(), BodyError> {
    // The traversal has ensured that the body is inside the chunk.
    let len = entry.header.body_len_bytes as usize;
    if buffer.len() < len {
        buffer.resize(len, 0);
    }
    read_body(chunk, entry, buffer)
}
