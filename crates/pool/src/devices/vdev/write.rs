//! Writes to all sides of a vdev, and why one failed.

use std::sync::atomic::Ordering;

use fastness_blkdev::{BlockError, Cause, Request};

use crate::devices::vdev::Vdev;
use crate::devices::vdev::sides::Outcome;
use crate::ids::UNIT_BYTES;

/// One write: first unit, whole units of data.
pub(crate) type Write<'a> = (u64, &'a [u8]);

impl Vdev {
    /// Writes to every side, in no order among the writes. `Ok` if for each of them a side that is not stale
    /// has it, otherwise the first error; sides that failed are now stale.
    pub(crate) fn write(&self, writes: &[Write<'_>]) -> Result<(), Option<BlockError>> {
        let mut all = Ok(());
        for outcome in self.write_each(writes, false) {
            let written = outcome.map(drop);
            self.note_why(&written);
            all = all.and(written);
        }
        all
    }

    /// The same, on all sides in parallel if `at_once`; outcomes are in the order of `writes`.
    pub(crate) fn write_each(&self, writes: &[Write<'_>], at_once: bool) -> Vec<Outcome> {
        let end = |(unit, data): &Write<'_>| unit + data.len() as u64 / UNIT_BYTES;
        debug_assert!(writes.iter().map(end).all(|end| end <= self.units()), "writes inside of the vdev");
        self.change(writes.len(), at_once, |_, device| match writes {
            [(unit, data)] => vec![device.write_at(self.offset(*unit), data)],
            writes => {
                let request = |&(unit, data)| Request::Write { offset: self.offset(unit), data, fua: false };
                device.run_batch(&mut writes.iter().map(request).collect::<Vec<_>>())
            }
        })
    }

    /// Keeps why no side has a write.
    fn note_why(&self, written: &Result<(), Option<BlockError>>) {
        match written {
            Err(Some(BlockError { cause: Cause::NoSpace(_), .. })) => {
                self.has_no_room.store(true, Ordering::SeqCst);
            }
            Err(Some(BlockError { cause: Cause::Media(_), .. })) => {
                self.has_failed_writes.store(true, Ordering::SeqCst);
            }
            _ => {}
        }
    }

    /// Whether the medium has failed a write, on all current sides.
    pub(crate) fn has_failed_writes(&self) -> bool {
        self.has_failed_writes.load(Ordering::SeqCst)
    }

    /// Whether it has refused a write because the storage below it is full.
    pub(crate) fn has_no_room(&self) -> bool {
        self.has_no_room.load(Ordering::SeqCst)
    }
}
