//! Blocks of a layer: in memory, or in a log alone (`logged` has why, and how they get there).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use fastness_base::{LogPlace, LostInLog, ReadLogged};

use crate::objects::buffers::Block;

/// A whole block of a layer.
#[derive(Debug, Clone)]
pub(crate) enum LayerBlock {
    InMemory(Block),
    InLog(InLog),
}

/// What a layer's map has for each block, with its number; see `docs/adr/2026-11-28-one-copy.md`.
const _: () = assert!(size_of::<(u64, LayerBlock)>() <= 48);

/// Where a block is in a log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InLog {
    pub(super) place: LogPlace,
    /// First byte of the block in the record's body.
    pub(super) within: u32,
    pub(super) len_bytes: u32,
}

impl LayerBlock {
    pub(crate) fn len(&self) -> usize {
        match self {
            LayerBlock::InMemory(bytes) => bytes.len(),
            LayerBlock::InLog(in_log) => in_log.len_bytes as usize,
        }
    }

    /// Its bytes, if they are in memory.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        self.buffer().map(|bytes| &**bytes)
    }

    /// Its buffer, if it is in memory.
    pub(crate) fn buffer(&self) -> Option<&Block> {
        match self {
            LayerBlock::InMemory(bytes) => Some(bytes),
            LayerBlock::InLog(_) => None,
        }
    }

    /// The same, for another use.
    pub(crate) fn into_buffer(self) -> Option<Block> {
        match self {
            LayerBlock::InMemory(bytes) => Some(bytes),
            LayerBlock::InLog(_) => None,
        }
    }
}

/// The logs that blocks may be in, by their numbers from 1 on.
#[derive(Debug, Default)]
pub(crate) struct KnownLogs {
    known: RwLock<Vec<Option<Arc<dyn ReadLogged>>>>,
    is_only_copy: AtomicBool,
}

impl KnownLogs {
    /// Whether what a log has is to be in memory nowhere.
    #[inline]
    pub(crate) fn is_only_copy(&self) -> bool {
        self.is_only_copy.load(Ordering::Relaxed)
    }

    pub(crate) fn set_only_copy(&self, is_only_copy: bool) {
        self.is_only_copy.store(is_only_copy, Ordering::Relaxed);
    }

    pub(super) fn add(&self, log: Arc<dyn ReadLogged>) -> u32 {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.push(Some(log));
        known.len() as u32
    }

    /// The pool is closed: what reads logs keeps their regions.
    pub(crate) fn forget_all(&self) {
        self.known.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    pub(super) fn forget(&self, number: u32) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = (number as usize).checked_sub(1).and_then(|index| known.get_mut(index)) {
            *slot = None;
        }
    }

    /// Fills `out` with bytes of a block from `within` on.
    pub(crate) fn read(&self, block: &InLog, within: usize, out: &mut [u8]) -> Result<(), LostInLog> {
        let place = block.place;
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let log = (place.log as usize).checked_sub(1).and_then(|index| known.get(index)?.as_deref());
        let gone = || LostInLog { offset: place.offset, why: "the log is not in use".to_owned() };
        log.ok_or_else(gone)?.read(place, block.within as usize + within, out)
    }
}
