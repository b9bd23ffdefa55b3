//! The head that all records share.

use super::error::{RecordError, RecordFault};
use fastness_base::{ObjectId, Txg};

/// Bytes of the head.
pub const HEAD_BYTES: usize = 32;
/// Version of the records.
pub const RECORD_VERSION: u16 = 1;
/// Longest record in bytes. Kinds may allow less.
pub const RECORD_BYTES_MAX: usize = 64 << 20;

/// The change that a record describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum RecordType {
    /// A file was created.
    Create = 1,
    /// A directory was created.
    Mkdir = 2,
    /// A directory of extended attributes was created.
    Mkxattr = 3,
    /// A symbolic link was created.
    Symlink = 4,
    /// A name was removed.
    Remove = 5,
    /// A directory was removed.
    Rmdir = 6,
    /// An object got an additional name.
    Link = 7,
    /// A name was changed.
    Rename = 8,
    /// Two names were exchanged.
    RenameExchange = 9,
    /// A name was changed and a whiteout put in its place.
    RenameWhiteout = 10,
    /// Bytes were written.
    Write = 11,
    /// A write made the object longer; its bytes are in other records.
    Extend = 12,
    /// The object was truncated, or a range freed.
    Truncate = 13,
    /// A range of a volume reads as zeroes.
    Zeroes = 14,
    /// Attributes were set.
    SetAttr = 15,
    /// An access control list was set.
    SetAcl = 16,
    /// An extended attribute was set or removed.
    SetXattr = 17,
    /// Blocks of another object were inserted by reference.
    CloneRange = 18,
    /// Bytes were written at a time, which is that of the last change.
    TimedWrite = 19,
}

impl RecordType {
    /// All types.
    pub const ALL: [RecordType; 19] = [
        Self::Create,
        Self::Mkdir,
        Self::Mkxattr,
        Self::Symlink,
        Self::Remove,
        Self::Rmdir,
        Self::Link,
        Self::Rename,
        Self::RenameExchange,
        Self::RenameWhiteout,
        Self::Write,
        Self::Extend,
        Self::Truncate,
        Self::Zeroes,
        Self::SetAttr,
        Self::SetAcl,
        Self::SetXattr,
        Self::CloneRange,
        Self::TimedWrite,
    ];

    /// The type with a number on the medium.
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL.get(usize::from(number).wrapping_sub(1)).copied()
    }

    /// Whether it may be logged after later records of other objects. Such a record names its object in the
    /// head, and replay ignores it if the object is gone. The others have one order in a dataset. See the
    /// [module](super#records-of-other-owners).
    pub fn may_be_reordered(self) -> bool {
        matches!(
            self,
            Self::Write
                | Self::Extend
                | Self::Truncate
                | Self::Zeroes
                | Self::SetAttr
                | Self::SetAcl
                | Self::SetXattr
                | Self::CloneRange
                | Self::TimedWrite
        )
    }
}

/// The head of a record.
///
/// Shape: version (2), type (2), length (4), txg (8), number (8), object (8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The txg that makes the change durable elsewhere.
    pub txg: Txg,
    /// Number in the order of commits, from 1 for each open log; 0 for records that are not on a commit list.
    pub number: u64,
    /// The object; for types that must not be reordered, the (source) directory.
    pub object: ObjectId,
}

impl Head {
    /// A head of a record that no commit list has numbered yet.
    pub fn new(txg: Txg, object: ObjectId) -> Self {
        Self { txg, number: 0, object }
    }

    pub(crate) fn to_bytes(self, record: RecordType, len_bytes: u32) -> [u8; HEAD_BYTES] {
        let mut out = [0; HEAD_BYTES];
        out[..2].copy_from_slice(&RECORD_VERSION.to_le_bytes());
        out[2..4].copy_from_slice(&(record as u16).to_le_bytes());
        out[4..8].copy_from_slice(&len_bytes.to_le_bytes());
        out[8..16].copy_from_slice(&self.txg.0.to_le_bytes());
        out[16..24].copy_from_slice(&self.number.to_le_bytes());
        out[24..].copy_from_slice(&self.object.0.to_le_bytes());
        out
    }

    /// Decodes the head at the front of `bytes`: type, head and length of the whole record, which may extend
    /// past `bytes`.
    ///
    /// # Errors
    /// [`RecordError`]; an unknown type only if the rest of the head is valid.
    pub fn decode(bytes: &[u8]) -> Result<(RecordType, Head, usize), RecordError> {
        let Some(head) = bytes.first_chunk::<HEAD_BYTES>() else {
            let missing = (HEAD_BYTES - bytes.len()) as u64;
            return Err(RecordError::new(bytes.len(), RecordFault::TooShort { missing }));
        };
        let u16_at = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
        let u64_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| head[at + i]));
        let found = u16_at(0);
        if found != RECORD_VERSION {
            return Err(RecordError::new(0, RecordFault::Version { found, known: RECORD_VERSION }));
        }
        let len = u32::from_le_bytes(std::array::from_fn(|i| head[4 + i])) as usize;
        if !(HEAD_BYTES..=RECORD_BYTES_MAX).contains(&len) || !len.is_multiple_of(8) {
            return Err(RecordError::new(4, RecordFault::Length { found: len as u64 }));
        }
        let found = u16_at(2);
        let kind =
            RecordType::from_number(found).ok_or(RecordError::new(2, RecordFault::UnknownType { found }))?;
        let head = Head { txg: Txg(u64_at(8)), number: u64_at(16), object: ObjectId(u64_at(24)) };
        Ok((kind, head, len))
    }

    /// Stores the txg in an encoded record.
    pub(crate) fn set_txg(record: &mut [u8], txg: Txg) {
        record[8..16].copy_from_slice(&txg.0.to_le_bytes());
    }

    /// Stores a number in an encoded record.
    pub(crate) fn set_number(record: &mut [u8], number: u64) {
        record[16..24].copy_from_slice(&number.to_le_bytes());
    }
}
