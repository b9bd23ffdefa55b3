//! What a volume needs to log its writes.
//!
//! Space in the log is freed when a txg has synced: all of the txg's share at once. A writer that found none
//! would wait for a whole txg. So the open txg ends early once a quarter of the log is in use; and from 60 %
//! on writers sleep before they begin, `100 us * (used - min) / (max - used)`, like the pool's delay when
//! memory is short: the log fills ever more slowly and, as long as txgs sync at all, never completely.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fastness_zil::RangeLocks;

use crate::logs::Zil;
use crate::side::PoolSide;

/// In 1024ths of the log: at this level the open txg ends.
const HURRY: u32 = 256;
/// In 1024ths of the log: from this level on writers sleep.
const SLOW: u32 = 614;
const FULL: u32 = 1024;
const DELAY_UNIT_NS: u64 = 100_000;
const DELAY_MAX_NS: u64 = 20_000_000;

/// What a volume needs to log its writes.
#[derive(Debug)]
pub(crate) struct DatasetLog {
    /// The log.
    pub(crate) zil: Zil,
    /// Held by a write during its transaction and the logging of its record, see [`RangeLocks`].
    pub(crate) ranges: RangeLocks,
    side: Arc<PoolSide>,
    slows_down: bool,
    /// The txg that was last asked to end soon.
    hurried: AtomicU64,
}

impl DatasetLog {
    pub(crate) fn new(zil: Zil, side: Arc<PoolSide>, slows_down: bool) -> DatasetLog {
        DatasetLog { zil, ranges: RangeLocks::default(), side, slows_down, hurried: AtomicU64::new(0) }
    }

    /// Makes a writer sleep while the log is short of space. Must be called before the transaction begins and
    /// without holding locks.
    #[inline]
    pub(crate) fn admit(&self) {
        let used = self.zil.with_kind(|log| log.used_per_1024());
        if used >= HURRY && self.slows_down {
            self.slow_down(used);
        }
    }

    #[cold]
    fn slow_down(&self, used: u32) {
        let open = self.side.pool().open_txg().0;
        if self.hurried.load(Ordering::Relaxed) != open && self.hurried.swap(open, Ordering::Relaxed) != open
        {
            self.side.pool().end_txg_soon();
        }
        let delay = delay(used);
        // The kernel rounds shorter sleeps up to more than this.
        if delay >= Duration::from_micros(10) {
            fastness_sync::sleep(delay);
        }
    }
}

fn delay(used: u32) -> Duration {
    let (above, left) = (used.saturating_sub(SLOW), FULL.saturating_sub(used));
    let ns = (DELAY_UNIT_NS * u64::from(above)).checked_div(u64::from(left)).unwrap_or(DELAY_MAX_NS);
    Duration::from_nanos(ns.min(DELAY_MAX_NS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_grows_from_nothing_to_its_bound() {
        let delays: Vec<_> = (0..=FULL).map(delay).collect();
        assert!(delays.is_sorted());
        assert_eq!(delays[SLOW as usize], Duration::ZERO);
        assert_eq!(delays[FULL as usize], Duration::from_nanos(DELAY_MAX_NS));
        assert!(delays[FULL as usize * 9 / 10] < Duration::from_micros(400));
    }
}
