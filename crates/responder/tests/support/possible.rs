//! What a crash may leave of a file with the protocol Log: each byte as of the last sync, or of a later
//! write.

use std::collections::BTreeMap;

/// A file, and what may be found of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Possible {
    /// As programs read it.
    pub now: Vec<u8>,
    /// What each byte may be.
    bytes: Vec<Vec<u8>>,
    /// It is at least so long.
    min_len: usize,
}

impl Possible {
    /// A file that is synced.
    pub fn certain(content: &[u8]) -> Possible {
        let bytes = content.iter().map(|&byte| vec![byte]).collect();
        Possible { now: content.to_vec(), bytes, min_len: content.len() }
    }

    pub fn write(&mut self, offset: usize, data: &[u8]) {
        let end = offset + data.len();
        if end > self.now.len() {
            self.now.resize(end, 0);
            // A later piece of a write may survive without the earlier one.
            self.bytes.resize(end, vec![0]);
        }
        self.now[offset..end].copy_from_slice(data);
        for (possible, &byte) in self.bytes[offset..end].iter_mut().zip(data) {
            possible.push(byte);
        }
    }

    pub fn sync(&mut self) {
        *self = Possible::certain(&self.now);
    }

    /// A write that is durable when it returns, as is the length.
    pub fn write_synced(&mut self, offset: usize, data: &[u8]) {
        self.write(offset, data);
        for (possible, &byte) in self.bytes[offset..].iter_mut().zip(data) {
            *possible = vec![byte];
        }
        self.min_len = self.now.len();
    }

    /// It has another length, durably. One that is cut is synced by the way.
    pub fn truncate(&mut self, size: usize) {
        let cuts = size < self.now.len();
        self.resize(size);
        self.min_len = size;
        if cuts {
            self.sync();
        }
    }

    /// It has another length, which no sync covers yet.
    pub fn resize(&mut self, size: usize) {
        self.now.resize(size, 0);
        self.bytes.resize(size, vec![0]);
        self.min_len = self.min_len.min(size);
    }

    /// In what `found` is not allowed.
    pub fn difference(&self, found: &[u8]) -> String {
        let lengths = format!("{} bytes, of {} to {}; ", found.len(), self.min_len, self.now.len());
        let mut bytes = found.iter().zip(&self.bytes).enumerate();
        let first = bytes.find(|(_, (byte, possible))| !possible.contains(byte));
        lengths
            + &first.map_or(String::new(), |(at, (byte, possible))| format!("{at}: {byte} of {possible:?}"))
    }

    pub fn allows(&self, found: &[u8]) -> bool {
        (self.min_len..=self.now.len()).contains(&found.len())
            && found.iter().zip(&self.bytes).all(|(byte, possible)| possible.contains(byte))
    }
}

/// Names and files.
pub type PossibleTree = BTreeMap<String, Possible>;

/// Whether a tree is one of those that are possible.
pub fn allows(possible: &[PossibleTree], found: &BTreeMap<String, Vec<u8>>) -> bool {
    let is_one = |tree: &PossibleTree| {
        tree.len() == found.len()
            && tree.iter().all(|(name, file)| found.get(name).is_some_and(|content| file.allows(content)))
    };
    possible.iter().any(is_one)
}
