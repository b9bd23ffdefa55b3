//! Blocks without a right copy, in reports.

use fastness_store::{DamagedBlock, Dataset, DatasetKind, Pool};
use serde::{Deserialize, Serialize};

/// A block without a good copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamagedReport {
    /// The volume or file system; none for metadata of the pool.
    pub dataset: Option<String>,
    /// The file's inode number, in a file system.
    pub file: Option<u64>,
    /// Where it begins in the volume or file, in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// Where it is on the vdevs.
    pub place: String,
}

impl DamagedReport {
    pub(crate) fn of(pool: &Pool, block: &DamagedBlock) -> DamagedReport {
        let dataset = block.owner.and_then(|(dataset, _)| pool.dataset_by_id(dataset).ok());
        DamagedReport {
            dataset: dataset.as_ref().map(Dataset::name),
            file: dataset
                .filter(|dataset| dataset.kind() == DatasetKind::Filesystem)
                .and_then(|_| block.owner.map(|(_, object)| object.0)),
            offset: block.offset,
            bytes: block.len_bytes,
            place: block.place.to_string(),
        }
    }
}

/// What to do about blocks without a good copy.
pub(crate) fn damaged(pool: &str, lost: u64) -> String {
    format!(
        "{lost} blocks have no right copy: reads of them fail. `fastness pool status --verbose {pool}` lists them. Write \
         them again, or restore them from elsewhere, and look at everything with `fastness pool scrub {pool}`"
    )
}
