//! The header of a dataset's log as the pool stores it: which kind, and what that kind keeps.
//!
//! Shape: version 1 (2 bytes), kind (1), zero (5), then the kind's own header, which has its own checksum.
//! Source: zil-pmem thesis, 6.1.1 (a tagged union).

use fastness_prb::HdlHeader;

/// A kind of log, as stored on the medium; 0 is none, so that a forgotten field is noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum KindId {
    /// HDLs on a PRB in persistent memory.
    Pmem = 1,
    /// A chain of log-write blocks.
    Lwb = 2,
}

impl KindId {
    /// Name for users.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pmem => "pmem",
            Self::Lwb => "lwb",
        }
    }

    /// The kind with that number.
    pub fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Pmem),
            2 => Some(Self::Lwb),
            _ => None,
        }
    }
}

/// A decoded header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredHeader<'a> {
    /// The kind that it belongs to.
    pub kind: KindId,
    /// The kind's own header.
    pub bytes: &'a [u8],
}

/// The bytes are not the header of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderFault {
    /// Fewer bytes than any header has.
    #[error("a log header of {len} bytes is too short")]
    TooShort {
        /// How many there are.
        len: usize,
    },
    /// An unknown version.
    #[error("log header of version {found}")]
    Version {
        /// Version found.
        found: u16,
    },
    /// An unknown kind.
    #[error("log of unknown kind {found}")]
    Kind {
        /// The kind.
        found: u8,
    },
    /// Reserved bytes are not zero.
    #[error("log header with reserved bytes in use")]
    Reserved,
    /// The log is of a different kind from the one asked for.
    #[error("a log of kind {found:?}, not {wanted:?}")]
    OtherKind {
        /// Its kind.
        found: KindId,
        /// The kind asked for.
        wanted: KindId,
    },
}

const VERSION: u16 = 1;
const PREFIX_BYTES: usize = 8;

impl<'a> StoredHeader<'a> {
    /// The header as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(PREFIX_BYTES + self.bytes.len());
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[self.kind as u8, 0, 0, 0, 0, 0]);
        out.extend_from_slice(self.bytes);
        out
    }

    /// Decodes a header.
    ///
    /// # Errors
    /// [`HeaderFault`].
    pub fn decode(bytes: &'a [u8]) -> Result<Self, HeaderFault> {
        let Some((prefix, bytes)) = bytes.split_first_chunk::<PREFIX_BYTES>() else {
            return Err(HeaderFault::TooShort { len: bytes.len() });
        };
        let found = u16::from_le_bytes([prefix[0], prefix[1]]);
        if found != VERSION {
            return Err(HeaderFault::Version { found });
        }
        if prefix[3..] != [0; 5] {
            return Err(HeaderFault::Reserved);
        }
        let kind = KindId::from_byte(prefix[2]).ok_or(HeaderFault::Kind { found: prefix[2] })?;
        Ok(Self { kind, bytes })
    }

    /// The kind's own header, if the log is of that kind.
    ///
    /// # Errors
    /// [`HeaderFault::OtherKind`].
    pub fn of_kind(&self, wanted: KindId) -> Result<&'a [u8], HeaderFault> {
        if self.kind == wanted {
            Ok(self.bytes)
        } else {
            Err(HeaderFault::OtherKind { found: self.kind, wanted })
        }
    }

    /// Whether it says that there is no log, of whatever kind. A suspended log leaves such a header, until
    /// the log of another kind replaces it.
    pub fn names_no_log(&self) -> bool {
        match self.kind {
            KindId::Pmem => HdlHeader::decode(self.bytes) == Ok(HdlHeader::NoZil),
            KindId::Lwb => fastness_lwb::Header::decode(self.bytes) == Ok(fastness_lwb::Header::None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_back_and_each_fault_has_its_name() {
        let good = StoredHeader { kind: KindId::Pmem, bytes: b"abc" }.encode();
        assert_eq!(good, [1, 0, 1, 0, 0, 0, 0, 0, b'a', b'b', b'c']);
        let header = StoredHeader::decode(&good).unwrap();
        assert_eq!(header.of_kind(KindId::Pmem), Ok(&b"abc"[..]));
        let other = HeaderFault::OtherKind { found: KindId::Pmem, wanted: KindId::Lwb };
        assert_eq!(header.of_kind(KindId::Lwb), Err(other));
        assert!(!header.names_no_log());
        let changed = |at: usize, byte| {
            let mut bad = good.clone();
            bad[at] = byte;
            StoredHeader::decode(&bad).unwrap_err()
        };
        assert_eq!(changed(0, 2), HeaderFault::Version { found: 2 });
        assert_eq!(changed(2, 0), HeaderFault::Kind { found: 0 });
        assert_eq!(changed(7, 1), HeaderFault::Reserved);
        assert_eq!(StoredHeader::decode(&good[..7]), Err(HeaderFault::TooShort { len: 7 }));
    }

    #[test]
    fn headers_of_both_kinds_can_say_that_there_is_no_log() {
        let pmem = HdlHeader::NoZil.encode();
        let lwb = fastness_lwb::Header::None.encode();
        let names_no_log = |kind, bytes: &[u8]| StoredHeader { kind, bytes }.names_no_log();
        assert!(names_no_log(KindId::Pmem, &pmem) && names_no_log(KindId::Lwb, &lwb));
        assert!(!names_no_log(KindId::Lwb, &pmem) && !names_no_log(KindId::Pmem, &lwb));
        let mut damaged = lwb;
        damaged[2] = 1;
        assert!(!names_no_log(KindId::Lwb, &damaged));
    }
}
