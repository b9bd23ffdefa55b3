//! What reader and writer share: heads of records, the chain of checksums.

use twox_hash::XxHash3_64;

/// The version that is written, and the only one that is read.
pub const VERSION: u32 = 1;
/// Most bytes of a data record.
pub const DATA_BYTES_MAX: usize = 1 << 20;
/// Longest full name of a snapshot.
pub const NAME_BYTES_MAX: usize = 4096;
/// Bytes of a record without its payload.
pub const RECORD_BYTES: usize = 40;

pub(crate) const MAGIC: [u8; 8] = *b"FASTSTRM";
pub(crate) const PREAMBLE_BYTES: usize = 16;
/// Bytes of the payload of a first record, without the name.
pub(crate) const BEGIN_BYTES: usize = 24;

pub(crate) const BEGIN: u8 = 1;
pub(crate) const DATA: u8 = 2;
pub(crate) const HOLE: u8 = 3;
pub(crate) const END: u8 = 4;

/// What a stream says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Begin {
    /// GUID of the snapshot that the receiver then has; not 0.
    pub to: u64,
    /// GUID of the snapshot that the receiver has already; not 0. `None`: it needs none.
    pub from: Option<u64>,
    /// Full name of the snapshot where it was sent from.
    pub name: String,
    /// Size of the volume.
    pub size_bytes: u64,
    /// Block size of the volume.
    pub block_bytes: u32,
    /// What comes before this was sent by a stream that was interrupted.
    pub resumes_at: u64,
}

/// Bytes of the preamble and the first record of a stream.
pub fn begin_bytes(name: &str) -> u64 {
    (PREAMBLE_BYTES + RECORD_BYTES + BEGIN_BYTES + name.len()) as u64
}

/// The head of a record, without its sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) kind: u8,
    pub(crate) payload_bytes: u32,
    pub(crate) number: u64,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl Head {
    pub(crate) fn encode(&self) -> [u8; RECORD_BYTES - 8] {
        let mut bytes = [0; RECORD_BYTES - 8];
        bytes[0] = self.kind;
        bytes[4..8].copy_from_slice(&self.payload_bytes.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.len.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; RECORD_BYTES - 8]) -> Option<Head> {
        let head = Head {
            kind: bytes[0],
            payload_bytes: u32::from_le_bytes(bytes[4..8].try_into().expect("4 bytes")),
            number: number(&bytes[8..16]),
            offset: number(&bytes[16..24]),
            len: number(&bytes[24..32]),
        };
        // Else something is there that this program does not know.
        (head.encode() == *bytes).then_some(head)
    }
}

/// 8 bytes as a number.
pub(crate) fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("8 bytes"))
}

pub(crate) fn preamble() -> [u8; PREAMBLE_BYTES] {
    let mut bytes = [0; PREAMBLE_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes
}

/// The sum of a record, after that of the one before.
pub(crate) fn sum(before: u64, head: &[u8], payload: &[u8]) -> u64 {
    let of_head = XxHash3_64::oneshot_with_seed(before, head);
    XxHash3_64::oneshot_with_seed(of_head, payload)
}

/// What the sum of the first record follows.
pub(crate) fn first_seed() -> u64 {
    XxHash3_64::oneshot(&preamble())
}
