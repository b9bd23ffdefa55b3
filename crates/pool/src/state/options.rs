//! Settings of an import.

/// Settings of an import; none of them is stored.
#[derive(Debug, Clone)]
pub struct PoolOptions {
    /// A txg with changes ends after this time.
    pub txg_timeout: std::time::Duration,
    /// Limit for unsynced data in memory. A txg ends early at a quarter of it; writers are slowed down from
    /// 30 % on, because what a txg has written stays in memory until it is durable.
    pub dirty_max_bytes: u64,
    /// Limit for the cache of blocks.
    pub cache_bytes: u64,
    /// Limit for the metadata engine's cache.
    pub meta_cache_bytes: usize,
    /// Whether a thread syncs txgs. Without one a txg syncs only in [`Pool::sync`](crate::Pool::sync): the
    /// order of all I/O is then that of the caller's calls.
    pub has_txg_thread: bool,
    /// Refuse changes and write nothing, not even labels.
    pub is_read_only: bool,
    /// Rows of extents, of 32 blocks each, that one txg frees of what was destroyed or cleared, at most. More
    /// takes several txgs, so that none takes long, or much memory.
    pub frees_per_txg: usize,
}

impl Default for PoolOptions {
    fn default() -> PoolOptions {
        PoolOptions {
            txg_timeout: std::time::Duration::from_secs(5),
            dirty_max_bytes: 512 << 20,
            cache_bytes: 256 << 20,
            meta_cache_bytes: 128 << 20,
            has_txg_thread: true,
            is_read_only: false,
            frees_per_txg: 4096,
        }
    }
}
