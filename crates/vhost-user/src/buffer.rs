//! What a thread needs to carry out requests, allocated once.

use crate::chain::Chain;

/// Longest piece of data that is in work at once; longer requests take several.
pub(crate) const DATA_MAX: u64 = 1 << 20;

/// A thread's own memory.
#[derive(Default)]
pub(crate) struct Buffer {
    pub(crate) chain: Chain,
    data: Vec<u8>,
}

impl Buffer {
    /// The chain, and room for `len` bytes of data, at most [`DATA_MAX`].
    pub(crate) fn parts(&mut self, len: u64) -> (&Chain, &mut [u8]) {
        let len = len.min(DATA_MAX) as usize;
        if self.data.len() < len {
            self.data.resize(len, 0);
        }
        (&self.chain, &mut self.data[..len])
    }
}
