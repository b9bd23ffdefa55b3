//! The list of damaged blocks (`damage`) of a pool: loaded, kept, stored, shown.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use redb::{Database, ReadableDatabase, ReadableTable, TableError, WriteTransaction};

use crate::error::Result;
use crate::ids::{DatasetId, ObjectId, Place, UNIT_BYTES};
use crate::metadata::branches::Base;
use crate::metadata::tables::{DAMAGED, DAMAGED_UNLISTED, NUMBERS};
use crate::pool::Pool;
use crate::state::Shared;
use crate::upkeep::damage::{Damage, DamagedBlock, Found, Identity, Key, METADATA};
use fastness_sync::order::lock;

/// The list as it is stored.
pub(crate) fn load(database: &Database) -> Result<Damage> {
    let transaction = database.begin_read()?;
    let table = match transaction.open_table(DAMAGED) {
        Err(TableError::TableDoesNotExist(_)) => return Ok(Damage::default()),
        table => table?,
    };
    let mut found = Found::default();
    for row in table.iter()? {
        let (key, identity) = row?;
        found.add(key.value(), identity.value());
    }
    let unlisted = transaction.open_table(NUMBERS)?.get(DAMAGED_UNLISTED)?.map_or(0, |count| count.value());
    found.unlisted = found.unlisted.saturating_add(unlisted);
    Ok(Damage { found, is_changed: false })
}

/// Makes the tables have this list.
fn store(transaction: &WriteTransaction, listed: &BTreeMap<Key, Identity>, unlisted: u64) -> Result<()> {
    let mut table = transaction.open_table(DAMAGED)?;
    let stored = table.iter()?.map(|row| Ok(row?.0.value())).collect::<Result<Vec<_>>>()?;
    for key in stored.iter().filter(|key| !listed.contains_key(*key)) {
        table.remove(key)?;
    }
    for (key, identity) in listed {
        table.insert(key, identity)?;
    }
    transaction.open_table(NUMBERS)?.insert(DAMAGED_UNLISTED, unlisted)?;
    Ok(())
}

impl Shared {
    /// A walk over everything (`is_complete`), or over some of it, found this. It is stored by the open txg.
    pub(crate) fn note_damage(&self, found: Found, is_complete: bool) {
        let mut damage = lock(&self.damage);
        let mut new = std::mem::take(&mut damage.found);
        let (before, unlisted) = (new.listed.clone(), new.unlisted);
        if is_complete {
            new = found;
        } else {
            new.unlisted = new.unlisted.max(found.unlisted);
            found.listed.into_iter().for_each(|(key, identity)| new.add(key, identity));
        }
        damage.is_changed |= new.listed != before || new.unlisted != unlisted;
        damage.found = new;
    }

    /// A clone has changed places with the volume that it began in: what was born after its base has the
    /// other number, as its rows have.
    pub(crate) fn promote_damage(&self, clone: u64, base: Base) {
        let mut damage = lock(&self.damage);
        let listed = std::mem::take(&mut damage.found.listed);
        for (key, identity) in listed {
            let of = match key.0 {
                of if identity.1 <= base.txg.0 => of,
                of if of == clone => base.branch,
                of if of == base.branch => clone,
                of => of,
            };
            damage.is_changed |= of != key.0;
            damage.found.add((of, key.1, key.2), identity);
        }
    }

    /// The open txg stores the list if it has changed.
    fn join_damage(self: &Arc<Self>, pool: &Pool) {
        if !lock(&self.damage).is_changed {
            return;
        }
        // A pool that takes no changes keeps the list in memory.
        if let Ok(tx) = pool.begin_tx() {
            self.txgs.changes(tx.txg()).has_damage = true;
        }
    }

    pub(crate) fn store_damage(&self, transaction: &WriteTransaction) -> Result<()> {
        // Not locked meanwhile: the engine takes the lock of its file. What changes now has the next txg.
        let (listed, unlisted) = {
            let mut damage = lock(&self.damage);
            damage.is_changed = false;
            (damage.found.listed.clone(), damage.found.unlisted)
        };
        let stored = store(transaction, &listed, unlisted);
        lock(&self.damage).is_changed |= stored.is_err();
        stored
    }

    /// Which of these pages of metadata are no longer in use.
    fn without_pages(&self, listed: &BTreeMap<Key, Identity>) -> BTreeSet<Identity> {
        let pages = listed.range(..=(METADATA, u64::MAX, u64::MAX)).map(|(_, identity)| *identity);
        let mut gone: BTreeSet<_> = pages.collect();
        if !gone.is_empty() {
            for entry in self.tables.meta.entries() {
                gone.remove(&(entry.place.pack(), entry.sum));
            }
        }
        gone
    }

    /// The length of a block of the object, if the extent is still in use.
    fn block_bytes_of(&self, key: Key, (place, born): Identity) -> Result<Option<u64>> {
        let snapshot = self.tables.current();
        let extent = snapshot.extent(key)?;
        if extent.is_none_or(|extent| (extent.place.pack(), extent.birth.0) != (place, born)) {
            return Ok(None);
        }
        Ok(snapshot.object((key.0, key.1))?.map(|(_, block_bytes)| u64::from(block_bytes)))
    }
}

impl Pool {
    /// Blocks that scrubs and resilvers, of this import or earlier ones, found to have no right copy, and
    /// that were neither rewritten nor freed since; and the number of others that are not listed.
    ///
    /// Persistence: what a scrub found is durable with the txg that was open when it ended.
    pub fn damaged(&self) -> (Vec<DamagedBlock>, u64) {
        let shared = &self.shared;
        let listed = lock(&shared.damage).found.listed.clone();
        let pages_gone = shared.without_pages(&listed);
        let (mut blocks, mut gone) = (Vec::with_capacity(listed.len()), Vec::new());
        for (key, identity) in listed {
            let is_data = key.0 != METADATA;
            let len_bytes = match shared.block_bytes_of(key, identity) {
                _ if !is_data && !pages_gone.contains(&identity) => UNIT_BYTES,
                Ok(None) => {
                    gone.push((key, identity));
                    continue;
                }
                Ok(Some(len_bytes)) => len_bytes,
                // Then its row cannot be read either.
                Err(_) => 0,
            };
            blocks.push(DamagedBlock {
                owner: is_data.then_some((DatasetId(key.0), ObjectId(key.1))),
                offset: if is_data { key.2 * len_bytes } else { 0 },
                len_bytes,
                place: Place::unpack(identity.0),
            });
        }
        let mut damage = lock(&shared.damage);
        for (key, identity) in gone {
            if damage.found.listed.get(&key) == Some(&identity) {
                damage.found.listed.remove(&key);
                damage.is_changed = true;
            }
        }
        let unlisted = damage.found.unlisted;
        drop(damage);
        shared.join_damage(self);
        (blocks, unlisted)
    }

    /// Notes what a walk found, and has it stored.
    pub(crate) fn keep_damage(&self, found: Found, is_complete: bool) {
        self.shared.note_damage(found, is_complete);
        self.shared.join_damage(self);
    }
}
