//! Repeats a step of a sync that allocates new places, if a device turns out to be out of space, or fails the
//! write of such a place.
//!
//! The latter (EIO) may be the same thing: a loop device on a full file system says so, and so does a disk
//! without spare sectors. It is treated alike, because it is as safe: nothing durable refers to what was
//! being written. What the device has is still needed, and so are its marks, its uberblocks and its flushes
//! in every txg: a device that cannot do that suspends the pool, as before. A device that is gone, or has
//! failed a flush, is not asked to go on.
//!
//! See `alloc/full` for what happens to the device. The step is repeated from its beginning, at most once for
//! each vdev; whatever it refers to must be unchanged.

use fastness_blkdev::Cause;

use crate::devices::vdev::{Vdev, Vdevs};
use crate::error::{PoolError, Result};
use crate::order;
use crate::space::alloc::Allocator;
use fastness_sync::order::{Mutex, lock};

/// Which units are free; the lock is shared with the engine's file.
pub(crate) type SharedAllocator = Mutex<Allocator, { order::ALLOCATOR }>;

fn is_refusal(error: &PoolError) -> bool {
    matches!(error, PoolError::Device(error) if matches!(error.cause, Cause::NoSpace(_) | Cause::Media(_)))
}

/// Runs `step`, which writes to places that it allocates, until no device that it uses refuses them.
///
/// # Errors
/// That of the step, for any other reason; the first refusal, if the other devices are too small for the
/// rest.
pub(crate) fn with_room<T>(
    vdevs: &Vdevs,
    allocator: &SharedAllocator,
    mut step: impl FnMut() -> Result<T>,
) -> Result<T> {
    let mut first = None;
    loop {
        lock(allocator).begin_attempt();
        let result = step();
        let mut allocator = lock(allocator);
        let is_refusal = result.as_ref().is_err_and(is_refusal);
        let refuses = |vdev: &Vdev| is_refusal && (vdev.has_no_room() || vdev.has_failed_writes());
        let refusing = vdevs.all().into_iter().filter(|vdev| refuses(vdev));
        if refusing.filter(|vdev| allocator.set_full(vdev.id)).count() == 0 {
            allocator.keep_attempt();
            return match (result, first) {
                (Err(PoolError::NoSpace { .. }), Some(first)) => Err(first),
                (result, _) => result,
            };
        }
        allocator.take_back_attempt();
        first = first.or(result.err());
    }
}
