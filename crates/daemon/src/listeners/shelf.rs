//! The volumes at one address, by their names.

use std::sync::Arc;

use fastness_nbd::{Export, ExportEntry, Exports, OpenError};
use fastness_sync::{Mutex, lock};

use crate::export::VolumeExport;

/// Each volume under the name that it has now; the only one, under the empty name too. None under a name that
/// it had: that may be the name of another.
#[derive(Default)]
pub(super) struct Shelf(Mutex<Vec<Arc<VolumeExport>>>);

impl Shelf {
    /// Whether it was not there yet.
    pub(super) fn add(&self, export: &Arc<VolumeExport>) -> bool {
        let mut exports = lock(&self.0);
        let is_new = exports.iter().all(|known| known.dataset() != export.dataset());
        if is_new {
            exports.push(export.clone());
        }
        is_new
    }

    /// Whether any is left.
    pub(super) fn remove(&self, export: &Arc<VolumeExport>) -> bool {
        let mut exports = lock(&self.0);
        exports.retain(|known| !Arc::ptr_eq(known, export));
        !exports.is_empty()
    }
}

impl Exports for Shelf {
    fn open(&self, name: &str) -> Result<Arc<dyn Export>, OpenError> {
        let exports = lock(&self.0);
        if name.is_empty() {
            return match &exports[..] {
                [only] => Ok(only.clone()),
                [] => Err(OpenError::Unknown),
                _ => Err(OpenError::Forbidden {
                    reason: "several volumes are served here: name one".to_owned(),
                }),
            };
        }
        let found = exports.iter().find(|export| export.name() == name);
        found.map(|export| export.clone() as Arc<dyn Export>).ok_or(OpenError::Unknown)
    }

    fn list(&self) -> Option<Vec<ExportEntry>> {
        let entry = |export: &Arc<VolumeExport>| ExportEntry {
            name: export.name(),
            description: export.description().unwrap_or_default(),
        };
        Some(lock(&self.0).iter().map(entry).collect())
    }
}
