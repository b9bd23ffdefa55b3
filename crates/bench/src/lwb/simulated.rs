//! Commits to the block log on a disk that is simulated: in memory, with a flush that takes a fixed time.
//!
//! Writes go to its cache and take no time but that of a copy. A flush, and a write with FUA, takes the time
//! of a flush: beside others (*overlapping*, as of a device with a queue for them), or one after the other
//! (*exclusive*, as of a disk with one arm or one flash channel for it).

use std::time::{Duration, Instant};

use fastness_blkdev::{BlockDevice, BlockError, DeviceInfo, MemDevice, StatsSnapshot};
use fastness_sync::{Mutex, lock};

use super::commit::{DISK_BYTES, Load, of_disks};
use crate::error::Result;
use crate::{Options, Row};

/// Before this is left of a flush, its thread sleeps; from then on it looks at the clock.
const WATCHED: Duration = Duration::from_micros(20);

/// How flushes of one disk are to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flushes {
    Overlapping,
    Exclusive,
}

/// A disk in memory whose flush takes `flush_time`.
struct SimulatedDisk {
    memory: MemDevice,
    flush_time: Duration,
    /// Held while a flush lasts, if flushes are exclusive.
    turn: Option<Mutex<()>>,
}

impl SimulatedDisk {
    fn new(name: &str, flush_time: Duration, flushes: Flushes) -> Self {
        let turn = (flushes == Flushes::Exclusive).then(|| Mutex::new(()));
        Self { memory: MemDevice::new(name, DISK_BYTES), flush_time, turn }
    }

    fn wait(&self) {
        let _turn = self.turn.as_ref().map(lock);
        let since = Instant::now();
        while let Some(left) = self.flush_time.checked_sub(since.elapsed()).filter(|left| !left.is_zero()) {
            match left.checked_sub(WATCHED) {
                Some(long) if !long.is_zero() => std::thread::sleep(long),
                _ => std::hint::spin_loop(),
            }
        }
    }
}

impl BlockDevice for SimulatedDisk {
    fn info(&self) -> &DeviceInfo {
        self.memory.info()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), BlockError> {
        self.memory.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), BlockError> {
        self.memory.write_at(offset, data)
    }

    fn write_fua(&self, offset: u64, data: &[u8]) -> Result<(), BlockError> {
        self.memory.write_fua(offset, data)?;
        self.wait();
        Ok(())
    }

    fn flush(&self) -> Result<(), BlockError> {
        self.memory.flush()?;
        self.wait();
        Ok(())
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> Result<(), BlockError> {
        self.memory.discard(offset, len_bytes)
    }

    fn write_zeroes(&self, offset: u64, len_bytes: u64) -> Result<(), BlockError> {
        self.memory.write_zeroes(offset, len_bytes)
    }

    fn stats(&self) -> StatsSnapshot {
        self.memory.stats()
    }

    fn is_poisoned(&self) -> bool {
        self.memory.is_poisoned()
    }
}

pub(super) fn rows(options: Options) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for flush_us in [50, 1000] {
        for flushes in [Flushes::Exclusive, Flushes::Overlapping] {
            for threads in [1, 8, 32] {
                rows.push(row(options, flush_us, flushes, threads)?);
            }
        }
    }
    Ok(rows)
}

/// Records of 4 KiB. The goal is that of 8 threads and exclusive flushes of 1 ms.
pub(crate) fn row(options: Options, flush_us: u64, flushes: Flushes, threads: usize) -> Result<Row> {
    let flush_time = Duration::from_micros(flush_us);
    let is_goal = (flush_us, flushes, threads) == (1000, Flushes::Exclusive, 8);
    let load = Load { threads, bytes: 4096, goal: is_goal.then_some(4.0) };
    let disk = |name| SimulatedDisk::new(name, flush_time, flushes);
    let name = match flushes {
        Flushes::Exclusive => "exclusive",
        Flushes::Overlapping => "overlapping",
    };
    let medium = format!("simulated disk in memory, {name} flushes of {flush_us} us");
    of_disks(disk("raw"), disk("log"), &medium, options, load)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_takes_its_time_and_exclusive_ones_wait_for_each_other() {
        let time = Duration::from_millis(5);
        for (flushes, at_least) in [(Flushes::Exclusive, 4 * time), (Flushes::Overlapping, time)] {
            let disk = SimulatedDisk::new("disk", time, flushes);
            let since = Instant::now();
            std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(|| disk.flush().unwrap()))));
            assert!(since.elapsed() >= at_least, "{flushes:?}: {:?}", since.elapsed());
        }
    }
}
