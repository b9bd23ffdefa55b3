//! Which devices go wrong in a round, and how.

use std::sync::atomic::{AtomicU64, Ordering};

use fastness_blkdev::{Fault, FaultPlan, On, Operation, When};
use fastness_pool::Pool;

use super::{Rig, Rng, Shape};

/// What kind of fault a round has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Faults {
    None,
    /// Writes and flushes fail, and say so.
    Loud,
    /// Reads fail or lie.
    Reads,
    /// Writes and flushes that did not happen, or happened elsewhere, and say nothing.
    Silent,
}

impl Faults {
    /// What this shape can stand: without a mirror a fault that says nothing loses data, as it must.
    pub fn draw(shape: Shape, rng: &mut Rng) -> Faults {
        match rng.below(if shape.is_mirrored() { 8 } else { 5 }) {
            0..3 => Faults::None,
            3 | 4 => Faults::Loud,
            5 => Faults::Reads,
            _ => Faults::Silent,
        }
    }

    /// Lets them strike one side of each mirror, or one device of others. A side that is stale is struck,
    /// because the pool stands on the other.
    pub fn plant(self, rig: &Rig, shape: Shape, pool: &Pool, rng: &mut Rng) {
        if self == Faults::None {
            return;
        }
        let group = if shape.is_mirrored() { 2 } else { shape.count() };
        for first in (0..shape.count()).step_by(group) {
            let status = pool.status();
            let is_stale = |index: &usize| {
                let path = format!("disk{index}");
                status.vdevs.iter().flat_map(|vdev| &vdev.2).any(|side| side.path == path && side.is_stale)
            };
            let stale = (first..first + group).find(is_stale);
            let index = stale.unwrap_or(first + rng.below(group as u64) as usize);
            rig.devices[index].set_plan(self.plan(rng));
        }
    }

    fn plan(self, rng: &mut Rng) -> FaultPlan {
        let plan = FaultPlan::new(rng.next());
        let (nth, flush) = (When::Nth(1 + rng.below(40)), On::Only(Operation::Flush));
        match (self, rng.below(6)) {
            (Faults::None, _) => plan,
            (Faults::Loud, 0) => plan.rule(On::Changes, nth, Fault::Errno(5)),
            (Faults::Loud, 1) => plan.rule(flush, When::Nth(1 + rng.below(6)), Fault::Errno(5)),
            (Faults::Loud, 2) => plan.rule(On::Writes, nth, Fault::Short { units: rng.below(9) as u32 }),
            (Faults::Loud, 3) => plan.rule(On::Writes, nth, Fault::Torn),
            (Faults::Loud, 4) => plan.rule(On::Changes, nth, Fault::Vanish),
            (Faults::Loud, _) => plan.rule(On::Writes, When::PerMillion(30_000), Fault::Errno(5)),
            (Faults::Reads, roll) => {
                let fault = if roll < 3 { Fault::Errno(5) } else { Fault::BitFlip };
                plan.rule(On::Only(Operation::Read), When::PerMillion(200_000), fault)
            }
            (Faults::Silent, 0) => plan.rule(flush, When::Every(2), Fault::Dropped),
            (Faults::Silent, 1 | 2) => plan.rule(On::Writes, When::PerMillion(200_000), Fault::Dropped),
            (Faults::Silent, 3 | 4) => plan.rule(On::Writes, When::PerMillion(200_000), Fault::BitFlip),
            (Faults::Silent, _) => {
                // Into the data, not over a label.
                let to = (1 << 20) + rng.below(1500) * 4096;
                let data = 256 << 10..(8 << 20) - (260 << 10);
                plan.rule_in(data, On::Writes, When::PerMillion(100_000), Fault::Misdirected { to })
            }
        }
    }
}

/// What a simulation has met, so that it cannot pass without meeting it.
#[derive(Debug, Default)]
pub struct Met {
    pub cuts: AtomicU64,
    pub cuts_of_imports: AtomicU64,
    pub failed_syncs: AtomicU64,
    pub found_last: AtomicU64,
    pub found_next: AtomicU64,
    pub stale_sides: AtomicU64,
    pub resilvers: AtomicU64,
    pub healed: AtomicU64,
    pub wrong_copies: AtomicU64,
    pub two_txgs: AtomicU64,
    pub overtaken: AtomicU64,
    /// Operations that found no room.
    pub no_space: AtomicU64,
    /// What was freed in a pool that is full.
    pub freed_when_full: AtomicU64,
    /// Txgs that left something to be freed.
    pub left_to_free: AtomicU64,
    /// Txgs that synced in the middle of a scrub.
    pub beside_scrubs: AtomicU64,
    pub stored: AtomicU64,
}

impl Met {
    pub fn note(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }

    pub fn assert_all(&self) {
        let Met { cuts, cuts_of_imports, failed_syncs, found_last, found_next, stale_sides, .. } = self;
        let Met { resilvers, healed, wrong_copies, two_txgs, overtaken, no_space, stored, .. } = self;
        let Met { freed_when_full, left_to_free, beside_scrubs, .. } = self;
        for counter in [cuts, cuts_of_imports, failed_syncs, found_last, found_next, stale_sides]
            .into_iter()
            .chain([resilvers, healed, wrong_copies, two_txgs, overtaken, no_space, stored])
            .chain([freed_when_full, left_to_free, beside_scrubs])
        {
            assert!(counter.load(Ordering::Relaxed) > 0, "something never happened: {self:?}");
        }
    }
}
