//! What went wrong with one device.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of one device in a pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeviceErrors {
    /// Reads that failed.
    pub read: u64,
    /// Writes and flushes that failed.
    pub write: u64,
    /// Reads that returned something other than what was written.
    pub checksum: u64,
    /// Blocks that were rewritten from another side.
    pub healed: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) read: AtomicU64,
    pub(super) write: AtomicU64,
    pub(super) checksum: AtomicU64,
    pub(super) healed: AtomicU64,
}

impl Counters {
    pub(super) fn set(&self, to: DeviceErrors) {
        let DeviceErrors { read, write, checksum, healed } = to;
        self.read.store(read, Ordering::Relaxed);
        self.write.store(write, Ordering::Relaxed);
        self.checksum.store(checksum, Ordering::Relaxed);
        self.healed.store(healed, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> DeviceErrors {
        DeviceErrors {
            read: self.read.load(Ordering::Relaxed),
            write: self.write.load(Ordering::Relaxed),
            checksum: self.checksum.load(Ordering::Relaxed),
            healed: self.healed.load(Ordering::Relaxed),
        }
    }
}
