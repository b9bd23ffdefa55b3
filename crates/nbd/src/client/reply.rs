//! Replies as the client receives them.

use super::{ClientError, Result};
use crate::wire::{chunk, u32_at, u64_at};

/// One message of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Cookie of the request.
    pub cookie: u64,
    /// No more chunks for this request.
    pub is_done: bool,
    /// [`chunk`]; a simple reply is `None`.
    pub kind: Option<u16>,
    /// Zero for success.
    pub error: u32,
    /// What follows the header; empty for a simple reply.
    pub payload: Vec<u8>,
}

/// A whole reply.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Reply {
    /// Zero for success.
    pub error: u32,
    /// The data read, with holes filled in.
    pub data: Vec<u8>,
    /// Length and state of each extent.
    pub extents: Vec<(u64, u32)>,
    /// Content chunks that were holes.
    pub holes: usize,
}

impl Reply {
    /// Adds a chunk of the reply to a request for `length` bytes at `offset`; returns its bytes of content.
    ///
    /// # Errors
    /// The chunk makes no sense.
    pub fn add(&mut self, received: Chunk, offset: u64, length: u64) -> Result<u64> {
        let Chunk { kind, error, payload, .. } = received;
        let bad = |what| Err(ClientError::Broken(what));
        if error != 0 {
            self.error = error;
            return Ok(0);
        }
        let (at, bytes) = match kind {
            None => {
                self.data = payload;
                return Ok(self.data.len() as u64);
            }
            Some(chunk::NONE) => return Ok(0),
            Some(chunk::OFFSET_DATA) if payload.len() > 8 => (u64_at(&payload, 0), payload.len() as u64 - 8),
            Some(chunk::OFFSET_HOLE) if payload.len() == 12 => {
                (u64_at(&payload, 0), u64::from(u32_at(&payload, 8)))
            }
            Some(chunk::BLOCK_STATUS) if payload.len() >= 12 && payload.len() % 8 == 4 => {
                let pairs = payload[4..].chunks_exact(8);
                self.extents = pairs.map(|pair| (u64::from(u32_at(pair, 0)), u32_at(pair, 4))).collect();
                return Ok(0);
            }
            Some(chunk::BLOCK_STATUS_EXT) if payload.len() >= 24 && payload.len() % 16 == 8 => {
                let pairs = payload[8..].chunks_exact(16);
                self.extents = pairs.map(|pair| (u64_at(pair, 0), u64_at(pair, 8) as u32)).collect();
                if self.extents.len() != u32_at(&payload, 4) as usize {
                    return bad("wrong number of extents");
                }
                return Ok(0);
            }
            Some(_) => return bad("unknown chunk"),
        };
        if bytes == 0 || at < offset || at.checked_add(bytes).is_none_or(|end| end > offset + length) {
            return bad("content outside of the request");
        }
        self.data.resize(length as usize, 0);
        let first = (at - offset) as usize;
        if kind == Some(chunk::OFFSET_DATA) {
            self.data[first..][..bytes as usize].copy_from_slice(&payload[8..]);
        } else {
            self.data[first..][..bytes as usize].fill(0);
            self.holes += 1;
        }
        Ok(bytes)
    }
}
