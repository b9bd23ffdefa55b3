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

    /// Where it may come apart: its records, and in a long one any border of a block, because whole blocks may have records
    /// of their own.
    fn records(&self) -> Vec<std::ops::Range<usize>> {
        let mut borders: BTreeSet<usize> = (self.offset..self.end()).step_by(PIECE).collect();
        if self.data.is_some() {
            let first = self.offset.next_multiple_of(UNIT);
            borders.extend((first..self.end()).step_by(UNIT));
        }
        borders.insert(self.end());
        let borders: Vec<usize> = borders.into_iter().collect();
        borders.windows(2).map(|pair| pair[0]..pair[1]).collect()
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

    /// Kind lwb: a prefix of the changes, the last of them up to the border of a record or a block, each with what was read
    /// back, or stored, when it was committed.
    fn judge_prefix(&self, found: &[u8]) -> Result<(), String> {
        let mut bytes = self.durable.clone();
        let mut wrong = BTreeSet::new();
        look(&bytes, found, 0..found.len(), &mut wrong);
        let mut closest = (0, wrong.first().copied());
        for (at, change) in self.window.iter().enumerate() {
            if closest.1.is_none() {
                return Ok(());
            }
            for range in change.records() {
                match change.data {
                    Some(_) => bytes[range.clone()].copy_from_slice(&self.now[range.clone()]),
                    None => bytes[range.clone()].fill(0),
                }
                look(&bytes, found, range, &mut wrong);
                // `None`, nothing wrong, is the closest of all.
                let first = wrong.first().copied();
                if closest.1.is_some() && first.is_none_or(|first| Some(first) >= closest.1) {
                    closest = (at + 1, first);
                }
            }
        }
        let (count, Some(unit)) = closest else { return Ok(()) };
        Err(format!(
            "no prefix of {} listed changes; the first {count} come to the 4096 bytes at {}",
            self.window.len(),
            unit * UNIT
        ))
    }
}

/// Notes which units of a range differ, and which do not.
fn look(a: &[u8], b: &[u8], range: std::ops::Range<usize>, wrong: &mut BTreeSet<usize>) {
    for unit in range.start / UNIT..range.end.div_ceil(UNIT) {
        let unit_range = unit * UNIT..((unit + 1) * UNIT).min(a.len());
        if a[unit_range.clone()] == b[unit_range] {
            wrong.remove(&unit);
        } else {
            wrong.insert(unit);
        }
    }
}
