//! Checks of a request before it reaches the medium.

use crate::error::{BlockError, Cause, Operation};
use crate::info::DeviceInfo;

impl DeviceInfo {
    /// The error of `operation` on this device.
    pub fn error(&self, operation: Operation, offset: u64, len_bytes: u64, cause: Cause) -> BlockError {
        BlockError { device: self.name.clone(), operation, offset, len_bytes, cause }
    }

    /// Refuses what the device cannot do: writes if it is read-only, unaligned or out-of-range requests.
    ///
    /// # Errors
    /// [`Cause::ReadOnly`], [`Cause::Misaligned`], [`Cause::OutOfRange`].
    pub fn check(&self, operation: Operation, offset: u64, len_bytes: u64) -> Result<(), BlockError> {
        self.check_within(self.len_bytes, operation, offset, len_bytes)
    }

    /// The same for a device that has grown.
    pub(crate) fn check_within(
        &self,
        device_len_bytes: u64,
        operation: Operation,
        offset: u64,
        len_bytes: u64,
    ) -> Result<(), BlockError> {
        // Block sizes are powers of two, so one mask serves offset and length.
        let mask = u64::from(self.logical_block_bytes) - 1;
        let cause = if operation.is_change() && self.is_read_only {
            Cause::ReadOnly
        } else if (offset | len_bytes) & mask != 0 {
            Cause::Misaligned { block_bytes: self.logical_block_bytes }
        } else if offset.checked_add(len_bytes).is_none_or(|end| end > device_len_bytes) {
            Cause::OutOfRange { device_len_bytes }
        } else {
            return Ok(());
        };
        Err(self.error(operation, offset, len_bytes, cause))
    }
}

/// Length of a buffer as a length on a device.
pub(crate) fn len64(len: usize) -> u64 {
    u64::try_from(len).expect("usize has at most 64 bits")
}
