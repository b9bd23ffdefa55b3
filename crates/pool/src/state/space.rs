//! What is free, what is promised, and what is still to be freed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fastness_sync::order::{Mutex, RwLock};

use crate::log_space::blocks::LogBlocks;
use crate::metadata::tables::ExtentKey;
use crate::order;
use crate::space::elsewhere::SharedAllocator;
use crate::space::room::Room;

/// Free space.
pub(crate) struct Space {
    pub(crate) allocator: Arc<SharedAllocator>,
    /// What is free, and reserved.
    pub(crate) room: Room,
    /// Log blocks. Taken before the allocator's lock; like that, not held during I/O.
    pub(crate) log: Mutex<LogBlocks, { order::LOG }>,
    /// Held shared while blocks of a snapshot are read without an object's lock; exclusively while freed
    /// space is made available again.
    pub(crate) reuse: RwLock<(), { order::REUSE }>,
    /// Held while a step of a trim discards what is free.
    pub(crate) trimming: Mutex<(), { order::TRIMMING }>,
    /// Whether several blocks may be stored in one place (`copied`).
    pub(crate) has_shared: AtomicBool,
}

impl Space {
    pub(crate) fn new(
        allocator: Arc<SharedAllocator>,
        room: Room,
        log: LogBlocks,
        has_shared: bool,
    ) -> Space {
        let has_shared = AtomicBool::new(has_shared);
        let (log, reuse, trimming) = (Mutex::new(log), RwLock::new(()), Mutex::new(()));
        Space { allocator, room, log, reuse, trimming, has_shared }
    }
}

/// What later txgs have to free.
pub(crate) struct Backlog {
    /// Whether something destroyed has not been freed yet.
    pub(crate) has_doomed: AtomicBool,
    /// Whether something cleared has not been freed yet; where freeing continues: `next_cleared`.
    pub(crate) has_cleared: AtomicBool,
    /// Whether rows of the past may not be needed any more.
    pub(crate) has_pruning: AtomicBool,
    pub(crate) next_cleared: Mutex<ExtentKey, { order::NEXT_CLEARED }>,
}

impl Backlog {
    pub(crate) fn new(has_doomed: bool, has_cleared: bool, has_pruning: bool) -> Backlog {
        Backlog {
            has_doomed: AtomicBool::new(has_doomed),
            has_cleared: AtomicBool::new(has_cleared),
            has_pruning: AtomicBool::new(has_pruning),
            next_cleared: Mutex::new((0, 0, 0)),
        }
    }

    /// Whether txgs free something that was cleared or destroyed before.
    pub(crate) fn is_freeing(&self) -> bool {
        [&self.has_doomed, &self.has_cleared, &self.has_pruning].iter().any(|has| has.load(Ordering::SeqCst))
    }
}
