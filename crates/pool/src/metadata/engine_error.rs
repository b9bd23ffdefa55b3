//! Errors of the table engine, as errors of the pool.

use std::sync::Arc;

use crate::error::PoolError;

impl PoolError {
    /// Our own errors pass through the engine as I/O errors; this restores the originals.
    fn from_engine(error: redb::Error) -> PoolError {
        if let redb::Error::Io(io) = &error
            && let Some(own) = io.get_ref().and_then(|source| source.downcast_ref::<PoolError>())
        {
            return own.clone();
        }
        PoolError::Engine(Arc::new(error))
    }
}

macro_rules! from_engine {
    ($($error:ty),*) => {$(
        impl From<$error> for PoolError {
            fn from(error: $error) -> PoolError {
                PoolError::from_engine(error.into())
            }
        }
    )*};
}

from_engine!(
    redb::Error,
    redb::StorageError,
    redb::TableError,
    redb::TransactionError,
    redb::CommitError,
    redb::DatabaseError,
    redb::SetDurabilityError
);
