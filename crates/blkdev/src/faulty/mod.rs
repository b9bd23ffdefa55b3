//! A device that fails on purpose and knows what a crash may leave.
//!
//! Design: [`Faulty`] passes every operation to the device below, so that reads see the newest contents, and
//! also keeps, for every unit that is not durable yet, what it may hold after a crash (`pending`). Rules say
//! which operations go wrong and how (`plan`). One lock serialises everything: one seed and one order of
//! operations are one schedule. The requests of a batch run one by one in an order drawn from the seed,
//! because a batch promises none.
//!
//! Cost: copies what it overwrites. A wrapper for tests.

mod pending;
mod plan;
mod rng;
mod strike;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use pending::{CrashScope, Enumerated};
pub use plan::{Fault, FaultPlan, On, When};

use crate::check::len64;
use crate::device::{BlockDevice, Request};
use crate::error::{BlockError, Operation};
use crate::faulty::pending::Pending;
use crate::faulty::rng::Rng;
use crate::faulty::strike::Act;
use crate::info::{DeviceInfo, WriteCache};
use crate::mem::{MemDevice, MemImage};
use crate::stats::{Stats, StatsSnapshot};

/// Why operations do not get through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Link {
    Up,
    Vanished,
    PowerCut,
}

#[derive(Debug)]
struct State {
    plan: FaultPlan,
    pending: Pending,
    link: Link,
    is_poisoned: bool,
    ops: u64,
    points: BTreeMap<&'static str, u64>,
}

/// Wraps a device in a schedule of faults and in a volatile cache that crashes lose.
///
/// [`crash`](Self::crash) and [`for_each_crash_state`](Self::for_each_crash_state) produce exactly the states
/// that [`BlockDevice`] allows: what was flushed or written with FUA is present, and every other tear unit
/// holds its last durable contents or any of those written since. The device below must be used only through
/// the wrapper.
///
/// A failed flush or FUA write poisons the wrapper until [`reopen`](Self::reopen).
#[derive(Debug)]
pub struct Faulty<D> {
    inner: D,
    info: DeviceInfo,
    state: Mutex<State>,
    stats: Stats,
}

impl<D: BlockDevice> Faulty<D> {
    /// Wraps `inner`, whose present contents count as durable.
    pub fn new(inner: D, plan: FaultPlan) -> Faulty<D> {
        let mut info = inner.info().clone();
        info.write_cache = WriteCache::DeviceCache;
        let state = State {
            pending: Pending::new(plan.tear()),
            plan,
            link: Link::Up,
            is_poisoned: false,
            ops: 0,
            points: BTreeMap::new(),
        };
        Faulty { inner, info, state: Mutex::new(state), stats: Stats::default() }
    }

    /// The device below.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Returns the device below.
    pub fn into_inner(self) -> D {
        self.inner
    }

    /// Replaces the schedule; counting starts over. The tear unit stays that of the first plan.
    pub fn set_plan(&self, plan: FaultPlan) {
        self.state().plan = plan;
    }

    /// Operations so far, including those that a fault struck but not those refused as invalid.
    pub fn op_count(&self) -> u64 {
        self.state().ops
    }

    /// Crash points passed so far, by name, with their counts. A first run without faults lists the points to
    /// cut at.
    pub fn crash_points(&self) -> Vec<(&'static str, u64)> {
        self.state().points.iter().map(|(name, count)| (*name, *count)).collect()
    }

    /// Tear units that a crash now could leave in more than one way.
    pub fn unflushed_units(&self) -> usize {
        self.state().pending.len_units()
    }

    /// Cuts the power: from now on every operation fails with [`Cause::Gone`](crate::Cause::Gone).
    pub fn cut_power(&self) {
        self.state().link = Link::PowerCut;
    }

    /// Whether the power was cut, by the plan or by [`cut_power`](Self::cut_power).
    pub fn is_power_cut(&self) -> bool {
        self.state().link == Link::PowerCut
    }

    /// Makes the device vanish; it keeps its power and its cache.
    pub fn vanish(&self) {
        self.state().link = Link::Vanished;
    }

    /// Brings a vanished device back. If a flush failed meanwhile, it stays poisoned. A device cannot come
    /// back after a power cut; there is only a crash image or [`reopen`](Self::reopen).
    pub fn come_back(&self) {
        let mut state = self.state();
        if state.link == Link::Vanished {
            state.link = Link::Up;
        }
    }

    /// The contents after a crash at this instant: one of the allowed states, chosen by `seed`. Changes
    /// nothing.
    ///
    /// # Errors
    /// Errors of reading the device below.
    pub fn crash(&self, seed: u64) -> Result<MemImage, BlockError> {
        let state = self.state();
        let mut image = MemImage::of_device(&self.inner)?;
        for (offset, bytes) in state.pending.crash(seed) {
            image.write(offset, bytes);
        }
        Ok(image)
    }

    /// Shows every state that a crash at this instant may leave; if there are more than `limit`, a sample of
    /// that many.
    ///
    /// # Errors
    /// Errors of reading the device below.
    pub fn for_each_crash_state(
        &self,
        scope: CrashScope,
        limit: u64,
        mut show: impl FnMut(&MemImage),
    ) -> Result<Enumerated, BlockError> {
        let state = self.state();
        let newest = MemImage::of_device(&self.inner)?;
        Ok(state.pending.for_each(scope, limit, &newest, &mut show))
    }

    /// Opens the device again after poison or a power cut: what was not durable becomes one of the allowed
    /// states, chosen by `seed`, in the device below too.
    ///
    /// # Errors
    /// Errors of the device below.
    pub fn reopen(&self, seed: u64) -> Result<(), BlockError> {
        let mut state = self.state();
        let changes: Vec<(u64, Box<[u8]>)> =
            state.pending.crash(seed).into_iter().map(|(offset, bytes)| (offset, bytes.into())).collect();
        for (offset, bytes) in changes {
            let span = self.span(offset, len64(bytes.len()), self.info.logical_block_bytes.into());
            let mut blocks = self.read_inner(&span)?;
            let at = usize::try_from(offset - span.start).expect("inside of a block");
            blocks[at..at + bytes.len()].copy_from_slice(&bytes);
            self.inner.write_at(span.start, &blocks)?;
        }
        self.inner.flush()?;
        state.pending.clear();
        state.link = Link::Up;
        state.is_poisoned = false;
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic in a caller's closure leaves the state unchanged: closures only read.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The range, extended to whole units of `unit_bytes`, and cut at the end of the device.
    fn span(&self, offset: u64, len_bytes: u64, unit_bytes: u64) -> Range<u64> {
        let end = (offset + len_bytes).next_multiple_of(unit_bytes);
        offset - offset % unit_bytes..end.min(self.info.len_bytes)
    }

    fn read_inner(&self, span: &Range<u64>) -> Result<Vec<u8>, BlockError> {
        let mut bytes = vec![0; usize::try_from(span.end - span.start).expect("64-bit Linux")];
        self.inner.read_at(span.start, &mut bytes)?;
        Ok(bytes)
    }
}

impl Faulty<MemDevice> {
    /// As [`crash`](Self::crash), without reading the contents that are certain: simulations of whole stacks
    /// crash often.
    pub fn crash_image(&self, seed: u64) -> MemImage {
        let state = self.state();
        let mut image = self.inner.image();
        for (offset, bytes) in state.pending.crash(seed) {
            image.write(offset, bytes);
        }
        image
    }
}

impl<D: BlockDevice> BlockDevice for Faulty<D> {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), BlockError> {
        self.run(Operation::Read, offset, len64(buf.len()), Act::Read(buf))
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), BlockError> {
        self.run(Operation::Write, offset, len64(data.len()), Act::Write(data))
    }

    fn write_fua(&self, offset: u64, data: &[u8]) -> Result<(), BlockError> {
        self.run(Operation::WriteFua, offset, len64(data.len()), Act::Write(data))
    }

    fn flush(&self) -> Result<(), BlockError> {
        self.run(Operation::Flush, 0, 0, Act::Flush)
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> Result<(), BlockError> {
        self.run(Operation::Discard, offset, len_bytes, Act::Discard)
    }

    fn write_zeroes(&self, offset: u64, len_bytes: u64) -> Result<(), BlockError> {
        self.run(Operation::WriteZeroes, offset, len_bytes, Act::Zeroes)
    }

    fn run_batch(&self, requests: &mut [Request<'_>]) -> Vec<Result<(), BlockError>> {
        let mut order: Vec<usize> = (0..requests.len()).collect();
        let (seed, ops) = {
            let state = self.state();
            (state.plan.seed(), state.ops)
        };
        Rng::of(seed, 0xba7c, ops).shuffle(&mut order);
        let mut results: Vec<_> = requests.iter().map(|_| Ok(())).collect();
        for index in order {
            results[index] = match &mut requests[index] {
                Request::Read { offset, buf } => self.read_at(*offset, buf),
                Request::Write { offset, data, fua: false } => self.write_at(*offset, data),
                Request::Write { offset, data, fua: true } => self.write_fua(*offset, data),
            };
        }
        results
    }

    fn stats(&self) -> StatsSnapshot {
        self.stats.snapshot()
    }

    fn is_poisoned(&self) -> bool {
        self.state().is_poisoned
    }

    fn crash_point(&self, name: &'static str) {
        let mut state = self.state();
        if state.link == Link::PowerCut {
            return;
        }
        let count = state.points.entry(name).or_default();
        *count += 1;
        let nth = *count;
        if state.plan.cuts_at(name, nth) {
            state.link = Link::PowerCut;
        }
    }
}
