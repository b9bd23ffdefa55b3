//! Requests without an answer, in memory that outlives this process. Source: vhost-user.rst, "Inflight I/O
//! tracking", "split virtqueue".
//!
//! Layout, for each queue from a multiple of 64 on, in this machine's order: features u64, version u16 (1),
//! number of entries u16, head of the last batch u16, used index u16; then an entry of 16 for each
//! descriptor: in flight u8, 5 unused, next of its batch u16, counter u64. A batch is one chain here.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fastness_pmem::{ForeignMemory, OutOfRange};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

use crate::ring::SIZE_MAX;

const HEADER_BYTES: u64 = 16;
const ENTRY_BYTES: u64 = 16;
const VERSION: u16 = 1;
const VERSION_AT: u64 = 8;
const ENTRIES_AT: u64 = 10;
const LAST_AT: u64 = 12;
const USED_AT: u64 = 14;
const NEXT_IN_ENTRY: u64 = 6;
const COUNTER_IN_ENTRY: u64 = 8;

fn bytes_of_queue(size: u16) -> u64 {
    (HEADER_BYTES + ENTRY_BYTES * u64::from(size)).next_multiple_of(64)
}

/// The tables of all queues.
#[derive(Debug, Clone)]
pub(crate) struct Inflight {
    memory: Arc<ForeignMemory>,
    queues: u16,
    size: u16,
}

impl Inflight {
    /// Tables for `queues` queues of `size` entries, and what is to be handed to the front end.
    pub(crate) fn create(queues: u16, size: u16) -> io::Result<(Inflight, OwnedFd, u64)> {
        if queues == 0 || size == 0 || size > SIZE_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let len = bytes_of_queue(size) * u64::from(queues);
        let file = memfd_create("fastness-inflight", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, len)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let tables = Inflight::open(file.as_fd().try_clone_to_owned()?, 0, len, queues, size)?;
        for queue in 0..queues {
            let at = tables.start(queue);
            let set = |offset: u64, value: u16| {
                let half = tables.memory.half(at + offset).map_err(io::Error::other)?;
                half.store(value, Ordering::Release);
                io::Result::Ok(())
            };
            set(VERSION_AT, VERSION)?;
            set(ENTRIES_AT, size)?;
        }
        Ok((tables, file, len))
    }

    /// Tables that the front end has kept.
    pub(crate) fn open(file: OwnedFd, offset: u64, len: u64, queues: u16, size: u16) -> io::Result<Inflight> {
        let needed = bytes_of_queue(size) * u64::from(queues);
        if queues == 0 || size == 0 || size > SIZE_MAX || needed > len {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let memory = Arc::new(ForeignMemory::map(&File::from(file), offset, needed)?);
        Ok(Inflight { memory, queues, size })
    }

    fn start(&self, queue: u16) -> u64 {
        bytes_of_queue(self.size) * u64::from(queue)
    }

    /// The table of one queue; `None` if there is none for it.
    pub(crate) fn table(&self, queue: u16, size: u16) -> Option<Table> {
        if queue >= self.queues || size > self.size {
            return None;
        }
        Some(Table { memory: self.memory.clone(), at: self.start(queue), size, counter: 0 })
    }
}

/// The table of one queue.
#[derive(Debug)]
pub(crate) struct Table {
    memory: Arc<ForeignMemory>,
    at: u64,
    size: u16,
    counter: u64,
}

impl Table {
    fn entry(&self, head: u16) -> u64 {
        self.at + HEADER_BYTES + ENTRY_BYTES * u64::from(head)
    }

    fn set(&self, head: u16, is_in_flight: bool) -> Result<(), OutOfRange> {
        self.memory.byte(self.entry(head))?.store(u8::from(is_in_flight), Ordering::Release);
        Ok(())
    }

    /// Notes that a chain is about to be carried out. When this returns, the next process will find it.
    pub(crate) fn begin(&mut self, head: u16) -> Result<(), OutOfRange> {
        let counter = self.memory.word(self.entry(head) + COUNTER_IN_ENTRY)?;
        counter.store(self.counter, Ordering::Relaxed);
        self.counter += 1;
        self.set(head, true)
    }

    /// Before the answer counts: whose it is.
    pub(crate) fn answer(&self, head: u16) -> Result<(), OutOfRange> {
        let last = self.memory.half(self.at + LAST_AT)?;
        let next = self.memory.half(self.entry(head) + NEXT_IN_ENTRY)?;
        next.store(last.load(Ordering::Relaxed), Ordering::Relaxed);
        last.store(head, Ordering::Release);
        Ok(())
    }

    /// After the answer counts: `used` is the index of the used ring now.
    pub(crate) fn answered(&self, head: u16, used: u16) -> Result<(), OutOfRange> {
        self.set(head, false)?;
        self.memory.half(self.at + USED_AT)?.store(used, Ordering::Release);
        Ok(())
    }

    /// The chains that a dead process has not answered, in the order in which it began them. `used` is the
    /// index of the used ring.
    pub(crate) fn resume(&mut self, used: u16) -> Result<Vec<u16>, OutOfRange> {
        let known = self.memory.half(self.at + USED_AT)?;
        if known.load(Ordering::Acquire) != used {
            // It died between the answer and the note of it.
            let last = self.memory.load_half(self.at + LAST_AT)?;
            if last < self.size {
                self.set(last, false)?;
            }
            known.store(used, Ordering::Release);
        }
        let mut found = Vec::new();
        for head in 0..self.size {
            if self.memory.byte(self.entry(head))?.load(Ordering::Acquire) != 0 {
                let counter = self.memory.word(self.entry(head) + COUNTER_IN_ENTRY)?;
                found.push((counter.load(Ordering::Relaxed), head));
            }
        }
        found.sort_unstable();
        self.counter = found.last().map_or(0, |(counter, _)| counter.wrapping_add(1));
        Ok(found.into_iter().map(|(_, head)| head).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables() -> (Inflight, OwnedFd, u64) {
        Inflight::create(2, 128).unwrap()
    }

    #[test]
    fn the_next_process_finds_what_was_begun_in_its_order() {
        let (tables, file, len) = tables();
        let mut table = tables.table(1, 128).unwrap();
        for head in [7, 3, 100, 0] {
            table.begin(head).unwrap();
        }
        table.answer(3).unwrap();
        table.answered(3, 1).unwrap();
        let next = Inflight::open(file, 0, len, 2, 128).unwrap();
        let mut again = next.table(1, 128).unwrap();
        assert_eq!(again.resume(1).unwrap(), [7, 100, 0]);
        // Its own come after these.
        again.begin(5).unwrap();
        assert_eq!(again.resume(1).unwrap(), [7, 100, 0, 5]);
        assert_eq!(next.table(0, 128).unwrap().resume(0).unwrap(), []);
    }

    #[test]
    fn a_death_between_the_answer_and_its_note_repeats_nothing() {
        let (tables, ..) = tables();
        let mut table = tables.table(0, 128).unwrap();
        table.begin(9).unwrap();
        table.begin(4).unwrap();
        table.answer(9).unwrap();
        // The used index counts it; `answered` was not reached.
        assert_eq!(table.resume(1).unwrap(), [4]);
        // A death before the index counted it: it is carried out again.
        table.answer(4).unwrap();
        assert_eq!(table.resume(1).unwrap(), [4]);
    }

    #[test]
    fn tables_of_a_wrong_size_are_refused() {
        assert!(Inflight::create(0, 128).is_err());
        assert!(Inflight::create(1, SIZE_MAX + 1).is_err());
        let (tables, file, len) = tables();
        assert!(Inflight::open(file, 0, len - 1, 2, 128).is_err());
        assert!(tables.table(2, 128).is_none() && tables.table(0, 129).is_none());
    }
}
