//! Sets properties of datasets, those of the pool and those of users.

use crate::error::{PoolError, Result};
use crate::metadata::tables::DatasetKind;
use crate::namespace::dataset::Dataset;
use crate::namespace::props::Property;
use crate::namespace::settings::Feature;
use crate::namespace::user::UserChanges;
use crate::pool::Tx;
use crate::space::thick::check_kind;
use fastness_sync::order::write;

impl Dataset {
    /// Sets a value, or with `None` reverts to the inherited one. A new compression applies to new blocks at
    /// once; a new record size applies to new objects.
    ///
    /// # Errors
    /// [`PoolError::Invalid`], [`PoolError::Overtaken`], [`PoolError::Reservation`].
    pub fn set(&self, tx: &Tx, property: Property, value: Option<u64>) -> Result<()> {
        self.set_all(tx, &[(property, value)], &[])
    }

    /// Sets values, as [`set`](Self::set) does, and properties of users: all of them, or none. A snapshot can
    /// have the latter only.
    ///
    /// # Errors
    /// Those of [`set`](Self::set); [`PoolError::Invalid`] for a name or value of a user property, and if the
    /// pool has too many of them; [`PoolError::NoSpace`]. Nothing was set.
    pub fn set_all(&self, tx: &Tx, values: &[(Property, Option<u64>)], users: UserChanges<'_>) -> Result<()> {
        let is_snapshot = self.kind() == DatasetKind::Snapshot;
        for (property, value) in values {
            if let Some(value) = value {
                property.check(*value)?;
            }
            if *property == Property::VolBlockSize || is_snapshot {
                return Err(PoolError::invalid("property to change", property.name()));
            }
        }
        // Before the namespace is locked: this may read from the vdevs.
        self.shared.check_users(users)?;
        let thick = values.iter().find(|(property, _)| *property == Property::RefReservation);
        let thick = thick.and_then(|(_, value)| *value);
        if thick.is_some() {
            check_kind(self.kind(), &self.name())?;
            self.shared.need(tx, Feature::ThickVolumes)?;
        }
        let mut namespace = write(&self.shared.datasets.namespace);
        namespace.check_order(tx.txg())?;
        self.check_exists()?;
        for (property, value) in values {
            if let (Property::Reservation, Some(bytes)) = (property, value) {
                let name = namespace.path(self.core.id.0);
                self.shared.check_reservation(&namespace, (&name, Some(self.core.id.0)), *bytes)?;
            }
        }
        if let Some(bytes) = thick {
            let name = namespace.path(self.core.id.0);
            self.shared.check_thick(&namespace, (&name, Some(&self.core)), bytes, 0)?;
        }
        self.store_users(tx, users)?;
        if values.is_empty() {
            return Ok(());
        }
        {
            let mut row = write(&self.core.row);
            values.iter().for_each(|(property, value)| row.values.set(*property, *value));
            self.shared.note_dataset(&mut namespace, tx, self.core.id.0, Some(&row));
        }
        if thick.is_some() {
            // What its snapshots have is not known: as if there were a new one.
            self.core.pin_all(tx.txg());
            self.shared.txgs.changes(tx.txg()).pinning.insert(self.core.id.0);
        }
        namespace.refresh(self.core.id.0);
        self.shared.datasets.count_limits(&namespace);
        Ok(())
    }
}
