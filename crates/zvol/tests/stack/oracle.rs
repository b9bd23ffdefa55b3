//! What a volume may hold after a crash; see `stack.rs` for what it says.

use std::collections::BTreeSet;

/// Places where a change may come apart: those of blocks and of records.
const UNIT: usize = 4096;
/// Records of a long write are as long as this, counted from its beginning, or twice as long.
const PIECE: usize = 64 << 10;

/// A change of a volume.
#[derive(Debug, Clone)]
pub struct Change {
    pub offset: usize,
    pub len: usize,
    /// Zeroes if there is none.
    pub data: Option<Vec<u8>>,
    /// The txg that it belongs to, if none was open before it.
    pub txg: u64,
    pub is_durable: bool,
}

impl Change {
    fn end(&self) -> usize {
        self.offset + self.len
    }

    fn put(&self, bytes: &mut [u8]) {
        let range = &mut bytes[self.offset..self.end()];
        match &self.data {
            Some(data) => range.copy_from_slice(data),
            None => range.fill(0),
        }
    }

    fn holds(&self, from: usize, found: &[u8]) -> bool {
        match &self.data {
            Some(data) => data[from - self.offset..][..found.len()] == *found,
            None => found.iter().all(|byte| *byte == 0),
        }
    }
}

/// A volume: what is certain, and what came behind.
#[derive(Debug, Clone)]
pub struct Model {
    /// Where it was last durable as a whole.
    pub durable: Vec<u8>,
    /// What a reader sees.
    pub now: Vec<u8>,
    /// The changes since, in order.
    pub window: Vec<Change>,
    /// All of these were made while the log was of kind lwb.
    pub is_listed: bool,
}

/// How much of a window a crash left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    Nothing,
    Part,
    All,
}

impl Model {
    pub fn new(bytes: Vec<u8>) -> Model {
        Model { durable: bytes.clone(), now: bytes, window: Vec::new(), is_listed: true }
    }

    pub fn change(&mut self, change: Change, is_lwb: bool) {
        change.put(&mut self.now);
        self.is_listed = is_lwb && (self.is_listed || self.window.is_empty());
        self.window.push(change);
    }

    /// Everything so far is durable.
    pub fn settle(&mut self) {
        self.durable.clone_from(&self.now);
        self.window.clear();
    }

    /// The last change is durable by itself.
    pub fn settle_last(&mut self) {
        if let Some(last) = self.window.last_mut() {
            last.is_durable = true;
        }
        // What overlaps nothing is as certain without the window.
        if self.window.iter().all(|change| change.is_durable) {
            self.settle();
        }
    }

    /// # Errors
    /// What is wrong with the contents that were found.
    pub fn judge(&self, found: &[u8]) -> Result<Left, String> {
        assert_eq!(found.len(), self.now.len());
        self.judge_segments(found)?;
        if self.is_listed && !self.window.is_empty() {
            self.judge_prefix(found)?;
        }
        Ok(match found {
            _ if found == self.durable => Left::Nothing,
            _ if found == self.now => Left::All,
            _ => Left::Part,
        })
    }

    fn judge_segments(&self, found: &[u8]) -> Result<(), String> {
        let mut borders: BTreeSet<usize> = (0..=found.len()).step_by(UNIT).collect();
        for change in &self.window {
            borders.extend((change.offset..change.end()).step_by(PIECE));
            borders.insert(change.end());
        }
        let borders: Vec<usize> = borders.into_iter().collect();
        for pair in borders.windows(2) {
            let part = &found[pair[0]..pair[1]];
            let covers = |change: &&Change| change.offset <= pair[0] && pair[1] <= change.end();
            let mut is_right = false;
            let mut is_certain = false;
            for change in self.window.iter().rev().filter(covers) {
                is_right |= change.holds(pair[0], part);
                if change.is_durable {
                    is_certain = true;
                    break;
                }
            }
            is_right |= !is_certain && self.durable[pair[0]..pair[1]] == *part;
            if !is_right {
                return Err(self.blame(pair[0]..pair[1], part));
            }
        }
        Ok(())
    }

    fn blame(&self, range: std::ops::Range<usize>, found: &[u8]) -> String {
        let named = |bytes: &[u8]| format!("{:02x?}", &bytes[..bytes.len().min(8)]);
        let changes = self
            .window
            .iter()
            .enumerate()
            .filter(|(_, change)| change.offset <= range.start && range.end <= change.end());
        let changes: Vec<String> = changes
            .map(|(at, change)| {
                let data = change.data.as_ref().map(|data| named(&data[range.start - change.offset..]));
                let is_durable = if change.is_durable { ", durable" } else { "" };
                format!("{at}: {}{is_durable}", data.unwrap_or("zeroes".into()))
            })
            .collect();
        let old = named(&self.durable[range.clone()]);
        format!("bytes {range:?} begin with {}; before: {old}; changes since: {changes:?}", named(found))
    }

    /// Kind lwb: a prefix of the changes, each with what it read back when it was committed.
    fn judge_prefix(&self, found: &[u8]) -> Result<(), String> {
        let mut bytes = self.durable.clone();
        let mut closest = (0, first_difference(&bytes, found));
        for (at, change) in self.window.iter().enumerate() {
            if closest.1 == found.len() {
                return Ok(());
            }
            // A long one is several records.
            for from in (change.offset..change.end()).step_by(PIECE) {
                let range = from..(from + PIECE).min(change.end());
                match change.data {
                    Some(_) => bytes[range.clone()].copy_from_slice(&self.now[range]),
                    None => bytes[range].fill(0),
                }
                let same = first_difference(&bytes, found);
                if same >= closest.1 {
                    closest = (at + 1, same);
                }
            }
        }
        if closest.1 == found.len() {
            return Ok(());
        }
        let (count, at) = closest;
        Err(format!("no prefix of {} listed changes; the first {count} come to byte {at}", self.window.len()))
    }
}

fn first_difference(a: &[u8], b: &[u8]) -> usize {
    a.chunks(UNIT).zip(b.chunks(UNIT)).position(|(a, b)| a != b).map_or(a.len(), |chunk| {
        let at = chunk * UNIT;
        at + a[at..].iter().zip(&b[at..]).position(|(a, b)| a != b).unwrap_or(0)
    })
}
