//! Names, and where a directory keeps them.
//!
//! The entries of a directory are ordered by a *cookie*: 55 bits of a hash of the name, under the file
//! system's seed, then 8 bits that tell names with the same hash apart. So a name is found by one lookup, a
//! listing has one order that does not depend on when names came, and its position is one number that stays
//! valid whatever comes and goes. Of several names with the same hash, each is found by going on from the one
//! before: a name that is removed in the middle of such a chain leaves an empty row.

use twox_hash::XxHash3_64;

use crate::error::{FsError, Result};
use crate::ino::Ino;
use crate::inode::mode;

/// Longest name in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// Longest target of a symlink in bytes.
pub const TARGET_BYTES_MAX: usize = 4095;
/// Names with one hash in one directory.
pub(crate) const CHAIN_MAX: u64 = 256;

/// Checks a name that is to be looked up, created or removed.
///
/// # Errors
/// [`FsError::NameTooLong`]; [`FsError::Invalid`] for an empty name, `.`, `..`, and names with a slash or
/// NUL.
pub(crate) fn check(name: &[u8]) -> Result<()> {
    if name.len() > NAME_BYTES_MAX {
        return Err(FsError::NameTooLong);
    }
    if name.is_empty() || name == b"." || name == b".." || name.iter().any(|byte| matches!(byte, b'/' | 0)) {
        return Err(FsError::Invalid("this cannot be a name"));
    }
    Ok(())
}

/// Under this seed all names have one hash, to test what hardly ever happens.
#[cfg(test)]
pub(crate) const COLLIDING: u64 = u64::MAX;

/// The first cookie that a name may have.
pub(crate) fn first_cookie(seed: u64, name: &[u8]) -> u64 {
    #[cfg(test)]
    if seed == COLLIDING {
        return CHAIN_MAX;
    }
    (XxHash3_64::oneshot_with_seed(seed, name) >> 9).max(1) << 8
}

/// Key of an entry.
pub(crate) fn key(directory: Ino, cookie: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&directory.key());
    key[8..].copy_from_slice(&cookie.to_be_bytes());
    key
}

/// Directory and cookie of a key that [`key`] has made.
pub(crate) fn of_key(key: &[u8]) -> (Ino, u64) {
    let number = |at: usize| u64::from_be_bytes(std::array::from_fn(|index| key[at + index]));
    (Ino(number(0)), number(8))
}

/// An entry of a directory, as its row has it.
///
/// Shape: type as the bits 12 to 15 of a mode (1), inode (8, little endian), name. An empty row: no entry,
/// and the chain goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    /// As bits of a mode.
    pub(crate) file_type: u32,
    pub(crate) ino: Ino,
    pub(crate) name: &'a [u8],
}

impl<'a> Entry<'a> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut row = Vec::with_capacity(9 + self.name.len());
        row.push((self.file_type >> 12) as u8);
        row.extend_from_slice(&self.ino.0.to_le_bytes());
        row.extend_from_slice(self.name);
        row
    }

    /// `None`: no entry, and the chain goes on.
    pub(crate) fn decode(directory: Ino, row: &'a [u8]) -> Result<Option<Entry<'a>>> {
        if row.is_empty() {
            return Ok(None);
        }
        let damaged = FsError::Damaged { ino: directory, what: "an entry of it is damaged" };
        if row.len() < 10 || row.len() > 9 + NAME_BYTES_MAX || !mode::is_valid(u32::from(row[0]) << 12) {
            return Err(damaged);
        }
        let ino = Ino(u64::from_le_bytes(std::array::from_fn(|at| row[1 + at])));
        Ok(Some(Entry { file_type: u32::from(row[0]) << 12, ino, name: &row[9..] }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for name in [&b"a"[..], b"...", b"\xff\n", &[b'x'; 255]] {
            check(name).unwrap();
        }
        for name in [&b""[..], b".", b"..", b"a/b", b"a\0"] {
            assert!(matches!(check(name), Err(FsError::Invalid(_))), "{name:?}");
        }
        assert!(matches!(check(&[b'x'; 256]), Err(FsError::NameTooLong)));
    }

    #[test]
    fn cookies_leave_room_for_the_special_entries_and_are_positive() {
        for number in 0..1000_u32 {
            let cookie = first_cookie(7, &number.to_le_bytes());
            assert!(cookie >= 256 && cookie.is_multiple_of(256) && cookie + 255 <= i64::MAX as u64);
        }
        assert_ne!(first_cookie(1, b"a"), first_cookie(2, b"a"));
    }

    #[test]
    fn entries_go_there_and_back_and_damage_is_refused() {
        let entry = Entry { file_type: mode::SYMLINK, ino: Ino(0x0102), name: b"name" };
        assert_eq!(entry.encode(), b"\x0a\x02\x01\0\0\0\0\0\0name");
        assert_eq!(Entry::decode(Ino(1), &entry.encode()).unwrap(), Some(entry));
        assert_eq!(Entry::decode(Ino(1), b"").unwrap(), None);
        for row in [&b"\x0a"[..], b"\x0a\x02\x01\0\0\0\0\0\0", b"\x03\x02\x01\0\0\0\0\0\0n"] {
            assert!(Entry::decode(Ino(1), row).is_err());
        }
    }
}
