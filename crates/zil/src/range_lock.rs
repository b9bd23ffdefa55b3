//! Range locks, so that overlapping writes have the same order everywhere (see `bypass`).
//!
//! A fixed number of locks, each for every 256th stripe of 64 KiB: a write of up to a stripe takes one or two
//! locks, no memory is allocated, and writes to other stripes rarely share a lock. Locks are taken in order
//! of their index, so no two writers wait for each other.

use fastness_sync::{Mutex, MutexGuard, lock};

const STRIPE_BYTES: u64 = 64 << 10;
const STRIPES: u64 = 256;

#[repr(align(64))]
#[derive(Debug, Default)]
struct Stripe(Mutex<()>);

/// Locks of the ranges of one object.
#[derive(Debug)]
pub struct RangeLocks(Box<[Stripe]>);

/// Holds a range locked until it is dropped.
#[derive(Debug)]
pub struct RangeGuard<'a> {
    _one: Option<MutexGuard<'a, ()>>,
    _two: Option<MutexGuard<'a, ()>>,
    _many: Vec<MutexGuard<'a, ()>>,
}

impl Default for RangeLocks {
    fn default() -> Self {
        Self((0..STRIPES).map(|_| Stripe::default()).collect())
    }
}

impl RangeLocks {
    /// Waits until no other thread has locked a byte of the range. A thread must drop its lock before it
    /// takes another.
    pub fn lock(&self, offset: u64, len_bytes: u64) -> RangeGuard<'_> {
        let first = offset / STRIPE_BYTES;
        let last = offset.saturating_add(len_bytes.saturating_sub(1)) / STRIPE_BYTES;
        let take = |stripe: u64| lock(&self.0[(stripe % STRIPES) as usize].0);
        let none = RangeGuard { _one: None, _two: None, _many: Vec::new() };
        match last - first {
            0 => RangeGuard { _one: Some(take(first)), ..none },
            1 => {
                let (low, high) = (first % STRIPES, last % STRIPES);
                RangeGuard { _one: Some(take(low.min(high))), _two: Some(take(low.max(high))), ..none }
            }
            more => {
                let mut indices: Vec<u64> =
                    (0..(more + 1).min(STRIPES)).map(|index| (first + index) % STRIPES).collect();
                indices.sort_unstable();
                RangeGuard { _many: indices.into_iter().map(take).collect(), ..none }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ranges_that_share_a_stripe_meet() {
        let locks = RangeLocks::default();
        let free = |stripe: u64| locks.0[stripe as usize].0.try_lock().is_ok();
        let guard = locks.lock(0, 4096);
        assert!(!free(0) && (1..STRIPES).all(free));
        drop(guard);
        // The range wraps around the ring: the two locks are taken in order of their index.
        let guard = locks.lock((STRIPES - 1) * STRIPE_BYTES, STRIPE_BYTES + 1);
        assert!(!free(STRIPES - 1) && !free(0) && (1..STRIPES - 1).all(free));
        drop(guard);
        let guard = locks.lock(5 * STRIPE_BYTES, 3 * STRIPE_BYTES);
        assert!((5..8).all(|stripe| !free(stripe)) && free(8) && free(4));
        drop(guard);
        let guard = locks.lock(0, u64::MAX);
        assert!((0..STRIPES).all(|stripe| !free(stripe)));
        drop(guard);
        let empty = locks.lock(100, 0);
        assert!(!free(0) && free(1));
        drop(empty);
    }
}
