//! What is wrong with a record, and where.

use fastness_base::ErrorKind;

/// The bytes are not a record that can be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("record, byte {offset}: {fault}")]
pub struct RecordError {
    /// Where in the record, in bytes.
    pub offset: usize,
    /// What is wrong there.
    pub fault: RecordFault,
}

/// What is wrong with a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordFault {
    /// The bytes end before the record does.
    #[error("it ends {missing} bytes too early")]
    TooShort {
        /// How many bytes are missing, at least.
        missing: u64,
    },
    /// Bytes after the last field.
    #[error("{extra} bytes too many")]
    TooLong {
        /// How many.
        extra: u64,
    },
    /// An unknown version.
    #[error("version {found}, this program reads {known}")]
    Version {
        /// Version found.
        found: u16,
        /// Version known.
        known: u16,
    },
    /// A type that this version does not know. The record is otherwise not known to be wrong.
    #[error("unknown type {found}")]
    UnknownType {
        /// The type.
        found: u16,
    },
    /// A length that no record has, or not a multiple of 8.
    #[error("length {found}")]
    Length {
        /// The length in bytes.
        found: u64,
    },
    /// A field has an invalid value.
    #[error("{field} cannot be {found:#x}")]
    Field {
        /// Which.
        field: &'static str,
        /// Its value.
        found: u64,
    },
    /// Padding or a reserved field is not zero.
    #[error("reserved bytes are not zero")]
    Reserved,
}

impl RecordError {
    pub(crate) fn new(offset: usize, fault: RecordFault) -> Self {
        Self { offset, fault }
    }

    /// Whether only the type is unknown: a newer version may know it.
    pub fn is_unknown(&self) -> bool {
        matches!(self.fault, RecordFault::UnknownType { .. } | RecordFault::Version { .. })
    }

    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        if self.is_unknown() { ErrorKind::Invalid } else { ErrorKind::Corrupt }
    }
}

fastness_base::has_kind!(RecordError);
