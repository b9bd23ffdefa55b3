//! Requests about snapshots of volumes and file systems, and clones of volumes.

use std::collections::BTreeMap;

use fastness_base::ErrorKind;
use fastness_store::{DatasetId, ObjectId, PoolError, SnapshotInfo};

use crate::dataset_report::DatasetReport;
use crate::destroyed::DestroyedReport;
use crate::node::Node;
use crate::protocol::Failure;
use crate::user_properties::own;

/// The volume of a snapshot.
fn volume_of(snapshot: &str) -> &str {
    snapshot.split('@').next().unwrap_or(snapshot)
}

impl Node {
    pub(crate) fn snapshot(&self, names: &[String]) -> Result<(), Failure> {
        for name in names {
            self.services.settle(self.pool().dataset(volume_of(name))?.id());
            self.store.snapshot(name)?;
            self.journal.note(format!("{name} made"));
        }
        Ok(())
    }

    pub(crate) fn clone_snapshot(
        &self,
        snapshot: &str,
        name: &str,
        properties: &[(String, String)],
        with_parents: bool,
    ) -> Result<(), Failure> {
        let plain = self.prepare(name, properties, with_parents)?;
        self.store.clone_snapshot(snapshot, name, &plain)?;
        self.set_user_properties(name, properties)
    }

    pub(crate) fn rollback(&self, snapshot: &str, newer_too: bool) -> Result<(), Failure> {
        self.refuse_served(&[volume_of(snapshot).to_owned()])?;
        match self.store.rollback(snapshot, newer_too) {
            Err(fastness_store::StoreError::Pool(PoolError::NotNewest { newer, .. })) => {
                let text = format!(
                    "{snapshot} is not the newest snapshot; say --recursive to destroy the newer ones: {}",
                    newer.join(", ")
                );
                Err(Failure::refuse(ErrorKind::Invalid, text))
            }
            result => {
                result?;
                self.journal.note(format!("{} is what {snapshot} is", volume_of(snapshot)));
                Ok(())
            }
        }
    }

    pub(crate) fn promote(&self, clone: &str) -> Result<(), Failure> {
        let Some(origin) = self.pool().dataset(clone)?.origin() else {
            let text = format!("{clone} is no clone: there is nothing that it could take over");
            return Err(Failure::refuse(ErrorKind::Invalid, text));
        };
        self.refuse_served(&[clone.to_owned(), volume_of(&origin).to_owned()])?;
        self.store.promote(clone)?;
        self.journal.note(format!("{} is a clone of {clone} now", volume_of(&origin)));
        Ok(())
    }

    /// All snapshots, with what each takes: that is counted now, from all rows that are kept for them.
    pub(crate) fn snapshots(&self) -> Result<Vec<DatasetReport>, Failure> {
        let pool = self.pool();
        let mut counted: BTreeMap<String, BTreeMap<DatasetId, u64>> = BTreeMap::new();
        let mut reports = Vec::new();
        for info in pool.snapshots() {
            // It may have been destroyed in the meantime.
            let Ok(dataset) = pool.dataset(&info.name) else { continue };
            let volume = volume_of(&info.name);
            if !counted.contains_key(volume) {
                counted.insert(volume.to_owned(), pool.snapshot_bytes(volume, None)?.0);
            }
            let size = dataset.object(ObjectId(1)).ok().map(|data| data.size_bytes());
            reports.push(DatasetReport {
                kind: dataset.kind().to_string(),
                used_bytes: counted[volume].get(&info.id).copied().unwrap_or(0),
                available_bytes: None,
                referenced_bytes: dataset.shown_bytes()?,
                size_bytes: size,
                token: None,
                origin: None,
                clones: info.clones,
                created_unix_s: dataset.created_unix_s(),
                ratios: None,
                properties: own(&dataset),
                name: info.name,
            });
        }
        Ok(reports)
    }

    /// Destroys snapshots of a volume: `volume@name`, or from one to another, `volume@first%last`, both of
    /// which may be left out.
    pub(crate) fn destroy_snapshots(
        &self,
        what: &str,
        is_recursive: bool,
        is_dry: bool,
    ) -> Result<DestroyedReport, Failure> {
        let pool = self.pool();
        let chosen = self.chosen(what)?;
        let span = (chosen[0].id, chosen[chosen.len() - 1].id);
        let reclaimed_bytes = pool.snapshot_bytes(volume_of(what), Some(span))?.1;
        let mut names: Vec<String> = chosen.iter().map(|info| info.name.clone()).collect();
        if is_recursive {
            for clone in chosen.iter().flat_map(|info| &info.clones) {
                names.extend(self.tree_of(clone));
            }
        }
        if !is_dry {
            self.destroy_all(names.clone())?;
        }
        Ok(DestroyedReport { names, reclaimed_bytes })
    }

    fn chosen(&self, what: &str) -> Result<Vec<SnapshotInfo>, Failure> {
        let (volume, wanted) = what.split_once('@').unwrap_or((what, ""));
        let mut all = self.pool().snapshots();
        all.retain(|info| volume_of(&info.name) == volume);
        let at = |name: &str| {
            let found = all.iter().position(|info| info.name == format!("{volume}@{name}"));
            found.ok_or_else(|| Failure::from(PoolError::NoDataset(format!("{volume}@{name}"))))
        };
        let (first, last) = match wanted.split_once('%') {
            None => (at(wanted)?, at(wanted)?),
            Some((first, last)) => (
                if first.is_empty() { 0 } else { at(first)? },
                if last.is_empty() { all.len().saturating_sub(1) } else { at(last)? },
            ),
        };
        match all.get(first..=last) {
            Some(chosen) if !chosen.is_empty() => Ok(chosen.to_vec()),
            _ => {
                let text = format!("{what} is no snapshot: the first one is not older than the last");
                Err(Failure::refuse(ErrorKind::Invalid, text))
            }
        }
    }
}
