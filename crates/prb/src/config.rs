//! Parameters of a PRB, and the interfaces through which it gets randomness and time.

use std::sync::Arc;

use crate::checksum::ChecksumKind;
use crate::chunk::Layout;
use crate::entry::{Alignment, HEADER_BYTES, Insertion, NUMBER_MAX};
use crate::error::SetupError;
use crate::ids::LogGuid;
use crate::slots::SLOTS_MAX;

/// Source of random numbers for log GUIDs and chunk epochs.
pub trait Entropy: Send + Sync {
    /// 64 random bits.
    fn next_u64(&self) -> u64;
}

/// The operating system's random numbers.
#[derive(Debug, Clone, Copy, Default)]
pub struct OsEntropy;

impl Entropy for OsEntropy {
    fn next_u64(&self) -> u64 {
        // Without randomness two logs could share a GUID and claim each other's entries: there is no safe way
        // to continue, and Linux's getrandom fails only where it does not exist.
        getrandom::u64().expect("the operating system provides random numbers")
    }
}

/// Reads a monotonic clock, in ns.
pub type Clock = fn() -> u64;

fn monotonic_ns() -> u64 {
    use std::sync::OnceLock;
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Parameters of a PRB.
///
/// All of them may differ when the PRB is opened again: each entry records its own layout.
#[derive(Clone)]
pub struct Config {
    /// Number of commit slots: how many threads may write to PM at a time (1 to 32).
    ///
    /// Two to four for each Optane module; as many as cores for media that behave like DRAM.
    pub ncommitters: u32,
    /// Alignment of entries.
    pub alignment: Alignment,
    /// Checksum of bodies and headers.
    pub checksum: ChecksumKind,
    /// Fences per insertion; [`Insertion::OneFence`] needs a strong checksum.
    pub insertion: Insertion,
    /// Read every chunk back before it is reused and compare it with what was written.
    pub verify_collected: bool,
    /// Whether opening the chunks of a mirror copies to each side what only the other has. Off only to
    /// inspect a log without using it.
    pub repairs_sides: bool,
    /// Randomness.
    pub entropy: Arc<dyn Entropy>,
    /// Time, for the statistics.
    pub clock: Clock,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            ncommitters: 4,
            alignment: Alignment::Optane,
            checksum: ChecksumKind::Xxh3,
            insertion: Insertion::TwoFences,
            verify_collected: true,
            repairs_sides: true,
            entropy: Arc::new(OsEntropy),
            clock: monotonic_ns,
        }
    }
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("ncommitters", &self.ncommitters)
            .field("alignment", &self.alignment)
            .field("checksum", &self.checksum)
            .field("insertion", &self.insertion)
            .field("verify_collected", &self.verify_collected)
            .field("repairs_sides", &self.repairs_sides)
            .finish_non_exhaustive()
    }
}

impl Config {
    pub(crate) fn layout(&self) -> Layout {
        Layout { alignment: self.alignment, checksum: self.checksum, insertion: self.insertion }
    }

    /// A random epoch for a new use of a chunk.
    pub(crate) fn random_epoch(&self) -> u64 {
        self.entropy.next_u64() & NUMBER_MAX
    }

    pub(crate) fn random_guid(&self) -> LogGuid {
        loop {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&self.entropy.next_u64().to_le_bytes());
            bytes[8..].copy_from_slice(&self.entropy.next_u64().to_le_bytes());
            if let Some(guid) = LogGuid::from_bytes(bytes) {
                return guid;
            }
        }
    }

    /// Checks the parameters and the chunks' sizes; returns the longest possible body in bytes.
    pub(crate) fn check<M: fastness_pmem::Medium>(&self, ranges: &[M]) -> Result<usize, SetupError> {
        if !(1..=SLOTS_MAX).contains(&self.ncommitters) {
            return Err(SetupError::Committers { ncommitters: self.ncommitters, max: SLOTS_MAX });
        }
        if self.insertion == Insertion::OneFence && !self.checksum.is_strong() {
            return Err(SetupError::WeakChecksum { checksum: self.checksum });
        }
        if ranges.is_empty() || u32::try_from(ranges.len()).is_err() {
            return Err(SetupError::ChunkCount { count: ranges.len() });
        }
        let mut smallest = usize::MAX;
        for (index, range) in ranges.iter().enumerate() {
            let (offset, len) = (range.region_offset(), range.len_bytes());
            let align = self.alignment.bytes();
            if offset % align as u64 != 0 || len % align != 0 || len < HEADER_BYTES + align {
                return Err(SetupError::Chunk {
                    index,
                    region_offset: offset,
                    len_bytes: len,
                    alignment_bytes: align,
                });
            }
            smallest = smallest.min(len);
        }
        Ok(smallest - HEADER_BYTES)
    }
}
