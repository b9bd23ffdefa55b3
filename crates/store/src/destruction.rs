//! In which order datasets can be destroyed: what is below one, and clones of a snapshot, before it.

use fastness_pool::{Pool, PoolError, SnapshotInfo};

/// Datasets and snapshots in an order in which they can be destroyed, the last one first.
///
/// # Errors
/// [`PoolError::HasClones`] for a snapshot with a clone that is not among them.
pub(crate) fn in_order(pool: &Pool, names: Vec<String>) -> Result<Vec<String>, PoolError> {
    let snapshots = pool.snapshots();
    let chosen = |name: &str| snapshots.iter().find(|info| info.name == name);
    if names.iter().all(|name| chosen(name).is_none()) {
        return Ok(names);
    }
    for info in names.iter().filter_map(|name| chosen(name)) {
        let left: Vec<_> = info.clones.iter().filter(|clone| !names.contains(clone)).cloned().collect();
        if !left.is_empty() {
            return Err(PoolError::HasClones { name: info.name.clone(), clones: left });
        }
    }
    let mut ordered = Vec::with_capacity(names.len());
    for name in &names {
        visit(name, &names, &snapshots, &mut ordered);
    }
    ordered.reverse();
    Ok(ordered)
}

/// Adds a dataset, after all that must be destroyed before it.
fn visit(name: &String, names: &[String], snapshots: &[SnapshotInfo], ordered: &mut Vec<String>) {
    if ordered.contains(name) || !names.contains(name) {
        return;
    }
    let is_below =
        |other: &&String| other.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with(['/', '@']));
    for other in names.iter().filter(is_below) {
        visit(other, names, snapshots, ordered);
    }
    for clone in snapshots.iter().filter(|info| info.name == *name).flat_map(|info| &info.clones) {
        visit(clone, names, snapshots, ordered);
    }
    // A clone that is below what it was made from has been here.
    if !ordered.contains(name) {
        ordered.push(name.clone());
    }
}
