//! Which log blocks exist, and where the next one goes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::devices::config::VdevClass;
use crate::devices::vdev::{Vdev, Vdevs};
use crate::error::{PoolError, Result};
use crate::ids::{Guid, Mark, Place, Txg, UNIT_BYTES};
use crate::space::alloc::Allocator;

/// Longest log block, in bytes.
pub const LOG_BLOCK_BYTES_MAX: u32 = 128 << 10;

/// Units of a log block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogExtent {
    /// The first.
    pub place: Place,
    /// Length in bytes: a multiple of [`UNIT_BYTES`], at most [`LOG_BLOCK_BYTES_MAX`].
    pub len_bytes: u32,
}

/// This many bytes of log blocks, or this share of the space that they may use, end the open txg soon: an
/// import reads and replays them all. Otherwise only the time between two txgs would bound the log, because
/// data that is overwritten again and again is in memory only once.
const HURRY_BYTES_MAX: u64 = 64 << 20;
const HURRY_SHARE: u64 = 8;
/// Below this, even a small pool does not hurry: txgs have a cost, too.
const HURRY_BYTES_MIN: u64 = 4 << 20;

/// Since when a vdev for logs lacks txgs, see `lost`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lost {
    /// The txg that was open then.
    pub(super) open: Txg,
    /// The last mark that it took.
    pub(super) last: Mark,
}

/// A log block.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) units: u64,
    /// Sides of its vdev that may not have it.
    pub(super) missed_by: Vec<Guid>,
}

/// All log blocks of a pool, and the free space of its vdevs for logs.
#[derive(Default)]
pub(crate) struct LogBlocks {
    pub(super) blocks: BTreeMap<Place, Block>,
    /// Units of all of them.
    units: u64,
    /// Units of the vdevs that are not for logs, when the pool was imported.
    data_units: u64,
    /// The last txg that was asked to end because there are many log blocks.
    hurried: Option<Txg>,
    /// The log blocks whose data was stored ahead of its txg: units, and the txg with which they become free
    /// unless it has turned them into data.
    held: BTreeMap<Place, (u64, Txg)>,
    /// Space of vdevs for logs; that of the others is in the pool's allocator.
    pub(super) own: Allocator,
    vdevs: BTreeMap<u16, Arc<Vdev>>,
    retired: BTreeSet<u16>,
    /// Vdevs for logs that lost a write or flush.
    failed: BTreeSet<u16>,
    /// Vdevs for logs that lack a txg, see `lost`.
    pub(super) lost: BTreeMap<u16, Lost>,
    pub(crate) has_ended_claims: bool,
}

impl LogBlocks {
    pub(crate) fn new(vdevs: &Vdevs) -> LogBlocks {
        let mut blocks = LogBlocks::default();
        let vdevs = vdevs.all();
        let (log, data): (Vec<_>, Vec<_>) = vdevs.iter().partition(|vdev| vdev.class == VdevClass::Log);
        log.into_iter().for_each(|vdev| blocks.add_vdev(vdev));
        blocks.data_units = data.iter().map(|vdev| vdev.units()).sum();
        blocks
    }

    pub(crate) fn add_vdev(&mut self, vdev: &Arc<Vdev>) {
        self.own.add_vdev(vdev.id, vdev.units());
        self.vdevs.insert(vdev.id, vdev.clone());
    }

    /// Retires the vdev, and forgets it if it holds no log block.
    pub(crate) fn remove_vdev(&mut self, vdev: &Vdev) -> Result<()> {
        let path = || vdev.sides().first().map(|side| side.path.clone()).unwrap_or_default();
        if !self.has_ended_claims {
            return Err(PoolError::Busy { name: path(), why: "log blocks may still be claimed on it" });
        }
        self.retired.insert(vdev.id);
        let used_bytes = self.used_bytes(vdev.id);
        if used_bytes > 0 {
            return Err(PoolError::LogInUse { vdev: vdev.id, path: path(), used_bytes });
        }
        self.own.remove_vdev(vdev.id);
        self.vdevs.remove(&vdev.id);
        self.retired.remove(&vdev.id);
        self.failed.remove(&vdev.id);
        self.lost.remove(&vdev.id);
        Ok(())
    }

    /// From now on nothing can be claimed.
    pub(crate) fn end_claims(&mut self) {
        self.has_ended_claims = true;
    }

    pub(super) fn retire(&mut self, vdev: u16, is_retired: bool) -> Result<()> {
        if !self.vdevs.contains_key(&vdev) {
            return Err(PoolError::invalid("number of a log vdev", vdev));
        }
        if is_retired {
            self.retired.insert(vdev);
        } else {
            self.retired.remove(&vdev);
            self.failed.remove(&vdev);
        }
        Ok(())
    }

    pub(super) fn is_retired(&self, vdev: u16) -> bool {
        self.retired.contains(&vdev)
    }

    /// Stops allocating on a vdev for logs that lost something; other vdevs must carry on.
    pub(super) fn note_failed(&mut self, vdev: u16) {
        if self.vdevs.contains_key(&vdev) {
            self.failed.insert(vdev);
        }
    }

    /// The vdev has a side again that has everything.
    pub(super) fn note_recovered(&mut self, vdev: u16) {
        self.failed.remove(&vdev);
    }

    pub(super) fn has_failed(&self, vdev: u16) -> bool {
        self.failed.contains(&vdev)
    }

    /// Space on a vdev for logs.
    pub(super) fn allocate_own(&mut self, units: u64) -> Option<Place> {
        let LogBlocks { own, vdevs, retired, failed, lost, .. } = self;
        let may_use = |id: u16| {
            !retired.contains(&id)
                && !failed.contains(&id)
                && !lost.contains_key(&id)
                && vdevs.get(&id).is_some_and(|vdev| vdev.can_be_written())
        };
        own.allocate_log(units, &may_use)
    }

    pub(super) fn insert(&mut self, place: Place, units: u64, missed_by: Vec<Guid>) {
        let before = self.blocks.insert(place, Block { units, missed_by });
        assert!(before.is_none(), "the log block at {place} was handed out twice");
        self.units += units;
    }

    /// Whether there are so many log blocks that `open` should end soon: true once for each txg.
    pub(super) fn hurries(&mut self, open: Txg) -> bool {
        if self.hurried >= Some(open) {
            return false;
        }
        let own: u64 = self.vdevs.values().map(|vdev| vdev.units()).sum();
        let room_bytes = if own > 0 { own } else { self.data_units } * UNIT_BYTES;
        let are_many =
            self.units * UNIT_BYTES >= (room_bytes / HURRY_SHARE).clamp(HURRY_BYTES_MIN, HURRY_BYTES_MAX);
        if are_many {
            self.hurried = Some(open);
        }
        are_many
    }

    /// The block that contains all of these units.
    pub(super) fn holding(&mut self, place: Place, units: u64) -> Option<&mut Block> {
        let from = Place { vdev: place.vdev, unit: 0 };
        let (first, block) = self.blocks.range_mut(from..=place).next_back()?;
        (place.unit + units <= first.unit + block.units).then_some(block)
    }

    /// Notes sides that may lack what was written to these units, of one block or several.
    pub(super) fn note_missed(&mut self, place: Place, units: u64, missed_by: &[Guid]) {
        let from = Place { vdev: place.vdev, unit: 0 };
        let first = self.blocks.range(from..=place).next_back().map_or(place, |(first, _)| *first);
        let behind = Place { unit: place.unit + units, ..place };
        for (_, block) in self.blocks.range_mut(first..behind) {
            block.missed_by.extend(missed_by);
        }
    }

    /// Removes a block; `None` if it does not exist.
    pub(super) fn remove(&mut self, place: Place, units: u64) -> Option<Block> {
        self.blocks.get(&place).filter(|block| block.units == units)?;
        self.held.remove(&place);
        self.units -= units;
        self.blocks.remove(&place)
    }

    /// Whether every side that should have the block has it.
    pub(super) fn is_everywhere(&self, place: Place, units: u64) -> bool {
        self.blocks.get(&place).is_some_and(|block| block.units == units && block.missed_by.is_empty())
    }

    /// Frees the block once `txg` has synced, unless that txg makes it data.
    pub(super) fn hold_until(&mut self, place: Place, units: u64, txg: Txg) {
        self.held.insert(place, (units, txg));
    }

    /// Blocks that are no longer held: their txg is durable.
    pub(super) fn no_longer_held(&self, synced: Txg) -> Vec<(Place, u64)> {
        let is_over = |(_, (_, txg)): &(&Place, &(u64, Txg))| *txg <= synced;
        self.held.iter().filter(is_over).map(|(place, (units, _))| (*place, *units)).collect()
    }

    /// Notes that a side of the vdev may have none of the blocks.
    pub(super) fn miss_all(&mut self, vdev: u16, side: Guid) {
        for (_, block) in self.on_mut(vdev) {
            if !block.missed_by.contains(&side) {
                block.missed_by.push(side);
            }
        }
    }

    /// First block of the vdev that a side may lack, with all sides that may lack it.
    pub(super) fn missed(&self, vdev: u16, side: Guid) -> Option<(Place, u64, Vec<Guid>)> {
        let mut blocks = self.on(vdev);
        let (place, block) = blocks.find(|(_, block)| block.missed_by.contains(&side))?;
        Some((*place, block.units, block.missed_by.clone()))
    }

    pub(super) fn on(&self, vdev: u16) -> impl Iterator<Item = (&Place, &Block)> {
        self.blocks.range(Place { vdev, unit: 0 }..=Place { vdev, unit: u64::MAX })
    }

    fn on_mut(&mut self, vdev: u16) -> impl Iterator<Item = (&Place, &mut Block)> {
        self.blocks.range_mut(Place { vdev, unit: 0 }..=Place { vdev, unit: u64::MAX })
    }

    pub(super) fn used_bytes(&self, vdev: u16) -> u64 {
        self.on(vdev).map(|(_, block)| block.units * UNIT_BYTES).sum()
    }

    pub(super) fn extents(&self) -> Vec<LogExtent> {
        let extent = |(place, block): (&Place, &Block)| LogExtent {
            place: *place,
            len_bytes: (block.units * UNIT_BYTES) as u32,
        };
        self.blocks.iter().map(extent).collect()
    }
}
