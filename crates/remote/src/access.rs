//! Reading or writing.

/// What a device is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// To write. Nobody else has it for writing then: for an image, anywhere; for a file or an export, on
    /// this machine.
    Write,
    /// To see what is on it. An image is only read, and its owner is left alone; a file is opened as for
    /// writing, so that one in use is told from one that is not.
    Look,
}
