//! The thread that ends txgs.

use std::time::Instant;

use crate::panics::caught;
use crate::state::Shared;
use fastness_sync::order::{lock, wait_for};

/// Runs until the pool stops or is suspended. Ending for any reason but a stop suspends the pool.
pub(crate) fn run_caught(shared: &Shared) {
    let ran = caught(|| {
        run(shared);
        Ok(())
    });
    if let Err(error) = ran {
        shared.suspend(&mut lock(&shared.txgs.pipeline.progress), shared.txgs.pipeline.open_txg(), &error);
    }
}

fn run(shared: &Shared) {
    let pipeline = &shared.txgs.pipeline;
    let mut last = Instant::now();
    loop {
        {
            let mut progress = lock(&pipeline.progress);
            loop {
                if progress.is_stopping || progress.failed.is_some() {
                    return;
                }
                let elapsed = last.elapsed();
                let is_due = progress.wanted > progress.synced
                    || pipeline.must_end()
                    || shared.backlog.is_freeing()
                    || elapsed >= shared.options.txg_timeout;
                if is_due && !progress.is_frozen {
                    break;
                }
                let rest = if progress.is_frozen {
                    shared.options.txg_timeout
                } else {
                    shared.options.txg_timeout.saturating_sub(elapsed)
                };
                pipeline.heart.rests(true);
                progress = wait_for(&pipeline.changed, progress, rest);
                pipeline.heart.rests(false);
            }
        }
        let is_wanted = {
            let progress = lock(&pipeline.progress);
            progress.wanted > progress.synced
        };
        last = Instant::now();
        if is_wanted || shared.has_changes() {
            // The error is in `failed`, for all waiting threads.
            let _ = shared.sync_txg();
        } else {
            shared.blocks.buffers.clear();
        }
    }
}

impl Shared {
    fn has_changes(&self) -> bool {
        !self.txgs.changes(self.txgs.pipeline.open_txg()).is_empty() || self.backlog.is_freeing()
    }
}
