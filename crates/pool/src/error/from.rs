//! Errors of devices as errors of a pool.

use std::sync::Arc;

use fastness_blkdev::BlockError;
use fastness_remote::OpenError;

use crate::error::PoolError;

impl From<OpenError> for PoolError {
    fn from(error: OpenError) -> PoolError {
        PoolError::Open(Arc::new(error))
    }
}

impl From<fastness_blkdev::OpenError> for PoolError {
    fn from(error: fastness_blkdev::OpenError) -> PoolError {
        OpenError::from(error).into()
    }
}

impl From<BlockError> for PoolError {
    fn from(error: BlockError) -> PoolError {
        PoolError::Device(Arc::new(error))
    }
}
