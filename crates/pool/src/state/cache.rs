//! Blocks in memory, and memory for them.

use crate::objects::buffers::{Block, Buffers};
use crate::objects::in_log::KnownLogs;

/// Key of a cached block.
pub(crate) type CacheKey = (u64, u64, u64);

#[derive(Debug, Clone)]
pub(crate) struct ByBytes;

impl quick_cache::Weighter<CacheKey, Block> for ByBytes {
    fn weight(&self, _: &CacheKey, block: &Block) -> u64 {
        block.len() as u64 + 64
    }
}

/// Collects what the cache evicts, so that its memory is reused.
#[derive(Debug, Clone)]
pub(crate) struct Evicted;

impl quick_cache::Lifecycle<CacheKey, Block> for Evicted {
    type RequestState = Vec<Block>;

    fn on_evict(&self, evicted: &mut Vec<Block>, _: CacheKey, block: Block) {
        evicted.push(block);
    }
}

pub(crate) type Cache =
    quick_cache::sync::Cache<CacheKey, Block, ByBytes, quick_cache::DefaultHashBuilder, Evicted>;

/// Clean blocks, buffers for new ones, and the logs that dirty ones may be in. Each has locks of its own,
/// taken for a moment, below all others.
pub(crate) struct Blocks {
    pub(crate) cache: Cache,
    pub(crate) buffers: Buffers,
    pub(crate) logs: KnownLogs,
}

impl Blocks {
    /// A cache of so many bytes, and buffers for a txg of what may be dirty.
    pub(crate) fn new(cache_bytes: u64, dirty_max_bytes: u64) -> Blocks {
        let cache = Cache::with(
            (cache_bytes / 4096).max(16) as usize,
            cache_bytes,
            ByBytes,
            Default::default(),
            Evicted,
        );
        Blocks { cache, buffers: Buffers::new(dirty_max_bytes / 4), logs: KnownLogs::default() }
    }
}
