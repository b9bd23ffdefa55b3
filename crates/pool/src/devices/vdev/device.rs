//! A device of a pool: opened, locked, with its name.

use std::sync::Arc;
use std::time::Duration;

use fastness_base::{is_busy, patiently};
use fastness_blkdev::BlockDevice;
use fastness_remote::Access;

#[cfg(doc)]
use crate::error::PoolError;
use crate::error::Result;

/// A device as it is passed to a pool: opened, locked, with its name for messages.
#[derive(Clone)]
pub struct Device {
    /// Path, or the name a test gave it.
    pub path: String,
    /// The device.
    pub device: Arc<dyn BlockDevice>,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Device({})", self.path)
    }
}

impl Device {
    /// Time to wait for a device that another process only looks at: a search has each of them for a moment.
    pub const LOOK: Duration = Duration::from_secs(1);

    /// Wraps a device that is already open.
    pub fn new(path: impl Into<String>, device: Arc<dyn BlockDevice>) -> Device {
        Device { path: path.into(), device }
    }

    /// Opens a device for writing, by its name: a file or block device, an RBD image, an NBD export
    /// ([`fastness_remote::open`]). Nobody else has it for writing then.
    ///
    /// # Errors
    /// [`PoolError::Open`]; in use by another process, or for an image another host, among others.
    pub fn open(path: impl AsRef<std::path::Path>) -> Result<Device> {
        Device::open_for(path.as_ref(), Access::Write)
    }

    /// As [`open`](Self::open); while another process has the device, tries again for at most `patience`.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_within(path: impl AsRef<std::path::Path>, patience: Duration) -> Result<Device> {
        patiently(patience, || Device::open(path.as_ref()), is_busy)
    }

    /// Opens a device to see what is on it: as [`open`](Self::open), but an RBD image is only read, and its
    /// owner is left alone.
    ///
    /// # Errors
    /// [`PoolError::Open`].
    pub fn open_to_look(path: impl AsRef<std::path::Path>) -> Result<Device> {
        Device::open_for(path.as_ref(), Access::Look)
    }

    fn open_for(path: &std::path::Path, access: Access) -> Result<Device> {
        let name = path.display().to_string();
        let device = match path.to_str() {
            Some(name) => fastness_remote::open(name, access)?,
            None => Arc::new(fastness_blkdev::OpenOptions::new().open(path)?),
        };
        Ok(Device::new(name, device))
    }

    /// Creates a sparse file of `len_bytes`, which takes space only as it is written, and opens it
    /// exclusively. When the file system is full, new data goes to other vdevs; a pool without a vdev that
    /// has space is suspended, and what had synced is safe.
    ///
    /// # Errors
    /// [`PoolError::Open`]; no file is left.
    pub fn create_sparse(path: impl AsRef<std::path::Path>, len_bytes: u64) -> Result<Device> {
        let options = fastness_blkdev::OpenOptions::new().sparse(true);
        let device = options.create(path.as_ref(), len_bytes)?;
        Ok(Device::new(path.as_ref().display().to_string(), Arc::new(device)))
    }

    /// Creates a file of `len_bytes` with its space allocated and opens it exclusively.
    ///
    /// # Errors
    /// [`PoolError::Open`]; no file is left.
    pub fn create(path: impl AsRef<std::path::Path>, len_bytes: u64) -> Result<Device> {
        let device = fastness_blkdev::OpenOptions::new().create(path.as_ref(), len_bytes)?;
        Ok(Device::new(path.as_ref().display().to_string(), Arc::new(device)))
    }
}
