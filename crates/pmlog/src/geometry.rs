//! Where the chunks are: fixed when a log is created.

use fastness_prb::{Alignment, ChecksumKind};

/// Region offset of the first chunk.
pub const DATA_OFFSET: u64 = 16384;
/// Minimum length of a chunk in bytes.
pub const CHUNK_BYTES_MIN: u64 = 1024;
/// Maximum number of chunks of a log; bounds what opening allocates, whatever the medium says.
pub const CHUNKS_MAX: u64 = 1 << 20;
/// Chunks are multiples of this, so that entries of either alignment fit into them.
const CHUNK_ALIGN: u64 = 256;

/// How a region is divided, and how records are laid out in it.
///
/// Shape: chunk *i* is at byte [`DATA_OFFSET`]` + i * chunk_bytes` of the region; the rest is unused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Length of the region in bytes.
    pub region_bytes: u64,
    /// Length of a chunk in bytes.
    pub chunk_bytes: u64,
    /// Number of chunks.
    pub chunks: u64,
    /// Alignment of records.
    pub alignment: Alignment,
    /// Checksum of records.
    pub checksum: ChecksumKind,
}

/// A region cannot be divided as requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GeometryError {
    /// The chunk size is too small or uneven.
    #[error(
        "a chunk of {chunk_bytes} bytes is not possible: a multiple of {CHUNK_ALIGN}, at least {CHUNK_BYTES_MIN}"
    )]
    ChunkBytes {
        /// As requested.
        chunk_bytes: u64,
    },
    /// The region is too small for the chunks.
    #[error(
        "a region of {region_bytes} bytes has no room for {chunks} chunks of {chunk_bytes} bytes behind the first {DATA_OFFSET}"
    )]
    TooSmall {
        /// Length of the region.
        region_bytes: u64,
        /// Length of a chunk.
        chunk_bytes: u64,
        /// Number of chunks; at least 1.
        chunks: u64,
    },
    /// More chunks than opening will allocate for.
    #[error("{chunks} chunks; the limit is {CHUNKS_MAX}, make them larger")]
    TooMany {
        /// Number of chunks.
        chunks: u64,
    },
}

impl Geometry {
    /// Divides a region of `region_bytes` into as many chunks of `chunk_bytes` as it holds.
    ///
    /// # Errors
    /// [`GeometryError`].
    pub fn dividing(
        region_bytes: u64,
        chunk_bytes: u64,
        alignment: Alignment,
        checksum: ChecksumKind,
    ) -> Result<Self, GeometryError> {
        let chunks = region_bytes.saturating_sub(DATA_OFFSET) / chunk_bytes.max(1);
        let geometry = Self { region_bytes, chunk_bytes, chunks: chunks.max(1), alignment, checksum };
        geometry.check()?;
        Ok(geometry)
    }

    /// Checks a geometry from anywhere, the medium included.
    pub(crate) fn check(&self) -> Result<(), GeometryError> {
        let &Self { region_bytes, chunk_bytes, chunks, .. } = self;
        if chunk_bytes < CHUNK_BYTES_MIN || !chunk_bytes.is_multiple_of(CHUNK_ALIGN) {
            return Err(GeometryError::ChunkBytes { chunk_bytes });
        }
        if chunks > CHUNKS_MAX {
            return Err(GeometryError::TooMany { chunks });
        }
        let end = chunks.checked_mul(chunk_bytes).and_then(|bytes| bytes.checked_add(DATA_OFFSET));
        if chunks == 0 || end.is_none_or(|end| end > region_bytes) {
            return Err(GeometryError::TooSmall { region_bytes, chunk_bytes, chunks });
        }
        Ok(())
    }

    /// Region offset of a chunk.
    pub fn chunk_offset(&self, index: u64) -> u64 {
        DATA_OFFSET + index * self.chunk_bytes
    }

    /// Bytes of all chunks together.
    pub fn capacity_bytes(&self) -> u64 {
        self.chunks * self.chunk_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dividing(region_bytes: u64, chunk_bytes: u64) -> Result<u64, GeometryError> {
        Geometry::dividing(region_bytes, chunk_bytes, Alignment::Line, ChecksumKind::Crc32c).map(|g| g.chunks)
    }

    #[test]
    fn a_region_holds_as_many_chunks_as_fit() {
        assert_eq!(dividing(DATA_OFFSET + 1024, 1024), Ok(1));
        assert_eq!(dividing(DATA_OFFSET + 3 * 1024 - 1, 1024), Ok(2));
        assert_eq!(dividing(64 << 20, 1 << 20), Ok(63));
    }

    #[test]
    fn what_cannot_be_divided_is_refused() {
        assert!(matches!(dividing(1 << 20, 0), Err(GeometryError::ChunkBytes { .. })));
        assert!(matches!(dividing(1 << 20, 1000), Err(GeometryError::ChunkBytes { .. })));
        assert!(matches!(dividing(1 << 20, 1024 + 64), Err(GeometryError::ChunkBytes { .. })));
        assert!(matches!(dividing(DATA_OFFSET + 1023, 1024), Err(GeometryError::TooSmall { .. })));
        assert!(matches!(dividing(0, 1024), Err(GeometryError::TooSmall { .. })));
        assert!(matches!(dividing(1 << 40, 1024), Err(GeometryError::TooMany { .. })));
        let overflowing = Geometry {
            region_bytes: u64::MAX,
            chunk_bytes: u64::MAX - 255,
            chunks: CHUNKS_MAX,
            alignment: Alignment::Line,
            checksum: ChecksumKind::Crc32c,
        };
        assert!(matches!(overflowing.check(), Err(GeometryError::TooSmall { .. })));
    }
}
