//! Inodes: what is known of a file besides its names and its bytes.

use fastness_store::PoolError;
use fastness_store::record::Time;

use crate::error::{FsError, Result};
use crate::ino::Ino;

/// Bits of a mode.
pub mod mode {
    #![allow(missing_docs)]
    pub const TYPE: u32 = 0o170_000;
    pub const SOCKET: u32 = 0o140_000;
    pub const SYMLINK: u32 = 0o120_000;
    pub const FILE: u32 = 0o100_000;
    pub const BLOCK_DEVICE: u32 = 0o060_000;
    pub const DIRECTORY: u32 = 0o040_000;
    pub const CHAR_DEVICE: u32 = 0o020_000;
    pub const FIFO: u32 = 0o010_000;
    pub const SET_UID: u32 = 0o4000;
    pub const SET_GID: u32 = 0o2000;
    pub const PERMISSIONS: u32 = 0o7777;
    pub const GROUP_EXECUTE: u32 = 0o010;

    /// Whether the type is one that a file can have.
    pub fn is_valid(mode: u32) -> bool {
        let types = [SOCKET, SYMLINK, FILE, BLOCK_DEVICE, DIRECTORY, CHAR_DEVICE, FIFO];
        types.contains(&(mode & TYPE)) && mode & !(TYPE | PERMISSIONS) == 0
    }
}

/// Bytes of an inode's row.
pub(crate) const INODE_BYTES: usize = 104;
const VERSION: u8 = 1;
const TEMPORARY: u8 = 1;

/// An inode, as its row has it.
///
/// Shape: version (1), flags (1; bit 0: has no name yet, and may get one), 0 (2), mode (4), links (4), uid
/// (4), gid (4), bytes of a block (4; 0: no object), device number (8), generation (8), entries of a
/// directory or bytes of a symlink's target (8), parent of a directory (8), times of access, change of
/// contents, change of attributes, and creation: seconds (8) and nanoseconds (4) each. Little endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inode {
    /// Type and permissions.
    pub mode: u32,
    /// Names; of a directory 2 and one for each directory in it; 0: removed, or unnamed.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes of a block of its object; 0: there is no object, because nothing was ever written.
    pub block_bytes: u32,
    /// Device number of a device node.
    pub rdev: u64,
    /// Distinguishes files with the same number: a crash may lose some, and their numbers come again.
    pub generation: u64,
    /// Of a directory: its entries; of a symlink: bytes of its target.
    pub entries: u64,
    /// Of a directory: the directory that it is in.
    pub parent: Ino,
    /// It was created without a name and may be linked.
    pub is_temporary: bool,
    /// It is known to have no extended attributes, because it was created since the file system was opened.
    /// Not in the row.
    pub is_bare: bool,
    /// Last access.
    pub atime: Time,
    /// Last change of the contents.
    pub mtime: Time,
    /// Last change of contents or attributes.
    pub ctime: Time,
    /// Creation.
    pub btime: Time,
}

impl Inode {
    /// The type of file, as bits of the mode.
    pub fn file_type(&self) -> u32 {
        self.mode & mode::TYPE
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.file_type() == mode::DIRECTORY
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.file_type() == mode::FILE
    }

    pub(crate) fn encode(&self) -> [u8; INODE_BYTES] {
        let mut row = [0; INODE_BYTES];
        row[0] = VERSION;
        row[1] = if self.is_temporary { TEMPORARY } else { 0 };
        let words = [self.mode, self.links, self.uid, self.gid, self.block_bytes];
        for (at, word) in words.into_iter().enumerate() {
            row[4 + at * 4..8 + at * 4].copy_from_slice(&word.to_le_bytes());
        }
        let longs = [self.rdev, self.generation, self.entries, self.parent.0];
        for (at, long) in longs.into_iter().enumerate() {
            row[24 + at * 8..32 + at * 8].copy_from_slice(&long.to_le_bytes());
        }
        let times = [self.atime, self.mtime, self.ctime, self.btime];
        for (at, time) in times.into_iter().enumerate() {
            row[56 + at * 12..64 + at * 12].copy_from_slice(&time.seconds.to_le_bytes());
            row[64 + at * 12..68 + at * 12].copy_from_slice(&time.nanoseconds.to_le_bytes());
        }
        row
    }

    pub(crate) fn decode(ino: Ino, row: &[u8]) -> Result<Inode> {
        let damaged = |what| FsError::Damaged { ino, what };
        let row: &[u8; INODE_BYTES] = row.try_into().map_err(|_| damaged("its row has a wrong length"))?;
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| row[at + i]));
        let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| row[at + i]));
        let time = |at: usize| Time { seconds: long(at) as i64, nanoseconds: word(at + 8) };
        if row[0] != VERSION || row[1] & !TEMPORARY != 0 || row[2..4] != [0, 0] {
            return Err(damaged("its row is of no known version"));
        }
        let inode = Inode {
            mode: word(4),
            links: word(8),
            uid: word(12),
            gid: word(16),
            block_bytes: word(20),
            rdev: long(24),
            generation: long(32),
            entries: long(40),
            parent: Ino(long(48)),
            is_temporary: row[1] & TEMPORARY != 0,
            is_bare: false,
            atime: time(56),
            mtime: time(68),
            ctime: time(80),
            btime: time(92),
        };
        if !mode::is_valid(inode.mode) {
            return Err(damaged("its mode is of no known type"));
        }
        let times = [inode.atime, inode.mtime, inode.ctime, inode.btime];
        if times.iter().any(|time| time.nanoseconds >= 1_000_000_000) {
            return Err(damaged("one of its times is invalid"));
        }
        Ok(inode)
    }
}

/// Whether an error says that there is no such object.
pub(crate) fn is_no_object(error: &PoolError) -> bool {
    matches!(error, PoolError::NoObject { .. })
}

#[cfg(test)]
pub(crate) use tests::inode as tests_inode;

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn inode() -> Inode {
        let time = |seconds| Time { seconds, nanoseconds: 999_999_999 };
        Inode {
            mode: mode::FILE | 0o6755,
            links: 3,
            uid: 1000,
            gid: u32::MAX,
            block_bytes: 4096,
            rdev: 5,
            generation: 6,
            entries: 7,
            parent: Ino(8),
            is_temporary: true,
            is_bare: false,
            atime: time(-1),
            mtime: time(i64::MAX),
            ctime: time(0),
            btime: time(i64::MIN),
        }
    }

    #[test]
    fn a_row_goes_there_and_back() {
        assert_eq!(Inode::decode(Ino(2), &inode().encode()).unwrap(), inode());
    }

    #[test]
    fn golden_bytes() {
        let row = inode().encode();
        assert_eq!(row[..8], [1, 1, 0, 0, 0xed, 0x8d, 0, 0]);
        assert_eq!(row[48..64], [8, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255]);
        assert_eq!(row[64..68], [255, 201, 154, 59]);
    }

    #[test]
    fn damaged_rows_are_refused() {
        let row = inode().encode();
        for len in 0..row.len() {
            assert!(Inode::decode(Ino(2), &row[..len]).is_err());
        }
        for (at, value) in [(0, 2), (1, 2), (2, 1), (5, 0xf0), (67, 255)] {
            let mut row = row;
            row[at] = value;
            assert!(matches!(Inode::decode(Ino(2), &row), Err(FsError::Damaged { ino: Ino(2), .. })), "{at}");
        }
    }
}
