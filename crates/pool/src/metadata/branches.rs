//! Which snapshots and clones there are, and as of when.
//!
//! Terms: a *branch* is the number of a volume or file system under which its rows are stored. A snapshot has
//! no rows of its own: it is a branch as of a txg. A clone is a branch of its own, and what it has no row for
//! is as in its *base*, the snapshot that it was made from. How rows are kept and found: `past`.
//!
//! Layout: table `bases`, by dataset: branch, txg, snapshot. For a snapshot, the last is its own number.
//! Table `holes`, by snapshot, object and first block: end and txg of a range that was cleared, and not yet
//! freed, when the snapshot was made (`cleared`). Table `pruning`, by branch: object and group with which the
//! removal of what no snapshot needs any more goes on. None of them exists before there was a snapshot.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use redb::{ReadTransaction, ReadableTable, TableError, WriteTransaction};

use crate::error::{PoolError, Result};
use crate::ids::{DatasetId, Txg};
use crate::metadata::file_branches::FileBranches;
use crate::metadata::life::Life;
use crate::metadata::tables::{BASES, ExtentKey, HOLES, PRUNING, SHOWN};
use crate::objects::cleared::Cleared;
use crate::objects::extent::Extent;

/// Where a snapshot or a clone begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Base {
    /// The number under which its rows are.
    pub(crate) branch: u64,
    /// As of the end of this txg.
    pub(crate) txg: Txg,
    /// The snapshot; of a snapshot, itself.
    pub(crate) snapshot: u64,
}

impl Base {
    /// Where it begins once a clone, whose base this is, has changed places with the volume that it began in:
    /// what is no newer than that base stays, and the rest goes with its volume.
    pub(crate) fn promoted(self, clone: u64, base: Base) -> Base {
        let branch = match self.branch {
            branch if branch == clone => base.branch,
            branch if branch == base.branch && self.txg > base.txg => clone,
            branch => branch,
        };
        Base { branch, ..self }
    }
}

/// All of them, as of one txg.
#[derive(Debug, Clone, Default)]
pub(crate) struct Branches {
    bases: BTreeMap<u64, Base>,
    /// Branch → txg and number of each snapshot.
    snapshots: BTreeMap<u64, BTreeSet<(Txg, u64)>>,
    /// Branch → next object and group.
    pruning: BTreeMap<u64, (u64, u64)>,
    pub(crate) files: FileBranches,
    holes: Cleared,
    /// Branches whose rows were moved since the import, and how many moves there were before.
    moved: BTreeMap<u64, u64>,
    moves: u64,
}

/// What one txg does to them, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BranchChange {
    /// A snapshot, as of the end of the txg; `of_files`: of a file system.
    Snapshot { id: u64, branch: u64, of_files: bool },
    /// A clone of a snapshot that is durable.
    Clone { id: u64, base: Base },
    /// A snapshot is destroyed.
    Gone { id: u64 },
    /// A volume becomes what a snapshot is.
    Rollback { id: u64, base: Base },
    /// A clone and the volume that it began in change places (`txg::promoting`).
    Promote { clone: u64, base: Base },
    /// A volume becomes what a clone of its newest snapshot is; the clone is destroyed.
    Absorb { clone: u64, base: Base },
}

impl BranchChange {
    /// Volumes that have other contents than before.
    pub(crate) fn replaced(&self) -> Vec<DatasetId> {
        match self {
            BranchChange::Rollback { id, .. } => vec![DatasetId(*id)],
            BranchChange::Promote { clone, base } | BranchChange::Absorb { clone, base } => {
                vec![DatasetId(*clone), DatasetId(base.branch)]
            }
            _ => Vec::new(),
        }
    }
}

impl Branches {
    /// Loads the tables.
    pub(crate) fn load(transaction: &ReadTransaction) -> Result<Branches> {
        let mut all = Branches::default();
        let bases = match transaction.open_table(BASES) {
            Err(TableError::TableDoesNotExist(_)) => return Ok(all),
            bases => bases?,
        };
        for row in bases.iter()? {
            let (id, value) = row?;
            let (id, (branch, txg, snapshot)) = (id.value(), value.value());
            if snapshot > id || snapshot == branch {
                return Err(PoolError::bad_value("bases", format!("{branch} and {snapshot} for {id}")));
            }
            all.add(id, Base { branch, txg: Txg(txg), snapshot });
        }
        // A branch is younger than its base, so no chain of bases has an end that is its beginning.
        let is_older = |base: &Base| all.base(base.branch).is_none_or(|of| of.txg < base.txg);
        if let Some((id, base)) = all.bases.iter().find(|(_, base)| !is_older(base)) {
            return Err(PoolError::bad_value("bases", format!("{} for {id} is no older", base.branch)));
        }
        all.holes = Cleared::load(&transaction.open_table(HOLES)?)?;
        for row in transaction.open_table(PRUNING)?.iter()? {
            let (branch, next) = row?;
            all.pruning.insert(branch.value(), next.value());
        }
        all.files = FileBranches::load(transaction, all.snapshots.keys().copied())?;
        Ok(all)
    }

    fn add(&mut self, id: u64, base: Base) {
        if base.snapshot == id {
            self.snapshots.entry(base.branch).or_default().insert((base.txg, id));
        }
        self.bases.insert(id, base);
    }

    fn remove(&mut self, id: u64) -> Option<Base> {
        let base = self.bases.remove(&id)?;
        if let Some(of_branch) = self.snapshots.get_mut(&base.branch) {
            of_branch.remove(&(base.txg, id));
            if of_branch.is_empty() {
                self.snapshots.remove(&base.branch);
            }
        }
        Some(base)
    }

    /// Where a dataset begins; `None` for one that is neither a snapshot nor a clone.
    pub(crate) fn base(&self, dataset: u64) -> Option<Base> {
        self.bases.get(&dataset).copied()
    }

    /// The same, as far as it still shows there: what is left of a clone may outlast its snapshot, while it
    /// is being freed, and then has nothing but its own rows.
    pub(crate) fn shown_base(&self, dataset: u64) -> Option<Base> {
        self.base(dataset).filter(|base| self.bases.contains_key(&base.snapshot))
    }

    /// Holes of a snapshot: object and first block, end, txg.
    pub(crate) fn holes(&self, snapshot: u64) -> Vec<(ExtentKey, (u64, Txg))> {
        self.holes.of(snapshot)
    }

    /// How often rows were moved since the import, from one branch to another or from the past.
    pub(crate) fn moves(&self) -> u64 {
        self.moves
    }

    /// Branches that have got such rows since there were so many moves.
    pub(crate) fn moved_since(&self, moves: u64) -> Vec<u64> {
        self.moved.iter().filter(|(_, at)| **at >= moves).map(|(branch, _)| *branch).collect()
    }

    /// Whether there is nothing to look for.
    pub(crate) fn is_empty(&self) -> bool {
        self.bases.is_empty() && !self.has_pruning()
    }

    /// Numbers of all snapshots and clones, and where each begins.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u64, Base)> {
        self.bases.iter().map(|(id, base)| (*id, *base))
    }

    /// Snapshots of a branch, oldest first.
    pub(crate) fn snapshots(&self, branch: u64) -> impl DoubleEndedIterator<Item = (Txg, u64)> {
        self.snapshots.get(&branch).into_iter().flatten().copied()
    }

    /// The txg of the newest snapshot of a branch.
    pub(crate) fn newest(&self, branch: u64) -> Option<Txg> {
        self.snapshots(branch).next_back().map(|(txg, _)| txg)
    }

    /// Whether a branch may have rows of the past.
    pub(crate) fn has_past(&self, branch: u64) -> bool {
        self.snapshots.contains_key(&branch) || self.pruning.contains_key(&branch)
    }

    /// Whether any branch is being pruned.
    pub(crate) fn has_pruning(&self) -> bool {
        !self.pruning.is_empty() || self.files.next_pruning().is_some()
    }

    /// Where pruning goes on.
    pub(crate) fn next_pruning(&self) -> Option<(u64, (u64, u64))> {
        self.pruning.first_key_value().map(|(branch, next)| (*branch, *next))
    }

    /// Where pruning of a branch goes on.
    pub(crate) fn pruning_of(&self, branch: u64) -> Option<(u64, u64)> {
        self.pruning.get(&branch).copied()
    }

    /// Whether a snapshot has a hole where its rows have an extent.
    pub(crate) fn hides(&self, snapshot: u64, object: u64, block: u64, extent: &Extent) -> bool {
        self.holes.hides((snapshot, object, block), extent)
    }

    /// Whether a snapshot of these txgs shows an extent of its branch; `key`: branch, object and block;
    /// `life`: that of the object.
    pub(crate) fn is_shown(&self, key: ExtentKey, extent: &Extent, life: Life, txgs: &Range<Txg>) -> bool {
        let shows = |(txg, id): (Txg, u64)| {
            let has = txgs.contains(&txg) && life.has(txg);
            has && txg >= extent.birth && !self.hides(id, key.1, key.2, extent)
        };
        self.snapshots(key.0).rev().any(shows)
    }

    /// Whether any snapshot of the branch shows it.
    pub(crate) fn is_needed(&self, key: ExtentKey, extent: &Extent, life: Life) -> bool {
        self.is_shown(key, extent, life, &(Txg(0)..Txg(u64::MAX)))
    }

    /// The txg of the newest snapshot of a branch that has an object with this life.
    pub(crate) fn newest_with(&self, branch: u64, life: Life) -> Option<Txg> {
        self.snapshots(branch).rev().map(|(txg, _)| txg).find(|txg| life.has(*txg))
    }
}

/// Changes of them in one txg.
pub(crate) struct Branching<'a> {
    transaction: &'a WriteTransaction,
    all: Arc<Branches>,
}

impl std::ops::Deref for Branching<'_> {
    type Target = Branches;

    fn deref(&self) -> &Branches {
        &self.all
    }
}

impl<'a> Branching<'a> {
    pub(crate) fn new(transaction: &'a WriteTransaction, all: Arc<Branches>) -> Branching<'a> {
        Branching { transaction, all }
    }

    /// File systems among the branches.
    pub(crate) fn files_mut(&mut self) -> &mut FileBranches {
        &mut Arc::make_mut(&mut self.all).files
    }

    /// There is one more; `holes` are what its branch has cleared and not freed.
    pub(crate) fn insert(&mut self, id: u64, base: Base, holes: &[(ExtentKey, (u64, Txg))]) -> Result<()> {
        self.transaction.open_table(BASES)?.insert(id, (base.branch, base.txg.0, base.snapshot))?;
        self.transaction.open_table(PRUNING)?;
        let mut table = self.transaction.open_table(HOLES)?;
        let all = Arc::make_mut(&mut self.all);
        all.add(id, base);
        for ((_, object, first), (end, txg)) in holes {
            table.insert((id, *object, *first), (*end, txg.0))?;
            all.holes.put((id, *object, *first), (*end, *txg));
        }
        Ok(())
    }

    /// A snapshot is gone, or nothing of a clone is left; returns what it was.
    pub(crate) fn forget(&mut self, id: u64) -> Result<Option<Base>> {
        let all = Arc::make_mut(&mut self.all);
        let Some(base) = all.remove(id) else { return Ok(None) };
        self.transaction.open_table(BASES)?.remove(id)?;
        self.transaction.open_table(SHOWN)?.remove(id)?;
        let mut table = self.transaction.open_table(HOLES)?;
        for key in all.holes.drop_all(id) {
            table.remove(key)?;
        }
        Ok(Some(base))
    }

    /// A clone has changed places with the volume that it began in.
    pub(crate) fn promote(&mut self, clone: u64, base: Base) -> Result<()> {
        let mut table = self.transaction.open_table(BASES)?;
        let all = Arc::make_mut(&mut self.all);
        for (id, before) in all.bases.clone() {
            let after = before.promoted(clone, base);
            if after != before {
                table.insert(id, (after.branch, after.txg.0, after.snapshot))?;
                all.remove(id);
                all.add(id, after);
            }
        }
        Ok(())
    }

    /// Rows of these branches are in another place of the tables, with the extents that they had.
    pub(crate) fn note_moved(&mut self, branches: &[u64]) {
        let all = Arc::make_mut(&mut self.all);
        all.moved.extend(branches.iter().map(|branch| (*branch, all.moves)));
        all.moves += 1;
    }

    /// Holes of a snapshot: object and first block, end, txg.
    pub(crate) fn holes(&self, snapshot: u64) -> Vec<(ExtentKey, (u64, Txg))> {
        self.all.holes(snapshot)
    }

    /// Pruning of a branch goes on here; `None`: it is done.
    pub(crate) fn set_pruning(&mut self, branch: u64, next: Option<(u64, u64)>) -> Result<()> {
        let all = Arc::make_mut(&mut self.all);
        let mut table = self.transaction.open_table(PRUNING)?;
        match next {
            Some(next) => {
                table.insert(branch, next)?;
                all.pruning.insert(branch, next);
            }
            None => {
                table.remove(branch)?;
                all.pruning.remove(&branch);
            }
        }
        Ok(())
    }

    /// As they then are.
    pub(crate) fn end(self) -> Arc<Branches> {
        self.all
    }
}

#[cfg(test)]
mod tests {
    use redb::{Database, ReadableDatabase};

    use super::*;

    fn loaded(rows: &[(u64, (u64, u64, u64))]) -> Result<Branches> {
        let backend = redb::backends::InMemoryBackend::new();
        let database = Database::builder().create_with_backend(backend)?;
        let transaction = database.begin_write()?;
        {
            let mut bases = transaction.open_table(BASES)?;
            rows.iter().try_for_each(|(id, base)| bases.insert(id, base).map(drop))?;
            transaction.open_table(HOLES)?;
            transaction.open_table(PRUNING)?;
        }
        transaction.commit()?;
        Branches::load(&database.begin_read()?)
    }

    /// A chain of bases always comes to an end.
    #[test]
    fn bases_that_cannot_be_are_refused() {
        let good = [(5, (2, 30, 5)), (6, (2, 30, 5)), (7, (6, 40, 7))];
        let branches = loaded(&good).unwrap();
        assert_eq!(branches.newest(2), Some(Txg(30)));
        assert_eq!(branches.base(7), Some(Base { branch: 6, txg: Txg(40), snapshot: 7 }));
        let in_a_circle = [(5, (6, 7, 5)), (6, (5, 7, 4))];
        let no_older = [(5, (2, 7, 4)), (6, (5, 7, 6))];
        let single = [[(5, (5, 1, 5))], [(5, (2, 1, 6))], [(5, (4, 1, 4))]];
        for bad in [&in_a_circle[..], &no_older].into_iter().chain(single.iter().map(|rows| &rows[..])) {
            assert!(matches!(loaded(bad), Err(PoolError::BadValue { table: "bases", .. })), "{bad:?}");
        }
    }
}
