//! Space on one block device: a range of it, with a bitmap in DRAM of the units in use.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fastness_base::ErrorKind;
use fastness_blkdev::{BlockDevice, BlockError, Request};

use crate::ids::{Extent, Place};
use crate::space::{BLOCK_BYTES_MAX, Space, SpaceError, UNIT_BYTES};

/// Space in a range of one block device; its places have device number 0.
#[derive(Debug)]
pub struct DeviceSpace<D> {
    device: D,
    /// In bytes; whole units.
    range: Range<u64>,
    units: Mutex<Units>,
}

/// Which units are in use.
#[derive(Debug)]
struct Units {
    is_used: Vec<bool>,
    used: usize,
    /// Where the last search ended. A chain thus moves over the device in one direction, which suits disks,
    /// and a freed place is reused as late as possible.
    cursor: usize,
}

impl<D: BlockDevice> DeviceSpace<D> {
    /// Space in `range` of the device (bytes), cut to whole units. Nothing is in use.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if the range is not on the device, or the device's blocks are larger than a
    /// unit.
    pub fn new(device: D, range: Range<u64>) -> Result<DeviceSpace<D>, SpaceError> {
        let unit = u64::from(UNIT_BYTES);
        if range.end > device.len_bytes() || range.start > range.end {
            return Err(SpaceError::new(ErrorKind::Invalid, "the range is not on the device"));
        }
        if device.logical_block_bytes() > UNIT_BYTES {
            return Err(SpaceError::new(
                ErrorKind::Invalid,
                "the device's blocks are larger than 4096 bytes",
            ));
        }
        let range = range.start.next_multiple_of(unit)..range.end - range.end % unit;
        let count = usize::try_from(range.end.saturating_sub(range.start) / unit).expect("64-bit Linux");
        let units = Mutex::new(Units { is_used: vec![false; count], used: 0, cursor: 0 });
        Ok(DeviceSpace { device, range, units })
    }

    /// The device below.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Bytes in use.
    pub fn used_bytes(&self) -> u64 {
        self.units().used as u64 * u64::from(UNIT_BYTES)
    }

    fn units(&self) -> MutexGuard<'_, Units> {
        // Each change is a few stores after all checks, so a panic leaves no change half done.
        self.units.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Units of an extent of this space.
    fn units_of(&self, extent: Extent) -> Option<Range<usize>> {
        let (unit, len) = (u64::from(UNIT_BYTES), u64::from(extent.len_bytes));
        let end = extent.place.offset.checked_add(len)?;
        let is_inside = extent.place.device == 0 && self.range.start <= extent.place.offset;
        let is_whole = extent.place.offset.is_multiple_of(unit) && len.is_multiple_of(unit) && len > 0;
        if !is_inside || !is_whole || end > self.range.end {
            return None;
        }
        let first = usize::try_from((extent.place.offset - self.range.start) / unit).ok()?;
        Some(first..first + usize::try_from(len / unit).ok()?)
    }
}

impl Units {
    fn find(&self, count: usize, within: Range<usize>) -> Option<usize> {
        let mut run = 0;
        for at in within {
            run = if self.is_used[at] { 0 } else { run + 1 };
            if run == count {
                return Some(at + 1 - count);
            }
        }
        None
    }

    fn set(&mut self, range: Range<usize>, is_used: bool) {
        self.used = if is_used { self.used + range.len() } else { self.used - range.len() };
        self.is_used[range].fill(is_used);
    }
}

fn failed(error: BlockError) -> SpaceError {
    SpaceError::new(error.kind(), error)
}

impl<D: BlockDevice> Space for DeviceSpace<D> {
    fn allocate(&self, len_bytes: u32) -> Result<Place, SpaceError> {
        assert!(len_bytes.is_multiple_of(UNIT_BYTES) && (1..=BLOCK_BYTES_MAX).contains(&len_bytes));
        let count = (len_bytes / UNIT_BYTES) as usize;
        let mut units = self.units();
        let end = units.is_used.len();
        let found =
            units.find(count, units.cursor..end).or_else(|| units.find(count, 0..end)).ok_or_else(|| {
                SpaceError::new(ErrorKind::NoSpace, format!("no room for a log block of {len_bytes} bytes"))
            })?;
        units.set(found..found + count, true);
        units.cursor = found + count;
        Ok(Place { device: 0, offset: self.range.start + found as u64 * u64::from(UNIT_BYTES) })
    }

    fn free(&self, extent: Extent) {
        let range = self.units_of(extent).expect("an extent of this space");
        let mut units = self.units();
        assert!(units.is_used[range.clone()].iter().all(|used| *used), "{extent:?} is freed twice");
        units.set(range, false);
    }

    fn claim(&self, extent: Extent) -> Result<(), SpaceError> {
        let range = self.units_of(extent).ok_or_else(|| {
            SpaceError::new(ErrorKind::Corrupt, format!("{} is not in the log's space", extent.place))
        })?;
        let mut units = self.units();
        if units.is_used[range.clone()].iter().any(|used| *used) {
            return Err(SpaceError::new(ErrorKind::Corrupt, format!("{} is in use already", extent.place)));
        }
        units.set(range, true);
        Ok(())
    }

    fn contains(&self, extent: Extent) -> bool {
        self.units_of(extent).is_some()
    }

    fn write(&self, place: Place, data: &[u8]) -> Result<(), SpaceError> {
        self.device.write_at(place.offset, data).map_err(failed)
    }

    fn write_batch(&self, writes: &[(Place, &[u8])]) -> Vec<Result<(), SpaceError>> {
        let request = |&(place, data): &(Place, _)| Request::Write { offset: place.offset, data, fua: false };
        let mut requests: Vec<_> = writes.iter().map(request).collect();
        self.device.run_batch(&mut requests).into_iter().map(|result| result.map_err(failed)).collect()
    }

    fn read(&self, place: Place, buf: &mut [u8]) -> Result<(), SpaceError> {
        self.device.read_at(place.offset, buf).map_err(failed)
    }

    fn flush(&self, _devices: &[u32]) -> Result<(), SpaceError> {
        // PERSIST: the log acknowledges the blocks written before it; a crash after that must not find their
        // older contents. Argued where the log calls it (`log/flush.rs`).
        self.device.flush().map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastness_blkdev::MemDevice;

    #[test]
    fn room_is_given_once_and_comes_back() {
        let space = DeviceSpace::new(MemDevice::new("space", 1 << 20), 100..50_000).unwrap();
        let first = space.allocate(8192).unwrap();
        assert_eq!(first, Place { device: 0, offset: 4096 });
        let second = space.allocate(32768).unwrap();
        assert_eq!(second.offset, 12288);
        assert_eq!(space.allocate(8192).unwrap_err().kind(), ErrorKind::NoSpace);
        assert_eq!(space.used_bytes(), 40960);
        space.free(Extent { place: first, len_bytes: 8192 });
        let extent = Extent { place: Place { device: 0, offset: 8192 }, len_bytes: 4096 };
        space.claim(extent).unwrap();
        assert_eq!(space.claim(extent).unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(space.allocate(4096).unwrap().offset, 45056, "goes on where it was");
        assert_eq!(space.allocate(4096).unwrap().offset, 4096);
        let outside = Extent { place: Place { device: 0, offset: 45056 }, len_bytes: 8192 };
        assert!(!space.contains(outside) && space.claim(outside).is_err());
    }
}
