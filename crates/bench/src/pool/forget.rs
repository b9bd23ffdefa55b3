//! A device that keeps everything but data, so that a pool of 100 GiB fits on a small disk.

use fastness_blkdev::{BlockDevice, BlockError, DeviceInfo, FileDevice, StatsSnapshot};

/// First bytes of every unit of data in a pool that is written to such a device.
pub(super) const MARK: [u8; 8] = *b"forgetme";
const UNIT_BYTES: usize = 4096;

/// Writes in which every unit begins with the mark are dropped; all else goes to a sparse file. An import
/// reads no data, so it sees no difference.
pub(super) struct Forgetful(pub(super) FileDevice);

impl BlockDevice for Forgetful {
    fn info(&self) -> &DeviceInfo {
        self.0.info()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), BlockError> {
        self.0.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), BlockError> {
        if data.chunks(UNIT_BYTES).all(|unit| unit.starts_with(&MARK)) {
            return Ok(());
        }
        self.0.write_at(offset, data)
    }
    fn write_fua(&self, offset: u64, data: &[u8]) -> Result<(), BlockError> {
        self.0.write_fua(offset, data)
    }
    fn flush(&self) -> Result<(), BlockError> {
        self.0.flush()
    }
    fn discard(&self, offset: u64, len_bytes: u64) -> Result<(), BlockError> {
        self.0.discard(offset, len_bytes)
    }
    fn write_zeroes(&self, offset: u64, len_bytes: u64) -> Result<(), BlockError> {
        self.0.write_zeroes(offset, len_bytes)
    }
    fn stats(&self) -> StatsSnapshot {
        self.0.stats()
    }
    fn is_poisoned(&self) -> bool {
        self.0.is_poisoned()
    }
}
