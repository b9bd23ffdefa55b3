//! Opening a device by its name.

use std::path::Path;
use std::sync::Arc;

use fastness_blkdev::{BlockDevice, OpenOptions};

use crate::access::Access;
use crate::error::OpenError;
use crate::name::{Name, parse};
use crate::nbd::NbdDevice;
use crate::rbd::RbdDevice;

/// Opens a device: a path, an RBD image or an NBD export.
///
/// With [`Access::Write`] the call waits while the owner of an image's lock does not answer: until it does,
/// or until the cluster takes it for dead (30 s), and it is fenced.
///
/// # Errors
/// [`OpenError`]; [`OpenError::InUse`] if the device's owner answers.
pub fn open(name: &str, access: Access) -> Result<Arc<dyn BlockDevice>, OpenError> {
    Ok(match parse(name)? {
        Name::Path => Arc::new(OpenOptions::new().open(Path::new(name))?),
        Name::Rbd(name) => Arc::new(RbdDevice::open(crate::rbd::functions()?, &name, access)?),
        Name::Nbd(name) => Arc::new(NbdDevice::open(crate::nbd::functions()?, &name)?),
    })
}

/// Opens an image for writing, if `name` is that of one.
///
/// # Errors
/// As [`open`].
pub fn open_image(name: &str) -> Result<Option<RbdDevice>, OpenError> {
    match parse(name)? {
        Name::Rbd(name) => RbdDevice::open(crate::rbd::functions()?, &name, Access::Write).map(Some),
        _ => Ok(None),
    }
}

/// The names of all images of a pool, if `name` is that of a pool: `rbd:POOL`.
///
/// # Errors
/// [`OpenError`].
pub fn images(name: &str) -> Result<Option<Vec<String>>, OpenError> {
    match parse(name)? {
        Name::Rbd(name) if name.image.is_none() => {
            crate::rbd::images(crate::rbd::functions()?, &name).map(Some)
        }
        _ => Ok(None),
    }
}
