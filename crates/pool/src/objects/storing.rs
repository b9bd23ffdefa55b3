//! Tokens of blocks that are being stored (`stored`).

use std::collections::HashMap;
use std::ops::Range;

/// Blocks of an object that are being stored: each has a token, until it is changed or the storing ends.
#[derive(Debug, Default)]
pub(crate) struct Storing {
    tokens: HashMap<u64, u64>,
    last: u64,
}

impl Storing {
    /// A token for a block; `None` if it is being stored already.
    pub(crate) fn begin(&mut self, block: u64) -> Option<u64> {
        if self.tokens.contains_key(&block) {
            return None;
        }
        self.last += 1;
        self.tokens.insert(block, self.last);
        Some(self.last)
    }

    /// Ends the storing of a block. Returns whether it is unchanged since.
    pub(crate) fn end(&mut self, block: u64, token: u64) -> bool {
        let is_same = self.tokens.get(&block) == Some(&token);
        if is_same {
            self.tokens.remove(&block);
        }
        is_same
    }

    /// Blocks are changed: what is being stored of them is no longer their contents.
    pub(crate) fn forget(&mut self, blocks: &Range<u64>) {
        if !self.tokens.is_empty() {
            self.tokens.retain(|block, _| !blocks.contains(block));
        }
    }
}
