//! A branch becomes what its newest snapshot is: rows that were kept take the place of the current ones.
//!
//! Of a file system, objects that were created since go, as if they were destroyed in this txg; those that
//! were destroyed since are there again, and not freed any further.

use std::sync::atomic::Ordering;

use redb::ReadableTable;

use crate::error::Result;
use crate::ids::TableId;
use crate::metadata::branches::Base;
use crate::metadata::past;
use crate::metadata::past_objects;
use crate::metadata::past_rows;
use crate::metadata::tables::{DOOMED, EXTENTS, OBJECTS, PAST_OBJECTS, PAST_ROWS, PastKey, ROWS};
use crate::rows::layer::Row;
use crate::rows::stored;
use crate::txg::freeing::Freeing;
use crate::txg::keeping::bytes_of;

impl Freeing<'_> {
    /// Rolls a branch back.
    pub(super) fn roll_back(&mut self, base: Base) -> Result<()> {
        let rows = self.rows;
        self.branching.note_moved(&[base.branch]);
        self.forget_life();
        self.roll_back_extents(base)?;
        if self.branching.files.has(base.branch) {
            self.roll_back_objects(base)?;
            self.roll_back_rows(base)?;
        }
        self.forget_life();
        // Room for these rows was reserved.
        self.rows = rows;
        Ok(())
    }

    fn roll_back_extents(&mut self, base: Base) -> Result<()> {
        let mut table = self.transaction.open_table(EXTENTS)?;
        let mut next = (0, 0);
        loop {
            let found = {
                let past = self.past()?;
                let from: PastKey = (base.branch, next.0, next.1, 0);
                let row = past.range(from..(base.branch + 1, 0, 0, 0))?.next().transpose()?;
                row.map(|(key, _)| key.value())
            };
            let Some((_, object, group, _)) = found else { return Ok(()) };
            next = (object, group + 1);
            let key = (base.branch, object, group);
            let mut before = past::versions(&self.past()?, key, 0)?;
            let Some(at) = before.iter().position(|(txg, _)| *txg >= base.txg.0) else { continue };
            // What the row has now goes like a version of the past; so do versions that only snapshots have
            // had which are gone, of an object that was created since.
            let now = self.row(&table, key)?;
            let has_it = self.life_of((base.branch, object))?.has(base.txg);
            let (kept, then) = (before[..at].to_vec(), if has_it { before[at].1 } else { now });
            before.push((u64::MAX, now));
            self.store_row(&mut table, key, &then)?;
            self.replace_past(&table, key, &before, &kept)?;
            self.note_shown(base.branch, bytes_of(&then) - bytes_of(&now));
        }
    }

    fn roll_back_objects(&mut self, base: Base) -> Result<()> {
        let mut past = self.transaction.open_table(PAST_OBJECTS)?;
        let mut objects = self.transaction.open_table(OBJECTS)?;
        let mut doomed = self.transaction.open_table(DOOMED)?;
        let mut next = Some(0);
        while let Some(from) = next {
            let first = past.range((base.branch, from, 0)..(base.branch + 1, 0, 0))?.next().transpose()?;
            let Some(object) = first.map(|(key, _)| key.value().1) else { break };
            next = object.checked_add(1);
            let (key, listed) = ((base.branch, object), (base.branch, object, object));
            let versions = past_objects::versions(&past, key, base.txg.0)?;
            for (txg, _) in &versions {
                past.remove((base.branch, object, *txg))?;
            }
            match versions.first() {
                None => {}
                Some((_, Some(shape))) => {
                    objects.insert(key, *shape)?;
                    doomed.remove(listed)?;
                }
                Some((_, None)) => {
                    let is_there = objects.remove(key)?.is_some();
                    if is_there {
                        doomed.insert(listed, ())?;
                        self.shared.backlog.has_doomed.store(true, Ordering::SeqCst);
                    }
                }
            }
        }
        Ok(())
    }

    fn roll_back_rows(&mut self, base: Base) -> Result<()> {
        let mut past = self.transaction.open_table(PAST_ROWS)?;
        let mut rows = self.transaction.open_table(ROWS)?;
        let mut at = (TableId(0), Vec::new());
        while let Some(kept) = past_rows::next_key(&past, base.branch, (at.0, &at.1))? {
            let mut then = None;
            for (txg, fragments) in kept.versions.iter().filter(|(txg, _)| *txg >= base.txg.0) {
                let mut value = Some(Vec::new());
                for number in 0..*fragments {
                    let of = (base.branch, kept.table.0, kept.key.as_slice(), *txg, number);
                    match past.remove(of)?.and_then(|row| row.value().map(<[u8]>::to_vec)) {
                        Some(fragment) => value.iter_mut().for_each(|value| value.extend(&fragment)),
                        None => value = None,
                    }
                }
                then.get_or_insert(value);
            }
            if let Some(value) = then {
                let row = Row::new(&kept.key, value.as_deref());
                stored::store(&mut rows, base.branch, kept.table, &row)?;
            }
            at = (kept.table, kept.key);
        }
        Ok(())
    }
}
