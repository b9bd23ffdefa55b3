//! Applies the records of a volume's log to its object.

use fastness_store::record::{Head, Record, Write, WriteData};
use fastness_store::{Handler, PoolError, ReplayError, Replaying, Tx};

/// Replays volumes; see [`Kinds`](fastness_store::Kinds).
#[derive(Debug, Clone, Copy, Default)]
pub struct VolumeReplay;

/// A record of a type that a volume's log does not contain.
#[derive(Debug, thiserror::Error)]
#[error("a volume has no such records")]
struct NotOfVolumes;

impl Handler for VolumeReplay {
    fn apply(
        &self,
        replaying: &Replaying<'_>,
        tx: &Tx,
        head: &Head,
        record: &Record<'_>,
    ) -> Result<(), ReplayError> {
        let object = match replaying.dataset.object(head.object) {
            // Records of volumes may be reordered: one for an object that is gone does nothing.
            Err(PoolError::NoObject { .. }) => return Ok(()),
            other => other?,
        };
        match record {
            Record::Write(Write { offset, data: WriteData::Inline(data) }) => {
                object.write(tx, *offset, data)?;
            }
            Record::Write(Write { offset, data: WriteData::Indirect { len_bytes, address } }) => {
                replaying.write_stored(tx, &object, *offset, (address, *len_bytes))?;
            }
            Record::Zeroes(zeroes) => object.punch(tx, zeroes.offset, zeroes.len_bytes)?,
            Record::Truncate(cut) if cut.len_bytes == u64::MAX => object.truncate(tx, cut.offset)?,
            Record::Truncate(cut) => object.punch(tx, cut.offset, cut.len_bytes)?,
            _ => return Err(NotOfVolumes.into()),
        }
        Ok(())
    }
}
