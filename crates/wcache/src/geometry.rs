//! How a region is divided: blocks that describe it in front, then chunks of equal length.

use crate::block::SECTOR_BYTES;
use crate::error::Error;
use crate::record::RECORD_BYTES;

/// Region offset of the first chunk, in bytes.
pub const DATA_OFFSET: usize = 16384;
/// Shortest chunk: an entry of one sector and the header after it fit.
pub const CHUNK_BYTES_MIN: u64 = 1024;
/// Most chunks of a cache; bounds what opening allocates, whatever the medium says.
pub const CHUNKS_MAX: u64 = 1 << 20;
/// Fewest chunks: as many as writers can have open, and one to write on.
const CHUNKS_MIN: u64 = 2;
/// Chunks are multiples of it, and entries begin at multiples of it.
const CHUNK_ALIGN: u64 = 256;
/// Longest data of an entry, if the chunks allow it.
const ENTRY_DATA_MAX: u64 = 128 << 10;

/// How a region is divided. Shape: chunk *i* is at byte [`DATA_OFFSET`]` + i * chunk_bytes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Length of the region in bytes.
    pub region_bytes: u64,
    /// Length of a chunk in bytes.
    pub chunk_bytes: u64,
    /// Number of chunks.
    pub chunks: u64,
}

impl Geometry {
    /// As many chunks as a region holds; by default of a 256th of it, 64 KiB to 4 MiB.
    ///
    /// # Errors
    /// [`Error::Geometry`].
    pub fn dividing(region_bytes: u64, chunk_bytes: Option<u64>) -> Result<Geometry, Error> {
        let default = (region_bytes / 256).clamp(64 << 10, 4 << 20) / 4096 * 4096;
        let chunk_bytes = chunk_bytes.unwrap_or(default);
        let chunks = region_bytes.saturating_sub(DATA_OFFSET as u64) / chunk_bytes.max(1);
        Geometry { region_bytes, chunk_bytes, chunks }.checked()
    }

    /// Checks a geometry from anywhere, the medium included.
    pub(crate) fn checked(self) -> Result<Geometry, Error> {
        let Geometry { region_bytes, chunk_bytes, chunks } = self;
        let is_chunk = chunk_bytes >= CHUNK_BYTES_MIN && chunk_bytes.is_multiple_of(CHUNK_ALIGN);
        let end = chunks.checked_mul(chunk_bytes).and_then(|bytes| bytes.checked_add(DATA_OFFSET as u64));
        let fits = end.is_some_and(|end| end <= region_bytes);
        match is_chunk && (CHUNKS_MIN..=CHUNKS_MAX).contains(&chunks) && fits {
            true => Ok(self),
            false => Err(Error::Geometry { region_bytes, chunk_bytes, chunks }),
        }
    }

    /// Bytes of all chunks together.
    pub fn capacity_bytes(&self) -> u64 {
        self.chunks * self.chunk_bytes
    }

    /// Longest data of an entry in bytes: whole blocks if one fits, otherwise whole sectors.
    pub fn entry_data_max(&self) -> u64 {
        let room = self.chunk_bytes - fastness_prb::HEADER_BYTES as u64 - RECORD_BYTES as u64;
        let most = room.min(ENTRY_DATA_MAX);
        let unit = if most >= 4096 { 4096 } else { SECTOR_BYTES };
        most / unit * unit
    }

    /// Bytes of log after which a generation is closed: many small ones, so that their space comes back
    /// evenly.
    pub(crate) fn generation_bytes(&self) -> u64 {
        (self.capacity_bytes() / 64).min(8 << 20)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_holds_as_many_chunks_as_fit() {
        let of =
            |region, chunk| Geometry::dividing(region, chunk).map(|found| (found.chunks, found.chunk_bytes));
        assert_eq!(of(256 << 20, None).unwrap(), (255, 1 << 20));
        assert_eq!(of(DATA_OFFSET as u64 + 2048, Some(1024)).unwrap(), (2, 1024));
        for (region, chunk) in
            [(1 << 20, 1000), (1 << 20, 768), (DATA_OFFSET as u64 + 1024, 1024), (1 << 40, 1024)]
        {
            assert!(of(region, Some(chunk)).is_err(), "{region} {chunk}");
        }
        let overflowing = Geometry { region_bytes: u64::MAX, chunk_bytes: u64::MAX - 255, chunks: 1 << 20 };
        assert!(overflowing.checked().is_err());
    }

    #[test]
    fn data_of_an_entry_are_whole_blocks_or_sectors() {
        let of = |chunk_bytes| Geometry { region_bytes: 1 << 30, chunk_bytes, chunks: 4 }.entry_data_max();
        assert_eq!((of(1024), of(2048), of(4096), of(8192), of(1 << 20)), (512, 1536, 3584, 4096, 128 << 10));
    }
}
