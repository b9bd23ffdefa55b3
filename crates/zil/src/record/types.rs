//! The records as values.

use super::head::RecordType;
use fastness_base::ObjectId;

/// Seconds and nanoseconds since 1970; the nanoseconds are below 10^9.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Time {
    /// Seconds.
    pub seconds: i64,
    /// Nanoseconds after that second.
    pub nanoseconds: u32,
}

/// Which of its fields a [`SetAttr`] sets.
pub mod attribute {
    /// Permissions and type.
    pub const MODE: u32 = 1;
    /// Owner.
    pub const UID: u32 = 1 << 1;
    /// Group.
    pub const GID: u32 = 1 << 2;
    /// Size in bytes.
    pub const SIZE: u32 = 1 << 3;
    /// Time of last access.
    pub const ATIME: u32 = 1 << 4;
    /// Time of last change of the contents.
    pub const MTIME: u32 = 1 << 5;
    /// Project and flags, in `extra`.
    pub const EXTRA: u32 = 1 << 6;
    /// All attributes.
    pub const ALL: u32 = (1 << 7) - 1;
}

/// Owner and permissions of a created object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attributes {
    /// Permissions and type.
    pub mode: u32,
    /// Owner.
    pub uid: u64,
    /// Group.
    pub gid: u64,
    /// Distinguishes objects that had the same number at different times.
    pub generation: u64,
    /// When it was created.
    pub crtime: Time,
    /// Device number of a device node, otherwise 0.
    pub rdev: u64,
}

/// The kind of object that was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum CreateKind {
    File,
    Directory,
    XattrDirectory,
    Symlink,
}

/// An object was created, in the directory that the head names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Create<'a> {
    /// What.
    pub kind: CreateKind,
    /// Its number.
    pub object: ObjectId,
    /// Owner and permissions.
    pub attributes: Attributes,
    /// Its name, of 1 to 65535 bytes.
    pub name: &'a [u8],
    /// The target of a symbolic link; otherwise empty.
    pub target: &'a [u8],
    /// Access control list, opaque; empty if none was given.
    pub acl: &'a [u8],
}

/// A name was removed from the directory that the head names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remove<'a> {
    /// Whether the name was a directory's.
    pub is_directory: bool,
    /// The name.
    pub name: &'a [u8],
}

/// An object got an additional name in the directory that the head names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link<'a> {
    /// The object.
    pub object: ObjectId,
    /// The name.
    pub name: &'a [u8],
}

/// What a rename left at the old name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameKind {
    /// Nothing.
    Plain,
    /// The object that had the new name.
    Exchange,
    /// A whiteout: this object with these attributes.
    Whiteout(ObjectId, Attributes),
}

/// A name in the directory that the head names was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rename<'a> {
    /// What the rename left at the old name.
    pub kind: RenameKind,
    /// Directory of the new name.
    pub target_directory: ObjectId,
    /// The old name.
    pub source_name: &'a [u8],
    /// The new name.
    pub target_name: &'a [u8],
}

/// Where the bytes of a write are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteData<'a> {
    /// In the record.
    Inline(&'a [u8]),
    /// Already in the pool: `len_bytes` of them, at addresses that only the pool understands.
    Indirect {
        /// Length of the write.
        len_bytes: u64,
        /// Addresses and checksums of the blocks.
        address: &'a [u8],
    },
}

/// Bytes were written to the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write<'a> {
    /// First byte.
    pub offset: u64,
    /// The bytes.
    pub data: WriteData<'a>,
}

/// Bytes were written to a file, at a time that is then that of the last change of its contents and of its
/// attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimedWrite<'a> {
    /// First byte.
    pub offset: u64,
    /// When.
    pub time: Time,
    /// The bytes.
    pub data: &'a [u8],
}

/// A range of the object was truncated or freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Truncate {
    /// First byte.
    pub offset: u64,
    /// Number of bytes; `u64::MAX`: the object ends at `offset`.
    pub len_bytes: u64,
}

/// A range reads as zeroes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Zeroes {
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub len_bytes: u64,
    /// Whether the contents were discarded, rather than written as zeroes.
    pub is_discard: bool,
}

/// Attributes were set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetAttr<'a> {
    /// Which; bits of [`attribute`].
    pub mask: u32,
    /// Permissions and type.
    pub mode: u32,
    /// Owner.
    pub uid: u64,
    /// Group.
    pub gid: u64,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Time of last access.
    pub atime: Time,
    /// Time of last change of the contents.
    pub mtime: Time,
    /// Project, flags and other attributes, opaque.
    pub extra: &'a [u8],
}

/// An access control list was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetAcl<'a> {
    /// The list, opaque.
    pub acl: &'a [u8],
}

/// An extended attribute was set, or removed if the value is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetXattr<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
}

/// Blocks were inserted by reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CloneRange<'a> {
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub len_bytes: u64,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Addresses of the blocks, opaque.
    pub addresses: &'a [u8],
}

/// One change. What is in the head (txg, object) is not repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Record<'a> {
    Create(Create<'a>),
    Remove(Remove<'a>),
    Link(Link<'a>),
    Rename(Rename<'a>),
    Write(Write<'a>),
    /// A write to `offset`, `len_bytes` long, made the object longer; other records have its bytes.
    Extend {
        offset: u64,
        len_bytes: u64,
    },
    Truncate(Truncate),
    Zeroes(Zeroes),
    SetAttr(SetAttr<'a>),
    SetAcl(SetAcl<'a>),
    SetXattr(SetXattr<'a>),
    CloneRange(CloneRange<'a>),
    TimedWrite(TimedWrite<'a>),
}

impl Record<'_> {
    /// Whether its data is in the pool, and the record has the address.
    pub fn is_indirect(&self) -> bool {
        matches!(self, Self::Write(Write { data: WriteData::Indirect { .. }, .. }))
    }

    /// Its type.
    pub fn record_type(&self) -> RecordType {
        match self {
            Self::Create(create) => match create.kind {
                CreateKind::File => RecordType::Create,
                CreateKind::Directory => RecordType::Mkdir,
                CreateKind::XattrDirectory => RecordType::Mkxattr,
                CreateKind::Symlink => RecordType::Symlink,
            },
            Self::Remove(Remove { is_directory: false, .. }) => RecordType::Remove,
            Self::Remove(_) => RecordType::Rmdir,
            Self::Link(_) => RecordType::Link,
            Self::Rename(rename) => match rename.kind {
                RenameKind::Plain => RecordType::Rename,
                RenameKind::Exchange => RecordType::RenameExchange,
                RenameKind::Whiteout(..) => RecordType::RenameWhiteout,
            },
            Self::Write(_) => RecordType::Write,
            Self::Extend { .. } => RecordType::Extend,
            Self::Truncate(_) => RecordType::Truncate,
            Self::Zeroes(_) => RecordType::Zeroes,
            Self::SetAttr(_) => RecordType::SetAttr,
            Self::SetAcl(_) => RecordType::SetAcl,
            Self::SetXattr(_) => RecordType::SetXattr,
            Self::CloneRange(_) => RecordType::CloneRange,
            Self::TimedWrite(_) => RecordType::TimedWrite,
        }
    }
}
