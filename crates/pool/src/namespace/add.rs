//! Adds a dataset to the tree: a new one, a snapshot, or a clone.

use std::sync::Arc;

use crate::error::{PoolError, Result};
use crate::ids::RECEIVED;
use crate::metadata::branches::Base;
use crate::metadata::tables::{DatasetKind, DatasetRow};
use crate::namespace::created::{CREATED, now};
use crate::namespace::names::split;
use crate::namespace::props::{Property, Values};
use crate::pool::Tx;
use crate::space::room::{Charge, Claim};
use crate::state::Shared;
use crate::state::datasets::{DatasetCore, Namespace};
use fastness_sync::order::{Mutex, read};

/// What a dataset is to be.
pub(super) struct New<'a, F> {
    pub(super) kind: DatasetKind,
    /// Whether it is to take the place of what it is a clone of.
    pub(super) is_copy: bool,
    /// Values of its own.
    pub(super) properties: &'a [(Property, u64)],
    /// No object has this number, or a higher one.
    pub(super) next_object: u64,
    /// What it takes.
    pub(super) charge: Charge,
    /// Under which it takes that.
    pub(super) claim: Claim,
    /// Where it begins, from its number.
    pub(super) base: F,
}

impl Shared {
    /// Adds a dataset in a transaction; the caller holds the namespace exclusively.
    ///
    /// # Errors
    /// As [`Pool::create_dataset`](crate::Pool::create_dataset); nothing was changed.
    pub(super) fn add_dataset<F: FnOnce(u64) -> Option<Base>>(
        &self,
        namespace: &mut Namespace,
        tx: &Tx,
        name: &str,
        new: New<'_, F>,
    ) -> Result<Arc<DatasetCore>> {
        let (parent, last) = split(name)?;
        if (new.kind == DatasetKind::Snapshot) != last.starts_with('@') {
            return Err(PoolError::invalid("name of a dataset", name));
        }
        if (last == RECEIVED) != (new.kind == DatasetKind::Receiving && new.is_copy) {
            return Err(PoolError::invalid("name of a dataset", name));
        }
        let mut values = Values::default();
        for (property, value) in new.properties {
            property.check(*value)?;
            values.set(*property, Some(*value));
        }
        namespace.check_order(tx.txg())?;
        let parent = namespace.find(parent).ok_or_else(|| PoolError::NoDataset(parent.to_owned()))?;
        let key = (parent.id.0, last.to_owned());
        if namespace.children.contains_key(&key) {
            return Err(PoolError::Exists(name.to_owned()));
        }
        if let Some(bytes) = values.get(Property::Reservation) {
            self.check_reservation(namespace, (name, None), bytes)?;
        }
        if let Some(bytes) = values.get(Property::RefReservation) {
            let own = values.get(Property::VolBlockSize);
            let block_bytes = own.unwrap_or(Property::VolBlockSize.default_value());
            self.check_thick(namespace, (name, None), bytes, block_bytes)?;
        }
        self.reserve_rows(&mut self.txgs.changes(tx.txg()), new.charge, tx.claim(new.claim))?;
        let id = namespace.next_id;
        namespace.next_id += 1;
        let row = DatasetRow { parent: parent.id.0, kind: new.kind, name: last.to_owned(), values };
        self.note_dataset(namespace, tx, id, Some(&row));
        self.txgs.changes(tx.txg()).aux.insert((id, CREATED.to_vec()), Some(now()));
        let base = (new.base)(id);
        let core = Arc::new(DatasetCore {
            base: Mutex::new(base),
            ..DatasetCore::new(id, tx.txg(), row, new.next_object, 0)
        });
        namespace.by_id.insert(id, core.clone());
        namespace.children.insert(key, id);
        self.space.room.set_datasets(namespace.by_id.len());
        namespace.refresh(id);
        if read(&core.row).has_limit() {
            self.datasets.note_limit();
        }
        Ok(core)
    }

    /// Records a row for the transaction's txg. The caller holds the namespace exclusively and has checked
    /// the order.
    pub(super) fn note_dataset(&self, namespace: &mut Namespace, tx: &Tx, id: u64, row: Option<&DatasetRow>) {
        namespace.newest = Some(tx.txg());
        self.txgs.changes(tx.txg()).datasets.insert(id, row.map(DatasetRow::encode));
    }
}
