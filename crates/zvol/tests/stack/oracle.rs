//! What a volume may hold after a crash; see `stack.rs` for what it says.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

/// Places where a change may come apart: those of blocks and of records.
const UNIT: usize = 4096;

/// A change of a volume.
#[derive(Debug, Clone)]
pub struct Change {
    pub offset: usize,
    pub len: usize,
    /// Zeroes if there is none.
    pub data: Option<Arc<[u8]>>,
    /// The txg that it belongs to, or one that came later.
    pub txg: u64,
    pub is_durable: bool,
}

impl Change {
    fn end(&self) -> usize {
        self.offset + self.len
    }

    fn range(&self) -> Range<usize> {
        self.offset..self.end()
    }

    /// Where it may come apart: at borders of blocks, where its records end.
    fn records(&self, unit: usize) -> Vec<Range<usize>> {
        let mut borders = BTreeSet::from([self.offset]);
        if self.data.is_some() {
            borders.extend((self.offset.next_multiple_of(unit)..self.end()).step_by(unit));
        }
        borders.insert(self.end());
        let borders: Vec<usize> = borders.into_iter().collect();
        borders.windows(2).map(|pair| pair[0]..pair[1]).collect()
    }

    fn put(&self, bytes: &mut [u8]) {
        let range = &mut bytes[self.range()];
        match &self.data {
            Some(data) => range.copy_from_slice(&data[..self.len]),
            None => range.fill(0),
        }
    }

    fn holds(&self, from: usize, found: &[u8]) -> bool {
        match &self.data {
            Some(data) => data[from - self.offset..][..found.len()] == *found,
            None => found.iter().all(|byte| *byte == 0),
        }
    }

    /// The volume ends at `size`; whether anything is left.
    pub fn clip(&mut self, size: usize) -> bool {
        self.len = self.end().min(size).saturating_sub(self.offset);
        self.len > 0
    }
}

/// What is certain, and the changes since.
#[derive(Debug, Clone)]
pub struct Window {
    pub base: Vec<u8>,
    /// In order.
    pub changes: Vec<Change>,
    /// Edges of changes that became durable while others changed the same bytes: a log of kind lwb reads the
    /// data back, so of what overlaps an edge one part may be durable and the other not.
    edges: BTreeSet<usize>,
}

impl Window {
    fn new(base: Vec<u8>) -> Window {
        Window { base, changes: Vec::new(), edges: BTreeSet::new() }
    }

    fn settle(&mut self, now: &[u8]) {
        if !self.changes.is_empty() || self.base.len() != now.len() {
            self.base.clear();
            self.base.extend_from_slice(now);
            self.changes.clear();
            self.edges.clear();
        }
    }

    /// What belongs to txgs up to this one is certain.
    fn settle_txg(&mut self, txg: u64) {
        let count = self.changes.partition_point(|change| change.txg <= txg);
        for change in self.changes.drain(..count) {
            change.put(&mut self.base);
        }
    }

    fn resize(&mut self, size: usize) {
        self.base.resize(size, 0);
        self.changes.retain_mut(|change| change.clip(size));
        self.edges.retain(|edge| *edge < size);
    }

    fn judge(&self, found: &[u8], unit: usize) -> Result<(), String> {
        let mut borders: BTreeSet<usize> = (0..found.len()).step_by(unit).collect();
        for change in &self.changes {
            borders.extend([change.offset, change.end()]);
        }
        borders.insert(found.len());
        borders.extend(&self.edges);
        let borders: Vec<usize> = borders.into_iter().collect();
        for pair in borders.windows(2) {
            let (range, part) = (pair[0]..pair[1], &found[pair[0]..pair[1]]);
            let covers = |change: &&Change| change.offset <= range.start && range.end <= change.end();
            let mut is_right = false;
            let mut is_certain = false;
            for change in self.changes.iter().rev().filter(covers) {
                is_right |= change.holds(range.start, part);
                if change.is_durable {
                    is_certain = true;
                    break;
                }
            }
            is_right |= !is_certain && self.base[range.clone()] == *part;
            if !is_right {
                return Err(self.blame(range, part));
            }
        }
        Ok(())
    }

    fn blame(&self, range: Range<usize>, found: &[u8]) -> String {
        let named = |bytes: &[u8]| format!("{:02x?}", &bytes[..bytes.len().min(8)]);
        let covers = |change: &&Change| change.offset <= range.start && range.end <= change.end();
        let changes: Vec<String> = self
            .changes
            .iter()
            .filter(covers)
            .map(|change| {
                let data = change.data.as_ref().map(|data| named(&data[range.start - change.offset..]));
                let is_durable = if change.is_durable { ", durable" } else { "" };
                format!("txg {}: {}{is_durable}", change.txg, data.unwrap_or("zeroes".into()))
            })
            .collect();
        let old = named(&self.base[range.clone()]);
        format!("bytes {range:?} begin with {}; before: {old}; changes since: {changes:?}", named(found))
    }
}

/// A volume: what is certain, and what came after.
#[derive(Debug, Clone)]
pub struct Model {
    /// Since it was last durable as a whole.
    pub window: Window,
    /// What a reader sees.
    pub now: Vec<u8>,
    /// All changes of the window were made while the log was of kind lwb, through one opening of the volume.
    pub is_listed: bool,
    /// A resize to this size has begun, and nobody said that it was done.
    pub resizing: Option<usize>,
    /// Its size before a resize that has failed; it may come back.
    pub before: Option<usize>,
    /// A change has failed, and nobody could see how much of it was made: `now` says nothing.
    pub is_vague: bool,
    unit: usize,
}

/// How much of a window a crash left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    Nothing,
    Part,
    All,
}

impl Model {
    pub fn new(bytes: Vec<u8>, block_bytes: usize) -> Model {
        Model {
            window: Window::new(bytes.clone()),
            now: bytes,
            is_listed: true,
            resizing: None,
            before: None,
            is_vague: false,
            unit: UNIT.min(block_bytes),
        }
    }

    pub fn change(&mut self, change: Change, is_lwb: bool) {
        change.put(&mut self.now);
        self.is_listed = is_lwb && (self.is_listed || self.window.changes.is_empty());
        self.window.changes.push(change);
    }

    /// A change failed; a reader sees `seen` of its range now. It was made in part: each block is old or new.
    ///
    /// # Errors
    /// One is neither.
    pub fn change_failed(&mut self, change: &Change, seen: &[u8]) -> Result<(), String> {
        let mut borders = BTreeSet::from([change.offset]);
        borders.extend((change.offset.next_multiple_of(self.unit)..change.end()).step_by(self.unit));
        borders.insert(change.end());
        let borders: Vec<usize> = borders.into_iter().collect();
        for pair in borders.windows(2) {
            let (from, len) = (pair[0], pair[1] - pair[0]);
            let part = &seen[from - change.offset..][..len];
            if *part == self.now[from..from + len] {
                continue;
            }
            if !change.holds(from, part) {
                return Err(format!("bytes {pair:?} are neither old nor new after a change that failed"));
            }
            let data = change.data.as_ref().map(|_| Arc::from(part));
            self.change(Change { offset: from, len, data, ..change.clone() }, false);
        }
        Ok(())
    }

    /// A change failed, and a reader cannot see what it made.
    pub fn change_perhaps(&mut self, change: Change) {
        self.change(change, false);
        self.is_vague = true;
    }

    /// Everything so far is durable.
    pub fn settle(&mut self) {
        self.window.settle(&self.now);
    }

    /// The first changes of the window are durable; of those that came later nobody knows. `is_read_back`:
    /// the log may have taken their data when later ones had changed it.
    pub fn settle_first(&mut self, count: usize, is_read_back: bool) {
        let Window { base, changes, edges } = &mut self.window;
        let count = count.min(changes.len());
        for change in changes.drain(..count) {
            change.put(base);
            edges.extend(is_read_back.then_some([change.offset, change.end()]).into_iter().flatten());
        }
    }

    /// The last change is durable by itself.
    pub fn settle_last(&mut self) {
        if let Some(last) = self.window.changes.last_mut() {
            last.is_durable = true;
        }
        // What overlaps nothing is as certain without the window.
        if self.window.changes.iter().all(|change| change.is_durable) {
            self.settle();
        }
    }

    /// A txg is durable.
    pub fn settle_txg(&mut self, txg: u64) {
        self.window.settle_txg(txg);
    }

    /// It has another size, as readers see it.
    pub fn resize(&mut self, size: usize) {
        self.now.resize(size, 0);
        self.window.resize(size);
        self.resizing = None;
    }

    /// Nobody has it open any more: what was listed may be gone, or not; a disk may lose what was not
    /// flushed.
    pub fn close(&mut self) {
        self.is_listed &= self.window.changes.is_empty();
    }

    /// # Errors
    /// What is wrong with the contents that were found.
    pub fn judge(&self, found: &[u8]) -> Result<Left, String> {
        if found.len() != self.now.len() {
            return self.judge_resized(found);
        }
        let window = &self.window;
        window.judge(found, self.unit)?;
        if self.is_listed && !window.changes.is_empty() {
            self.judge_prefix(found)?;
        }
        Ok(match found {
            _ if found == window.base => Left::Nothing,
            _ if found == self.now => Left::All,
            _ => Left::Part,
        })
    }

    /// A resize that nobody was told of has become durable.
    fn judge_resized(&self, found: &[u8]) -> Result<Left, String> {
        if self.before == Some(found.len()) {
            // What was behind the smaller size is not known any more.
            let both = found.len().min(self.now.len());
            let mut common = self.clone();
            common.resize(both);
            return common.judge(&found[..both]);
        }
        if self.resizing != Some(found.len()) {
            return Err(format!("it has {} bytes instead of {}", found.len(), self.now.len()));
        }
        let mut resized = self.clone();
        resized.resize(found.len());
        // Its parts before and behind the border have records of their own.
        resized.is_listed = false;
        resized.judge(found)
    }

    /// Kind lwb: a prefix of the changes, the last of them up to the border of a record or a block, each with
    /// what was read back, or stored, when it was committed.
    fn judge_prefix(&self, found: &[u8]) -> Result<(), String> {
        let mut bytes = self.window.base.clone();
        let mut wrong = BTreeSet::new();
        self.look(&bytes, found, 0..found.len(), &mut wrong);
        let mut closest = (0, wrong.first().copied());
        for (at, change) in self.window.changes.iter().enumerate() {
            if closest.1.is_none() {
                return Ok(());
            }
            for range in change.records(self.unit) {
                match change.data {
                    Some(_) => bytes[range.clone()].copy_from_slice(&self.now[range.clone()]),
                    None => bytes[range.clone()].fill(0),
                }
                self.look(&bytes, found, range, &mut wrong);
                // `None`, nothing wrong, is the closest of all.
                let first = wrong.first().copied();
                if closest.1.is_some() && first.is_none_or(|first| Some(first) >= closest.1) {
                    closest = (at + 1, first);
                }
            }
        }
        let (count, Some(unit)) = closest else { return Ok(()) };
        Err(format!(
            "no prefix of {} listed changes; the first {count} come to the {} bytes at {}",
            self.window.changes.len(),
            self.unit,
            unit * self.unit
        ))
    }

    /// Notes which units of a range differ, and which do not.
    fn look(&self, a: &[u8], b: &[u8], range: Range<usize>, wrong: &mut BTreeSet<usize>) {
        for unit in range.start / self.unit..range.end.div_ceil(self.unit) {
            let range = unit * self.unit..((unit + 1) * self.unit).min(a.len());
            if a[range.clone()] == b[range] {
                wrong.remove(&unit);
            } else {
                wrong.insert(unit);
            }
        }
    }
}
