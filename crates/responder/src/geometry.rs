//! How a region is divided.
//!
//! ```text
//! 0       superblock
//! 4096    superblock, second copy
//! 8192    64 intents of 64 bytes
//! 12288   unused
//! 16384   2 tags of 64 bytes for each slot
//! ...     2 chunks for each slot, from the next multiple of 4096 on
//! ...     8 operation logs, with the protocol MeLo@V
//! ```
//! With the protocol Log, a log of records ([`fastness_pmlog`]) takes everything from 16384 on:
//! ```text
//! 16384   superblocks and headers of the log
//! 32768   chunks of the log
//! ```

use fastness_pmlog::{CHUNK_BYTES_MIN, DATA_OFFSET};

use crate::error::Error;
use crate::kind::ProtocolKind;
use crate::operation::log_bytes;
use crate::tag::LINE;

/// Region offset of the intents.
pub(crate) const INTENTS_OFFSET: usize = 8192;
/// Region offset of the tags.
pub(crate) const TAGS_OFFSET: usize = 16384;
/// Region offset of the chunks of a log of records.
const LOG_CHUNKS_OFFSET: u64 = TAGS_OFFSET as u64 + DATA_OFFSET;
/// Chunks that such a log is divided into, unless they would be too long or too short.
const LOG_CHUNKS: u64 = 64;
/// With fewer it could not be trimmed while it is written to.
const LOG_CHUNKS_MIN: u64 = 4;
const LOG_CHUNK_BYTES_MAX: u64 = 1 << 20;
/// Slots that share a lock.
pub(crate) const GROUP_SLOTS: u64 = 16;

/// How a region is divided.
///
/// Shape: the layout is in the module documentation. Units: bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Length of the region.
    pub region_bytes: u64,
    /// Length of a chunk: a power of two, 64 to 1 MiB.
    pub chunk_bytes: u64,
    /// Pairs of chunks: below 16, or a multiple of 16. With the protocol Log, chunks of the log.
    pub slots: u64,
    /// Operation logs, after the chunks.
    pub operation_logs: usize,
}

impl Geometry {
    /// As many slots as the region has room for.
    ///
    /// # Errors
    /// [`Error::Geometry`]: the region is too small, or no chunk has that length.
    pub fn new(region_bytes: u64, chunk_bytes: u64, operation_logs: usize) -> Result<Geometry, Error> {
        let logs = operation_logs as u64 * log_bytes(chunk_bytes);
        let room = region_bytes.saturating_sub(TAGS_OFFSET as u64 + 4096 + logs);
        let slots = room / (2 * (chunk_bytes + LINE as u64));
        let slots = if slots < GROUP_SLOTS { slots } else { slots - slots % GROUP_SLOTS };
        let geometry = Geometry { region_bytes, chunk_bytes, slots, operation_logs };
        geometry.check_slots()?;
        Ok(geometry)
    }

    /// A log of records in the region, in 64 chunks or fewer, or more of 1 MiB.
    ///
    /// # Errors
    /// [`Error::Geometry`]: the region is too small.
    pub fn of_log(region_bytes: u64) -> Result<Geometry, Error> {
        let room = region_bytes.saturating_sub(LOG_CHUNKS_OFFSET);
        let wanted = (room / LOG_CHUNKS).checked_ilog2().map_or(0, |log2| 1 << log2);
        let chunk_bytes = wanted.clamp(CHUNK_BYTES_MIN, LOG_CHUNK_BYTES_MAX);
        let geometry = Geometry { region_bytes, chunk_bytes, slots: room / chunk_bytes, operation_logs: 0 };
        geometry.check_log()?;
        Ok(geometry)
    }

    /// Checks what a superblock says.
    pub(crate) fn check(&self, protocol: ProtocolKind) -> Result<(), Error> {
        match protocol {
            ProtocolKind::Log => self.check_log(),
            _ => self.check_slots(),
        }
    }

    fn check_log(&self) -> Result<(), Error> {
        if !self.chunk_bytes.is_power_of_two()
            || !(CHUNK_BYTES_MIN..=LOG_CHUNK_BYTES_MAX).contains(&self.chunk_bytes)
        {
            return Err(Error::Geometry("a chunk of a log has 1 KiB to 1 MiB, a power of two"));
        }
        let end =
            self.slots.checked_mul(self.chunk_bytes).and_then(|bytes| bytes.checked_add(LOG_CHUNKS_OFFSET));
        if self.slots < LOG_CHUNKS_MIN || end.is_none_or(|end| end > self.region_bytes) {
            return Err(Error::Geometry("the region is too small for a log"));
        }
        Ok(())
    }

    fn check_slots(&self) -> Result<(), Error> {
        if !self.chunk_bytes.is_power_of_two() || !(64..=1 << 20).contains(&self.chunk_bytes) {
            return Err(Error::Geometry("a chunk has 64 bytes to 1 MiB, a power of two"));
        }
        if self.slots == 0 || self.slots > 1 << 40 {
            return Err(Error::Geometry("the region is too small for a slot"));
        }
        if self.slots > GROUP_SLOTS && !self.slots.is_multiple_of(GROUP_SLOTS) {
            return Err(Error::Geometry("slots come in groups"));
        }
        if self.logs_offset() + self.operation_logs as u64 * log_bytes(self.chunk_bytes) > self.region_bytes {
            return Err(Error::Geometry("the slots do not fit into the region"));
        }
        Ok(())
    }

    /// Slots that share a lock.
    pub(crate) fn group_slots(&self) -> u64 {
        self.slots.min(GROUP_SLOTS)
    }

    pub(crate) fn groups(&self) -> usize {
        (self.slots / self.group_slots()) as usize
    }

    pub(crate) fn tags_bytes(&self) -> usize {
        self.slots as usize * 2 * LINE
    }

    /// Region offset of the first chunk.
    pub(crate) fn chunks_offset(&self) -> usize {
        (TAGS_OFFSET + self.tags_bytes()).next_multiple_of(4096)
    }

    /// Region offset of the first operation log.
    pub(crate) fn logs_offset(&self) -> u64 {
        (TAGS_OFFSET as u64 + self.slots * 2 * LINE as u64).next_multiple_of(4096)
            + self.slots * 2 * self.chunk_bytes
    }

    /// The chunk of a file that holds the byte at `offset`.
    pub(crate) fn index_of(&self, offset: u64) -> u64 {
        offset / self.chunk_bytes
    }

    /// Where a chunk begins in its file.
    pub(crate) fn offset_of(&self, index: u64) -> u64 {
        index * self.chunk_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slots_of_every_region_fit() {
        for region_kib in 16..4000 {
            for (chunk_bytes, logs) in [(64, 0), (4096, 0), (65536, 0), (64, 8), (4096, 8)] {
                if let Ok(geometry) = Geometry::new(region_kib << 10, chunk_bytes, logs) {
                    assert!(
                        geometry.logs_offset() + logs as u64 * log_bytes(chunk_bytes) <= region_kib << 10,
                        "{geometry:?}"
                    );
                    assert_eq!(geometry.groups() as u64 * geometry.group_slots(), geometry.slots);
                }
            }
        }
    }

    #[test]
    fn the_log_of_every_region_fits() {
        for region_kib in 16..4000 {
            if let Ok(geometry) = Geometry::of_log(region_kib << 10) {
                let end = LOG_CHUNKS_OFFSET + geometry.slots * geometry.chunk_bytes;
                assert!(end <= region_kib << 10 && end + geometry.chunk_bytes > region_kib << 10);
            }
        }
        assert!(Geometry::of_log(35 << 10).is_err());
        assert_eq!(Geometry::of_log(128 << 20).unwrap().chunk_bytes, 1 << 20);
        let geometry =
            Geometry { region_bytes: 1 << 20, chunk_bytes: 1024, slots: u64::MAX, operation_logs: 0 };
        assert!(geometry.check(ProtocolKind::Log).is_err());
    }

    #[test]
    fn impossible_ones_are_refused() {
        for (region_bytes, chunk_bytes) in [(16384, 4096), (1 << 20, 100), (1 << 20, 32), (1 << 30, 2 << 20)]
        {
            assert!(Geometry::new(region_bytes, chunk_bytes, 0).is_err(), "{region_bytes} {chunk_bytes}");
        }
        let geometry =
            Geometry { region_bytes: 1 << 20, chunk_bytes: 4096, slots: u64::MAX / 2, operation_logs: 0 };
        assert!(geometry.check(ProtocolKind::Fr).is_err());
    }
}
