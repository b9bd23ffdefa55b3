//! Writing, flushing and reading log blocks, on all sides of their vdevs.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::devices::vdev::{Vdev, Write, failed};
use crate::error::{PoolError, Result};
use crate::ids::{Place, UNIT_BYTES};
use crate::log_space::space::LogSpace;
use crate::state::Shared;
use fastness_sync::order::{lock, read};

fn whole_units(len: usize) -> u64 {
    assert!(len > 0 && (len as u64).is_multiple_of(UNIT_BYTES), "{len} bytes of a log block");
    len as u64 / UNIT_BYTES
}

impl LogSpace {
    /// Writes whole units inside one block, to every side.
    ///
    /// Persistence: none before a [`flush`](Self::flush) of the vdev that begins afterwards.
    ///
    /// # Errors
    /// Those of the devices, if no current side took the write: what the place holds is then unknown.
    ///
    /// # Panics
    /// If the range is not inside a block.
    pub fn write(&self, place: Place, data: &[u8]) -> Result<()> {
        self.write_batch(&[(place, data)]).remove(0)
    }

    /// Makes several writes, in no order among them; results are in the order of `writes`.
    ///
    /// # Panics
    /// If a range is not inside a block.
    pub fn write_batch(&self, writes: &[(Place, &[u8])]) -> Vec<Result<()>> {
        if let Err(error) = self.check_writable() {
            return writes.iter().map(|_| Err(error.clone())).collect();
        }
        {
            // Anywhere else it would overwrite data.
            let mut log = lock(&self.shared.space.log);
            for (place, data) in writes {
                let units = whole_units(data.len());
                assert!(log.holding(*place, units).is_some(), "{units} units at {place} are in no log block");
            }
        }
        let mut results: Vec<Option<Result<()>>> = writes.iter().map(|_| None).collect();
        for first in 0..writes.len() {
            if results[first].is_some() {
                continue;
            }
            let id = writes[first].0.vdev;
            let of_vdev: Vec<usize> = (first..writes.len()).filter(|at| writes[*at].0.vdev == id).collect();
            let requests: Vec<Write<'_>> =
                of_vdev.iter().map(|at| (writes[*at].0.unit, writes[*at].1)).collect();
            for (at, result) in of_vdev.into_iter().zip(self.shared.write_log(id, &requests)) {
                results[at] = Some(result);
            }
        }
        results.into_iter().map(|result| result.expect("each write has a vdev")).collect()
    }

    /// Makes durable what had been written to these vdevs when the call began, as far as acknowledging it
    /// requires: on a current side, with labels that name the sides which may lack it. Several calls may run
    /// at a time.
    ///
    /// # Errors
    /// Those of the devices: then nothing written since the last flush may be assumed durable, and a device
    /// that failed its flush is poisoned, so that no overlapping or later flush that needs it succeeds.
    pub fn flush(&self, vdevs: &[u16]) -> Result<()> {
        self.check_writable()?;
        self.shared.flush_log(vdevs)
    }

    /// Fills `buf`, whole units, from a readable side.
    ///
    /// # Errors
    /// Those of the devices; [`PoolError::BadValue`] outside of the pool.
    pub fn read(&self, place: Place, buf: &mut [u8]) -> Result<()> {
        self.read_checked(place, buf, &mut |_| true).map(drop)
    }

    /// Fills `buf`, whole units, from one side after the other until `check` accepts the bytes; current sides
    /// first, then stale ones. If the units are in a claimed or allocated block, sides that had something
    /// else are rewritten. `Ok(false)`: no side has what is wanted, and at least one current side could be
    /// read, or the labels say that nothing on the vdev counts.
    ///
    /// # Errors
    /// Those of the devices, if no current side could be read; [`PoolError::BadValue`] outside of the pool.
    pub fn read_checked(
        &self,
        place: Place,
        buf: &mut [u8],
        check: &mut dyn FnMut(&mut [u8]) -> bool,
    ) -> Result<bool> {
        let units = whole_units(buf.len());
        let vdev = self.shared.devices.vdevs.at(place, units)?;
        let _no_change = read(&vdev.log_io);
        let is_ours = lock(&self.shared.space.log).holding(place, units).is_some();
        // Elsewhere these units may be data.
        let heals =
            is_ours && !self.shared.options.is_read_only && !self.shared.is_closed.load(Ordering::SeqCst);
        match vdev.read_log(place.unit, buf, check, heals) {
            Err(_) if vdev.is_given_up() => Ok(false),
            found => found.map_err(failed),
        }
    }

    /// Shows what each current side has there, by filling `buf` with whole units; shows zeroes if the labels
    /// say that nothing on the vdev counts.
    ///
    /// # Errors
    /// Those of the devices, if none could be read; [`PoolError::BadValue`] outside of the pool.
    pub fn read_current(&self, place: Place, buf: &mut [u8], look: &mut dyn FnMut(&[u8])) -> Result<()> {
        let vdev = self.shared.devices.vdevs.at(place, whole_units(buf.len()))?;
        let _no_change = read(&vdev.log_io);
        match vdev.read_log_current(place.unit, buf, look) {
            Err(_) if vdev.is_given_up() => {
                buf.fill(0);
                look(buf);
                Ok(())
            }
            read => read.map_err(failed),
        }
    }
}

impl Shared {
    fn log_vdev(&self, id: u16) -> Result<Arc<Vdev>> {
        self.devices.vdevs.get(id).ok_or_else(|| PoolError::invalid("number of a vdev", id))
    }

    /// See [`LogSpace::flush`].
    pub(super) fn flush_log(&self, vdevs: &[u16]) -> Result<()> {
        let vdevs = vdevs.iter().map(|id| self.log_vdev(*id)).collect::<Result<Vec<_>>>()?;
        for vdev in &vdevs {
            self.check_not_lost(vdev)?;
            let _no_change = read(&vdev.log_io);
            // PERSIST: a caller that acknowledges a log block relies on this. Without it a crash could leave
            // the block's old contents, on a side that is called current.
            let flushed = vdev.flush_log(self.options.has_txg_thread);
            flushed.map_err(|error| self.log_failed(vdev.id, failed(error)))?;
        }
        // PERSIST: after the flushes, before the caller acknowledges: the labels call every side stale that
        // missed a block, or its flush. Excludes an import that takes such a side for current, and the end of
        // its blocks for the end of the log.
        if vdevs.iter().any(|vdev| vdev.has_stale_side()) {
            self.name_stale_sides()?;
        }
        Ok(())
    }

    fn log_failed(&self, vdev: u16, error: PoolError) -> PoolError {
        lock(&self.space.log).note_failed(vdev);
        error
    }

    pub(super) fn write_log(&self, id: u16, writes: &[Write<'_>]) -> Vec<Result<()>> {
        let vdev = match self.log_vdev(id) {
            Ok(vdev) => vdev,
            Err(error) => return writes.iter().map(|_| Err(error.clone())).collect(),
        };
        // Until the sides that missed the write are noted: no side that is being made current may miss one.
        let _no_change = read(&vdev.log_io);
        let outcomes = vdev.write_each(writes, self.options.has_txg_thread);
        let noted = |((unit, data), outcome): (&Write<'_>, _)| match outcome {
            Ok(missed_by) => {
                let missed_by: Vec<_> = missed_by;
                if !missed_by.is_empty() {
                    let place = Place { vdev: id, unit: *unit };
                    lock(&self.space.log).note_missed(place, whole_units(data.len()), &missed_by);
                }
                Ok(())
            }
            Err(error) => Err(self.log_failed(id, failed(error))),
        };
        writes.iter().zip(outcomes).map(noted).collect()
    }

    /// Makes the labels say which sides are stale, if they do not.
    fn name_stale_sides(&self) -> Result<()> {
        let _naming = lock(&self.devices.naming);
        let config = lock(&self.devices.config).clone();
        if self.labels_lag(&config) { self.write_labels(|_| ()) } else { Ok(()) }
    }
}
