//! What a log has lost.

use fastness_base::LostInLog;

use crate::ids::{DatasetId, ObjectId};

/// A block whose only copy was in a log, which has lost it.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{dataset} {object}: bytes from {offset:#x} on are lost: {lost}")]
#[non_exhaustive]
pub struct LostBlock {
    /// The dataset.
    pub dataset: DatasetId,
    /// The object.
    pub object: ObjectId,
    /// First byte of the block.
    pub offset: u64,
    /// What the log says.
    pub lost: LostInLog,
}
