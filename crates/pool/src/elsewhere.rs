//! A step of a sync that goes to new places, made again elsewhere if a device has no room for it.
//!
//! See `alloc/full` for what becomes of the device. The step is made again from its beginning, at most once
//! for each vdev; whatever it refers to must be as before.

use std::sync::Mutex;

use fastness_blkdev::Cause;

use crate::alloc::Allocator;
use crate::error::{PoolError, Result};
use crate::sync_util::lock;
use crate::vdev::Vdevs;

fn is_no_room(error: &PoolError) -> bool {
    matches!(error, PoolError::Device(error) if matches!(error.cause, Cause::NoSpace(_)))
}

/// Runs `step`, which writes to places that it allocates, until no device that it needs is without room.
///
/// # Errors
/// That of the step, if all devices are without room, or for any other reason.
pub(crate) fn with_room<T>(
    vdevs: &Vdevs,
    allocator: &Mutex<Allocator>,
    mut step: impl FnMut() -> Result<T>,
) -> Result<T> {
    loop {
        lock(allocator).begin_attempt();
        let result = step();
        let mut allocator = lock(allocator);
        let is_no_room = result.as_ref().is_err_and(is_no_room);
        let without_room = vdevs.all().into_iter().filter(|vdev| is_no_room && vdev.has_no_room());
        if without_room.filter(|vdev| allocator.set_full(vdev.id)).count() == 0 {
            allocator.keep_attempt();
            return result;
        }
        allocator.take_back_attempt();
    }
}
