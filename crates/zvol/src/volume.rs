//! Reading, writing, flushing.

use fastness_store::record::Zeroes;
use fastness_store::{
    ChangeError, Counts, Dataset, Demand, Object, ObjectId, OpenDataset, Operation, OperationCounters,
    PoolError, Receipt, Records, Segment, Tx,
};

use crate::error::{Result, VolumeError};

/// Largest volume.
pub const VOLUME_BYTES_MAX: u64 = 1 << 60;
/// The object with the bytes.
pub(crate) const DATA: ObjectId = ObjectId(1);
/// Longer writes are made in several transactions of at least a block, which end at borders of blocks: a
/// transaction holds its txg open, and keeps other users from the object.
const TX_BYTES_MAX: usize = 64 << 10;

/// An open volume.
///
/// Persistence: a write is durable when a [`flush`](Self::flush) that began after its return has returned;
/// with `is_fua`, or under `sync=always`, on its own return. Under `sync=disabled` flushes and FUA return at
/// once, and a crash loses the last seconds; what is left is still the state as of one txg. Concurrency: any
/// number of threads, and of handles on one volume. A flush through one handle covers writes through all
/// handles of this process.
pub struct Volume {
    pub(crate) open: OpenDataset,
    pub(crate) data: Object,
    live: OperationCounters,
}

impl std::fmt::Debug for Volume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Volume({})", self.dataset().name())
    }
}

impl Volume {
    pub(crate) fn new(open: OpenDataset, data: Object) -> Volume {
        Volume { open, data, live: OperationCounters::default() }
    }

    /// Current full name of its dataset.
    pub fn name(&self) -> String {
        self.dataset().name()
    }

    /// Its dataset.
    pub fn dataset(&self) -> &Dataset {
        self.open.dataset()
    }

    /// Size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.data.size_bytes()
    }

    /// Unit of storage: a write of whole blocks reads nothing.
    pub fn block_bytes(&self) -> u32 {
        self.data.block_bytes()
    }

    /// Whether writes are refused, by its property or because the pool is read-only.
    pub fn is_read_only(&self) -> bool {
        self.dataset().is_read_only()
    }

    /// Counters of one operation since this handle was opened.
    pub fn stats(&self, operation: Operation) -> Counts {
        self.live.of(operation)
    }

    /// Fills `buffer` from `offset` on.
    ///
    /// # Errors
    /// [`VolumeError::OutOfRange`]; [`DamagedBlock`](PoolError::DamagedBlock): the buffer is
    /// then unspecified, but wrong data is never reported as right.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.count(Operation::Read, buffer.len() as u64, || {
            self.check_range(offset, buffer.len() as u64)?;
            let len = self.data.read(offset, buffer)?;
            // The volume has shrunk since the check: the part that is gone reads as zero.
            buffer[len..].fill(0);
            Ok(())
        })
    }

    /// Writes `data` at `offset`; with `is_fua`, durable on return.
    ///
    /// # Errors
    /// [`VolumeError::OutOfRange`], also if the volume shrinks meanwhile;
    /// [`NoSpace`](PoolError::NoSpace): parts of the range may be written. With `is_fua` also
    /// those of [`flush`](Self::flush).
    pub fn write(&self, offset: u64, data: &[u8], is_fua: bool) -> Result<()> {
        let demand = self.demand(is_fua);
        self.count(kind_of_write(demand), data.len() as u64, || {
            let len_bytes = data.len() as u64;
            self.check_range(offset, len_bytes)?;
            let (mut at, mut receipt) = (offset, None::<Receipt<'_>>);
            // For a long write, the commit reads the data back, or has it written to its final place: data
            // copied at once would have to go through the log.
            let is_copied = demand == Demand::Now && data.len() <= TX_BYTES_MAX;
            let mut rest = data;
            while !rest.is_empty() {
                let (part, left) = rest.split_at(part_bytes(at, rest.len(), self.block_bytes()));
                rest = left;
                // The volume may have shrunk since the check, and must not grow again.
                let made = self.open.overwrite(demand, &self.data, at, part, is_copied);
                let made = made.map_err(|error| match error {
                    ChangeError::Pool(PoolError::BeyondEnd { .. }) => self.out_of_range(offset, len_bytes),
                    error => error.into(),
                })?;
                receipt = Some(match receipt {
                    Some(before) => before.and(made),
                    None => made,
                });
                at += part.len() as u64;
            }
            Ok(receipt.map_or(Ok(()), Receipt::wait)?)
        })
    }

    /// Makes a range read as zeroes and frees its whole blocks; with `is_fua`, durable on return. Space is
    /// not reserved for later writes to the range: a copy-on-write store could not keep that promise.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_zeroes(&self, offset: u64, len_bytes: u64, is_fua: bool) -> Result<()> {
        self.punch(false, offset, len_bytes, is_fua)
    }

    /// Discards a range, whose contents are not needed: it reads as zeroes, and its whole blocks are freed.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn discard(&self, offset: u64, len_bytes: u64, is_fua: bool) -> Result<()> {
        self.punch(true, offset, len_bytes, is_fua)
    }

    /// Makes every write durable that had returned before the call, through any handle of this process.
    ///
    /// # Errors
    /// [`Suspended`](PoolError::Suspended): how much of the writes since the last successful
    /// flush is durable is then unknown, and no later flush will claim any of them.
    pub fn flush(&self) -> Result<()> {
        self.count(Operation::Flush, 0, || Ok(self.open.flush(|| self.data.unsynced_txg())?))
    }

    /// Appends which parts of a range are stored; see [`Object::segments`].
    ///
    /// # Errors
    /// Those of reading the tables.
    pub fn segments(
        &self,
        offset: u64,
        len_bytes: u64,
        segments_max: usize,
        found: &mut Vec<Segment>,
    ) -> Result<()> {
        Ok(self.data.segments(offset, len_bytes, segments_max, found)?)
    }

    fn punch(&self, is_discard: bool, offset: u64, len_bytes: u64, is_fua: bool) -> Result<()> {
        let demand = self.demand(is_fua);
        let operation = if is_discard { Operation::Discard } else { kind_of_write(demand) };
        self.count(operation, len_bytes, || {
            self.check_range(offset, len_bytes)?;
            let zeroes = Zeroes { offset, len_bytes, is_discard };
            let punch = |tx: &Tx| self.data.punch(tx, offset, len_bytes);
            let record = |records: Records<'_>| records.zeroes(DATA, zeroes);
            Ok(self.open.change(demand, offset..offset + len_bytes, punch, record)?.wait()?)
        })
    }

    fn demand(&self, is_fua: bool) -> Demand {
        Demand::of(self.dataset().sync_mode(), is_fua)
    }

    fn check_range(&self, offset: u64, len_bytes: u64) -> Result<()> {
        if offset.checked_add(len_bytes).is_some_and(|end| end <= self.size_bytes()) {
            return Ok(());
        }
        Err(self.out_of_range(offset, len_bytes))
    }

    fn out_of_range(&self, offset: u64, len_bytes: u64) -> VolumeError {
        VolumeError::OutOfRange { name: self.name(), offset, len_bytes, size_bytes: self.size_bytes() }
    }

    fn count(&self, operation: Operation, bytes: u64, act: impl FnOnce() -> Result<()>) -> Result<()> {
        let timer = self.live.start(operation);
        let result = act();
        self.live.end(operation, timer, bytes, result.is_err());
        result
    }
}

/// How much of a write is made in one transaction. What is cut is cut at the border of a block: a crash
/// between two parts leaves no sector that is half old and half new.
fn part_bytes(at: u64, left: usize, block_bytes: u32) -> usize {
    let max = TX_BYTES_MAX.max(block_bytes as usize);
    if left <= max { left } else { max - (at % u64::from(block_bytes)) as usize }
}

fn kind_of_write(demand: Demand) -> Operation {
    if demand == Demand::Now { Operation::SyncWrite } else { Operation::Write }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_write_is_cut_at_borders_of_blocks() {
        for block_bytes in [512, 4096, 64 << 10, 128 << 10] {
            for begin in [0, 1, 511, 512, 4095, 70_000, 1_768_683] {
                let (mut at, mut left) = (begin, (1 << 20) + 1);
                while left > 0 {
                    let part = part_bytes(at, left, block_bytes);
                    assert!((1..=left.min(TX_BYTES_MAX.max(block_bytes as usize))).contains(&part));
                    (at, left) = (at + part as u64, left - part);
                    assert!(left == 0 || at.is_multiple_of(u64::from(block_bytes)), "{begin}: {at}");
                }
            }
        }
    }
}
