//! Blocks that were stored ahead of their txg (`stored`): log blocks among the data, until a txg turns them
//! into data.

use std::collections::BTreeSet;
use std::sync::Arc;

use fastness_blkdev::AlignedBuf;

use crate::codec::checksum;
use crate::devices::config::VdevClass;
use crate::devices::vdev::{Vdev, Write};
use crate::error::{PoolError, Result};
use crate::ids::{Place, Txg, UNIT_BYTES};
use crate::log_space::space::LogSpace;
use crate::objects::extent::{Extent, unpack};
use crate::objects::stored::Address;
use crate::space::alloc::Allocator;
use crate::state::Shared;
use fastness_sync::order::lock;

/// Longest write.
const WRITE_BYTES_MAX: u64 = 1 << 20;

fn bad(place: Place, what: &str) -> PoolError {
    PoolError::bad_value("address of a record", format!("{place}: {what}"))
}

impl LogSpace {
    /// Claims the blocks of a record after an import, before txgs run
    /// ([`Pool::import_paused`](crate::Pool::import_paused)), and reads all of them, to verify that they hold
    /// `len_bytes` bytes with matching checksums. `address` may be any bytes.
    ///
    /// # Errors
    /// [`PoolError::BadValue`]: not an address, or a place that is not among the data of this pool, is in use
    /// or claimed already, or does not hold what the record says; [`PoolError::Invalid`] if txgs may have
    /// run; those of the devices. Nothing is claimed then.
    pub fn claim_stored(&self, address: &[u8], len_bytes: u64) -> Result<()> {
        self.check_writable()?;
        let address = Address::decode(address, len_bytes)?;
        let mut count = 0;
        let claimed = address.extents.iter().try_for_each(|extent| {
            self.claim_extent(extent)?;
            count += 1;
            Ok(())
        });
        let verified = claimed.and_then(|()| self.read_extents(&address, &mut |_| ()));
        if verified.is_err() {
            address.extents[..count].iter().for_each(|extent| self.shared.free_stored(extent));
        }
        verified
    }

    /// As [`claim_stored`](Self::claim_stored), for a pool that is only inspected: nothing is claimed, so two
    /// records that name the same place are not noticed.
    ///
    /// # Errors
    /// As there.
    pub fn check_stored(&self, address: &[u8], len_bytes: u64) -> Result<()> {
        let address = Address::decode(address, len_bytes)?;
        for extent in &address.extents {
            self.vdev_of(extent)?;
            if !lock(&self.shared.space.allocator).is_free(extent.place, extent.units()) {
                return Err(bad(extent.place, "in use already"));
            }
        }
        self.read_extents(&address, &mut |_| ())
    }

    /// What an address says, whether or not the data is there: the first place, the number of blocks, their
    /// bytes on the medium.
    ///
    /// # Errors
    /// [`PoolError::BadValue`]: it is not an address.
    pub fn describe_stored(address: &[u8], len_bytes: u64) -> Result<(Place, usize, u64)> {
        let address = Address::decode(address, len_bytes)?;
        let bytes = address.extents.iter().map(|extent| extent.units() * UNIT_BYTES).sum();
        Ok((address.extents[0].place, address.extents.len(), bytes))
    }

    /// Reads the bytes that were [claimed](Self::claim_stored), a block at a time.
    ///
    /// # Errors
    /// As there.
    pub fn read_stored(&self, address: &[u8], len_bytes: u64, show: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.read_extents(&Address::decode(address, len_bytes)?, show)
    }

    /// Frees what was [claimed](Self::claim_stored). No record that an import would read may name it.
    ///
    /// # Panics
    /// If it was not claimed.
    pub fn free_stored(&self, address: &[u8], len_bytes: u64) {
        let address = Address::decode(address, len_bytes).expect("an address that was claimed");
        address.extents.iter().for_each(|extent| self.shared.free_stored(extent));
    }

    /// The vdev of an extent that can be a block among the data.
    fn vdev_of(&self, extent: &Extent) -> Result<Arc<Vdev>> {
        let (place, units) = (extent.place, extent.units());
        let vdev = self.shared.devices.vdevs.get(place.vdev).filter(|vdev| vdev.class == VdevClass::Normal);
        let vdev = vdev.filter(|_| lock(&self.shared.space.allocator).can_hold_log(place, units));
        vdev.ok_or_else(|| bad(place, "not among the data of the pool"))
    }

    fn claim_extent(&self, extent: &Extent) -> Result<()> {
        let is_free = self.shared.claim_log_block(&*self.vdev_of(extent)?, extent.place, extent.units())?;
        if is_free { Ok(()) } else { Err(bad(extent.place, "in use already")) }
    }

    /// Shows the bytes of each block, from whichever side has them as written.
    fn read_extents(&self, address: &Address, show: &mut dyn FnMut(&[u8])) -> Result<()> {
        let mut block = vec![0; address.block_bytes as usize];
        for extent in &address.extents {
            let len = extent.stored_bytes as usize;
            let mut buf = AlignedBuf::zeroed((extent.units() * UNIT_BYTES) as usize, UNIT_BYTES as usize);
            let mut is_it = |bytes: &mut [u8]| checksum(&bytes[..len]) == extent.sum;
            if !self.read_checked(extent.place, &mut buf, &mut is_it)? {
                return Err(bad(extent.place, "it does not have what the record says"));
            }
            unpack(&buf[..len], extent, &mut block)
                .ok_or_else(|| bad(extent.place, "what is there cannot be unpacked"))?;
            show(&block);
        }
        Ok(())
    }
}

impl Shared {
    /// Whether blocks may be stored now.
    pub(crate) fn can_store(&self) -> bool {
        let vdevs = self.devices.vdevs.all();
        !self.options.is_read_only
            && self.check_alive().is_ok()
            // With a log on vdevs of its own, the log writes nothing among the data. And no txg adopts what a
            // side has missed, so storing would gain nothing.
            && vdevs.iter().all(|vdev| vdev.class == VdevClass::Normal && !vdev.has_stale_side())
    }

    /// Writes blocks, which are one after the other in `bytes`, each in whole units, to new places, and makes
    /// them durable. Returns the place of each; `None` where there was no space, or the write failed.
    ///
    /// # Errors
    /// That of the flush; no place is taken then.
    pub(crate) fn store_blocks(&self, units: &[u64], bytes: &[u8]) -> Result<Vec<Option<Place>>> {
        let mut places = self.allocate_stored(units);
        let free = |places: &[Option<Place>], at: usize| {
            places[at].into_iter().for_each(|place| self.free_log_block(place, units[at]));
        };
        for at in self.write_stored(&places, units, bytes) {
            free(&places, at);
            places[at] = None;
        }
        let vdevs: BTreeSet<u16> = places.iter().flatten().map(|place| place.vdev).collect();
        let vdevs: Vec<u16> = vdevs.into_iter().collect();
        // PERSIST: the caller's record names these places. Without it a crash could leave the record, and
        // something else where it says that the data is.
        if let Err(error) = self.flush_log(&vdevs) {
            (0..units.len()).for_each(|at| free(&places, at));
            return Err(error);
        }
        Ok(places)
    }

    /// A place for each block, while there is space.
    fn allocate_stored(&self, units: &[u64]) -> Vec<Option<Place>> {
        let reserved_bytes = self.reserved_bytes();
        let mut log = lock(&self.space.log);
        let mut allocate = |units: &u64| {
            let take = |allocator: &mut Allocator| allocator.allocate_stored(*units);
            let place = self.take_among_data(*units, reserved_bytes, take).ok()?;
            log.insert(place, *units, Vec::new());
            Some(place)
        };
        units.iter().map(&mut allocate).collect()
    }

    /// Writes blocks to their places, adjacent ones together; returns those that no current side took.
    fn write_stored(&self, places: &[Option<Place>], units: &[u64], bytes: &[u8]) -> Vec<usize> {
        // First block, place, bytes.
        let mut runs: Vec<(usize, Place, std::ops::Range<usize>)> = Vec::new();
        let mut at = 0;
        for (index, (place, units)) in places.iter().zip(units).enumerate() {
            let range = at..at + (units * UNIT_BYTES) as usize;
            at = range.end;
            let Some(place) = *place else { continue };
            let follows = |(_, start, before): &&mut (usize, Place, std::ops::Range<usize>)| {
                before.end == range.start
                    && start.vdev == place.vdev
                    && start.unit + before.len() as u64 / UNIT_BYTES == place.unit
                    && (before.len() + range.len()) as u64 <= WRITE_BYTES_MAX
            };
            match runs.last_mut().filter(follows) {
                Some((_, _, before)) => before.end = range.end,
                None => runs.push((index, place, range)),
            }
        }
        let mut failed = Vec::new();
        let vdevs: BTreeSet<u16> = runs.iter().map(|(_, place, _)| place.vdev).collect();
        for vdev in vdevs {
            let of_vdev: Vec<_> = runs.iter().filter(|(_, place, _)| place.vdev == vdev).collect();
            let writes: Vec<Write<'_>> =
                of_vdev.iter().map(|(_, place, range)| (place.unit, &bytes[range.clone()])).collect();
            for ((first, _, range), result) in of_vdev.iter().zip(self.write_log(vdev, &writes)) {
                let mut left = range.len() as u64;
                for (index, units) in units.iter().enumerate().skip(*first) {
                    if left == 0 {
                        break;
                    }
                    left -= units * UNIT_BYTES;
                    failed.extend(result.is_err().then_some(index));
                }
            }
        }
        failed
    }

    /// Stored blocks are needed until the txg has synced.
    pub(crate) fn hold_stored<'e>(&self, extents: impl Iterator<Item = &'e Extent>, txg: Txg) {
        let mut log = lock(&self.space.log);
        extents.for_each(|extent| log.hold_until(extent.place, extent.units(), txg));
    }

    /// Turns a stored block into data, in the syncing txg; `false` if a side of its mirror has missed it.
    pub(crate) fn adopt(&self, extent: &Extent) -> bool {
        let (place, units) = (extent.place, extent.units());
        let mut log = lock(&self.space.log);
        if !log.is_everywhere(place, units) {
            return false;
        }
        log.remove(place, units);
        self.change_log_among_data(|allocator| allocator.log_to_data(place, units));
        true
    }

    /// The txg is durable: frees stored blocks that were held until then and that it has not turned into
    /// data.
    pub(crate) fn free_held(&self, synced: Txg) {
        let over = lock(&self.space.log).no_longer_held(synced);
        over.into_iter().for_each(|(place, units)| self.free_log_block(place, units));
    }

    fn free_stored(&self, extent: &Extent) {
        self.free_log_block(extent.place, extent.units());
    }
}
