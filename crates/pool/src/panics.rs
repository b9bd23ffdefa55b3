//! Panics in threads of the pool: a defect, but no reason for other threads to wait forever.

use std::panic::{AssertUnwindSafe, catch_unwind};

use fastness_base::panic_text;

use crate::error::{PoolError, Result};

/// Runs `act`; a panic in it, or in a thread that it waits for, becomes an error.
///
/// What `act` was doing may be half done. The caller must abandon it all: it suspends the pool.
pub(crate) fn caught<T>(act: impl FnOnce() -> Result<T>) -> Result<T> {
    let ended = catch_unwind(AssertUnwindSafe(act));
    ended.unwrap_or_else(|panic| Err(PoolError::Panicked { what: panic_text(&*panic).to_owned() }))
}
