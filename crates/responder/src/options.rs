//! How a cache is created and opened.

use rustix::time::{ClockId, clock_gettime};

use crate::kind::ProtocolKind;
use crate::protocol::Clock;

/// How a cache is opened.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    pub(crate) clock: Clock,
    pub(crate) chunk_bytes: u64,
    pub(crate) overwrite: bool,
    pub(crate) protocol: ProtocolKind,
    pub(crate) is_shared: bool,
    pub(crate) names_bytes: Option<u64>,
    pub(crate) files_max: usize,
    pub(crate) pairs_anew: bool,
    pub(crate) drops_tail: bool,
    pub(crate) recovery_files: usize,
}

/// The clock by which file systems note times: it goes in steps of some ms.
fn system_clock() -> u64 {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}

impl Default for Options {
    fn default() -> Self {
        Options {
            clock: system_clock,
            chunk_bytes: 4096,
            overwrite: false,
            protocol: ProtocolKind::Fr,
            is_shared: false,
            names_bytes: None,
            files_max: 1024,
            pairs_anew: false,
            drops_tail: false,
            recovery_files: usize::MAX,
        }
    }
}

impl Options {
    /// Chunks of 4 KiB.
    pub fn new() -> Options {
        Options::default()
    }

    /// Another clock, in ns since 1970.
    #[must_use]
    pub fn clock(self, clock: Clock) -> Options {
        Options { clock, ..self }
    }

    /// Other chunks, for [`Cache::create`](crate::Cache::create): a power of two, 64 to 1 MiB. The
    /// protocol Log takes what suits its log.
    #[must_use]
    pub fn chunk_bytes(self, chunk_bytes: u64) -> Options {
        Options { chunk_bytes, ..self }
    }

    /// For [`Cache::create`](crate::Cache::create): another protocol than FR.
    #[must_use]
    pub fn protocol(self, protocol: ProtocolKind) -> Options {
        Options { protocol, ..self }
    }

    /// Other processes can have leases ([`Cache::lease`](crate::Cache::lease)); with the protocol FR alone.
    #[must_use]
    pub fn shared(self, is_shared: bool) -> Options {
        Options { is_shared, ..self }
    }

    /// For [`Cache::create`](crate::Cache::create): the length of the log of names in bytes, a multiple of
    /// 4096; without it, a part of the region.
    #[must_use]
    pub fn names_bytes(self, names_bytes: u64) -> Options {
        Options { names_bytes: Some(names_bytes), ..self }
    }

    /// Files that stay open below although nothing has them open above: 1024 by default. New ones may be four
    /// times as many, until they are flushed; removed ones as many. Each takes a descriptor.
    #[must_use]
    pub fn files_max(self, files_max: usize) -> Options {
        Options { files_max, ..self }
    }

    /// For [`Cache::open`](crate::Cache::open): region and directory are paired anew although one of them is
    /// an older copy, or the directory has lost its mark, or that is damaged. What was written since may be
    /// undone.
    #[must_use]
    pub fn pair_anew(self, pairs_anew: bool) -> Options {
        Options { pairs_anew, ..self }
    }

    /// For [`Cache::open`](crate::Cache::open): files of which PM has something that are open at a time; each
    /// takes a descriptor. If there are more, the others get everything before it returns.
    #[must_use]
    pub fn recovery_files(self, recovery_files: usize) -> Options {
        Options { recovery_files, ..self }
    }

    /// For [`Cache::open`](crate::Cache::open) with the protocol Log: of a log that is damaged, the records
    /// that precede the damage are carried out, and the others are given up. Without it, such a log is
    /// refused ([`LogError::Damaged`](crate::LogError::Damaged)). With other protocols: chunks whose tags are
    /// damaged are given up, and what PM does not give of a file that a crash has lost. Without it that is
    /// [`Error::Tag`](crate::Error::Tag), [`Error::Operation`](crate::Error::Operation) or
    /// [`Error::Read`](crate::Error::Read).
    #[must_use]
    pub fn drop_tail(self, drops_tail: bool) -> Options {
        Options { drops_tail, ..self }
    }

    /// For [`Cache::create`](crate::Cache::create): what the region holds and what the directory says of an
    /// earlier cache may be lost.
    #[must_use]
    pub fn overwrite(self, overwrite: bool) -> Options {
        Options { overwrite, ..self }
    }
}
