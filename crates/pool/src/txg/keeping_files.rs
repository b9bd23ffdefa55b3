//! Objects and rows of file systems that change, while snapshots need what they were
//! (`metadata::past_objects`, `metadata::past_rows`); and the removal of what no snapshot needs any more, in
//! bounded steps.
//!
//! Pruning goes through the kept objects of a file system, and then through its kept rows, each time from the
//! beginning when a snapshot was destroyed. A version serves the snapshots since the one before it.

use redb::ReadableTable;

use crate::error::Result;
use crate::ids::{TableId, Txg};
use crate::metadata::file_branches::FilesCursor;
use crate::metadata::life::{Life, Shape};
use crate::metadata::past_objects::{self, ObjectKey};
use crate::metadata::past_rows::{self, PastRowsMut};
use crate::metadata::tables::{OBJECTS, PAST_OBJECTS, PAST_ROWS};
use crate::txg::freeing::Freeing;

impl<'a> Freeing<'a> {
    /// Before the row of an object changes to `shape`, or goes: keeps it for the newest snapshot, unless it
    /// has changed since that.
    pub(super) fn keep_object(
        &self,
        objects: &impl ReadableTable<ObjectKey, Shape>,
        key: ObjectKey,
        shape: Option<Shape>,
    ) -> Result<()> {
        let Some(newest) = self.branching.newest(key.0).filter(|_| self.branching.files.has(key.0)) else {
            return Ok(());
        };
        let mut past = self.transaction.open_table(PAST_OBJECTS)?;
        let mut versions = past_objects::versions(&past, key, 0)?;
        if versions.last().is_none_or(|(txg, _)| *txg < newest.0) {
            let before = objects.get(key)?.map(|row| row.value());
            if before != shape {
                past.insert((key.0, key.1, newest.0), before)?;
                versions.push((newest.0, before));
            }
        }
        self.life.set(Some((key, Life::of(&versions, shape.is_some()))));
        Ok(())
    }

    /// Which snapshots have an object.
    pub(super) fn life_of(&self, key: ObjectKey) -> Result<Life> {
        if !self.branching.files.has(key.0) {
            return Ok(Life::WHOLE);
        }
        if let Some((_, life)) = self.life.get().filter(|(of, _)| *of == key) {
            return Ok(life);
        }
        let versions = past_objects::versions(&self.transaction.open_table(PAST_OBJECTS)?, key, 0)?;
        let is_alive = self.transaction.open_table(OBJECTS)?.get(key)?.is_some();
        let life = Life::of(&versions, is_alive);
        self.life.set(Some((key, life)));
        Ok(life)
    }

    /// Objects may change from here on.
    pub(super) fn forget_life(&self) {
        self.life.set(None);
    }

    /// Where rows of a dataset that change are to be kept, and the txg of its newest snapshot; `None`:
    /// nowhere.
    pub(crate) fn keep_rows(&self, dataset: u64) -> Result<Option<(PastRowsMut<'a>, Txg)>> {
        match self.branching.newest(dataset).filter(|_| self.branching.files.has(dataset)) {
            Some(newest) => Ok(Some((self.transaction.open_table(PAST_ROWS)?, newest))),
            None => Ok(None),
        }
    }

    /// A snapshot of a branch is gone: pruning begins anew, if it is a file system.
    pub(super) fn begin_pruning_files(&mut self, branch: u64) -> Result<()> {
        match self.branching.files.has(branch) {
            true => self.set_pruning_files(branch, Some(FilesCursor::Object(0))),
            false => Ok(()),
        }
    }

    fn set_pruning_files(&mut self, branch: u64, next: Option<FilesCursor>) -> Result<()> {
        let has_snapshots = self.branching.newest(branch).is_some();
        self.branching.files_mut().set_pruning(self.transaction, (branch, has_snapshots), next)
    }

    /// Prunes objects and rows of a file system for as long as the budget lasts; returns whether it is done.
    pub(super) fn prune_files(&mut self, branch: u64) -> Result<bool> {
        let Some(mut next) = self.branching.files.pruning_of(branch).cloned() else { return Ok(true) };
        self.forget_life();
        while self.rows > 0 {
            let after = match &next {
                FilesCursor::Object(object) => Some(self.prune_object(branch, *object)?),
                FilesCursor::Row(table, key) => self.prune_key(branch, *table, key)?,
            };
            let Some(after) = after else {
                self.set_pruning_files(branch, None)?;
                return Ok(true);
            };
            next = after;
        }
        self.set_pruning_files(branch, Some(next))?;
        Ok(false)
    }

    /// Prunes the first object from a number on; returns where to go on.
    fn prune_object(&mut self, branch: u64, from: u64) -> Result<FilesCursor> {
        let mut past = self.transaction.open_table(PAST_OBJECTS)?;
        let first = past.range((branch, from, 0)..(branch + 1, 0, 0))?.next().transpose()?;
        let Some(object) = first.map(|(key, _)| key.value().1) else {
            return Ok(FilesCursor::Row(TableId(0), Vec::new()));
        };
        let versions = past_objects::versions(&past, (branch, object), 0)?;
        let unneeded = self.unneeded(branch, versions.iter().map(|(txg, _)| *txg));
        for txg in &unneeded {
            past.remove((branch, object, *txg))?;
        }
        self.rows = self.rows.saturating_sub(1 + unneeded.len());
        Ok(FilesCursor::Object(object.saturating_add(1)))
    }

    /// Prunes the first row after a key; returns where to go on.
    fn prune_key(&mut self, branch: u64, table: TableId, key: &[u8]) -> Result<Option<FilesCursor>> {
        let mut past = self.transaction.open_table(PAST_ROWS)?;
        let Some(kept) = past_rows::next_key(&past, branch, (table, key))? else { return Ok(None) };
        let unneeded = self.unneeded(branch, kept.versions.iter().map(|(txg, _)| *txg));
        let mut removed = 1;
        for (txg, fragments) in kept.versions.iter().filter(|(txg, _)| unneeded.contains(txg)) {
            for number in 0..*fragments {
                past.remove((branch, kept.table.0, kept.key.as_slice(), *txg, number))?;
            }
            removed += usize::from(*fragments);
        }
        self.rows = self.rows.saturating_sub(removed);
        Ok(Some(FilesCursor::Row(kept.table, kept.key)))
    }

    /// Versions, oldest first, that serve no snapshot.
    fn unneeded(&self, branch: u64, versions: impl Iterator<Item = u64>) -> Vec<u64> {
        let mut from = Txg(0);
        let is_unneeded = |txg: &u64| {
            let txgs = from..Txg(txg + 1);
            from = txgs.end;
            !self.branching.snapshots(branch).any(|(at, _)| txgs.contains(&at))
        };
        versions.filter(is_unneeded).collect()
    }
}
