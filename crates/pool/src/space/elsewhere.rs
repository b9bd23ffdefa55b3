//! Repeats a step of a sync that allocates new places, if a device turns out to be out of space.
//!
//! See `alloc/full` for what happens to the device. The step is repeated from its beginning, at most once for
//! each vdev; whatever it refers to must be unchanged.

use std::sync::Mutex;

use fastness_blkdev::Cause;

use crate::devices::vdev::Vdevs;
use crate::error::{PoolError, Result};
use crate::space::alloc::Allocator;
use crate::sync_util::lock;

fn is_no_room(error: &PoolError) -> bool {
    matches!(error, PoolError::Device(error) if matches!(error.cause, Cause::NoSpace(_)))
}

/// Runs `step`, which writes to places that it allocates, until no device that it uses is out of space.
///
/// # Errors
/// That of the step, if all devices are out of space, or for any other reason.
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
