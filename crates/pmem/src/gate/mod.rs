//! The gate of a region: one call that makes bytes durable, and keeps writers from overloading the medium.
//!
//! A thread that waits for PM keeps its CPU busy. With more writers than the medium can serve, every one of
//! them waits longer, and the CPU time for each byte grows with their number while the bandwidth falls. A
//! gate has one limit for all writers of its region and a policy for those beyond it:
//!
//! | policy | a write beyond the limit |
//! |---|---|
//! | [`Policy::Direct`] | is made at once; there is no limit |
//! | [`Policy::Semaphore`] | waits off the CPU for a slot, in the order of arrival ([`WriterSlots`]) |
//! | [`Policy::Workers`] | is made by one of a few threads, pinned to CPUs near the region |
//! | [`Policy::Dma`] | is made by a DMA engine (Intel DSA) |
//!
//! **Light load.** As long as a slot is free, the medium is not loaded, and an adaptive gate makes the write
//! at once on the caller's CPU, whatever the policy. Copies of less than [`SMALL_BYTES`] never go to workers
//! or an engine: handing them over costs more than they do.
//!
//! **Durability.** [`Gate::write_pm`] returns once the bytes are durable. A fence is of the thread that made
//! the stores, so a worker fences before it reports; an engine reads back what it wrote before it reports,
//! and the caller fences after it.
//!
//! **Cost.** With the direct policy, or without a gate, a write is a copy and a fence: no lock, no
//! allocation, no system call, no shared cache line.
//!
//! Source: dissertation (2025), 5.1 and 5.4 (what it lacks: limits for each region, light load).

mod dma;
mod error;
mod queue;
mod workers;

use std::sync::Arc;

use crate::medium::{LINE_BYTES, Medium, NoSum, PersistError};
use crate::slots::WriterSlots;

pub use dma::DsaQueue;
use dma::Engine;
pub use error::{GateError, NoDma};
pub use queue::{Completion, Descriptor, WorkQueue};
pub(crate) use queue::{PAGE_FAULT, SUCCESS};
use workers::Workers;

/// Writes of less than this are made at once by workers' and engines' callers.
pub const SMALL_BYTES: usize = 4096;

/// What happens to writes beyond the limit.
#[derive(Debug, Clone, Default)]
pub enum Policy {
    /// They are made at once.
    #[default]
    Direct,
    /// They wait for a slot.
    Semaphore {
        /// Writers at a time, 1 to [`WRITERS_MAX`](crate::WRITERS_MAX).
        writers_max: u32,
    },
    /// Workers make them.
    Workers {
        /// Writers at a time, and workers.
        writers_max: u32,
        /// Callers write themselves as long as there is a free slot.
        is_adaptive: bool,
        /// CPUs that workers run on; none: any. [`cpus_near`](crate::cpus_near) has those of a region.
        cpus: Vec<usize>,
    },
    /// A DMA engine makes them.
    Dma {
        /// Writers and transfers at a time.
        writers_max: u32,
        /// Callers write themselves as long as there is a free slot.
        is_adaptive: bool,
        /// The engine's work queue: [`DsaQueue::find`].
        queue: Arc<dyn WorkQueue>,
    },
}

/// What a gate has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct GateStats {
    /// Writers that found no free slot.
    pub waits: u64,
    /// Writes that workers made.
    pub by_workers: u64,
    /// Transfers that an engine made.
    pub by_engine: u64,
    /// Those of them that the CPU had to complete or to make again: page faults, a full queue.
    pub redone: u64,
}

/// The gate of one region.
///
/// Concurrency: shared by all threads that write to the region. Shutdown: dropping it ends its workers.
#[derive(Debug)]
pub struct Gate {
    slots: Option<Arc<WriterSlots>>,
    way: Way,
}

#[derive(Debug)]
enum Way {
    Direct,
    Semaphore,
    Workers { workers: Workers, is_adaptive: bool },
    Engine { engine: Engine, is_adaptive: bool },
}

impl Gate {
    /// A gate with a policy, which does not change.
    ///
    /// # Errors
    /// [`GateError`]: the limit is out of bounds; a worker cannot be started, or not on these CPUs.
    pub fn new(policy: Policy) -> Result<Gate, GateError> {
        let slots = |writers_max: u32| {
            let is_possible = (1..=crate::slots::WRITERS_MAX).contains(&writers_max);
            if is_possible {
                Ok(Some(Arc::new(WriterSlots::new(writers_max))))
            } else {
                Err(GateError::Limit { writers_max })
            }
        };
        Ok(match policy {
            Policy::Direct => Gate { slots: None, way: Way::Direct },
            Policy::Semaphore { writers_max } => Gate { slots: slots(writers_max)?, way: Way::Semaphore },
            Policy::Workers { writers_max, is_adaptive, cpus } => {
                let slots = slots(writers_max)?;
                Gate {
                    slots,
                    way: Way::Workers { workers: Workers::start(writers_max, &cpus)?, is_adaptive },
                }
            }
            Policy::Dma { writers_max, is_adaptive, queue } => Gate {
                slots: slots(writers_max)?,
                way: Way::Engine { engine: Engine::new(queue), is_adaptive },
            },
        })
    }

    /// The slots that its writers take; none without a limit.
    #[inline]
    pub fn slots(&self) -> Option<&Arc<WriterSlots>> {
        self.slots.as_ref()
    }

    /// Writes `src` at `offset` of a range of the region, with zeroes up to a whole line.
    ///
    /// Persistence: on return the bytes are durable, as far as the region's durability goes; a crash inside
    /// leaves any 8-byte pieces of them. So are earlier copies of this thread to the range.
    ///
    /// # Errors
    /// That of the fence; or an engine has not answered ([`io::ErrorKind::TimedOut`](std::io::ErrorKind)): it
    /// may still store to the region, which is lost for this process.
    ///
    /// # Panics
    /// Caller bug only: as [`Medium::copy`].
    #[inline]
    pub fn write_pm<M: Medium>(&self, range: &mut M, offset: usize, src: &[u8]) -> Result<(), PersistError> {
        match &self.way {
            Way::Direct => store(range, offset, src),
            _ => self.write_limited(range, offset, src),
        }
    }

    fn write_limited<M: Medium>(&self, range: &mut M, offset: usize, src: &[u8]) -> Result<(), PersistError> {
        let slots = self.slots.as_ref().expect("policies but the direct one have a limit");
        match &self.way {
            Way::Workers { .. } | Way::Engine { .. } if src.len() < SMALL_BYTES => store(range, offset, src),
            Way::Direct | Way::Semaphore => {
                let _slot = slots.enter();
                store(range, offset, src)
            }
            Way::Workers { workers, is_adaptive } => {
                if *is_adaptive && let Some(_slot) = slots.try_enter() {
                    return store(range, offset, src);
                }
                workers.run(|| {
                    let _slot = slots.enter();
                    store(range, offset, src)
                })
            }
            Way::Engine { engine, is_adaptive } => {
                if *is_adaptive && let Some(_slot) = slots.try_enter() {
                    return store(range, offset, src);
                }
                let _slot = slots.enter();
                engine.write(range, offset, src)
            }
        }
    }

    /// What it has done so far.
    pub fn stats(&self) -> GateStats {
        let mut stats =
            GateStats { waits: self.slots.as_ref().map_or(0, |slots| slots.waits()), ..GateStats::default() };
        match &self.way {
            Way::Direct | Way::Semaphore => {}
            Way::Workers { workers, .. } => stats.by_workers = workers.count(),
            Way::Engine { engine, .. } => (stats.by_engine, stats.redone) = engine.counts(),
        }
        stats
    }
}

/// What a write is without a gate: a copy and a fence.
///
/// # Errors
/// That of the fence.
#[inline]
pub(crate) fn store<M: Medium>(range: &mut M, offset: usize, src: &[u8]) -> Result<(), PersistError> {
    range.copy(offset, src, src.len().next_multiple_of(LINE_BYTES), &mut NoSum);
    // PERSIST: the bytes are durable before the caller acknowledges them, or stores a mark that vouches for
    // them; excludes the crash state with the mark and without the bytes. On a worker, it is the thread that
    // made the stores, and so the only one whose fence covers them.
    range.fence()
}
