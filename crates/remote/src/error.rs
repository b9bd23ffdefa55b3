//! Errors of opening a device by its name.

use std::error::Error;
use std::io;

use fastness_base::ErrorKind;

/// A device could not be opened. Nothing stays open or locked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A file or block device.
    #[error(transparent)]
    File(#[from] fastness_blkdev::OpenError),
    /// Not the name of a device.
    #[error("{name} is no name of a device: {why}")]
    Name {
        /// What was given.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// The client library is not installed, or is another than this program knows.
    #[error("{library} cannot be used; on Debian it is in the package {package}")]
    Library {
        /// The library's file.
        library: &'static str,
        /// The package that has it.
        package: &'static str,
        /// Why it cannot be loaded.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// Another client has the device for writing.
    #[error("{name} is in use by another client")]
    InUse {
        /// The device.
        name: String,
    },
    /// The device is not one that data can be entrusted to.
    #[error("{name}: {why}")]
    Unfit {
        /// The device.
        name: String,
        /// Why.
        why: String,
    },
    /// A call of the library failed.
    #[error("{name}: {call} failed{detail}")]
    Call {
        /// The device.
        name: String,
        /// The library's function.
        call: &'static str,
        /// What the library said, after a colon; or nothing.
        detail: String,
        /// The error that it returned.
        #[source]
        source: io::Error,
    },
}

impl OpenError {
    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            OpenError::File(error) => error.kind(),
            OpenError::InUse { .. } => ErrorKind::Retry,
            OpenError::Name { .. } | OpenError::Library { .. } | OpenError::Unfit { .. } => {
                ErrorKind::Invalid
            }
            OpenError::Call { source, .. } => match source.raw_os_error() {
                Some(libc::EIO | libc::ETIMEDOUT | libc::ENOTCONN | libc::ECONNREFUSED | libc::ESHUTDOWN) => {
                    ErrorKind::MediaFailed
                }
                Some(libc::EAGAIN | libc::EINTR | libc::ENOMEM | libc::EMFILE | libc::EBUSY) => {
                    ErrorKind::Retry
                }
                _ => ErrorKind::Invalid,
            },
        }
    }
}

fastness_base::has_kind!(OpenError);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_is_told_from_what_does_not() {
        let call = |errno| OpenError::Call {
            name: String::new(),
            call: "rbd_open",
            detail: String::new(),
            source: io::Error::from_raw_os_error(errno),
        };
        assert_eq!(call(libc::ENOENT).kind(), ErrorKind::Invalid);
        assert_eq!(call(libc::ETIMEDOUT).kind(), ErrorKind::MediaFailed);
        assert_eq!(call(libc::ENOMEM).kind(), ErrorKind::Retry);
        assert_eq!(OpenError::InUse { name: String::new() }.kind(), ErrorKind::Retry);
    }
}
