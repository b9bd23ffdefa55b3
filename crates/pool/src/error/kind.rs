//! What a caller must do about each error.

use fastness_base::ErrorKind;

use crate::error::PoolError;

fastness_base::has_kind!(PoolError);

impl PoolError {
    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            PoolError::Open(error) => error.kind(),
            PoolError::Device(error) => error.kind(),
            PoolError::DamagedLabels { .. }
            | PoolError::Damaged { .. }
            | PoolError::DamagedBlock { .. }
            | PoolError::LostInLog(_)
            | PoolError::OldCopy { .. }
            | PoolError::NoUberblock { .. }
            | PoolError::BadValue { .. }
            | PoolError::Engine(_) => ErrorKind::Corrupt,
            PoolError::NoSpace { .. }
            | PoolError::MetadataTooLarge
            | PoolError::Reservation { .. }
            | PoolError::NoRoomForSnapshot { .. } => ErrorKind::NoSpace,
            PoolError::Panicked { .. } => ErrorKind::Bug,
            PoolError::Suspended { .. } | PoolError::Closed => ErrorKind::Closed,
            PoolError::MissingDevice { .. }
            | PoolError::NoSideLeft
            | PoolError::MissingSide { .. }
            | PoolError::MissingLog { .. } => ErrorKind::MediaFailed,
            PoolError::Busy { .. }
            | PoolError::HasClones { .. }
            | PoolError::NotNewest { .. }
            | PoolError::ChangedSince(_)
            | PoolError::NoThread(_)
            | PoolError::LogInUse { .. }
            | PoolError::Overtaken { .. }
            | PoolError::InUseByHost { .. } => ErrorKind::Retry,
            PoolError::NoDevice
            | PoolError::EmptyVdev
            | PoolError::OnlyLogVdevs
            | PoolError::BlockSize { .. }
            | PoolError::OtherName(_)
            | PoolError::ConfigTooLarge { .. }
            | PoolError::TooSmall { .. }
            | PoolError::NoLabel { .. }
            | PoolError::OtherVersion { .. }
            | PoolError::UnknownFeature { .. }
            | PoolError::ForeignPool { .. }
            | PoolError::Removed { .. }
            | PoolError::Split { .. }
            | PoolError::Destroyed { .. }
            | PoolError::ReadOnly(_)
            | PoolError::NoDataset(_)
            | PoolError::NoObject { .. }
            | PoolError::Exists(_)
            | PoolError::BeyondEnd { .. }
            | PoolError::Invalid { .. } => ErrorKind::Invalid,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use super::*;

    #[test]
    fn what_no_other_request_would_mend_is_not_called_invalid() {
        let no_thread = PoolError::NoThread(Arc::new(io::ErrorKind::WouldBlock.into()));
        assert_eq!(no_thread.kind(), ErrorKind::Retry);
        assert_eq!(PoolError::MetadataTooLarge.kind(), ErrorKind::NoSpace);
        assert_eq!(crate::devices::vdev::failed(None).kind(), ErrorKind::MediaFailed);
    }
}
