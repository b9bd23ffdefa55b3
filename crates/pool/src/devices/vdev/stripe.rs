//! All vdevs of a pool together: writes to a place, flushes, labels, uberblocks.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use fastness_blkdev::{AlignedBuf, BlockError};

use crate::devices::config::{PoolConfig, VdevClass};
use crate::devices::label::{self, Uberblock};
use crate::devices::vdev::{Health, Vdev};
use crate::error::{PoolError, Result};
use crate::ids::{Guid, Mark, Place, UNIT_BYTES};
use fastness_sync::order::{read, write};

/// The top-level vdevs, by number.
pub(crate) struct Vdevs {
    by_id: RwLock<BTreeMap<u16, Arc<Vdev>>>,
}

impl Vdevs {
    pub(crate) fn new(vdevs: impl IntoIterator<Item = Arc<Vdev>>) -> Vdevs {
        Vdevs { by_id: RwLock::new(vdevs.into_iter().map(|vdev| (vdev.id, vdev)).collect()) }
    }

    pub(crate) fn all(&self) -> Vec<Arc<Vdev>> {
        read(&self.by_id).values().cloned().collect()
    }

    pub(crate) fn add(&self, vdev: Arc<Vdev>) {
        write(&self.by_id).insert(vdev.id, vdev);
    }

    pub(crate) fn remove(&self, id: u16) {
        write(&self.by_id).remove(&id);
    }

    pub(crate) fn get(&self, id: u16) -> Option<Arc<Vdev>> {
        read(&self.by_id).get(&id).cloned()
    }

    /// The vdev of a place that was read from a medium, if the place is inside the vdev.
    pub(crate) fn at(&self, place: Place, units: u64) -> Result<Arc<Vdev>> {
        let vdev = self.get(place.vdev);
        vdev.filter(|vdev| place.unit.checked_add(units).is_some_and(|end| end <= vdev.units()))
            .ok_or_else(|| PoolError::bad_value("extents", format!("{place} is outside of the pool")))
    }

    pub(crate) fn write(&self, place: Place, data: &[u8]) -> Result<()> {
        self.write_batch(&[(place, data)])
    }

    /// Writes to several places, in no order among them; many at a time if the devices can.
    pub(crate) fn write_batch(&self, writes: &[(Place, &[u8])]) -> Result<()> {
        for of_one in writes.chunk_by(|(one, _), (other, _)| one.vdev == other.vdev) {
            for (place, data) in of_one {
                self.at(*place, data.len() as u64 / UNIT_BYTES)?;
            }
            let vdev = self.at(of_one[0].0, 0)?;
            let in_vdev: Vec<_> = of_one.iter().map(|(place, data)| (place.unit, *data)).collect();
            vdev.write(&in_vdev).map_err(failed)?;
        }
        Ok(())
    }

    pub(crate) fn read_verified(
        &self,
        place: Place,
        sum_bytes: usize,
        sum: u64,
        what: &'static str,
    ) -> Result<(AlignedBuf, Health)> {
        let vdev = self.at(place, (sum_bytes as u64).div_ceil(UNIT_BYTES))?;
        vdev.read_verified(place.unit, sum_bytes, sum, what)
    }

    /// Consecutive units as one side has them, right or wrong; `None` if that side cannot read them.
    pub(crate) fn read_unverified(&self, place: Place, units: usize) -> Option<AlignedBuf> {
        let vdev = self.at(place, units as u64).ok()?;
        vdev.read_unverified(place.unit, units)
    }

    /// Flushes all devices; fails if a vdev has no side left that took everything. Returns the vdevs for logs
    /// that have none: the pool can go on without them.
    pub(crate) fn flush(&self) -> Result<Vec<u16>> {
        self.each(|vdev| vdev.flush())
    }

    pub(crate) fn crash_point(&self, name: &'static str) {
        for vdev in self.all() {
            for side in vdev.sides() {
                if let Some(device) = &side.device {
                    device.crash_point(name);
                }
            }
        }
    }

    /// Writes the configuration to all devices and flushes them.
    pub(crate) fn write_config(&self, config: &PoolConfig) -> Result<()> {
        for vdev in self.all() {
            let mut is_there = false;
            let (mut failed_sides, mut last) = (Vec::new(), None);
            for side in vdev.sides() {
                let Some(device) = side.writable() else { continue };
                match label::write_config(&**device, side.guid, config) {
                    Ok(()) => is_there |= !side.is_stale(),
                    Err(error) => {
                        side.note_write_error();
                        failed_sides.push(side);
                        last = Some(error);
                    }
                }
            }
            if is_there {
                failed_sides.iter().for_each(|side| side.set_stale(true));
            } else if vdev.class == VdevClass::Normal {
                return Err(last.unwrap_or_else(|| failed(None)));
            }
        }
        Ok(())
    }

    /// Writes to all devices a mark that they have everything of a txg; durable after the next flush. As
    /// [`flush`](Self::flush).
    pub(crate) fn write_mark(&self, pool: Guid, mark: Mark) -> Result<Vec<u16>> {
        self.each(|vdev| vdev.on_all_sides(|side, device| label::write_mark(device, side.guid, pool, mark)))
    }

    /// Writes an uberblock to all devices; durable after the next flush. As [`flush`](Self::flush).
    pub(crate) fn write_uberblock(&self, pool: Guid, uberblock: &Uberblock) -> Result<Vec<u16>> {
        self.each(|vdev| {
            vdev.on_all_sides(|side, device| label::write_uberblock(device, side.guid, pool, uberblock))
        })
    }

    fn each(&self, act: impl Fn(&Vdev) -> Result<(), Option<BlockError>>) -> Result<Vec<u16>> {
        let (mut result, mut lost) = (Ok(()), Vec::new());
        for vdev in self.all() {
            match (act(&vdev), vdev.class) {
                (Ok(()), _) => {}
                (Err(error), VdevClass::Normal) => result = result.and(Err(failed(error))),
                (Err(_), VdevClass::Log) => lost.push(vdev.id),
            }
        }
        result.map(|()| lost)
    }

    /// Which devices are stale, to determine whether the labels must change.
    pub(crate) fn stale(&self) -> Vec<Guid> {
        let mut stale = Vec::new();
        for vdev in self.all() {
            stale.extend(vdev.sides().iter().filter(|side| side.is_stale()).map(|side| side.guid));
        }
        stale
    }
}

pub(crate) fn failed(error: Option<BlockError>) -> PoolError {
    match error {
        Some(error) => error.into(),
        None => PoolError::NoSideLeft,
    }
}
