//! The log space of a pool, as a block log sees it.

use fastness_base::ErrorKind;
use fastness_lwb::{BLOCK_BYTES_MAX, Extent, Place, Space, SpaceError};
use fastness_pool::{LOG_BLOCK_BYTES_MAX, LogExtent, LogSpace, PoolError, UNIT_BYTES};

// What one of them allocates, the other must accept.
const _: () =
    assert!(BLOCK_BYTES_MAX == LOG_BLOCK_BYTES_MAX && fastness_lwb::UNIT_BYTES as u64 == UNIT_BYTES);

/// Space for the blocks of a block log on the vdevs of a pool.
///
/// Shape: a place's device is the number of a vdev, its offset counts bytes from the beginning of that
/// vdev's data area.
#[derive(Debug, Clone)]
pub struct PoolSpace(LogSpace);

impl PoolSpace {
    /// Wraps the log space of a pool.
    pub fn new(space: LogSpace) -> PoolSpace {
        PoolSpace(space)
    }

    /// The pool's own log space.
    pub fn log_space(&self) -> &LogSpace {
        &self.0
    }
}

fn failure(error: PoolError) -> SpaceError {
    SpaceError::new(error.kind(), error)
}

/// A place as the pool addresses it; `None` if it is not one. It may come from a medium.
fn place_in(place: Place) -> Option<fastness_pool::Place> {
    let vdev = u16::try_from(place.device).ok()?;
    place
        .offset
        .is_multiple_of(UNIT_BYTES)
        .then_some(fastness_pool::Place { vdev, unit: place.offset / UNIT_BYTES })
}

fn place_of(place: fastness_pool::Place) -> Place {
    Place { device: place.vdev.into(), offset: place.unit * UNIT_BYTES }
}

fn extent_in(extent: Extent) -> Option<LogExtent> {
    Some(LogExtent { place: place_in(extent.place)?, len_bytes: extent.len_bytes })
}

fn outside(place: Place) -> SpaceError {
    SpaceError::new(ErrorKind::Corrupt, format!("{place} is not in the pool"))
}

impl Space for PoolSpace {
    fn allocate(&self, len_bytes: u32) -> Result<Place, SpaceError> {
        self.0.allocate(len_bytes).map(place_of).map_err(failure)
    }

    fn free(&self, extent: Extent) {
        self.0.free(extent_in(extent).expect("an extent of this space"));
    }

    fn claim(&self, extent: Extent) -> Result<(), SpaceError> {
        self.0.claim(extent_in(extent).ok_or_else(|| outside(extent.place))?).map_err(failure)
    }

    fn contains(&self, extent: Extent) -> bool {
        extent_in(extent).is_some_and(|extent| self.0.contains(extent))
    }

    fn device_name(&self, device: u32) -> Option<String> {
        self.0.device_name(u16::try_from(device).ok()?)
    }

    fn write(&self, place: Place, data: &[u8]) -> Result<(), SpaceError> {
        self.0.write(place_in(place).ok_or_else(|| outside(place))?, data).map_err(failure)
    }

    fn write_batch(&self, writes: &[(Place, &[u8])]) -> Vec<Result<(), SpaceError>> {
        let places: Option<Vec<_>> =
            writes.iter().map(|(place, data)| Some((place_in(*place)?, *data))).collect();
        match places {
            Some(writes) => {
                self.0.write_batch(&writes).into_iter().map(|result| result.map_err(failure)).collect()
            }
            None => writes.iter().map(|(place, data)| self.write(*place, data)).collect(),
        }
    }

    fn read(&self, place: Place, buf: &mut [u8]) -> Result<(), SpaceError> {
        self.0.read(place_in(place).ok_or_else(|| outside(place))?, buf).map_err(failure)
    }

    fn read_checked(
        &self,
        place: Place,
        buf: &mut [u8],
        check: &mut dyn FnMut(&mut [u8]) -> bool,
    ) -> Result<bool, SpaceError> {
        self.0.read_checked(place_in(place).ok_or_else(|| outside(place))?, buf, check).map_err(failure)
    }

    fn read_current(
        &self,
        place: Place,
        buf: &mut [u8],
        look: &mut dyn FnMut(&[u8]),
    ) -> Result<(), SpaceError> {
        self.0.read_current(place_in(place).ok_or_else(|| outside(place))?, buf, look).map_err(failure)
    }

    fn flush(&self, devices: &[u32]) -> Result<(), SpaceError> {
        let vdev =
            |device: &u32| u16::try_from(*device).map_err(|_| outside(Place { device: *device, offset: 0 }));
        let vdevs = devices.iter().map(vdev).collect::<Result<Vec<_>, _>>()?;
        // PERSIST: the block log acknowledges what it had written before; the reason is given where it calls
        // this, and `LogSpace::flush` ensures it.
        self.0.flush(&vdevs).map_err(failure)
    }
}
