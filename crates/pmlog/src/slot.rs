//! A header slot: the durable storage of the log's header.
//!
//! At rest, the two slots are the same. An update writes first one and then the other, with a fence after
//! each; the newest whole one wins. So a crash inside an update, or an unreadable line, costs only one of
//! them.
//!
//! Shape: 4096 bytes, little endian:
//! ```text
//! offset size field
//!      0    8 magic "FSTNPHDR"
//!      8    2 version, 1
//!     10    2 length of the HDL header in bytes
//!     12    4 commit slots of the last writer: as many records can be missing after a crash
//!     16   16 UUID of the log, as in the superblock
//!     32    8 sequence number; the newest slot has the largest
//!     40    8 synced txg: records of it and of earlier ones are obsolete
//!     48    8 log number: counts the logs that were started in this region, from 1
//!     56    8 unsafe shutdowns of the region when the log was started; all ones if unknown
//!     64    - HDL header (its own format), then zero
//!   4092    4 CRC-32C of bytes 0 to 4091
//! ```

use fastness_prb::{HEADER_BYTES_MAX, HdlHeader, Txg};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::error::FormatError;
use crate::superblock::{BLOCK_BYTES, Uuid, check_frame, seal_frame};

/// Region offsets of the two header slots.
pub const SLOT_OFFSETS: [usize; 2] = [BLOCK_BYTES, 2 * BLOCK_BYTES];

const MAGIC: [u8; 8] = *b"FSTNPHDR";
const VERSION: u16 = 1;
const NAME: &str = "header slot";
const UNKNOWN: u64 = u64::MAX;
/// Largest sequence number, txg and log number: leaves headroom for counting on without overflow.
const NUMBER_MAX: u64 = (1 << 55) - 1;
const PAYLOAD_OFFSET: usize = 64;
const PAYLOAD_BYTES: usize = 4028;

/// The contents of a header slot; the layout is in the module documentation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderSlot {
    /// The log.
    pub uuid: Uuid,
    /// Sequence number of the update.
    pub sequence: u64,
    /// Records of this txg and of earlier ones are obsolete.
    pub synced: Txg,
    /// The number of the log among those started in this region, in order.
    pub log_number: u64,
    /// Commit slots of the last writer.
    pub committers: u32,
    /// Unsafe shutdowns of the region when the log was started, if they were known.
    pub unsafe_shutdowns: Option<u64>,
    /// The log's header.
    pub header: HdlHeader,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    version: U16,
    header_bytes: U16,
    committers: U32,
    uuid: [u8; 16],
    sequence: U64,
    synced: U64,
    log_number: U64,
    unsafe_shutdowns: U64,
    payload: [u8; PAYLOAD_BYTES],
    crc: U32,
}

const _: () = assert!(size_of::<Raw>() == BLOCK_BYTES && HEADER_BYTES_MAX <= PAYLOAD_BYTES);

impl HeaderSlot {
    /// The slot as stored on the medium.
    pub fn encode(&self) -> [u8; BLOCK_BYTES] {
        let header = self.header.encode();
        let mut payload = [0; PAYLOAD_BYTES];
        payload[..header.len()].copy_from_slice(&header);
        let raw = Raw {
            magic: MAGIC,
            version: U16::new(VERSION),
            header_bytes: U16::new(header.len() as u16),
            committers: U32::new(self.committers),
            uuid: self.uuid.0,
            sequence: U64::new(self.sequence),
            synced: U64::new(self.synced.0),
            log_number: U64::new(self.log_number),
            unsafe_shutdowns: U64::new(self.unsafe_shutdowns.unwrap_or(UNKNOWN)),
            payload,
            crc: U32::new(0),
        };
        let mut bytes: [u8; BLOCK_BYTES] = zerocopy::transmute!(raw);
        seal_frame(&mut bytes);
        bytes
    }

    /// Reads a slot found at `region_offset`; the bytes are not trusted.
    ///
    /// # Errors
    /// [`FormatError`] with the region offset of the error.
    pub fn decode(bytes: &[u8; BLOCK_BYTES], region_offset: u64) -> Result<Self, FormatError> {
        check_frame(NAME, bytes, region_offset, &MAGIC, VERSION)?;
        let raw: &Raw = zerocopy::transmute_ref!(bytes);
        let bad = |field, offset: usize, found: u64| FormatError::Field {
            block: NAME,
            field,
            region_offset: region_offset + offset as u64,
            found,
        };
        let number = |field, offset, value: U64| match value.get() {
            value if value <= NUMBER_MAX => Ok(value),
            value => Err(bad(field, offset, value)),
        };
        let sequence = number("sequence number", 32, raw.sequence)?;
        let synced = number("synced txg", 40, raw.synced)?;
        let log_number = number("log number", 48, raw.log_number)?;
        let header_bytes = usize::from(raw.header_bytes.get());
        let Some((payload, rest)) = raw.payload.split_at_checked(header_bytes) else {
            return Err(bad("length of the header", 10, header_bytes as u64));
        };
        let header = HdlHeader::decode(payload).map_err(|source| FormatError::Header {
            region_offset: region_offset + PAYLOAD_OFFSET as u64,
            source,
        })?;
        if header.encode().len() != header_bytes {
            return Err(bad("length of the header", 10, header_bytes as u64));
        }
        if let Some(index) = rest.iter().position(|&byte| byte != 0) {
            return Err(bad("reserved field", PAYLOAD_OFFSET + header_bytes + index, u64::from(rest[index])));
        }
        let unsafe_shutdowns = Some(raw.unsafe_shutdowns.get()).filter(|&count| count != UNKNOWN);
        Ok(Self {
            uuid: Uuid(raw.uuid),
            sequence,
            synced: Txg(synced),
            log_number,
            committers: raw.committers.get(),
            unsafe_shutdowns,
            header,
        })
    }
}
