//! What snapshots take, and what datasets show.

use std::collections::BTreeMap;

use crate::error::{PoolError, Result};
use crate::ids::{DatasetId, Txg};
use crate::metadata::snapshot::Snapshot;
use crate::metadata::tables::{DatasetKind, ExtentKey, PastKey};
use crate::namespace::dataset::Dataset;
use crate::objects::extent::{Extent, GROUP_BLOCKS, decode_group};
use crate::pool::Pool;
use crate::txg::freeing::bytes;
use fastness_sync::order::read;

/// A snapshot, as shown in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SnapshotInfo {
    /// Full name.
    pub name: String,
    /// Number.
    pub id: DatasetId,
    /// As of the end of this txg.
    pub txg: Txg,
    /// Names of the clones that begin here.
    pub clones: Vec<String>,
}

impl Pool {
    /// Snapshots of all volumes and file systems: by name of these, oldest first.
    pub fn snapshots(&self) -> Vec<SnapshotInfo> {
        let namespace = read(&self.shared.datasets.namespace);
        let mut all = Vec::new();
        for core in namespace.by_id.values() {
            let is_snapshot = read(&core.row).kind == DatasetKind::Snapshot;
            if let Some(base) = core.base().filter(|_| is_snapshot) {
                let clones = namespace.clones(core.id.0);
                let name = namespace.path(core.id.0);
                all.push(SnapshotInfo { name, id: core.id, txg: base.txg, clones });
            }
        }
        let volume = |info: &SnapshotInfo| info.name.split('@').next().unwrap_or_default().to_owned();
        all.sort_by_key(|info| (volume(info), info.id));
        all
    }

    /// Bytes that the pool would have free again without each snapshot of a volume or file system alone, as
    /// of the last synced txg; and without all from one snapshot to another (`span`), if that is asked for.
    /// Reads all rows that are kept for snapshots of the volume.
    ///
    /// # Errors
    /// [`PoolError::NoDataset`]; those of reading the tables.
    pub fn snapshot_bytes(&self, volume: &str, span: Option<(DatasetId, DatasetId)>) -> Result<Counted> {
        let branch = self.dataset(volume)?.id().0;
        self.shared.tables.explained(self.count_unique(branch, span))
    }

    fn count_unique(&self, branch: u64, span: Option<(DatasetId, DatasetId)>) -> Result<Counted> {
        let tables = self.shared.tables.current();
        let all = tables.branches.snapshots(branch).map(|(_, id)| (DatasetId(id), 0)).collect();
        let mut counted = (all, 0);
        let Some(past) = &tables.past else { return Ok(counted) };
        let mut next: PastKey = (branch, 0, 0, 0);
        while let Some(row) = past.range(next..(branch + 1, 0, 0, 0))?.next().transpose()? {
            let (_, object, group, _) = row.0.value();
            count_row(&tables, (branch, object, group), span, &mut counted)?;
            next = (branch, object, group + 1, 0);
        }
        Ok(counted)
    }
}

/// Bytes that each snapshot has alone, and those that only snapshots of a span have.
type Counted = (BTreeMap<DatasetId, u64>, u64);

fn count_row(
    tables: &Snapshot,
    key: ExtentKey,
    span: Option<(DatasetId, DatasetId)>,
    counted: &mut Counted,
) -> Result<()> {
    let (branches, versions) = (&tables.branches, tables.versions(key)?);
    let life = tables.life((key.0, key.1))?;
    let now = tables.extents.get(key)?.map(|row| decode_group(row.value())).transpose()?;
    let base = branches.base(key.0).map_or(Txg(0), |base| base.txg);
    for (slot, block) in (0..GROUP_BLOCKS as usize).zip(key.2 * GROUP_BLOCKS..) {
        let is_now = |extent: &Extent| now.is_some_and(|group| group[slot] == Some(*extent));
        let mut extents: Vec<Extent> = versions.iter().filter_map(|(_, group)| group[slot]).collect();
        extents.sort_by_key(|extent| (extent.birth, extent.place));
        extents.dedup();
        for extent in extents.iter().filter(|extent| extent.birth > base && !is_now(extent)) {
            let (mut users, mut from) = (Vec::new(), Txg(0));
            for (txg, group) in &versions {
                let txgs = from..Txg(txg + 1);
                from = txgs.end;
                if group[slot] == Some(*extent) {
                    let has = |at: &Txg| txgs.contains(at) && life.has(*at) && *at >= extent.birth;
                    let seen = branches.snapshots(key.0).filter(|(at, _)| has(at));
                    let shows = |id: &u64| !branches.hides(*id, key.1, block, extent);
                    users.extend(seen.map(|(_, id)| id).filter(shows).map(DatasetId));
                }
            }
            let freed = bytes(extent) as u64;
            if let [only] = users[..] {
                *counted.0.entry(only).or_default() += freed;
            }
            let is_in_span = |id: &DatasetId| span.is_some_and(|(first, last)| (first..=last).contains(id));
            if !users.is_empty() && users.iter().all(is_in_span) {
                counted.1 += freed;
            }
        }
    }
    Ok(())
}

impl Dataset {
    /// Bytes that it shows as of the last synced txg, whichever dataset they are counted for: for a snapshot
    /// or a clone, also what it has in common with others.
    ///
    /// # Errors
    /// Those of reading the tables.
    pub fn shown_bytes(&self) -> Result<u64> {
        let stored = self.shared.tables.current().shown_bytes(self.core.id.0);
        Ok(self.shared.tables.explained(stored)?.unwrap_or_else(|| self.used_bytes()))
    }

    /// The snapshot that it begins at, if it is a clone.
    pub fn origin(&self) -> Option<String> {
        let base = self.core.base().filter(|base| base.snapshot != self.core.id.0)?;
        let namespace = read(&self.shared.datasets.namespace);
        namespace.by_id.contains_key(&base.snapshot).then(|| namespace.path(base.snapshot))
    }

    /// Its snapshots, oldest first: names.
    pub fn snapshots(&self) -> Vec<String> {
        let namespace = read(&self.shared.datasets.namespace);
        namespace.snapshots(self.core.id.0).iter().map(|core| namespace.path(core.id.0)).collect()
    }

    pub(crate) fn check_not_rolled_back(&self) -> Result<()> {
        match self.core.is_rolled_back.load(std::sync::atomic::Ordering::SeqCst) {
            true => Err(PoolError::Busy {
                name: self.core.id.to_string(),
                why: "it is being rolled back or promoted",
            }),
            false => Ok(()),
        }
    }
}
