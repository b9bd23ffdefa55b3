//! The check of what is kept for snapshots of file systems.

use std::collections::BTreeSet;

use crate::error::{PoolError, Result};
use crate::ids::{DatasetId, TableId, Txg};
use crate::metadata::past_rows;
use crate::metadata::snapshot::Snapshot;

/// What is kept for snapshots of file systems.
#[derive(Debug, Default)]
pub(super) struct KeptFiles {
    /// Objects that some snapshot has.
    pub(super) objects: BTreeSet<(u64, u64)>,
    /// Versions that no snapshot needs, unless their file system is being pruned: branch, and number of the
    /// object or table.
    pub(super) unused: Vec<(DatasetId, u64)>,
    /// Versions of rows.
    pub(super) rows: u64,
}

/// Reads all objects and rows that are kept.
///
/// # Errors
/// Those of reading the tables; [`PoolError::BadValue`] for what is kept of no file system, and for fragments
/// that form no row.
pub(super) fn check_files(snapshot: &Snapshot) -> Result<KeptFiles> {
    let mut kept = KeptFiles::default();
    let is_used = |branch, from: Txg, txg: u64| {
        let mut snapshots = snapshot.branches.snapshots(branch);
        let is_pruned = snapshot.branches.files.pruning_of(branch).is_some();
        is_pruned || snapshots.any(|(at, _)| (from..=Txg(txg)).contains(&at))
    };
    let check_branch = |branch| match snapshot.branches.files.has(branch) {
        true => Ok(()),
        false => Err(PoolError::bad_value("past objects or rows", format!("dataset {branch}"))),
    };
    let mut before = None;
    for row in snapshot.past_objects.iter().map(|past| past.range::<(u64, u64, u64)>(..)) {
        for row in row? {
            let (key, shape) = row?;
            let (branch, object, txg) = key.value();
            check_branch(branch)?;
            let from = before.filter(|(of, _)| *of == (branch, object)).map_or(Txg(0), |(_, at)| Txg(at + 1));
            if !is_used(branch, from, txg) {
                kept.unused.push((DatasetId(branch), object));
            }
            if shape.value().is_some() {
                kept.objects.insert((branch, object));
            }
            before = Some(((branch, object), txg));
        }
    }
    let Some(past) = &snapshot.past_rows else { return Ok(kept) };
    let mut branch = 0;
    while let Some(next) = past_rows::next_branch(past, branch)? {
        branch = next;
        check_branch(branch)?;
        let mut at = (TableId(0), Vec::new());
        while let Some(found) = past_rows::next_key(past, branch, (at.0, &at.1))? {
            let mut from = Txg(0);
            for (txg, fragments) in &found.versions {
                if !is_used(branch, from, *txg) {
                    kept.unused.push((DatasetId(branch), u64::from(found.table.0)));
                }
                past_rows::check_version(past, branch, &found, (*txg, *fragments))?;
                from = Txg(txg + 1);
                kept.rows += 1;
            }
            at = (found.table, found.key);
        }
        branch += 1;
    }
    Ok(kept)
}
