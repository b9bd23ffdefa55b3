//! Blocks without a right copy, as scrubs and resilvers found them: a list that outlives the import.
//!
//! The list is stored in a table of its own, which exists once there was something to list. An entry names
//! the extent, its place and when it was born. So nothing has to be told when a block is rewritten, cut off
//! or freed: its extent is another one then, and the entry no longer counts. Looking at the list removes such
//! entries; the next txg stores that.
//!
//! At most [`LISTED_MAX`] are listed, of which a txg may store all anew, without a reservation; more are
//! counted. Only a complete scrub, which sees everything, changes that count, and removes entries of blocks
//! that it found to be right.

use std::collections::BTreeMap;

use crate::ids::{DatasetId, ObjectId, Place};

/// Most blocks that are listed.
const LISTED_MAX: usize = 1000;
/// Stands for the dataset of pages of metadata; their object is 0 and their "block" their place.
pub(super) const METADATA: u64 = 0;

/// A block without a right copy.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DamagedBlock {
    /// Its dataset and object; `None` for a page of metadata.
    pub owner: Option<(DatasetId, ObjectId)>,
    /// Where it begins in the object, in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub len_bytes: u64,
    /// Where it is, or its first piece.
    pub place: Place,
}

/// Dataset, object, block.
pub(super) type Key = (u64, u64, u64);
/// Which extent it is: place, and birth (data) or checksum (metadata).
pub(super) type Identity = (u64, u64);

/// Damage that a walk found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(super) listed: BTreeMap<Key, Identity>,
    pub(super) unlisted: u64,
}

impl Found {
    /// A block of an object.
    pub(crate) fn block(&mut self, key: Key, place: Place, birth: u64) {
        self.add(key, (place.pack(), birth));
    }

    /// A page of metadata.
    pub(crate) fn page(&mut self, place: Place, sum: u64) {
        self.add((METADATA, 0, place.pack()), (place.pack(), sum));
    }

    pub(super) fn add(&mut self, key: Key, identity: Identity) {
        if self.listed.len() < LISTED_MAX || self.listed.contains_key(&key) {
            self.listed.insert(key, identity);
        } else {
            self.unlisted += 1;
        }
    }
}

/// The list.
#[derive(Debug, Default)]
pub(crate) struct Damage {
    pub(super) found: Found,
    /// Whether it differs from what is stored.
    pub(super) is_changed: bool,
}
