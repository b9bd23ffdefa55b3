//! The protocol's numbers, and bytes from the kernel.
//!
//! Source: Linux, `include/uapi/linux/fuse.h`, version 7.45.

use rustix::io::Errno;

use crate::files::Name;

/// Version that this crate speaks.
pub(crate) const MAJOR: u32 = 7;
pub(crate) const MINOR: u32 = 42;
/// Oldest version: renames with flags, `readdirplus`, `lseek` and a page count in the answer to INIT.
pub(crate) const MINOR_MIN: u32 = 31;
pub(crate) const IN_HEADER_BYTES: usize = 40;
pub(crate) const OUT_HEADER_BYTES: usize = 16;
/// Longest answer to a read or a listing.
pub(crate) const READ_BYTES_MAX: usize = 1 << 20;
/// A request that writes: its head and arguments, then as many bytes.
pub(crate) const REQUEST_BYTES_MAX: usize = READ_BYTES_MAX + 4096;
/// Longest name in bytes.
const NAME_BYTES_MAX: usize = 255;

macro_rules! opcodes {
    ($($name:ident = $number:literal),+ $(,)?) => {
        $(pub(crate) const $name: u32 = $number;)+

        /// The name of an operation, for statistics.
        pub(crate) fn name_of(opcode: u32) -> &'static str {
            match opcode {
                $($number => stringify!($name),)+
                _ => "UNKNOWN",
            }
        }
    };
}

opcodes! {
    LOOKUP = 1, FORGET = 2, GETATTR = 3, SETATTR = 4, READLINK = 5, SYMLINK = 6, MKNOD = 8, MKDIR = 9,
    UNLINK = 10, RMDIR = 11, RENAME = 12, LINK = 13, OPEN = 14, READ = 15, WRITE = 16, STATFS = 17,
    RELEASE = 18, FSYNC = 20, SETXATTR = 21, GETXATTR = 22, LISTXATTR = 23, REMOVEXATTR = 24, FLUSH = 25,
    INIT = 26, OPENDIR = 27, READDIR = 28, RELEASEDIR = 29, FSYNCDIR = 30, ACCESS = 34, CREATE = 35,
    INTERRUPT = 36, DESTROY = 38, NOTIFY_REPLY = 41, BATCH_FORGET = 42, FALLOCATE = 43, READDIRPLUS = 44, RENAME2 = 45,
    LSEEK = 46, COPY_FILE_RANGE = 47, SYNCFS = 50, TMPFILE = 51, STATX = 52, COPY_FILE_RANGE_64 = 53,
}

/// One more than the largest opcode.
pub(crate) const OPCODES: usize = 54;

/// Whether the answer to an operation begins with a file, which the kernel then knows.
pub(crate) fn tells_of_a_file(opcode: u32) -> bool {
    matches!(opcode, LOOKUP | SYMLINK | MKNOD | MKDIR | LINK | CREATE | TMPFILE)
}

/// Flags of INIT.
pub(crate) mod init {
    pub(crate) const ASYNC_READ: u64 = 1;
    pub(crate) const EXPORT_SUPPORT: u64 = 1 << 4;
    pub(crate) const BIG_WRITES: u64 = 1 << 5;
    pub(crate) const DONT_MASK: u64 = 1 << 6;
    pub(crate) const DO_READDIRPLUS: u64 = 1 << 13;
    pub(crate) const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub(crate) const ASYNC_DIO: u64 = 1 << 15;
    pub(crate) const PARALLEL_DIROPS: u64 = 1 << 18;
    pub(crate) const POSIX_ACL: u64 = 1 << 20;
    pub(crate) const MAX_PAGES: u64 = 1 << 22;
    pub(crate) const CACHE_SYMLINKS: u64 = 1 << 23;
    pub(crate) const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub(crate) const SETXATTR_EXT: u64 = 1 << 29;
    pub(crate) const INIT_EXT: u64 = 1 << 30;
    pub(crate) const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    pub(crate) const OVER_IO_URING: u64 = 1 << 41;
}

/// Flags of SETATTR.
pub(crate) mod fattr {
    pub(crate) const MODE: u32 = 1;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const FH: u32 = 1 << 6;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
    pub(crate) const CTIME: u32 = 1 << 10;
    pub(crate) const KILL_SUIDGID: u32 = 1 << 11;
}

/// Flag of WRITE: the bytes are from the page cache.
pub(crate) const WRITE_CACHE: u32 = 1;
/// Flag of WRITE: bits that run a program as another user are to be cleared.
pub(crate) const WRITE_KILL_SUIDGID: u32 = 4;
/// Flag of OPEN and CREATE: the same, with the truncation.
pub(crate) const OPEN_KILL_SUIDGID: u32 = 1;
/// Flag of FSYNC.
pub(crate) const FSYNC_FDATASYNC: u32 = 1;
/// Flag of SETXATTR.
pub(crate) const SETXATTR_ACL_KILL_SGID: u32 = 1;
/// Flag of GETATTR and STATX: there is a handle.
pub(crate) const GETATTR_FH: u32 = 1;

/// The head of every request.
///
/// Shape: length (4), opcode (4), unique (8), node (8), uid (4), gid (4), pid (4), length of extensions in
/// units of 8 (2), padding (2). Native byte order, as all of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) opcode: u32,
    pub(crate) unique: u64,
    pub(crate) node: u64,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) pid: u32,
}

/// Reads a request; whatever is missing or malformed is EINVAL.
///
/// Arguments of fixed length and those of any length may lie in two places. No value lies in both.
#[derive(Debug, Clone)]
pub(crate) struct Input<'a> {
    now: &'a [u8],
    then: &'a [u8],
}

impl<'a> Input<'a> {
    /// Splits a request into its head and its arguments; `None` if it is none.
    pub(crate) fn request(bytes: &'a [u8]) -> Option<(Head, Input<'a>)> {
        let (head, arguments) = bytes.split_at_checked(IN_HEADER_BYTES)?;
        Input::parts(head, arguments, &[])
    }

    /// The same of a request in three parts: its head, its arguments of fixed length, and the others.
    pub(crate) fn parts(head: &'a [u8], mut now: &'a [u8], mut then: &'a [u8]) -> Option<(Head, Input<'a>)> {
        let mut input = Input::again(head);
        let len = input.u32().ok()? as usize;
        let (opcode, unique, node) = (input.u32().ok()?, input.u64().ok()?, input.u64().ok()?);
        let (uid, gid, pid) = (input.u32().ok()?, input.u32().ok()?, input.u32().ok()?);
        let extensions = usize::from(input.u32().ok()? as u16) * 8;
        if len != IN_HEADER_BYTES + now.len() + then.len() {
            return None;
        }
        let last = if then.is_empty() { &mut now } else { &mut then };
        *last = &last[..last.len().checked_sub(extensions)?];
        Some((Head { opcode, unique, node, uid, gid, pid }, Input { now, then }))
    }

    /// What was not read yet, in one piece.
    pub(crate) fn copied(&self) -> Box<[u8]> {
        [self.now, self.then].concat().into()
    }

    /// The arguments of a request that was copied.
    pub(crate) fn again(arguments: &'a [u8]) -> Input<'a> {
        Input { now: arguments, then: &[] }
    }

    fn rest(&mut self) -> &'a [u8] {
        if self.now.is_empty() {
            self.now = std::mem::take(&mut self.then);
        }
        self.now
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Errno> {
        let (value, rest) = self.rest().split_first_chunk().ok_or(Errno::INVAL)?;
        self.now = rest;
        Ok(u32::from_ne_bytes(*value))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Errno> {
        let (value, rest) = self.rest().split_first_chunk().ok_or(Errno::INVAL)?;
        self.now = rest;
        Ok(u64::from_ne_bytes(*value))
    }

    /// Skips `len` bytes that mean nothing here.
    pub(crate) fn skip(&mut self, len: usize) -> Result<(), Errno> {
        self.bytes(len).map(drop)
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8], Errno> {
        let (value, rest) = self.rest().split_at_checked(len).ok_or(Errno::INVAL)?;
        self.now = rest;
        Ok(value)
    }

    /// Bytes up to NUL.
    pub(crate) fn string(&mut self) -> Result<&'a [u8], Errno> {
        let from = self.rest();
        let end = from.iter().position(|byte| *byte == 0).ok_or(Errno::INVAL)?;
        let value = &from[..end];
        self.now = &from[end + 1..];
        Ok(value)
    }

    /// The name of a file, or of an attribute.
    pub(crate) fn name(&mut self) -> Result<Name<'a>, Errno> {
        let name = self.string()?;
        match name.len() {
            0 => Err(Errno::INVAL),
            1..=NAME_BYTES_MAX if !name.contains(&b'/') => Ok(name),
            1..=NAME_BYTES_MAX => Err(Errno::INVAL),
            _ => Err(Errno::NAMETOOLONG),
        }
    }

    /// The name of an attribute, which may have slashes.
    pub(crate) fn attribute(&mut self) -> Result<Name<'a>, Errno> {
        let name = self.string()?;
        match name.len() {
            0 => Err(Errno::INVAL),
            1..=NAME_BYTES_MAX => Ok(name),
            _ => Err(Errno::RANGE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(len: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&len.to_ne_bytes());
        bytes.extend_from_slice(&LOOKUP.to_ne_bytes());
        bytes.extend_from_slice(&7_u64.to_ne_bytes());
        bytes.extend_from_slice(&1_u64.to_ne_bytes());
        for id in [10_u32, 20, 30, 0] {
            bytes.extend_from_slice(&id.to_ne_bytes());
        }
        bytes.extend_from_slice(body);
        bytes
    }

    #[test]
    fn a_request_has_its_length() {
        let whole = request(42, b"a\0");
        let (head, mut input) = Input::request(&whole).unwrap();
        assert_eq!(head, Head { opcode: LOOKUP, unique: 7, node: 1, uid: 10, gid: 20, pid: 30 });
        assert_eq!(input.name(), Ok(&b"a"[..]));
        for len in 0..whole.len() {
            assert!(Input::request(&whole[..len]).is_none(), "{len}");
        }
        assert!(Input::request(&request(43, b"a\0")).is_none());
    }

    #[test]
    fn extensions_are_cut_off_and_may_not_be_longer_than_the_request() {
        let mut bytes = request(50, b"a\0xxxxxxxx");
        bytes[36] = 1;
        let (_, mut input) = Input::request(&bytes).unwrap();
        assert_eq!((input.name(), input.u32()), (Ok(&b"a"[..]), Err(Errno::INVAL)));
        bytes[36] = 2;
        assert!(Input::request(&bytes).is_none());
    }

    #[test]
    fn a_request_in_parts_is_the_request_in_one_piece() {
        let mut whole = request(58, b"\x07\0\0\0\x08\0\0\0a\0xxxxxxxx");
        whole[36] = 1;
        let (head, rest) = whole.split_at(IN_HEADER_BYTES);
        for at in [0, 4, 8] {
            let (now, then) = rest.split_at(at);
            let (found, mut input) = Input::parts(head, now, then).unwrap();
            assert_eq!(found, Input::request(&whole).unwrap().0);
            assert_eq!((input.u32(), input.u32()), (Ok(7), Ok(8)));
            assert_eq!((input.name(), input.u32()), (Ok(&b"a"[..]), Err(Errno::INVAL)));
        }
        assert!(Input::parts(head, &rest[..8], &rest[..9]).is_none());
        assert!(Input::parts(&head[..39], &rest[..8], &rest[8..]).is_none());
        // No value is taken from both parts, and extensions are cut off the last one alone.
        assert_eq!(Input::parts(head, &rest[..7], &rest[7..]).unwrap().1.u64(), Err(Errno::INVAL));
        assert!(Input::parts(head, &rest[..12], &rest[12..]).is_none());
    }

    #[test]
    fn names_are_checked() {
        let long = [b'x'; 256];
        for (bytes, expected) in [
            (&b"name\0"[..], Ok(&b"name"[..])),
            (b"\xff\0", Ok(b"\xff")),
            (b"\0", Err(Errno::INVAL)),
            (b"name", Err(Errno::INVAL)),
            (b"a/b\0", Err(Errno::INVAL)),
            (&[&long[..], b"\0"].concat(), Err(Errno::NAMETOOLONG)),
        ] {
            assert_eq!(Input::again(bytes).name(), expected);
        }
        assert_eq!(Input::again(b"user.a/b\0").attribute(), Ok(&b"user.a/b"[..]));
    }
}
