//! NVMe commands, from the doorbells that the guest rings.
//!
//! Writing a submission queue's tail hands the commands before it to the disk; writing a completion queue's
//! head says that the guest has seen the completions before it. Both queues, and the data, are in the guest's
//! memory. Queues other than the admin's are known from the commands that create them, so registers are
//! watched from the guest's first use of a disk on.
//!
//! Source: NVM Express base specification 2.0, 3.1 (registers), 3.3 (queues), 4.1 (commands); NVM command set
//! 1.0, 3.2.

mod data;

use std::collections::{HashMap, HashSet};

/// The guest's memory: fills a buffer from a physical address on, or says that there is none.
pub(crate) type Memory<'a> = &'a dyn Fn(u64, &mut [u8]) -> bool;

const CONTROLLER_CONFIGURATION: u64 = 0x14;
const ADMIN_ATTRIBUTES: u64 = 0x24;
const ADMIN_SUBMISSION: u64 = 0x28;
const ADMIN_COMPLETION: u64 = 0x30;
const DOORBELLS: u64 = 0x1000;
/// Registers of a controller, doorbells included, begin at a multiple of this.
pub(crate) const REGISTERS_BYTES: u64 = 0x4000;
const COMMAND_BYTES: u64 = 64;
const COMPLETION_BYTES: u64 = 16;

/// What happened on a disk; `command` is unique among those in flight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Action {
    pub(crate) command: u32,
    pub(crate) what: What,
}

/// See [`fastness_crashcheck_trace::BlockEvent`]; offsets and lengths are in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    Write { offset: u64, data: Vec<u8>, is_fua: bool },
    Zeroes { offset: u64, len_bytes: u64, is_fua: bool },
    Discard { offset: u64, len_bytes: u64 },
    Flush,
    Completion { is_ok: bool },
}

/// Why commands cannot be followed any more.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NvmeError {
    #[error("a queue, or data, of an NVMe command at {0:#x} is not in the guest's memory")]
    Memory(u64),
    #[error("a doorbell of queue {0}, which was not created")]
    Queue(u16),
    #[error("queue {0} has {1} entries, its doorbell says {2}")]
    Doorbell(u16, u32, u32),
    #[error("an NVMe command has data in a form that is not known ({0:#x})")]
    Form(u8),
    #[error("an NVMe command with {0} bytes of data, the longest has {max}", max = fastness_crashcheck_trace::BLOCK_BYTES_MAX)]
    Long(u64),
    #[error("memory pages of the NVMe controller have not 4096 bytes")]
    PageSize,
}

type Result<T> = std::result::Result<T, NvmeError>;

/// A queue in memory.
#[derive(Debug, Clone, Copy, Default)]
struct Ring {
    start: u64,
    entries: u32,
    /// Tail of a submission queue, head of a completion queue: up to here we have looked.
    seen: u32,
}

impl Ring {
    /// Addresses of the entries up to the doorbell's value.
    fn advance(&mut self, number: u16, to: u32, entry_bytes: u64) -> Result<Vec<u64>> {
        if to >= self.entries {
            return Err(NvmeError::Doorbell(number, self.entries, to));
        }
        let mut addresses = Vec::new();
        while self.seen != to {
            addresses.push(self.start.wrapping_add(u64::from(self.seen) * entry_bytes));
            self.seen = (self.seen + 1) % self.entries;
        }
        Ok(addresses)
    }
}

/// A controller with one namespace.
#[derive(Debug)]
pub(crate) struct Controller {
    block_bytes: u64,
    /// Attributes and addresses of the admin queues, as they were written.
    admin: (u32, u64, u64),
    submission: HashMap<u16, Ring>,
    completion: HashMap<u16, Ring>,
    /// Commands whose completions are events.
    in_flight: HashSet<u32>,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn read<const BYTES: usize>(memory: Memory<'_>, address: u64) -> Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    if memory(address, &mut bytes) { Ok(bytes) } else { Err(NvmeError::Memory(address)) }
}

impl Controller {
    pub(crate) fn new(block_bytes: u64) -> Controller {
        Controller {
            block_bytes,
            admin: (0, 0, 0),
            submission: HashMap::new(),
            completion: HashMap::new(),
            in_flight: HashSet::new(),
        }
    }

    /// The guest has written a register: what that did to the disk, in order.
    ///
    /// # Errors
    /// [`NvmeError`]
    pub(crate) fn write(&mut self, register: u64, value: &[u8], memory: Memory<'_>) -> Result<Vec<Action>> {
        let mut padded = [0; 16];
        padded[..value.len()].copy_from_slice(value);
        let (half, whole) = (word(&padded, 0), long(&padded, 0));
        let put = |old: u64, is_upper: bool| match (value.len(), is_upper) {
            (8, _) => whole,
            (_, false) => old & !0xffff_ffff | u64::from(half),
            (_, true) => old & 0xffff_ffff | u64::from(half) << 32,
        };
        match register {
            CONTROLLER_CONFIGURATION => return self.configure(half).map(|()| Vec::new()),
            ADMIN_ATTRIBUTES => self.admin.0 = half,
            ADMIN_SUBMISSION => self.admin.1 = put(self.admin.1, false),
            0x2c => self.admin.1 = put(self.admin.1, true),
            ADMIN_COMPLETION => self.admin.2 = put(self.admin.2, false),
            0x34 => self.admin.2 = put(self.admin.2, true),
            DOORBELLS.. => {
                let number = (register - DOORBELLS) / 4;
                let queue = (number / 2) as u16;
                return match number % 2 {
                    0 => self.submit(queue, half, memory),
                    _ => self.complete(queue, half, memory),
                };
            }
            _ => {}
        }
        Ok(Vec::new())
    }

    /// Enabled or reset: there are the admin queues, or none.
    fn configure(&mut self, configuration: u32) -> Result<()> {
        let is_enabled = configuration & 1 != 0;
        if !is_enabled {
            self.submission.clear();
            self.completion.clear();
            self.in_flight.clear();
        } else if !self.submission.contains_key(&0) {
            if configuration >> 7 & 0xf != 0 {
                return Err(NvmeError::PageSize);
            }
            let (attributes, submission, completion) = self.admin;
            let ring = |start, entries| Ring { start, entries, seen: 0 };
            self.submission.insert(0, ring(submission, (attributes & 0xfff) + 1));
            self.completion.insert(0, ring(completion, (attributes >> 16 & 0xfff) + 1));
        }
        Ok(())
    }

    fn submit(&mut self, queue: u16, tail: u32, memory: Memory<'_>) -> Result<Vec<Action>> {
        let ring = self.submission.get_mut(&queue).ok_or(NvmeError::Queue(queue))?;
        let mut actions = Vec::new();
        for address in ring.advance(queue, tail, COMMAND_BYTES)? {
            let command = read(memory, address)?;
            match queue {
                0 => self.administer(&command),
                _ => self.command(queue, &command, memory, &mut actions)?,
            }
        }
        Ok(actions)
    }

    /// An admin command; those about queues matter.
    fn administer(&mut self, command: &[u8; 64]) {
        let queue = word(command, 40) as u16;
        let ring = Ring { start: long(command, 24), entries: (word(command, 40) >> 16) + 1, seen: 0 };
        match command[0] {
            0x00 => drop(self.submission.remove(&queue)),
            0x01 => drop(self.submission.insert(queue, ring)),
            0x04 => drop(self.completion.remove(&queue)),
            0x05 => drop(self.completion.insert(queue, ring)),
            _ => {}
        }
    }

    /// A command for the namespace; what does not change the disk is left out.
    fn command(
        &mut self,
        queue: u16,
        bytes: &[u8; 64],
        memory: Memory<'_>,
        actions: &mut Vec<Action>,
    ) -> Result<()> {
        let command = u32::from(queue) << 16 | word(bytes, 0) >> 16;
        let offset = long(bytes, 40).wrapping_mul(self.block_bytes);
        let len_bytes = (u64::from(word(bytes, 48) & 0xffff) + 1) * self.block_bytes;
        let is_fua = word(bytes, 48) >> 30 & 1 != 0;
        let whats = match bytes[0] {
            0x00 => vec![What::Flush],
            0x01 => vec![What::Write { offset, data: data::gather(bytes, len_bytes, memory)?, is_fua }],
            0x08 => vec![What::Zeroes { offset, len_bytes, is_fua }],
            // Dataset management, with the attribute that deallocates.
            0x09 if word(bytes, 44) & 4 != 0 => self.discards(bytes, memory)?,
            _ => return Ok(()),
        };
        self.in_flight.insert(command);
        actions.extend(whats.into_iter().map(|what| Action { command, what }));
        Ok(())
    }

    fn discards(&self, bytes: &[u8; 64], memory: Memory<'_>) -> Result<Vec<What>> {
        let count = u64::from(word(bytes, 40) & 0xff) + 1;
        let ranges = data::gather(bytes, count * 16, memory)?;
        let discard = |range: &[u8]| What::Discard {
            offset: long(range, 8).wrapping_mul(self.block_bytes),
            len_bytes: u64::from(word(range, 4)) * self.block_bytes,
        };
        Ok(ranges.chunks_exact(16).map(discard).collect())
    }

    fn complete(&mut self, queue: u16, head: u32, memory: Memory<'_>) -> Result<Vec<Action>> {
        let ring = self.completion.get_mut(&queue).ok_or(NvmeError::Queue(queue))?;
        let mut actions = Vec::new();
        for address in ring.advance(queue, head, COMPLETION_BYTES)? {
            let entry: [u8; 16] = read(memory, address)?;
            // Submission queue, command; status above the phase.
            let command = word(&entry, 8) & 0xffff_0000 | word(&entry, 12) & 0xffff;
            if self.in_flight.remove(&command) {
                let is_ok = word(&entry, 12) >> 17 == 0;
                actions.push(Action { command, what: What::Completion { is_ok } });
            }
        }
        Ok(actions)
    }
}

#[cfg(test)]
mod tests;
