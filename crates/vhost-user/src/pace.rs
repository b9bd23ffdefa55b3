//! How long requests of a kind take, so that slow ones do not hold up others.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use crate::request::Kind;

/// A hand-over to another thread costs about this much.
const SLOW_NS: u32 = 20_000;
/// One in so many quick requests is timed.
const SAMPLE: u32 = 16;

/// Averages, for each kind of request.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    kinds: [Average; 3],
}

#[derive(Debug, Default)]
struct Average {
    ns: AtomicU32,
    count: AtomicU32,
}

impl Pace {
    fn average(&self, kind: Kind) -> &Average {
        &self.kinds[match kind {
            Kind::Read | Kind::Serial | Kind::Unknown => 0,
            Kind::Write | Kind::Discard | Kind::WriteZeroes => 1,
            Kind::Flush => 2,
        }]
    }

    /// Whether another thread should carry out one of these if there is more to do.
    pub(crate) fn is_slow(&self, kind: Kind) -> bool {
        self.average(kind).ns.load(Ordering::Relaxed) > SLOW_NS
    }

    /// Carries out a request, and times it if that is due.
    pub(crate) fn time<T>(&self, kind: Kind, work: impl FnOnce() -> T) -> T {
        let average = self.average(kind);
        // Lost counts do no harm.
        let count = average.count.load(Ordering::Relaxed);
        average.count.store(count.wrapping_add(1), Ordering::Relaxed);
        let before = average.ns.load(Ordering::Relaxed);
        if before <= SLOW_NS && !count.is_multiple_of(SAMPLE) {
            return work();
        }
        let begun = Instant::now();
        let done = work();
        let ns = u32::try_from(begun.elapsed().as_nanos()).unwrap_or(u32::MAX);
        let after = (u64::from(before) * 7 + u64::from(ns)) / 8;
        average.ns.store(after as u32, Ordering::Relaxed);
        done
    }
}
