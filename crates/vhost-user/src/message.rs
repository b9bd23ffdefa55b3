//! Messages of the vhost-user protocol, both ways. Source: vhost-user.rst, "Message specification".
//!
//! Layout, in this machine's order: request u32, flags u32, size of the payload u32, payload. Why not the
//! crate `vhost`: it cannot tell a front end that the size of a disk has changed
//! (`docs/adr/2026-11-27-vhost-user.md`).

use std::os::fd::OwnedFd;

/// Requests of the front end.
pub(crate) mod front {
    pub(crate) const GET_FEATURES: u32 = 1;
    pub(crate) const SET_FEATURES: u32 = 2;
    pub(crate) const SET_OWNER: u32 = 3;
    pub(crate) const RESET_OWNER: u32 = 4;
    pub(crate) const SET_MEM_TABLE: u32 = 5;
    pub(crate) const SET_VRING_NUM: u32 = 8;
    pub(crate) const SET_VRING_ADDR: u32 = 9;
    pub(crate) const SET_VRING_BASE: u32 = 10;
    pub(crate) const GET_VRING_BASE: u32 = 11;
    pub(crate) const SET_VRING_KICK: u32 = 12;
    pub(crate) const SET_VRING_CALL: u32 = 13;
    pub(crate) const SET_VRING_ERR: u32 = 14;
    pub(crate) const GET_PROTOCOL_FEATURES: u32 = 15;
    pub(crate) const SET_PROTOCOL_FEATURES: u32 = 16;
    pub(crate) const GET_QUEUE_NUM: u32 = 17;
    pub(crate) const SET_VRING_ENABLE: u32 = 18;
    pub(crate) const SET_BACKEND_REQ_FD: u32 = 21;
    pub(crate) const GET_CONFIG: u32 = 24;
    pub(crate) const SET_CONFIG: u32 = 25;
    pub(crate) const GET_INFLIGHT_FD: u32 = 31;
    pub(crate) const SET_INFLIGHT_FD: u32 = 32;
    pub(crate) const GET_MAX_MEM_SLOTS: u32 = 36;
    pub(crate) const ADD_MEM_REG: u32 = 37;
    pub(crate) const REM_MEM_REG: u32 = 38;
}

/// The back end's request that the configuration be read again.
pub(crate) const CONFIG_CHANGED: u32 = 2;

/// Protocol features.
pub(crate) mod protocol {
    pub(crate) const MQ: u64 = 1 << 0;
    pub(crate) const REPLY_ACK: u64 = 1 << 3;
    pub(crate) const BACKEND_REQ: u64 = 1 << 5;
    pub(crate) const CONFIG: u64 = 1 << 9;
    pub(crate) const INFLIGHT: u64 = 1 << 12;
    pub(crate) const MEM_SLOTS: u64 = 1 << 15;
}

pub(crate) const HEADER_BYTES: usize = 12;
/// Longest payload that any request here has: a table of all memory regions.
pub(crate) const PAYLOAD_MAX: usize = 4096;
/// Most descriptors that come with a message.
pub(crate) const FILES_MAX: usize = 64;

const VERSION: u32 = 1;
const VERSION_MASK: u32 = 3;
const REPLY: u32 = 1 << 2;
const NEED_REPLY: u32 = 1 << 3;

/// Why a front end was disconnected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The socket failed.
    #[error("the connection failed")]
    Socket(#[from] std::io::Error),
    /// A message that breaks a rule.
    #[error("request {request}: {reason}")]
    Message {
        /// Its number.
        request: u32,
        /// What is wrong.
        reason: String,
    },
    /// Its memory was cut short.
    #[error("the memory that it shares was cut short")]
    MemoryLost,
}

impl ProtocolError {
    pub(crate) fn message(request: u32, reason: impl Into<String>) -> ProtocolError {
        ProtocolError::Message { request, reason: reason.into() }
    }
}

/// A request of the front end.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) request: u32,
    flags: u32,
    pub(crate) payload: Vec<u8>,
    pub(crate) files: Vec<OwnedFd>,
}

/// Request, flags and length of the payload.
pub(crate) fn header(bytes: [u8; HEADER_BYTES]) -> (u32, u32, usize) {
    let [r0, r1, r2, r3, f0, f1, f2, f3, s @ ..] = bytes;
    let number = u32::from_ne_bytes;
    (number([r0, r1, r2, r3]), number([f0, f1, f2, f3]), number(s) as usize)
}

/// A message to the front end.
pub(crate) fn encode(request: u32, is_reply: bool, payload: &[u8]) -> Vec<u8> {
    let flags = VERSION | if is_reply { REPLY } else { 0 };
    let mut bytes = Vec::with_capacity(HEADER_BYTES + payload.len());
    for number in [request, flags, payload.len() as u32] {
        bytes.extend_from_slice(&number.to_ne_bytes());
    }
    bytes.extend_from_slice(payload);
    bytes
}

impl Message {
    pub(crate) fn new(
        request: u32,
        flags: u32,
        payload: Vec<u8>,
        files: Vec<OwnedFd>,
    ) -> Result<Message, ProtocolError> {
        if flags & VERSION_MASK != VERSION || flags & REPLY != 0 {
            return Err(ProtocolError::message(request, format!("flags {flags:#x}")));
        }
        Ok(Message { request, flags, payload, files })
    }

    pub(crate) fn needs_reply(&self) -> bool {
        self.flags & NEED_REPLY != 0
    }

    fn bytes<const N: usize>(&self, at: usize) -> Result<[u8; N], ProtocolError> {
        let found = self.payload.get(at..at + N).and_then(|bytes| bytes.try_into().ok());
        let short = || format!("a payload of {} bytes is too short", self.payload.len());
        found.ok_or_else(|| ProtocolError::message(self.request, short()))
    }

    pub(crate) fn u16(&self, at: usize) -> Result<u16, ProtocolError> {
        Ok(u16::from_ne_bytes(self.bytes(at)?))
    }

    pub(crate) fn u32(&self, at: usize) -> Result<u32, ProtocolError> {
        Ok(u32::from_ne_bytes(self.bytes(at)?))
    }

    pub(crate) fn u64(&self, at: usize) -> Result<u64, ProtocolError> {
        Ok(u64::from_ne_bytes(self.bytes(at)?))
    }

    /// The only descriptor.
    pub(crate) fn file(&mut self) -> Result<OwnedFd, ProtocolError> {
        let count = self.files.len();
        match self.files.pop() {
            Some(file) if count == 1 => Ok(file),
            _ => Err(ProtocolError::message(self.request, format!("{count} descriptors, where one belongs"))),
        }
    }
}
