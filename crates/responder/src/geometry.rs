//! How a region is divided.
//!
//! ```text
//! 0       superblock
//! 4096    superblock, second copy
//! 8192    64 intents of 64 bytes
//! 12288   2 openings of 64 bytes
//! 12416   unused
//! 16384   2 tags of 64 bytes for each slot
//! ...     2 chunks for each slot, from the next multiple of 4096 on
//! ...     8 operation logs, with the protocol MeLo@V
//! ...     the log of names, up to the end of the last whole line
//! ```
//! With the protocol Log, a log of records ([`fastness_pmlog`]) takes what is between 16384 and the log of
//! names:
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
/// Region offset of the openings.
pub(crate) const OPENINGS_OFFSET: usize = 12288;
/// Region offset of the tags.
pub(crate) const TAGS_OFFSET: usize = 16384;
/// The log of names is this part of the region, and not longer than that.
const NAMES_SHARE: u64 = 32;
/// Bytes of a log of names at least.
pub(crate) const LOG_BYTES_MIN: u64 = 4096;
const NAMES_BYTES_MAX: u64 = 4 << 20;
/// The length of the log of names is a multiple of this.
pub(crate) const NAMES_BLOCK: u64 = 4096;

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
    /// Length of the log of names, a multiple of 4096, at the end.
    pub names_bytes: u64,
}

/// What suits a region.
fn names_share(region_bytes: u64) -> u64 {
    let share = (region_bytes / NAMES_SHARE).clamp(LOG_BYTES_MIN, NAMES_BYTES_MAX);
    share - share % NAMES_BLOCK
}

impl Geometry {
    /// As many slots as the region has room for. The log of names is `names_bytes` long, or what suits the
    /// region.
    ///
    /// # Errors
    /// [`Error::Geometry`]: the region is too small, or no chunk has that length.
    pub fn new(
        region_bytes: u64,
        chunk_bytes: u64,
        operation_logs: usize,
        names_bytes: Option<u64>,
    ) -> Result<Geometry, Error> {
        let names_bytes = names_bytes.unwrap_or_else(|| names_share(region_bytes));
        let logs = operation_logs as u64 * log_bytes(chunk_bytes);
        let needed = (TAGS_OFFSET as u64 + 4096 + logs).saturating_add(names_bytes);
        let room = region_bytes.saturating_sub(needed);
        let slots = room / (2 * (chunk_bytes + LINE as u64));
        let slots = if slots < GROUP_SLOTS { slots } else { slots - slots % GROUP_SLOTS };
        let geometry = Geometry { region_bytes, chunk_bytes, slots, operation_logs, names_bytes };
        // FR, or one with operation logs: that makes no difference here.
        geometry.check(ProtocolKind::Fr)?;
        Ok(geometry)
    }

    /// A log of records in the region, in 64 chunks or fewer, or more of 1 MiB. The log of names is
    /// `names_bytes` long, or what suits the region.
    ///
    /// # Errors
    /// [`Error::Geometry`]: the region is too small.
    pub fn of_log(region_bytes: u64, names_bytes: Option<u64>) -> Result<Geometry, Error> {
        let names_bytes = names_bytes.unwrap_or_else(|| names_share(region_bytes));
        let line_bytes = region_bytes - region_bytes % LINE as u64;
        let room = line_bytes.saturating_sub(LOG_CHUNKS_OFFSET.saturating_add(names_bytes));
        let wanted = (room / LOG_CHUNKS).checked_ilog2().map_or(0, |log2| 1 << log2);
        let chunk_bytes = wanted.clamp(CHUNK_BYTES_MIN, LOG_CHUNK_BYTES_MAX);
        let slots = room / chunk_bytes;
        let geometry = Geometry { region_bytes, chunk_bytes, slots, operation_logs: 0, names_bytes };
        geometry.check(ProtocolKind::Log)?;
        Ok(geometry)
    }

    /// Checks what a superblock says.
    pub(crate) fn check(&self, protocol: ProtocolKind) -> Result<(), Error> {
        if !self.names_bytes.is_multiple_of(NAMES_BLOCK) || self.names_bytes < LOG_BYTES_MIN {
            return Err(Error::Geometry("the log of names has blocks of 4096 bytes, at least one"));
        }
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
        if self.slots < LOG_CHUNKS_MIN || end.is_none_or(|end| !self.leaves_names(end)) {
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
        let logs_end = self.logs_offset() + self.operation_logs as u64 * log_bytes(self.chunk_bytes);
        if !self.leaves_names(logs_end) {
            return Err(Error::Geometry("the slots do not fit into the region"));
        }
        Ok(())
    }

    /// Whether what ends there leaves room for the log of names, which begins with a line.
    fn leaves_names(&self, end: u64) -> bool {
        let lines_end = self.region_bytes - self.region_bytes % LINE as u64;
        end.checked_add(self.names_bytes).is_some_and(|end| end <= lines_end)
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

    /// Region offset of the log of names; the geometry was checked.
    pub(crate) fn names_offset(&self) -> usize {
        (self.region_bytes - self.names_bytes) as usize / LINE * LINE
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
                if let Ok(geometry) = Geometry::new(region_kib << 10, chunk_bytes, logs, None) {
                    assert!(
                        geometry.logs_offset() + logs as u64 * log_bytes(chunk_bytes)
                            <= geometry.names_offset() as u64,
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
            if let Ok(geometry) = Geometry::of_log((region_kib << 10) + region_kib % 100, None) {
                let end = LOG_CHUNKS_OFFSET + geometry.slots * geometry.chunk_bytes;
                let names = geometry.names_offset() as u64;
                assert!(end <= names && end + geometry.chunk_bytes > names, "{geometry:?}");
            }
        }
        assert!(Geometry::of_log(39 << 10, None).is_err());
        assert!(Geometry::of_log(40 << 10, None).is_ok());
        assert_eq!(Geometry::of_log(128 << 20, None).unwrap().chunk_bytes, 1 << 20);
        let possible = Geometry::of_log(1 << 20, Some(8192)).unwrap();
        for impossible in [
            Geometry { slots: u64::MAX, ..possible },
            Geometry { slots: possible.slots + 1, ..possible },
            Geometry { names_bytes: 0, ..possible },
            Geometry { names_bytes: 8200, ..possible },
            Geometry { names_bytes: u64::MAX - 4095, ..possible },
        ] {
            assert!(impossible.check(ProtocolKind::Log).is_err(), "{impossible:?}");
        }
    }

    #[test]
    fn impossible_ones_are_refused() {
        for (region_bytes, chunk_bytes) in [(16384, 4096), (1 << 20, 100), (1 << 20, 32), (1 << 30, 2 << 20)]
        {
            assert!(
                Geometry::new(region_bytes, chunk_bytes, 0, None).is_err(),
                "{region_bytes} {chunk_bytes}"
            );
        }
        let possible = Geometry::new(1 << 20, 4096, 0, Some(8192)).unwrap();
        for impossible in [
            Geometry { slots: u64::MAX / 2, ..possible },
            Geometry { names_bytes: 0, ..possible },
            Geometry { names_bytes: 8200, ..possible },
            Geometry { names_bytes: u64::MAX - 4095, ..possible },
            Geometry { names_bytes: 1 << 20, ..possible },
        ] {
            assert!(impossible.check(ProtocolKind::Fr).is_err(), "{impossible:?}");
        }
    }
}
