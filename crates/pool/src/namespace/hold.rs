//! Datasets that are in use: what is held, or has open objects, is not destroyed.
//!
//! A [`Dataset`] is a way to look at a dataset, and keeps nothing: lists make one for each row. Whoever has
//! a dataset open, with objects or with tables alone, holds it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use fastness_base::Roomy;
use fastness_sync::order::{lock, read};

use crate::error::{PoolError, Result};
use crate::ids::ObjectId;
use crate::metadata::tables::DatasetKind;
use crate::namespace::dataset::Dataset;
use crate::objects::object::ObjectCore;
use crate::state::datasets::DatasetCore;

/// Keeps a dataset from being destroyed until it is dropped. Made by [`Dataset::hold`].
pub struct DatasetHold(Arc<DatasetCore>);

impl std::fmt::Debug for DatasetHold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DatasetHold({})", self.0.id)
    }
}

impl Drop for DatasetHold {
    fn drop(&mut self) {
        self.0.holds.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Dataset {
    /// Keeps the dataset from being destroyed for as long as the result lives; it can be renamed.
    ///
    /// # Errors
    /// [`PoolError::NoDataset`] if it was destroyed; [`PoolError::Closed`].
    pub fn hold(&self) -> Result<DatasetHold> {
        self.shared.check_alive_for_reads()?;
        // It is destroyed under this lock: not between the look and the count.
        let _namespace = read(&self.shared.datasets.namespace);
        self.check_exists()?;
        self.check_not_rolled_back()?;
        self.core.holds.fetch_add(1, Ordering::SeqCst);
        Ok(DatasetHold(self.core.clone()))
    }

    /// As [`hold`](Self::hold), for one that nobody holds: of several that ask at once, one gets it.
    ///
    /// # Errors
    /// [`PoolError::Busy`]; those of [`hold`](Self::hold).
    pub fn hold_alone(&self) -> Result<DatasetHold> {
        self.shared.check_alive_for_reads()?;
        let is_alone = {
            let _namespace = read(&self.shared.datasets.namespace);
            self.check_exists()?;
            self.check_not_rolled_back()?;
            self.core.holds.compare_exchange(0, 1, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        };
        match is_alone {
            true => Ok(DatasetHold(self.core.clone())),
            false => Err(PoolError::Busy { name: self.name(), why: self.core.why_held() }),
        }
    }

    /// Refuses a dataset that is held or has open objects. What it finds may change at once; so
    /// [`destroy_dataset`](crate::Pool::destroy_dataset) looks again.
    ///
    /// # Errors
    /// [`PoolError::Busy`]; [`PoolError::NoDataset`] if it was destroyed.
    pub fn check_unused(&self) -> Result<()> {
        self.check_exists()?;
        // Not under the lock: the name needs that of the namespace, which comes before it.
        let user = self.core.user(&lock(&self.core.objects));
        match user {
            Some(why) => Err(PoolError::Busy { name: self.name(), why }),
            None => Ok(()),
        }
    }

    pub(crate) fn check_exists(&self) -> Result<()> {
        match self.core.is_destroyed.load(Ordering::SeqCst) {
            true => Err(PoolError::NoDataset(self.core.id.to_string())),
            false => Ok(()),
        }
    }
}

impl DatasetCore {
    fn why_held(&self) -> &'static str {
        if read(&self.row).kind == DatasetKind::Receiving { "it is being received" } else { "it is open" }
    }

    /// What uses it, if something does; `objects` are its own.
    pub(crate) fn user(&self, objects: &Roomy<ObjectId, Weak<ObjectCore>>) -> Option<&'static str> {
        let is_open = |object: Arc<ObjectCore>| object.handles.load(Ordering::SeqCst) > 0;
        if self.holds.load(Ordering::SeqCst) > 0 {
            return Some(self.why_held());
        }
        objects.values().filter_map(Weak::upgrade).any(is_open).then_some("objects are open")
    }
}
