//! Which units are free.
//!
//! Design: each vdev is divided into regions of 4096 units (16 MiB) with two bitmaps. *data* is what the
//! tables will say once the syncing txg is durable; it is stored, 16 regions a row, in the txg that changed
//! it. *busy* is what must not be allocated: data, pages of metadata (known from the page map, never stored
//! twice), log blocks (`log`; stored nowhere), and what the syncing txg has freed. The previous txg still
//! refers to a unit that a txg frees, and a crash before the uberblock is flushed goes back to that txg, so
//! [`Allocator::release`] clears the unit only after that flush.
//!
//! Data is allocated next-fit from a cursor, so that blocks written together are stored together; after 1 MiB
//! the next vdev takes its turn, the emptiest first. Metadata has its own cursor, so that its pages are
//! stored together too.
//!
//! Cost: a region without allocations has no bitmaps; nor has one that was full at import, until something in
//! it is freed. Any other region has 1 KiB, 0.006 % of its size.

mod bits;
mod full;
mod grow;
pub(crate) mod hold;
mod log;
mod row;
mod units;

use std::collections::{BTreeMap, VecDeque};

use crate::error::{PoolError, Result};
use crate::ids::{Place, UNIT_BYTES};
use crate::space::alloc::bits::Bits;
use crate::space::alloc::row::{ROW_REGIONS, Stored};

/// Units of a region.
pub(crate) const REGION_UNITS: u64 = 4096;
/// Bytes of a region's bitmap.
pub(crate) const BITMAP_BYTES: usize = REGION_UNITS as usize / 8;
const WORDS: usize = BITMAP_BYTES / 8;
/// Units after which the next vdev takes its turn.
const TURN_UNITS: u64 = 256;

#[derive(Debug, Clone)]
struct Region {
    data: Bits,
    busy: Bits,
    free: u64,
    is_dirty: bool,
}

/// A region, with bitmaps only where they are needed.
#[derive(Debug, Clone)]
enum Slot {
    Empty,
    /// All data, as stored.
    Full,
    Mixed(Box<Region>),
}

#[derive(Debug)]
struct Space {
    units: u64,
    free: u64,
    /// Units that the syncing txg has taken.
    taken: u64,
    /// Units that are held, and count as free.
    held: u64,
    /// Its device has no space for new places: nothing is allocated here.
    is_full: bool,
    regions: Vec<Slot>,
    data_cursor: u64,
    meta_cursor: u64,
    log_cursor: u64,
}

impl Space {
    fn new(units: u64) -> Space {
        let regions = vec![Slot::Empty; units.div_ceil(REGION_UNITS) as usize];
        // Far from the data, so that each stays in sequence.
        let meta_cursor = units / 8 * 7;
        let log_cursor = log::home(units);
        Space {
            units,
            free: units,
            taken: 0,
            held: 0,
            is_full: false,
            regions,
            data_cursor: 0,
            meta_cursor,
            log_cursor,
        }
    }

    fn region_units(&self, index: usize) -> u64 {
        (self.units - index as u64 * REGION_UNITS).min(REGION_UNITS)
    }

    fn region(&mut self, index: usize) -> &mut Region {
        let units = self.region_units(index);
        let slot = &mut self.regions[index];
        let (word, free) = match slot {
            Slot::Empty => (0, units),
            Slot::Full => (u64::MAX, 0),
            Slot::Mixed(_) => (0, 0),
        };
        if !matches!(slot, Slot::Mixed(_)) {
            let bits = Bits([word; WORDS]);
            *slot = Slot::Mixed(Box::new(Region { data: bits.clone(), busy: bits, free, is_dirty: false }));
        }
        match slot {
            Slot::Mixed(region) => region,
            _ => unreachable!("it has just become one"),
        }
    }

    /// A run of free units, near the cursor.
    fn find(&self, cursor: u64, units: u64) -> Option<u64> {
        let first = (cursor / REGION_UNITS) as usize;
        let count = self.regions.len();
        for step in 0..=count {
            let index = (first + step) % count;
            // The cursor's region is searched twice: first from the cursor on, and at the end from its
            // beginning.
            let from = if step == 0 { cursor % REGION_UNITS } else { 0 };
            let end = self.region_units(index);
            let found = match &self.regions[index] {
                Slot::Empty => (from + units <= end).then_some(from),
                Slot::Full => None,
                Slot::Mixed(region) if region.free < units => None,
                Slot::Mixed(region) => region.busy.find_run(from, units, end),
            };
            if let Some(at) = found {
                return Some(index as u64 * REGION_UNITS + at);
            }
        }
        None
    }

    /// Loads the stored state of a region; `None` if it is impossible.
    fn load(&mut self, index: usize, stored: Stored) -> Option<()> {
        let units = self.region_units(index);
        let data = match stored {
            Stored::Empty => return Some(()),
            Stored::Full if units == REGION_UNITS && matches!(self.regions[index], Slot::Empty) => {
                self.regions[index] = Slot::Full;
                self.free -= units;
                return Some(());
            }
            Stored::Full => Box::new(Bits([u64::MAX; WORDS])),
            Stored::Mixed(bits) => bits,
        };
        let used: u64 = data.0.iter().map(|word| u64::from(word.count_ones())).sum();
        let is_behind = (units..REGION_UNITS).any(|at| data.get(at));
        let region = self.region(index);
        if is_behind || region.busy.0.iter().zip(&data.0).any(|(busy, data)| busy & data != 0) {
            return None;
        }
        for (busy, data) in region.busy.0.iter_mut().zip(&data.0) {
            *busy |= data;
        }
        region.data = *data;
        region.free -= used;
        self.free -= used;
        Some(())
    }

    /// What must be stored for the regions of a row, if any of them changed.
    fn take_dirty(&mut self, row: usize) -> Option<Vec<Stored>> {
        let end = self.regions.len().min((row + 1) * ROW_REGIONS);
        let regions = &mut self.regions[row * ROW_REGIONS..end];
        let mut is_dirty = false;
        for slot in regions.iter_mut() {
            if let Slot::Mixed(region) = slot {
                is_dirty |= std::mem::take(&mut region.is_dirty);
            }
        }
        let stored = |slot: &Slot| match slot {
            Slot::Empty => Stored::Empty,
            Slot::Full => Stored::Full,
            Slot::Mixed(region) => Stored::Mixed(Box::new(region.data.clone())),
        };
        is_dirty.then(|| regions.iter().map(stored).collect())
    }

    fn mark(&mut self, unit: u64, units: u64, is_data: bool) {
        self.free -= units;
        let region = self.region((unit / REGION_UNITS) as usize);
        region.free -= units;
        region.busy.set(unit % REGION_UNITS, units, true);
        if is_data {
            region.data.set(unit % REGION_UNITS, units, true);
            region.is_dirty = true;
        }
    }

    /// The reverse of [`mark`](Self::mark). The region stays dirty.
    fn unmark(&mut self, unit: u64, units: u64) {
        self.free += units;
        let region = self.region((unit / REGION_UNITS) as usize);
        region.free += units;
        region.busy.set(unit % REGION_UNITS, units, false);
        region.data.set(unit % REGION_UNITS, units, false);
    }
}

/// Units that the syncing txg has taken or freed.
#[derive(Debug, Clone, Copy)]
struct Span {
    place: Place,
    units: u64,
}

/// Free space of all vdevs of one class.
#[derive(Debug, Default)]
pub(crate) struct Allocator {
    spaces: BTreeMap<u16, Space>,
    freed: Vec<Span>,
    turn: Option<(u16, u64)>,
    log_turn: Option<(u16, u64)>,
    /// Units of log blocks.
    log_units: u64,
    /// What would be free without log blocks, as of the last durable txg.
    synced_free_bytes: u64,
    /// What was taken since the attempt began.
    attempt: Option<Vec<Span>>,
    /// What was freed, if that is noted.
    noted: Option<VecDeque<Span>>,
}

impl Allocator {
    pub(crate) fn add_vdev(&mut self, id: u16, units: u64) {
        self.spaces.insert(id, Space::new(units));
        // It is free at once: nothing durable refers to it.
        self.synced_free_bytes += units * UNIT_BYTES;
    }

    /// Bytes that the syncing txg has taken since the last call.
    pub(crate) fn take_count(&mut self) -> u64 {
        self.spaces.values_mut().map(|space| std::mem::take(&mut space.taken)).sum::<u64>() * UNIT_BYTES
    }

    /// Free bytes that can be allocated, so without devices that are out of space.
    pub(crate) fn free_bytes(&self) -> u64 {
        let usable = self.spaces.values().filter(|space| !space.is_full);
        usable.map(|space| space.free).sum::<u64>() * UNIT_BYTES
    }

    pub(crate) fn total_bytes(&self) -> u64 {
        self.spaces.values().map(|space| space.units).sum::<u64>() * UNIT_BYTES
    }

    /// Loads a stored row; no unit of it may be busy yet.
    pub(crate) fn load(&mut self, vdev: u16, row: u32, bytes: &[u8]) -> Result<()> {
        let strange = || PoolError::bad_value("space", format!("vdev {vdev} row {row}"));
        let space = self.spaces.get_mut(&vdev).ok_or_else(strange)?;
        let first = row as usize * ROW_REGIONS;
        let stored = row::decode(bytes).ok_or_else(strange)?;
        if first + stored.len() > space.regions.len() {
            return Err(strange());
        }
        for (index, stored) in (first..).zip(stored) {
            space.load(index, stored).ok_or_else(strange)?;
        }
        Ok(())
    }

    /// Notes a page of metadata found at import.
    pub(crate) fn claim_meta(&mut self, place: Place) -> Result<()> {
        let strange =
            || PoolError::bad_value("page map", format!("{place} is used twice, or not in the pool"));
        let space = self.spaces.get_mut(&place.vdev).filter(|space| place.unit < space.units);
        let space = space.ok_or_else(strange)?;
        if space.region((place.unit / REGION_UNITS) as usize).busy.get(place.unit % REGION_UNITS) {
            return Err(strange());
        }
        space.mark(place.unit, 1, false);
        Ok(())
    }

    /// A run of units for data.
    pub(crate) fn allocate_data(&mut self, units: u64) -> Option<Place> {
        let place = self.allocate_near_data(units, true)?;
        self.note_place(Span { place, units });
        Some(place)
    }

    fn allocate_near_data(&mut self, units: u64, is_data: bool) -> Option<Place> {
        debug_assert!((1..=REGION_UNITS).contains(&units), "a block is not larger than a region");
        let (vdev, rest) = match self.turn {
            Some((vdev, rest)) if rest >= units && !self.is_full(vdev) => (vdev, rest),
            last => (self.next_turn(last.map(|(vdev, _)| vdev), &|_| true)?, TURN_UNITS.max(units)),
        };
        let others = self.spaces.keys().copied().filter(|id| !self.is_full(*id));
        let ids: Vec<u16> = std::iter::once(vdev).chain(others).collect();
        for id in ids {
            let space = self.spaces.get_mut(&id).expect("a number from the map");
            if let Some(unit) = space.find(space.data_cursor, units) {
                space.mark(unit, units, is_data);
                space.data_cursor = (unit + units) % space.units;
                self.turn = (id == vdev).then_some((vdev, rest - units));
                return Some(Place { vdev: id, unit });
            }
        }
        None
    }

    /// The next usable vdev after the last one; skips one that is much fuller than the emptiest.
    fn next_turn(&self, last: Option<u16>, may_use: &dyn Fn(u16) -> bool) -> Option<u16> {
        let share = |space: &Space| space.free * 1000 / space.units.max(1);
        let is_usable = |id: u16| may_use(id) && !self.is_full(id);
        let usable = self.spaces.iter().filter(|(id, _)| is_usable(**id));
        let best = usable.map(|(_, space)| share(space)).max()?;
        let fits = |id: &&u16| is_usable(**id) && share(&self.spaces[id]) * 4 >= best * 3;
        let after = self.spaces.keys().filter(|id| last.is_none_or(|last| **id > last)).find(fits);
        after.or_else(|| self.spaces.keys().find(fits)).copied()
    }

    /// A unit for metadata.
    pub(crate) fn allocate_meta(&mut self) -> Option<Place> {
        let usable = self.spaces.iter().filter(|(_, space)| !space.is_full);
        let mut ids: Vec<_> = usable.map(|(id, space)| (std::cmp::Reverse(space.free), *id)).collect();
        // Staying on one vdev until it has much less space than another would scatter less; picking the
        // emptiest is good enough.
        ids.sort_unstable();
        for (_, id) in ids {
            let space = self.spaces.get_mut(&id).expect("a number from the map");
            if let Some(unit) = space.find(space.meta_cursor, 1) {
                space.mark(unit, 1, false);
                space.meta_cursor = (unit + 1) % space.units;
                let place = Place { vdev: id, unit };
                self.note_place(Span { place, units: 1 });
                return Some(place);
            }
        }
        None
    }

    /// As [`allocate_meta`](Self::allocate_meta).
    pub(crate) fn place_meta(&mut self) -> Result<Place> {
        let (wanted_bytes, free_bytes) = (UNIT_BYTES, self.free_bytes());
        self.allocate_meta().ok_or(PoolError::NoSpace { wanted_bytes, free_bytes, is_quota: false })
    }

    /// Frees data in the syncing txg; usable after [`release`](Self::release).
    pub(crate) fn free_data(&mut self, place: Place, units: u64) -> Result<()> {
        let twice = || PoolError::bad_value("extents", format!("{units} units at {place} are freed twice"));
        let space = self.spaces.get_mut(&place.vdev).ok_or_else(twice)?;
        let at = place.unit % REGION_UNITS;
        if units == 0 || at + units > REGION_UNITS || place.unit + units > space.units {
            return Err(twice());
        }
        let region = space.region((place.unit / REGION_UNITS) as usize);
        if (at..at + units).any(|at| !region.data.get(at)) {
            return Err(twice());
        }
        region.data.set(at, units, false);
        region.is_dirty = true;
        self.freed.push(Span { place, units });
        Ok(())
    }

    /// Frees a page of metadata in the syncing txg; usable after [`release`](Self::release).
    pub(crate) fn free_meta(&mut self, place: Place) {
        self.freed.push(Span { place, units: 1 });
    }

    /// The txg is durable: what it freed may be used.
    pub(crate) fn release(&mut self) {
        for Span { place, units } in std::mem::take(&mut self.freed) {
            let space = self.spaces.get_mut(&place.vdev).expect("freed inside of the pool");
            let region = space.region((place.unit / REGION_UNITS) as usize);
            let at = place.unit % REGION_UNITS;
            assert!((at..at + units).all(|at| region.busy.get(at)), "{place} is freed twice");
            space.unmark(place.unit, units);
            self.note_freed(Span { place, units });
        }
    }

    /// Rows that the syncing txg must store: vdev, number, value.
    pub(crate) fn take_dirty(&mut self) -> Vec<(u16, u32, Vec<u8>)> {
        let mut rows = Vec::new();
        for (id, space) in &mut self.spaces {
            for row in 0..space.regions.len().div_ceil(ROW_REGIONS) {
                rows.extend(space.take_dirty(row).map(|stored| (*id, row as u32, row::encode(&stored))));
            }
        }
        rows
    }
}

#[cfg(test)]
mod tests;
