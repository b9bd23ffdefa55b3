//! Objects of a dataset: creating, opening, destroying.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::{PoolError, Result};
use crate::ids::{ObjectId, Txg};
use crate::metadata::tables::DatasetKind;
use crate::namespace::dataset::Dataset;
use crate::namespace::props::Property;
use crate::objects::extent::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN};
use crate::objects::handle::Object;
use crate::objects::object::ObjectCore;
use crate::pool::Tx;
use crate::space::room::{Charge, Claim};
use fastness_sync::order::{lock, write};

/// Objects of a dataset that are known at least, before those that nothing has open are forgotten.
const KNOWN_MIN: usize = 1000;

impl Dataset {
    /// Creates an empty object with blocks of the dataset's `recordsize` or `volblocksize`. In a new dataset
    /// the first one is [`ObjectId`] 1, and numbers count up.
    ///
    /// # Errors
    /// [`PoolError::ReadOnly`], [`PoolError::NoSpace`]; [`PoolError::NoDataset`] if it was destroyed;
    /// [`PoolError::Overtaken`] if a newer txg creates the dataset.
    pub fn create_object(&self, tx: &Tx) -> Result<Object> {
        let property = match self.kind() {
            DatasetKind::Folder | DatasetKind::Filesystem | DatasetKind::Other(_) => Property::RecordSize,
            DatasetKind::Volume | DatasetKind::Receiving | DatasetKind::Snapshot => Property::VolBlockSize,
        };
        self.new_object(tx, self.allot_object(), self.get(property).0 as u32)
    }

    /// Takes the next number for an object; none is given twice.
    pub fn allot_object(&self) -> ObjectId {
        ObjectId(self.core.next_object.fetch_add(1, Ordering::SeqCst))
    }

    /// A number is in use, whoever gave it. Returns whether it is higher than all that were in use before:
    /// then nothing that is stored with the dataset has it.
    pub fn note_object(&self, id: ObjectId) -> bool {
        self.core.next_object.fetch_max(id.0 + 1, Ordering::SeqCst) <= id.0
    }

    /// Creates an empty object with a number that was allotted, and with blocks of this size, a power of two.
    ///
    /// # Errors
    /// As [`create_object`](Self::create_object); [`PoolError::Invalid`] for another size of blocks, and for
    /// a number that an object has.
    pub fn create_object_with(&self, tx: &Tx, id: ObjectId, block_bytes: u32) -> Result<Object> {
        if !block_bytes.is_power_of_two() || !(BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&block_bytes) {
            return Err(PoolError::invalid("bytes of a block", block_bytes));
        }
        match self.object(id) {
            Ok(_) => return Err(PoolError::invalid("number of a new object", id)),
            Err(PoolError::NoObject { .. }) => {}
            Err(error) => return Err(error),
        }
        // A contract that costs a lookup: debug builds check it, and with them all simulations.
        debug_assert!(!self.is_being_freed(id)?, "number {id} is given again before its object was freed");
        self.note_object(id);
        self.new_object(tx, id, block_bytes)
    }

    fn new_object(&self, tx: &Tx, id: ObjectId, block_bytes: u32) -> Result<Object> {
        if self.is_read_only() && !tx.is_replay() {
            return Err(PoolError::ReadOnly(self.name()));
        }
        if tx.txg() < self.core.born {
            return Err(PoolError::Overtaken { txg: tx.txg(), newest: self.core.born });
        }
        // Before locking: quotas read the namespace, and a thread that holds that may want the lock.
        let past = Charge::rows(u64::from(self.core.has_snapshots.load(Ordering::SeqCst)));
        let charge = Charge::object() + past;
        self.shared.reserve(&self.core, charge, tx.claim(Claim::Data))?;
        let mut objects = lock(&self.core.objects);
        if self.core.is_destroyed.load(Ordering::SeqCst) {
            self.shared.settle(&self.core, charge, Charge::default());
            return Err(PoolError::NoDataset(self.core.id.to_string()));
        }
        let core = Arc::new(ObjectCore::new(self.core.id, id, tx.txg(), block_bytes, 0));
        objects.make_room(KNOWN_MIN, |core| core.strong_count() > 0);
        objects.insert(id, Arc::downgrade(&core));
        let object = Object::new(self.shared.clone(), self.core.clone(), core);
        let mut contents = write(&object.core.contents);
        // A new layer is charged for the rest.
        let index = object.layer(&mut contents, tx);
        contents.layer_mut(index).charged += past;
        drop(contents);
        Ok(object)
    }

    /// Opens an object.
    ///
    /// # Errors
    /// [`PoolError::NoObject`]; [`PoolError::NoDataset`] if the dataset was destroyed;
    /// [`PoolError::Closed`].
    pub fn object(&self, id: ObjectId) -> Result<Object> {
        self.shared.check_alive_for_reads()?;
        let none = || PoolError::NoObject { dataset: self.core.id, object: id };
        let mut objects = lock(&self.core.objects);
        self.check_exists()?;
        self.check_not_rolled_back()?;
        let core = match objects.get(&id).and_then(std::sync::Weak::upgrade) {
            Some(core) if core.is_destroyed.load(Ordering::SeqCst) => return Err(none()),
            Some(core) => core,
            None => {
                // Under the lock, so that the same object is not created twice.
                let snapshot = self.shared.tables.current();
                let row = snapshot.object((self.core.id.0, id.0));
                let (size_bytes, block_bytes) = self.shared.tables.explained(row)?.ok_or_else(none)?;
                let core = Arc::new(ObjectCore::new(self.core.id, id, Txg(0), block_bytes, size_bytes));
                objects.make_room(KNOWN_MIN, |core| core.strong_count() > 0);
                objects.insert(id, Arc::downgrade(&core));
                core
            }
        };
        Ok(Object::new(self.shared.clone(), self.core.clone(), core))
    }

    /// Destroys an object: it is gone at once for all handles; its space is freed in the following txgs. Its
    /// number must not be given again, unless by the txg that has created and destroyed it.
    ///
    /// # Errors
    /// [`PoolError::NoObject`]; unless this txg has created it: [`PoolError::ReadOnly`],
    /// [`PoolError::Overtaken`] as for a write, [`PoolError::NoSpace`] while a great deal is being destroyed:
    /// [`reclaim`](crate::Pool::reclaim) helps.
    pub fn destroy_object(&self, tx: &Tx, id: ObjectId) -> Result<()> {
        let object = self.object(id)?;
        // What a transaction has created, it can always take back: no more room is needed, and no table has
        // anything of it.
        let is_own = object.core.born == tx.txg();
        if !is_own && self.is_read_only() && !tx.is_replay() {
            return Err(PoolError::ReadOnly(self.name()));
        }
        object.core.check_born(tx.txg())?;
        let mut contents = write(&object.core.contents);
        object.check_there()?;
        let claim = if is_own { Claim::Replay } else { Claim::Free };
        let counts = object.rows_of_past_object();
        let held = object.hold_room(tx, &contents, claim, (0, 0), &(0..0), counts)?;
        // What is listed is freed later, and by number: an object that is created again with this number
        // would be freed, too.
        let rows = if is_own { Ok(()) } else { self.doom(tx, id) };
        if rows.is_ok() {
            object.core.is_destroyed.store(true, Ordering::SeqCst);
            let index = object.layer(&mut contents, tx);
            held.charge_counts(&mut contents, index);
            for later in index..contents.layers.len() {
                contents.layer_mut(later).is_destroyed = true;
            }
        }
        object.settle(held, &contents);
        rows
    }

    /// Lists an object to be freed.
    fn doom(&self, tx: &Tx, id: ObjectId) -> Result<()> {
        let mut changes = self.shared.txgs.changes(tx.txg());
        self.shared.reserve_rows(&mut changes, Charge::rows(1), tx.claim(Claim::Free))?;
        changes.doomed.push((self.core.id.0, id.0, id.0));
        Ok(())
    }

    /// Whether an object that had this number is still listed to be freed. What a sync that is running has
    /// taken from the lists is not seen.
    fn is_being_freed(&self, id: ObjectId) -> Result<bool> {
        let listed = (self.core.id.0, id.0, id.0);
        let is_synced = self.shared.tables.current().is_doomed(listed);
        Ok(self.shared.txgs.is_doomed(listed) || self.shared.tables.explained(is_synced)?)
    }

    /// Objects of the last synced txg.
    ///
    /// # Errors
    /// Those of reading the tables.
    pub fn synced_objects(&self) -> Result<Vec<ObjectId>> {
        self.shared.check_alive_for_reads()?;
        let objects = self.shared.tables.current().objects_of(self.core.id.0);
        Ok(self.shared.tables.explained(objects)?.into_iter().map(ObjectId).collect())
    }
}
