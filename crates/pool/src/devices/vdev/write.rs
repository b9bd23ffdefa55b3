//! Writes to all sides of a vdev, and why one failed.

use std::sync::atomic::Ordering;

use fastness_blkdev::{BlockError, Cause, Request};

use crate::devices::vdev::Vdev;
use crate::ids::UNIT_BYTES;

impl Vdev {
    /// Writes `data`, a multiple of a unit, to every side. `Ok` if a side that is not stale has it; sides
    /// that failed are now stale.
    pub(crate) fn write(&self, unit: u64, data: &[u8]) -> Result<(), Option<BlockError>> {
        debug_assert!(unit + data.len() as u64 / UNIT_BYTES <= self.units, "a write inside of the vdev");
        let offset = self.offset(unit);
        let written = self.on_all_sides(|_, device| device.write_at(offset, data));
        self.note_why(&written);
        written
    }

    /// Makes several writes, each as [`write`](Self::write); the first error, if any failed.
    pub(crate) fn write_batch(&self, writes: &[(u64, &[u8])]) -> Result<(), Option<BlockError>> {
        if let [(unit, data)] = writes {
            return self.write(*unit, data);
        }
        let outcomes =
            self.change(writes.len(), false, |_, device| device.run_batch(&mut self.requests(writes)));
        let mut all = Ok(());
        for outcome in outcomes {
            let written = outcome.map(drop);
            self.note_why(&written);
            all = all.and(written);
        }
        all
    }

    pub(super) fn requests<'a>(&self, writes: &[(u64, &'a [u8])]) -> Vec<Request<'a>> {
        let request = |&(unit, data)| Request::Write { offset: self.offset(unit), data, fua: false };
        writes.iter().map(request).collect()
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
