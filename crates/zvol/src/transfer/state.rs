//! What is stored with a volume of which not everything has been received.
//!
//! Layout: version 1 (1), flags 1 (bit 0: it is kept when the stream ends early), zero 2, block size 4, GUIDs
//! of the snapshot 8 and of the one before 8 (0: none), size 8, how far everything came 8, then the full name
//! of the snapshot where it is sent from. Numbers are little-endian. The last txg that wrote part of the
//! volume wrote this, so it is right after a crash.

use fastness_store::Dataset;
use fastness_stream::{Begin, Token};

/// Key of it.
pub(super) const KEY: &[u8] = b"receive";
const VERSION: u8 = 1;
const FIXED_BYTES: usize = 40;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct State {
    /// What the stream said; `resumes_at` is how far everything came.
    pub(super) begin: Begin,
    pub(super) is_resumable: bool,
}

impl State {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION, u8::from(self.is_resumable), 0, 0];
        bytes.extend(self.begin.block_bytes.to_le_bytes());
        for number in
            [self.begin.to, self.begin.from.unwrap_or(0), self.begin.size_bytes, self.begin.resumes_at]
        {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(self.begin.name.as_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<State> {
        let (fixed, name) = bytes.split_at_checked(FIXED_BYTES)?;
        let number = |at: usize| Some(u64::from_le_bytes(fixed[at..at + 8].try_into().ok()?));
        if fixed[0] != VERSION {
            return None;
        }
        let begin = Begin {
            to: number(8)?,
            from: number(16).filter(|from| *from != 0),
            size_bytes: number(24)?,
            resumes_at: number(32)?,
            block_bytes: u32::from_le_bytes(fixed[4..8].try_into().ok()?),
            name: std::str::from_utf8(name).ok()?.to_owned(),
        };
        Some(State { begin, is_resumable: fixed[1] & 1 == 1 })
    }

    /// Whether nothing has come yet of this stream. Where it is sent from may be called otherwise.
    pub(super) fn is_beginning_of(&self, sent: &Begin) -> bool {
        let has = &self.begin;
        (has.to, has.from, has.size_bytes, has.block_bytes, has.resumes_at)
            == (sent.to, sent.from, sent.size_bytes, sent.block_bytes, sent.resumes_at)
    }

    /// That of a dataset, as of the last synced txg. One that cannot be read is none.
    pub(super) fn of(dataset: &Dataset) -> Option<State> {
        State::decode(&dataset.synced_aux(KEY).ok()??)
    }

    pub(super) fn token(&self) -> Token {
        let Begin { to, from, name, resumes_at, .. } = self.begin.clone();
        Token { to, from, offset: resumes_at, name }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_as_it_was_stored() {
        for from in [None, Some(3)] {
            let name = "tank/v@a".to_owned();
            let begin = Begin { to: 7, from, name, size_bytes: 1 << 40, block_bytes: 512, resumes_at: 4096 };
            let state = State { begin, is_resumable: from.is_some() };
            let bytes = state.encode();
            assert_eq!(State::decode(&bytes), Some(state));
            for len in 0..FIXED_BYTES {
                assert_eq!(State::decode(&bytes[..len]), None);
            }
        }
    }
}
