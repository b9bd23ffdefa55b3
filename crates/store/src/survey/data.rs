//! Data of records that is not in the log.

use std::fmt;

use fastness_pool::{LogSpace, Place};
use fastness_zil::record::{Record, WriteData};

/// Where a record's data is in the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataSurvey {
    /// Its first block.
    pub first: Place,
    /// Number of blocks.
    pub blocks: usize,
    /// Their bytes on the vdevs.
    pub stored_bytes: u64,
}

impl fmt::Display for DataSurvey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DataSurvey { first, blocks, stored_bytes } = self;
        write!(f, "{blocks} blocks of the pool, {stored_bytes} bytes from {first} on")
    }
}

impl DataSurvey {
    pub(super) fn of(record: &Record<'_>) -> Option<DataSurvey> {
        let Record::Write(write) = record else { return None };
        let WriteData::Indirect { len_bytes, address } = write.data else { return None };
        let (first, blocks, stored_bytes) = LogSpace::describe_stored(address, len_bytes).ok()?;
        Some(DataSurvey { first, blocks, stored_bytes })
    }
}
