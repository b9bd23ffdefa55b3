//! Numbers of files.

use std::fmt;

use fastness_store::ObjectId;

/// Number of a file; also that of the pool's object with its bytes. Never given twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ino(pub u64);

impl Ino {
    /// No file. In the log, the directory of what is created without a name.
    pub(crate) const NONE: Ino = Ino(0);
    /// The root directory.
    pub const ROOT: Ino = Ino(1);

    /// The object with its bytes.
    pub(crate) fn object(self) -> ObjectId {
        ObjectId(self.0)
    }

    pub(crate) fn key(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }
}

impl fmt::Display for Ino {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
