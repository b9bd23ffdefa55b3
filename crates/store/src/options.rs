//! Settings of a store.

use fastness_pool::{ImportOptions, PoolOptions};

use crate::handler::Kinds;
use crate::import::Consent;
use crate::log::Tuning;

/// Settings of a store; none of them is stored.
#[derive(Debug, Clone, Default)]
pub struct StoreOptions {
    /// Of the pool.
    pub pool: PoolOptions,
    /// How the pool is imported.
    pub import: ImportOptions,
    /// What may be given up so that the log can be imported. It counts once, not when a suspended pool is
    /// imported again.
    pub consent: Consent,
    /// Of the log.
    pub tuning: Tuning,
    /// The kinds of datasets, and how their records are replayed.
    pub kinds: Kinds,
}
