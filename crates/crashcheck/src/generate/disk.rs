//! What a crash can leave on a disk.
//!
//! The disk is the worst that its specification allows: a volatile cache, blocks that persist whole but for
//! themselves, and no order between commands that are in flight together. Of each block the disk has one of
//! its *versions*:
//!
//! - A write adds a version to each of its blocks when it is handed over; the older ones may still be what is
//!   left.
//! - A flush that has ended makes durable what had ended before it was handed over, and a write with FUA,
//!   once it has ended, itself: of each block, what had ended before such a version was handed over is gone.
//! - A command that fails leaves either. Write-zeroes and discard are writes of zeroes.
//! - What the trace says that it held at the beginning is durable.
//!
//! Source: PM file systems dissertation, 2.4.2 and 8.5.1; NVMe base specification, 7.1 (flush).

use std::collections::{BTreeMap, HashMap};
use std::ops::{ControlFlow, Range};

use fastness_crashcheck_trace::{BlockEvent, Device};
use fastness_pm_model::Rng;

use crate::image::{Image, PAGE_BYTES};

/// Smallest unit that persists whole, whatever the device says of itself.
const BLOCK_BYTES: u64 = 512;
/// Most blocks with more than one version: 8 GiB of writes without a flush.
const PENDING_BLOCKS_MAX: usize = 16 << 20;

type Time = u64;

/// What a block may have.
#[derive(Debug, Clone)]
struct Version {
    /// `None` for zeroes.
    data: Option<Box<[u8]>>,
    command: u64,
    submitted: Time,
    /// [`Time::MAX`] while in flight.
    completed: Time,
}

/// The versions of a block that is not certain, in the order in which they were handed over; at least one.
#[derive(Debug, Clone, Default)]
struct Block {
    /// What was on the disk before may still be there.
    has_base: bool,
    versions: Vec<Version>,
}

#[derive(Debug, Clone)]
struct Command {
    serial: u64,
    submitted: Time,
    kind: CommandKind,
}

#[derive(Debug, Clone)]
enum CommandKind {
    Write {
        blocks: Range<u64>,
        is_fua: bool,
    },
    /// Each event of it is one more range.
    Discard {
        ranges: Vec<Range<u64>>,
    },
    Flush,
}

/// A disk between two events of a trace.
#[derive(Debug, Clone)]
pub struct Disk {
    image: Image,
    pending: BTreeMap<u64, Block>,
    in_flight: HashMap<u32, Command>,
    time: Time,
}

impl Disk {
    /// A disk full of zeroes, until [`initial`](Self::initial) says otherwise.
    pub fn new(device: &Device) -> Disk {
        let image = Image::zeroed(device.len_bytes);
        Disk { image, pending: BTreeMap::new(), in_flight: HashMap::new(), time: 0 }
    }

    /// Sets its contents before the first command, from an offset on.
    ///
    /// # Errors
    /// What is wrong, as text; nothing has changed.
    pub fn initial(&mut self, offset: u64, data: &[u8]) -> Result<(), String> {
        self.blocks(offset, data.len() as u64)?;
        if self.time > 0 {
            return Err("initial contents of a disk after a command to it".to_owned());
        }
        let pages = data.chunks(PAGE_BYTES).enumerate();
        // Zeroes over zeroes would only take memory.
        for (page, data) in pages.filter(|(_, page)| page.iter().any(|byte| *byte != 0)) {
            self.image.write(offset + (page * PAGE_BYTES) as u64, data);
        }
        Ok(())
    }

    /// The blocks of a range.
    fn blocks(&self, offset: u64, len_bytes: u64) -> Result<Range<u64>, String> {
        let disk = self.image.len_bytes();
        match offset.checked_add(len_bytes).filter(|end| *end <= disk) {
            Some(end) if offset.is_multiple_of(BLOCK_BYTES) && end.is_multiple_of(BLOCK_BYTES) => {
                Ok(offset / BLOCK_BYTES..end / BLOCK_BYTES)
            }
            _ => Err(format!(
                "{len_bytes} bytes at {offset} of a disk of {disk} bytes, in blocks of {BLOCK_BYTES}"
            )),
        }
    }

    /// Whether the event can make contents impossible that are possible now.
    pub fn can_shrink(&self, command: u32, event: &BlockEvent<'_>) -> bool {
        let BlockEvent::Completion { is_ok: true } = event else { return false };
        match self.in_flight.get(&command).map(|command| &command.kind) {
            Some(CommandKind::Flush) => !self.pending.is_empty(),
            Some(CommandKind::Write { is_fua, .. }) => *is_fua,
            Some(CommandKind::Discard { .. }) | None => false,
        }
    }

    /// Performs an event.
    ///
    /// # Errors
    /// What is wrong, as text; nothing has changed.
    pub fn apply(&mut self, command: u32, event: &BlockEvent<'_>) -> Result<(), String> {
        self.time += 1;
        match *event {
            BlockEvent::Write { offset, data, is_fua } => {
                let blocks = self.blocks(offset, data.len() as u64)?;
                self.write(command, blocks, Some(data), is_fua)
            }
            BlockEvent::WriteZeroes { offset, len_bytes, is_fua } => {
                let blocks = self.blocks(offset, len_bytes)?;
                self.write(command, blocks, None, is_fua)
            }
            BlockEvent::Discard { offset, len_bytes } => {
                let blocks = self.blocks(offset, len_bytes)?;
                self.discard(command, blocks)
            }
            BlockEvent::Flush => self.submit(command, CommandKind::Flush).map(|_| ()),
            BlockEvent::Completion { is_ok } => self.complete(command, is_ok),
        }
    }

    fn submit(&mut self, command: u32, kind: CommandKind) -> Result<u64, String> {
        let (serial, submitted) = (self.time, self.time);
        match self.in_flight.insert(command, Command { serial, submitted, kind }) {
            Some(_) => Err(format!("command {command} is submitted while it is in flight")),
            None => Ok(serial),
        }
    }

    fn write(
        &mut self,
        command: u32,
        blocks: Range<u64>,
        data: Option<&[u8]>,
        is_fua: bool,
    ) -> Result<(), String> {
        let serial = self.submit(command, CommandKind::Write { blocks: blocks.clone(), is_fua })?;
        self.add_versions(blocks, data, serial)
    }

    /// One of several ranges, perhaps: they are one command.
    fn discard(&mut self, command: u32, blocks: Range<u64>) -> Result<(), String> {
        let serial = match self.in_flight.get_mut(&command) {
            Some(Command { serial, kind: CommandKind::Discard { ranges }, .. }) => {
                ranges.push(blocks.clone());
                *serial
            }
            _ => self.submit(command, CommandKind::Discard { ranges: vec![blocks.clone()] })?,
        };
        self.add_versions(blocks, None, serial)
    }

    fn add_versions(&mut self, blocks: Range<u64>, data: Option<&[u8]>, serial: u64) -> Result<(), String> {
        let mut parts = data.map(|data| data.chunks(BLOCK_BYTES as usize));
        for block in blocks {
            self.add_version(block, parts.as_mut().and_then(Iterator::next), serial)?;
        }
        Ok(())
    }

    fn add_version(&mut self, block: u64, data: Option<&[u8]>, serial: u64) -> Result<(), String> {
        let data = data.filter(|data| data.iter().any(|byte| *byte != 0)).map(Box::from);
        if data.is_none() && !self.pending.contains_key(&block) && self.is_zero(block) {
            return Ok(());
        }
        if self.pending.len() >= PENDING_BLOCKS_MAX {
            return Err(format!("more than {PENDING_BLOCKS_MAX} blocks were written without a flush"));
        }
        let entry = self.pending.entry(block).or_insert(Block { has_base: true, versions: Vec::new() });
        entry.versions.push(Version { data, command: serial, submitted: self.time, completed: Time::MAX });
        Ok(())
    }

    fn is_zero(&self, block: u64) -> bool {
        let mut bytes = [0; BLOCK_BYTES as usize];
        self.image.read(block * BLOCK_BYTES, &mut bytes);
        bytes.iter().all(|byte| *byte == 0)
    }

    fn complete(&mut self, command: u32, is_ok: bool) -> Result<(), String> {
        let Some(command) = self.in_flight.remove(&command) else {
            return Err(format!("command {command} ends, but is not in flight"));
        };
        match command.kind {
            // One that has failed stays as if it were in flight: nothing is known of it.
            CommandKind::Write { .. } | CommandKind::Discard { .. } if !is_ok => {}
            CommandKind::Write { blocks, is_fua } => self.complete_write(command.serial, blocks, is_fua),
            CommandKind::Discard { ranges } => {
                ranges.into_iter().for_each(|blocks| self.complete_write(command.serial, blocks, false));
            }
            CommandKind::Flush if is_ok => {
                let blocks: Vec<u64> = self.pending.keys().copied().collect();
                for block in blocks {
                    self.make_durable(block, |version| version.completed < command.submitted);
                }
            }
            CommandKind::Flush => {}
        }
        Ok(())
    }

    fn complete_write(&mut self, serial: u64, blocks: Range<u64>, is_fua: bool) {
        let touched: Vec<u64> = self.pending.range(blocks).map(|(block, _)| *block).collect();
        for block in touched {
            if let Some(found) = self.pending.get_mut(&block) {
                let own = found.versions.iter_mut().filter(|version| version.command == serial);
                own.for_each(|version| version.completed = self.time);
            }
            if is_fua {
                self.make_durable(block, |version| version.command == serial);
            }
        }
    }

    /// Of a block, these versions are durable now, or have been overwritten by others.
    fn make_durable(&mut self, block: u64, is_durable: impl Fn(&Version) -> bool) {
        let Some(found) = self.pending.get_mut(&block) else { return };
        let Some(newest) =
            found.versions.iter().filter(|version| is_durable(version)).map(|v| v.submitted).max()
        else {
            return;
        };
        found.has_base = false;
        found.versions.retain(|version| version.completed >= newest);
        if let [only] = &found.versions[..] {
            let zeroes = [0; BLOCK_BYTES as usize];
            self.image.write(block * BLOCK_BYTES, only.data.as_deref().unwrap_or(&zeroes));
            self.pending.remove(&block);
        }
    }

    /// What is certain to be left, and of blocks of which nothing is, the oldest that can be.
    pub fn persistent(&self) -> Image {
        self.chosen(|block| if block.has_base { None } else { block.versions.first() })
    }

    /// What the disk has if nothing is lost: the newest of each block.
    pub fn volatile(&self) -> Image {
        self.chosen(|block| block.versions.last())
    }

    fn chosen(&self, choose: impl Fn(&Block) -> Option<&Version>) -> Image {
        let mut image = self.image.clone();
        for (number, block) in &self.pending {
            if let Some(version) = choose(block) {
                self.put(&mut image, *number, version);
            }
        }
        image
    }

    fn put(&self, image: &mut Image, block: u64, version: &Version) {
        let zeroes = [0; BLOCK_BYTES as usize];
        image.write(block * BLOCK_BYTES, version.data.as_deref().unwrap_or(&zeroes));
    }

    /// Blocks of which more than one content can be left.
    pub fn pending_blocks(&self) -> usize {
        self.pending.len()
    }

    /// How many images can be left, saturating; more than differ if versions are equal.
    pub fn count_upper_bound(&self) -> u128 {
        let choices = self.pending.values().map(|block| block.versions.len() + usize::from(block.has_base));
        choices.fold(1, |product, choices| product.saturating_mul(choices as u128))
    }

    /// Calls `visit` with every image that can be left, if there are at most `limit`; otherwise with `limit`
    /// of them, chosen at random. Some may be equal. Says whether they are all.
    pub fn for_each(
        &self,
        seed: u64,
        limit: usize,
        visit: &mut dyn FnMut(&Image) -> ControlFlow<()>,
    ) -> (bool, ControlFlow<()>) {
        if self.count_upper_bound() <= limit as u128 {
            let blocks: Vec<_> = self.pending.iter().map(|(number, block)| (*number, block)).collect();
            return (true, self.walk(&blocks, &self.image, visit));
        }
        let mut rng = Rng::new(seed);
        let flow = (0..limit).try_for_each(|turn| visit(&self.random(&mut rng, turn)));
        (false, flow)
    }

    fn walk(
        &self,
        blocks: &[(u64, &Block)],
        image: &Image,
        visit: &mut dyn FnMut(&Image) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let Some(((number, block), rest)) = blocks.split_first() else { return visit(image) };
        if block.has_base {
            self.walk(rest, image, visit)?;
        }
        for version in &block.versions {
            let mut image = image.clone();
            self.put(&mut image, *number, version);
            self.walk(rest, &image, visit)?;
        }
        ControlFlow::Continue(())
    }

    /// By turns: commands are lost whole, or blocks; few of them, or most, or half.
    fn random(&self, rng: &mut Rng, turn: usize) -> Image {
        let lost_of_eight = [4, 1, 7][turn / 2 % 3];
        let by_command = turn.is_multiple_of(2);
        let mut lost = HashMap::new();
        let mut image = self.image.clone();
        for (number, block) in &self.pending {
            let mut left = block.versions.iter().rev().filter(|version| {
                let mut draw = || rng.below(8) < lost_of_eight;
                let is_lost = match by_command {
                    true => *lost.entry(version.command).or_insert_with(draw),
                    false => draw(),
                };
                !is_lost
            });
            let oldest = if block.has_base { None } else { block.versions.first() };
            if let Some(version) = left.next().or(oldest) {
                self.put(&mut image, *number, version);
            }
        }
        image
    }
}

#[cfg(test)]
mod tests;
