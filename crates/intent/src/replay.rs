//! Replaying volumes.

use std::error::Error;

use fastness_pool::{Dataset, LogSpace, PoolError, Tx};
use fastness_prb::SideRepairs;
use fastness_zil::ReplayHandler;
use fastness_zil::record::{Head, Record, Write, WriteData};

use crate::side::PoolSide;

/// What an import replayed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReplayReport {
    /// Volumes with records.
    pub volumes: u64,
    /// Records that were applied.
    pub records: u64,
    /// Of these, the ones whose data was not in the log but in the pool.
    pub indirect: u64,
    /// Records that were given up: damaged ones, and those after them.
    pub dropped: u64,
    /// Damaged logs of which a part was given up.
    pub damaged: u64,
    /// The log was missing, and was given up.
    pub is_forgotten: bool,
    /// What was copied from one side of a mirror of regions to the other.
    pub sides: SideRepairs,
}

/// A record of a type that a volume's log does not contain.
#[derive(Debug, thiserror::Error)]
#[error("a volume has no {0} records")]
struct NotOfVolumes(&'static str);

/// Applies records to the objects of one dataset.
pub(crate) struct Volume<'a> {
    pub(crate) dataset: Dataset,
    /// Finds the data that records name; it was claimed with them.
    pub(crate) blocks: LogSpace,
    /// Called for each record.
    pub(crate) applied: &'a mut dyn FnMut(),
    /// Counts the records whose data was in the pool.
    pub(crate) indirect: &'a mut u64,
}

impl ReplayHandler<PoolSide> for Volume<'_> {
    fn apply(
        &mut self,
        tx: &Tx,
        head: &Head,
        record: &Record<'_>,
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        (self.applied)();
        let object = match self.dataset.object(fastness_pool::ObjectId(head.object.0)) {
            // Records of volumes may be reordered: one for an object that is gone does nothing.
            Err(PoolError::NoObject { .. }) => return Ok(()),
            other => other?,
        };
        match record {
            Record::Write(Write { offset, data: WriteData::Inline(data) }) => {
                object.write(tx, *offset, data)?;
            }
            Record::Zeroes(zeroes) => object.punch(tx, zeroes.offset, zeroes.len_bytes)?,
            Record::Truncate(cut) if cut.len_bytes == u64::MAX => object.truncate(tx, cut.offset)?,
            Record::Truncate(cut) => object.punch(tx, cut.offset, cut.len_bytes)?,
            Record::Write(Write { offset, data: WriteData::Indirect { len_bytes, address } }) => {
                let (mut at, mut written) = (*offset, Ok(()));
                self.blocks.read_stored(address, *len_bytes, &mut |block| {
                    if written.is_ok() {
                        written = object.write(tx, at, block);
                    }
                    at += block.len() as u64;
                })?;
                written?;
                *self.indirect += 1;
            }
            _ => return Err(NotOfVolumes("such").into()),
        }
        Ok(())
    }
}
