//! Settings of a store.

use fastness_pool::{ImportOptions, PoolOptions};

use crate::handler::Kinds;
use crate::tuning::Tuning;

/// What may be given up so that an import succeeds: acknowledged writes are then lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Consent {
    /// A log device that is missing, or is a different one.
    pub missing: bool,
    /// In a damaged log, what is damaged and what comes after it.
    pub damaged: bool,
}

impl Consent {
    /// Whatever is necessary.
    pub const ALL: Consent = Consent { missing: true, damaged: true };
    /// Nothing.
    pub const NONE: Consent = Consent { missing: false, damaged: false };
}

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
