//! Numbers of the protocol, and the fixed-size messages.
//!
//! All fields are in network byte order. Source: NBD `doc/proto.md`, sections "Values" and "Transmission".

/// First eight bytes from a server (`NBDMAGIC`).
pub const INIT_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// `IHAVEOPT`: newstyle negotiation, and the start of every option.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Start of every reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Start of a compact request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Start of an extended request.
pub const REQUEST_EXT_MAGIC: u32 = 0x21e4_1c71;
/// Start of a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Start of a chunk of a structured reply.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;
/// Start of a chunk with an extended header.
pub const EXTENDED_REPLY_MAGIC: u32 = 0x6e8a_278c;

/// Longest payload of a request or of a chunk; clients may rely on it without asking.
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;
/// Longest string of the protocol.
pub const STRING_BYTES_MAX: usize = 4096;
/// Compact request header.
pub const REQUEST_BYTES: usize = 28;
/// Extended request header.
pub const REQUEST_EXT_BYTES: usize = 32;

/// Handshake flags, and the client's answer.
pub mod handshake {
    /// Options are answered.
    pub const FIXED_NEWSTYLE: u16 = 1 << 0;
    /// No 124 zero bytes after the answer to `EXPORT_NAME`.
    pub const NO_ZEROES: u16 = 1 << 1;
}

/// Transmission flags.
pub mod flag {
    /// Always set.
    pub const HAS_FLAGS: u16 = 1 << 0;
    /// Writes fail with `EPERM`.
    pub const READ_ONLY: u16 = 1 << 1;
    /// `FLUSH` is known.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// The FUA bit is known.
    pub const SEND_FUA: u16 = 1 << 3;
    /// Seeks are expensive.
    pub const ROTATIONAL: u16 = 1 << 4;
    /// `TRIM` is known.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// `WRITE_ZEROES` is known.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// The don't-fragment bit is known.
    pub const SEND_DF: u16 = 1 << 7;
    /// A flush covers the writes of all connections.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// `CACHE` is known.
    pub const SEND_CACHE: u16 = 1 << 10;
    /// `WRITE_ZEROES` can be asked to fail rather than be slow.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Options.
pub mod option {
    /// Choose an export, the old way: there is no error reply.
    pub const EXPORT_NAME: u32 = 1;
    /// Goodbye.
    pub const ABORT: u32 = 2;
    /// Names of the exports.
    pub const LIST: u32 = 3;
    /// Upgrade to TLS.
    pub const STARTTLS: u32 = 5;
    /// Describe an export.
    pub const INFO: u32 = 6;
    /// Describe an export and enter transmission.
    pub const GO: u32 = 7;
    /// Replies in chunks.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// List the metadata contexts.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Select metadata contexts.
    pub const SET_META_CONTEXT: u32 = 10;
    /// 64-bit lengths.
    pub const EXTENDED_HEADERS: u32 = 11;
}

/// Replies to options.
pub mod reply {
    /// Done.
    pub const ACK: u32 = 1;
    /// Name and description of an export.
    pub const SERVER: u32 = 2;
    /// A piece of information on an export.
    pub const INFO: u32 = 3;
    /// A metadata context.
    pub const META_CONTEXT: u32 = 4;
    /// Set in every error.
    pub const ERR: u32 = 1 << 31;
    /// Unknown option.
    pub const ERR_UNSUP: u32 = ERR + 1;
    /// Known but forbidden.
    pub const ERR_POLICY: u32 = ERR + 2;
    /// Malformed, or at the wrong time.
    pub const ERR_INVALID: u32 = ERR + 3;
    /// TLS comes first.
    pub const ERR_TLS_REQD: u32 = ERR + 5;
    /// No such export.
    pub const ERR_UNKNOWN: u32 = ERR + 6;
    /// The server is going away.
    pub const ERR_SHUTDOWN: u32 = ERR + 7;
    /// The client must ask for the block sizes.
    pub const ERR_BLOCK_SIZE_REQD: u32 = ERR + 8;
    /// The option's data is too long.
    pub const ERR_TOO_BIG: u32 = ERR + 9;
}

/// Kinds of information in `reply::INFO`.
pub mod info {
    /// Size and transmission flags.
    pub const EXPORT: u16 = 0;
    /// Canonical name.
    pub const NAME: u16 = 1;
    /// Human-readable.
    pub const DESCRIPTION: u16 = 2;
    /// Minimum, preferred and maximum block size.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Commands.
pub mod command {
    /// Read.
    pub const READ: u16 = 0;
    /// Write; the payload follows.
    pub const WRITE: u16 = 1;
    /// Goodbye.
    pub const DISC: u16 = 2;
    /// Make all answered writes durable.
    pub const FLUSH: u16 = 3;
    /// Discard contents that are no longer needed.
    pub const TRIM: u16 = 4;
    /// Will be read soon.
    pub const CACHE: u16 = 5;
    /// Write zeroes without a payload.
    pub const WRITE_ZEROES: u16 = 6;
    /// Report holes and zeroes.
    pub const BLOCK_STATUS: u16 = 7;
}

/// Command flags.
pub mod command_flag {
    /// Durable when answered.
    pub const FUA: u16 = 1 << 0;
    /// Zeroes must be allocated.
    pub const NO_HOLE: u16 = 1 << 1;
    /// One content chunk.
    pub const DF: u16 = 1 << 2;
    /// One extent.
    pub const REQ_ONE: u16 = 1 << 3;
    /// Fail rather than be as slow as a write.
    pub const FAST_ZERO: u16 = 1 << 4;
    /// Extended headers: the length is that of a payload.
    pub const PAYLOAD_LEN: u16 = 1 << 5;
}

/// Chunks of structured replies.
pub mod chunk {
    /// Flag: the last chunk of the reply.
    pub const DONE: u16 = 1 << 0;
    /// No content.
    pub const NONE: u16 = 0;
    /// Offset and data.
    pub const OFFSET_DATA: u16 = 1;
    /// Offset and length of zeroes.
    pub const OFFSET_HOLE: u16 = 2;
    /// Extents with 32-bit lengths.
    pub const BLOCK_STATUS: u16 = 5;
    /// Extents with 64-bit lengths.
    pub const BLOCK_STATUS_EXT: u16 = 6;
    /// Set in every error.
    pub const ERR: u16 = 1 << 15;
    /// An error.
    pub const ERROR: u16 = ERR + 1;
    /// An error at an offset.
    pub const ERROR_OFFSET: u16 = ERR + 2;
}

/// States of an extent in `base:allocation`.
pub mod state {
    /// Not allocated.
    pub const HOLE: u32 = 1 << 0;
    /// Reads as zeroes.
    pub const ZERO: u32 = 1 << 1;
}

/// The metadata context that the protocol defines.
pub const BASE_ALLOCATION: &str = "base:allocation";

/// The headers that a connection has negotiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum HeaderMode {
    /// Simple replies only.
    #[default]
    Simple,
    /// Structured replies; simple ones where there is no payload.
    Structured,
    /// Extended requests and replies only.
    Extended,
}

impl HeaderMode {
    /// Length of a request header.
    pub fn request_bytes(self) -> usize {
        match self {
            HeaderMode::Simple | HeaderMode::Structured => REQUEST_BYTES,
            HeaderMode::Extended => REQUEST_EXT_BYTES,
        }
    }
}

/// A request header as received, unchecked except for its magic.
///
/// ```text
/// compact   magic:4 flags:2 type:2 cookie:8 offset:8 length:4
/// extended  magic:4 flags:2 type:2 cookie:8 offset:8 length:8
/// ```
/// Source: `proto.md`, "Compact request message", "Extended request message".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// [`command_flag`]
    pub flags: u16,
    /// [`command`]
    pub kind: u16,
    /// Identifies the request in its replies.
    pub cookie: u64,
    /// First byte affected.
    pub offset: u64,
    /// Bytes affected, or bytes of payload.
    pub length: u64,
}

impl RequestHeader {
    /// Decodes a header; `None` if the magic is wrong.
    ///
    /// # Panics
    /// If there are fewer than [`HeaderMode::request_bytes`].
    pub fn decode(bytes: &[u8], mode: HeaderMode) -> Option<Self> {
        let (magic, length) = match mode {
            HeaderMode::Extended => (REQUEST_EXT_MAGIC, u64_at(bytes, 24)),
            HeaderMode::Simple | HeaderMode::Structured => (REQUEST_MAGIC, u64::from(u32_at(bytes, 24))),
        };
        (u32_at(bytes, 0) == magic).then(|| Self {
            flags: u16_at(bytes, 4),
            kind: u16_at(bytes, 6),
            cookie: u64_at(bytes, 8),
            offset: u64_at(bytes, 16),
            length,
        })
    }

    /// Appends the header to `to`. A length that does not fit is cut, as a hostile client would do.
    pub fn encode(&self, mode: HeaderMode, to: &mut Vec<u8>) {
        let magic = if mode == HeaderMode::Extended { REQUEST_EXT_MAGIC } else { REQUEST_MAGIC };
        to.extend_from_slice(&magic.to_be_bytes());
        to.extend_from_slice(&self.flags.to_be_bytes());
        to.extend_from_slice(&self.kind.to_be_bytes());
        to.extend_from_slice(&self.cookie.to_be_bytes());
        to.extend_from_slice(&self.offset.to_be_bytes());
        match mode {
            HeaderMode::Extended => to.extend_from_slice(&self.length.to_be_bytes()),
            HeaderMode::Simple | HeaderMode::Structured => {
                to.extend_from_slice(&self.length.to_be_bytes()[4..]);
            }
        }
    }
}

/// Two bytes at `at`.
pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(array_at(bytes, at))
}

/// Four bytes at `at`.
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(array_at(bytes, at))
}

/// Eight bytes at `at`.
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(array_at(bytes, at))
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}
