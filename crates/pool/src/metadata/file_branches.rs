//! Which branches are file systems, and where the removal of their objects and rows of the past goes on.
//!
//! Layout: table `pruning files`, by branch: 0 and the object with which it goes on; or, once it has been
//! through the objects, 1, a table, and the key after which it goes on.

use std::collections::BTreeMap;

use redb::{ReadTransaction, ReadableTable, TableError, WriteTransaction};

use crate::error::{PoolError, Result};
use crate::ids::TableId;
use crate::metadata::tables::{DATASETS, DatasetKind, DatasetRow, PAST_OBJECTS, PAST_ROWS, PRUNING_FILES};

/// Where pruning of a file system goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FilesCursor {
    /// With this object; rows come after all of them.
    Object(u64),
    /// With the row after this key of a table.
    Row(TableId, Vec<u8>),
}

impl FilesCursor {
    /// As stored.
    fn encode(&self) -> (u8, u64, &[u8]) {
        match self {
            FilesCursor::Object(object) => (0, *object, &[]),
            FilesCursor::Row(table, key) => (1, u64::from(table.0), key),
        }
    }

    fn decode((stage, number, key): (u8, u64, &[u8])) -> Result<FilesCursor> {
        match (stage, u8::try_from(number)) {
            (0, _) if key.is_empty() => Ok(FilesCursor::Object(number)),
            (1, Ok(table)) => Ok(FilesCursor::Row(TableId(table), key.to_vec())),
            _ => Err(PoolError::bad_value("pruning files", format!("stage {stage}, number {number}"))),
        }
    }
}

/// File systems with snapshots, or with what is left of them → where pruning goes on, if it does.
#[derive(Debug, Clone, Default)]
pub(crate) struct FileBranches(BTreeMap<u64, Option<FilesCursor>>);

impl FileBranches {
    /// Loads those of `branches` that are file systems, and those that are being pruned.
    pub(crate) fn load(
        transaction: &ReadTransaction,
        branches: impl Iterator<Item = u64>,
    ) -> Result<FileBranches> {
        let mut all = FileBranches::default();
        if let Some(datasets) = opened(transaction.open_table(DATASETS))? {
            for branch in branches {
                let row = datasets.get(branch)?.map(|row| DatasetRow::decode(row.value())).transpose()?;
                if row.is_some_and(|row| row.kind == DatasetKind::Filesystem) {
                    all.0.insert(branch, None);
                }
            }
        }
        if let Some(pruning) = opened(transaction.open_table(PRUNING_FILES))? {
            for row in pruning.iter()? {
                let (branch, next) = row?;
                all.0.insert(branch.value(), Some(FilesCursor::decode(next.value())?));
            }
        }
        Ok(all)
    }

    /// Whether a branch is one of them.
    pub(crate) fn has(&self, branch: u64) -> bool {
        self.0.contains_key(&branch)
    }

    /// The first one that is being pruned.
    pub(crate) fn next_pruning(&self) -> Option<u64> {
        self.0.iter().find(|(_, next)| next.is_some()).map(|(branch, _)| *branch)
    }

    /// Where pruning of a branch goes on.
    pub(crate) fn pruning_of(&self, branch: u64) -> Option<&FilesCursor> {
        self.0.get(&branch)?.as_ref()
    }

    /// A branch gets a snapshot.
    pub(crate) fn insert(&mut self, transaction: &WriteTransaction, branch: u64) -> Result<()> {
        transaction.open_table(PAST_OBJECTS)?;
        transaction.open_table(PAST_ROWS)?;
        transaction.open_table(PRUNING_FILES)?;
        self.0.entry(branch).or_default();
        Ok(())
    }

    /// Pruning of a branch goes on here; `None`: it is done, and if it has no snapshots, nothing is left.
    pub(crate) fn set_pruning(
        &mut self,
        transaction: &WriteTransaction,
        (branch, has_snapshots): (u64, bool),
        next: Option<FilesCursor>,
    ) -> Result<()> {
        let mut table = transaction.open_table(PRUNING_FILES)?;
        match &next {
            Some(next) => drop(table.insert(branch, next.encode())?),
            None => drop(table.remove(branch)?),
        }
        match next.is_some() || has_snapshots {
            true => drop(self.0.insert(branch, next)),
            false => drop(self.0.remove(&branch)),
        }
        Ok(())
    }
}

fn opened<T>(table: std::result::Result<T, TableError>) -> Result<Option<T>> {
    match table {
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        table => Ok(Some(table?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_go_there_and_back() {
        let all = [
            FilesCursor::Object(0),
            FilesCursor::Object(u64::MAX),
            FilesCursor::Row(TableId(255), vec![1, 2]),
        ];
        for cursor in all {
            assert_eq!(FilesCursor::decode(cursor.encode()).unwrap(), cursor);
        }
        for bad in [(0, 1, &[1][..]), (1, 256, &[]), (2, 0, &[])] {
            assert!(matches!(FilesCursor::decode(bad), Err(PoolError::BadValue { .. })), "{bad:?}");
        }
    }
}
