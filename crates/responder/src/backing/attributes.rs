//! What a file system keeps of a file besides its names and its bytes.

use super::FileId;

/// What something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileType {
    /// A file with bytes.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A device, a pipe or a socket.
    Special,
}

/// Type, permissions, owner, times, and the rest.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attributes {
    /// Which file it is.
    pub id: FileId,
    /// Its names.
    pub links: u64,
    /// Type and permissions, as `stat` says them.
    pub mode: u32,
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Of a device, its number.
    pub rdev: u64,
    /// When it was last read, in ns since 1970.
    pub accessed_ns: u64,
    /// When it was last modified, in ns since 1970.
    pub modified_ns: u64,
    /// Where a symbolic link leads.
    pub target: Vec<u8>,
    /// Extended attributes, access control lists among them: names and values, in order.
    pub extended: Vec<(Vec<u8>, Vec<u8>)>,
}

const TYPE_MASK: u32 = 0o170_000;

impl Attributes {
    /// What it is.
    pub fn file_type(&self) -> FileType {
        match self.mode & TYPE_MASK {
            0o100_000 => FileType::File,
            0o040_000 => FileType::Directory,
            0o120_000 => FileType::Symlink,
            _ => FileType::Special,
        }
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.file_type() == FileType::Directory
    }
}
