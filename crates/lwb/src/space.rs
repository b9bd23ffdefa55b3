//! What the log needs from the storage of its blocks.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use fastness_base::ErrorKind;

use crate::ids::{Extent, Place};

/// Unit of block sizes and places, in bytes.
pub const UNIT_BYTES: u32 = 4096;
/// Longest block, in bytes.
pub const BLOCK_BYTES_MAX: u32 = 128 << 10;

/// Space for blocks on one or more devices, and the I/O on it.
///
/// A pool's log vdev, its main vdevs or a plain block device ([`DeviceSpace`](crate::DeviceSpace)) can
/// implement it. Allocations need not be durable: after a crash everything is free except what
/// [`claim`](Self::claim) marks.
///
/// Concurrency: any number of threads; [`allocate`](Self::allocate) is called under a lock of the log, so it
/// should not wait for I/O. The log never reads or writes the same place from two threads at a time.
pub trait Space: Send + Sync {
    /// Allocates a block of `len_bytes` (a multiple of [`UNIT_BYTES`], at most [`BLOCK_BYTES_MAX`]).
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`] if there is no free space of that length.
    fn allocate(&self, len_bytes: u32) -> Result<Place, SpaceError>;

    /// Frees an extent, which must have been allocated or claimed as a whole.
    fn free(&self, extent: Extent);

    /// Marks an extent as in use, after a crash.
    ///
    /// # Errors
    /// If part of it is already in use, or not in this space.
    fn claim(&self, extent: Extent) -> Result<(), SpaceError>;

    /// Whether all of the extent is in this space; says nothing about whether it is in use.
    fn contains(&self, extent: Extent) -> bool;

    /// Name of a device for messages; `None` if it has only a number. The name may come from a medium.
    fn device_name(&self, _device: u32) -> Option<String> {
        None
    }

    /// Writes whole units; durable after a later flush of the device.
    ///
    /// # Errors
    /// Errors of the device; the contents of the place are then unknown.
    fn write(&self, place: Place, data: &[u8]) -> Result<(), SpaceError>;

    /// Several unordered writes; results are in the order of `writes`.
    fn write_batch(&self, writes: &[(Place, &[u8])]) -> Vec<Result<(), SpaceError>> {
        writes.iter().map(|(place, data)| self.write(*place, data)).collect()
    }

    /// Fills `buf`, whole units.
    ///
    /// # Errors
    /// Errors of the device.
    fn read(&self, place: Place, buf: &mut [u8]) -> Result<(), SpaceError>;

    /// Fills `buf` from one copy after another until `check` accepts one, if there are several (a mirror);
    /// the others may then be rewritten from it, if the place was allocated or claimed. `check` does not
    /// change the bytes. `Ok(false)`: no copy was accepted, and at least one that is known to have all that
    /// was flushed could be read.
    ///
    /// # Errors
    /// Errors of the device, if no such copy could be read.
    fn read_checked(
        &self,
        place: Place,
        buf: &mut [u8],
        check: &mut dyn FnMut(&mut [u8]) -> bool,
    ) -> Result<bool, SpaceError> {
        self.read(place, buf)?;
        Ok(check(buf))
    }

    /// Reads each copy that is known to have everything flushed, if there are several (a mirror), into `buf`
    /// in turn.
    ///
    /// # Errors
    /// Errors of the device, if no such copy could be read.
    fn read_current(
        &self,
        place: Place,
        buf: &mut [u8],
        look: &mut dyn FnMut(&[u8]),
    ) -> Result<(), SpaceError> {
        self.read(place, buf)?;
        look(buf);
        Ok(())
    }

    /// Makes durable what had been written to these devices when the call began. Several may be in progress
    /// at a time.
    ///
    /// An error of one affects all that overlap with it: none may return success for writes that another one
    /// reported as lost (`fastness_blkdev` guarantees that for its devices).
    ///
    /// # Errors
    /// Errors of the devices; then nothing written since the last flush may be taken as durable.
    fn flush(&self, devices: &[u32]) -> Result<(), SpaceError>;
}

macro_rules! forward {
    ($($pointer:ty),*) => {$(
        impl<S: Space + ?Sized> Space for $pointer {
            fn allocate(&self, len_bytes: u32) -> Result<Place, SpaceError> {
                (**self).allocate(len_bytes)
            }
            fn free(&self, extent: Extent) {
                (**self).free(extent);
            }
            fn claim(&self, extent: Extent) -> Result<(), SpaceError> {
                (**self).claim(extent)
            }
            fn contains(&self, extent: Extent) -> bool {
                (**self).contains(extent)
            }
            fn device_name(&self, device: u32) -> Option<String> {
                (**self).device_name(device)
            }
            fn write(&self, place: Place, data: &[u8]) -> Result<(), SpaceError> {
                (**self).write(place, data)
            }
            fn write_batch(&self, writes: &[(Place, &[u8])]) -> Vec<Result<(), SpaceError>> {
                (**self).write_batch(writes)
            }
            fn read(&self, place: Place, buf: &mut [u8]) -> Result<(), SpaceError> {
                (**self).read(place, buf)
            }
            fn read_checked(
                &self,
                place: Place,
                buf: &mut [u8],
                check: &mut dyn FnMut(&mut [u8]) -> bool,
            ) -> Result<bool, SpaceError> {
                (**self).read_checked(place, buf, check)
            }
            fn read_current(
                &self,
                place: Place,
                buf: &mut [u8],
                look: &mut dyn FnMut(&[u8]),
            ) -> Result<(), SpaceError> {
                (**self).read_current(place, buf, look)
            }
            fn flush(&self, devices: &[u32]) -> Result<(), SpaceError> {
                (**self).flush(devices)
            }
        }
    )*};
}

forward!(&S, Box<S>, Arc<S>);

/// An error of a space; every waiter of a failed block gets a copy.
#[derive(Debug, Clone)]
pub struct SpaceError {
    kind: ErrorKind,
    source: Arc<dyn Error + Send + Sync>,
}

impl SpaceError {
    /// An error of `kind` with its source.
    pub fn new(kind: ErrorKind, source: impl Into<Box<dyn Error + Send + Sync>>) -> SpaceError {
        SpaceError { kind, source: source.into().into() }
    }

    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

fastness_base::has_kind!(SpaceError);

impl fmt::Display for SpaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl Error for SpaceError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.source()
    }
}
