//! The full check: everything allocated is referred to, and everything referred to has an owner.

use std::collections::{BTreeMap, BTreeSet};

use redb::{ReadableDatabase, ReadableTable};

use crate::error::Result;
use crate::ids::{DatasetId, ObjectId, Place, Txg, UNIT_BYTES};
use crate::metadata::groups::decode_row;
use crate::metadata::references;
use crate::metadata::snapshot::Snapshot;
use crate::metadata::tables::{DATASETS, DOOMED, DatasetKind, DatasetRow, ExtentKey, PIECES, PastKey, USAGE};
use crate::namespace::props::Property;
use crate::objects::extent::{Extent, GROUP_BLOCKS, Group};
use crate::pool::Pool;
use crate::rows::stored::read_all;
use crate::space::thick;
use crate::state::Shared;
use crate::upkeep::kept;
use fastness_sync::order::lock;

/// What a full check found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckReport {
    /// Rows of extents read.
    pub rows: u64,
    /// Rows of datasets' tables read.
    pub table_rows: u64,
    /// Units of data that extents refer to.
    pub referenced_units: u64,
    /// Units of metadata that the page map refers to.
    pub metadata_units: u64,
    /// Units of log blocks, on vdevs of either class.
    pub log_units: u64,
    /// Units that are allocated but that nothing refers to.
    pub leaked: Vec<Place>,
    /// Units that an extent refers to but that are free.
    pub missing: Vec<Place>,
    /// Units with two references: from extents, the page map, log blocks. Not those of blocks that share a
    /// place, and are counted there.
    pub shared: Vec<Place>,
    /// Places with another number of blocks than is counted: counted, found.
    pub wrong_references: Vec<(Place, u64, u64)>,
    /// Objects, or extents of objects, that belong to no dataset and are not waiting to be freed.
    pub orphans: Vec<(DatasetId, ObjectId)>,
    /// Rows of pieces that no extent refers to: place of the first piece.
    pub unused_pieces: Vec<Place>,
    /// Rows that are kept for snapshots, though none needs them: branch, object, group.
    pub unused_past: Vec<(DatasetId, ObjectId, u64)>,
    /// Objects and rows of tables that are kept for snapshots, though none needs them: branch, number of the
    /// object or table.
    pub unused_files: Vec<(DatasetId, u64)>,
    /// Datasets whose used bytes differ from those of their extents: stored, counted.
    pub wrong_usage: Vec<(DatasetId, u64, u64)>,
    /// Volumes with snapshots, of which the bytes that they show differ from those of their extents: stored,
    /// counted.
    pub wrong_shown: Vec<(DatasetId, u64, u64)>,
    /// Thick volumes of which less is counted for snapshots than these have: stored, found.
    pub wrong_pinned: Vec<(DatasetId, u64, u64)>,
    /// Datasets whose parent does not exist, or that share their name with another; or rows of usage, aux
    /// data or tables without a dataset, unless they are waiting to be freed; or snapshots and clones without
    /// what they begin at.
    pub lost_datasets: Vec<DatasetId>,
}

impl CheckReport {
    /// Whether the check found nothing wrong.
    pub fn is_clean(&self) -> bool {
        self.leaked.is_empty()
            && self.missing.is_empty()
            && self.shared.is_empty()
            && self.wrong_references.is_empty()
            && self.orphans.is_empty()
            && self.unused_pieces.is_empty()
            && self.unused_past.is_empty()
            && self.unused_files.is_empty()
            && self.wrong_usage.is_empty()
            && self.wrong_shown.is_empty()
            && self.wrong_pinned.is_empty()
            && self.lost_datasets.is_empty()
    }
}

impl Pool {
    /// Reads every row and compares what is allocated with what is referred to.
    ///
    /// Concurrency: no txg syncs meanwhile, and no step of a trim runs: what that holds is allocated, and
    /// nothing refers to it.
    ///
    /// # Errors
    /// Those of reading the tables.
    pub fn check(&self) -> Result<CheckReport> {
        let _trimming = lock(&self.shared.space.trimming);
        let _syncing = lock(&self.shared.txgs.syncing);
        self.shared.tables.explained(check(&self.shared, &self.shared.tables.current()))
    }
}

/// Checks the last synced txg; no txg may sync in the meantime.
fn check(shared: &Shared, snapshot: &Snapshot) -> Result<CheckReport> {
    let mut report = CheckReport::default();
    let references = references::all(&shared.tables.database.begin_read()?)?;
    let mut walk = Walk { references: references.clone(), ..Walk::default() };
    for row in snapshot.extents.range::<(u64, u64, u64)>(..)? {
        let (key, group) = decode_row(row)?;
        report.rows += 1;
        walk.objects.insert((key.0, key.1));
        let newest = snapshot.branches.newest(key.0).unwrap_or_default();
        *walk.own.entry(key.0).or_default() += group
            .iter()
            .flatten()
            .filter(|extent| extent.birth > newest)
            .map(|extent| extent.units() * UNIT_BYTES)
            .sum::<u64>();
        *walk.shown.entry(key.0).or_default() +=
            group.iter().flatten().map(|extent| extent.units() * UNIT_BYTES).sum::<u64>();
        if snapshot.branches.has_past(key.0) {
            walk.now.insert(key);
        }
        let versions = snapshot.versions(key)?;
        check_row(snapshot, &mut walk, &mut report, key, Some(&group), &versions)?;
    }
    check_past(snapshot, &mut walk, &mut report)?;
    report.referenced_units = walk.units.len() as u64;
    for (place, counted) in references {
        let found = walk.shared.get(&place).map_or(0, |(_, count)| *count);
        if found != counted || counted < 2 {
            report.wrong_references.push((Place::unpack(place), counted, found));
        }
    }
    let allocated: BTreeSet<Place> = lock(&shared.space.allocator).data_units().collect();
    report.leaked = allocated.difference(&walk.units).copied().collect();
    report.missing = walk.units.difference(&allocated).copied().collect();
    for entry in shared.tables.meta.entries() {
        report.metadata_units += 1;
        if !walk.units.insert(entry.place) {
            report.shared.push(entry.place);
        }
    }
    shared.check_log_blocks(&mut walk.units, &mut report);
    check_owners(shared, snapshot, &walk, &mut report)?;
    Ok(report)
}

/// Rows of the past, and those that have no current one.
fn check_past(snapshot: &Snapshot, walk: &mut Walk, report: &mut CheckReport) -> Result<()> {
    let Some(past) = &snapshot.past else { return Ok(()) };
    let mut before = None;
    for row in past.range::<PastKey>(..)? {
        let (branch, object, group, txg) = row?.0.value();
        let key = (branch, object, group);
        report.rows += 1;
        let from = before.filter(|(before, _)| *before == key).map_or(Txg(0), |(_, txg)| Txg(txg + 1));
        let life = snapshot.life((branch, object))?;
        let mut users = snapshot.branches.snapshots(branch);
        let is_used = users.any(|(at, _)| (from..=Txg(txg)).contains(&at) && life.has(at));
        if !is_used && snapshot.branches.pruning_of(branch).is_none() {
            report.unused_past.push((DatasetId(branch), ObjectId(object), group));
        }
        if before.is_none_or(|(before, _)| before != key) && !walk.now.contains(&key) {
            // Of one that is gone, rows may be left to prune.
            if snapshot.branches.pruning_of(branch).is_none() {
                walk.objects.insert((branch, object));
            }
            let versions = snapshot.versions(key)?;
            check_row(snapshot, walk, report, key, None, &versions)?;
        }
        before = Some((key, txg));
    }
    Ok(())
}

/// What the versions of a row refer to: each extent once, and by the branch that it was born in.
fn check_row(
    snapshot: &Snapshot,
    walk: &mut Walk,
    report: &mut CheckReport,
    key: ExtentKey,
    now: Option<&Group>,
    versions: &[(u64, Group)],
) -> Result<()> {
    let base = snapshot.branches.base(key.0).map_or(Txg(0), |base| base.txg);
    for slot in 0..GROUP_BLOCKS as usize {
        let past = versions.iter().filter_map(|(_, group)| group[slot]);
        let mut extents: Vec<Extent> = now.and_then(|group| group[slot]).into_iter().chain(past).collect();
        extents.sort_by_key(|extent| (extent.birth, extent.place));
        extents.dedup();
        for extent in extents.iter().filter(|extent| extent.birth > base) {
            check_extent(snapshot, walk, report, key.0, extent)?;
        }
    }
    Ok(())
}

fn check_extent(
    snapshot: &Snapshot,
    walk: &mut Walk,
    report: &mut CheckReport,
    dataset: u64,
    extent: &Extent,
) -> Result<()> {
    *walk.used.entry(dataset).or_default() += extent.units() * UNIT_BYTES;
    if extent.is_in_pieces() {
        walk.pieces.insert(extent.place.pack());
    } else if walk.references.contains_key(&extent.place.pack()) {
        let (units, count) = walk.shared.entry(extent.place.pack()).or_insert((extent.units(), 0));
        *count += 1;
        // Its units are counted with the first one, which is as long.
        if *count > 1 && *units == extent.units() {
            return Ok(());
        }
    }
    for piece in snapshot.pieces(extent)? {
        for unit in piece.place.unit..piece.place.unit + piece.units() {
            let place = Place { vdev: piece.place.vdev, unit };
            if !walk.units.insert(place) {
                report.shared.push(place);
            }
        }
    }
    Ok(())
}

/// Snapshots and clones have what they begin at, and volumes show what is counted for them.
fn check_branches(
    snapshot: &Snapshot,
    datasets: &BTreeMap<u64, DatasetRow>,
    is_owned: &dyn Fn(&u64) -> bool,
    walk: &Walk,
    report: &mut CheckReport,
) -> Result<()> {
    for (id, base) in snapshot.branches.all() {
        let is_snapshot = base.snapshot == id;
        let has_base = !datasets.contains_key(&id) || snapshot.branches.base(base.snapshot).is_some();
        if !is_owned(&id) || !has_base || (is_snapshot && !datasets.contains_key(&base.branch)) {
            report.lost_datasets.push(DatasetId(id));
        }
    }
    for (id, row) in datasets {
        let base = snapshot.branches.base(*id);
        if (row.kind == DatasetKind::Snapshot) != base.is_some_and(|base| base.snapshot == *id) {
            report.lost_datasets.push(DatasetId(*id));
        }
        let counted = walk.shown.get(id).copied().unwrap_or(0);
        if let Some(stored) = snapshot.shown_bytes(*id)?
            && base.is_none()
            && stored != counted
        {
            report.wrong_shown.push((DatasetId(*id), stored, counted));
        }
    }
    Ok(())
}

/// What the extents refer to.
#[derive(Default)]
struct Walk {
    /// Places with several blocks.
    references: BTreeMap<u64, u64>,
    /// Current rows of branches that may have others.
    now: BTreeSet<ExtentKey>,
    /// Bytes of current rows, by dataset.
    shown: BTreeMap<u64, u64>,
    units: BTreeSet<Place>,
    objects: BTreeSet<(u64, u64)>,
    pieces: BTreeSet<u64>,
    /// Place of blocks that share it: units of the first of them, number of blocks.
    shared: BTreeMap<u64, (u64, u64)>,
    used: BTreeMap<u64, u64>,
    /// Bytes of current rows that no snapshot has, by dataset.
    own: BTreeMap<u64, u64>,
}

/// What is counted of a thick volume for its snapshots is no less than they have.
fn check_pinned(
    snapshot: &Snapshot,
    (id, row): (u64, &DatasetRow),
    walk: &Walk,
    report: &mut CheckReport,
) -> Result<()> {
    let is_thick = row.values.get(Property::RefReservation).is_some_and(|bytes| bytes > 0);
    if !is_thick || snapshot.branches.newest(id).is_none() {
        return Ok(());
    }
    let own = walk.own.get(&id).copied().unwrap_or(0);
    let counted = walk.used.get(&id).copied().unwrap_or(0).saturating_sub(own);
    let stored = snapshot.aux.get((id, thick::PINNED))?.and_then(|row| thick::decode(row.value()));
    if stored.is_some_and(|stored| stored < counted) {
        report.wrong_pinned.push((DatasetId(id), stored.unwrap_or(0), counted));
    }
    Ok(())
}

/// Every object has a dataset, every dataset a parent and a name of its own.
fn check_owners(shared: &Shared, snapshot: &Snapshot, walk: &Walk, report: &mut CheckReport) -> Result<()> {
    let transaction = shared.tables.database.begin_read()?;
    let mut datasets = BTreeMap::new();
    for row in transaction.open_table(DATASETS)?.iter()? {
        let (id, row) = row?;
        datasets.insert(id.value(), DatasetRow::decode(row.value())?);
    }
    let mut names = BTreeSet::new();
    for (id, row) in &datasets {
        let has_parent = row.parent == 0 || datasets.contains_key(&row.parent);
        if !has_parent || !names.insert((row.parent, &row.name)) {
            report.lost_datasets.push(DatasetId(*id));
        }
    }
    let usage = transaction.open_table(USAGE)?;
    for row in usage.iter()? {
        let id = row?.0.value();
        if !datasets.contains_key(&id) {
            report.lost_datasets.push(DatasetId(id));
        }
    }
    for row in snapshot.aux.range::<(u64, &[u8])>(..)? {
        let id = row?.0.value().0;
        if !datasets.contains_key(&id) {
            report.lost_datasets.push(DatasetId(id));
        }
    }
    for id in datasets.keys() {
        let stored = usage.get(id)?.map_or(0, |usage| usage.value().1);
        let counted = walk.used.get(id).copied().unwrap_or(0);
        if stored != counted {
            report.wrong_usage.push((DatasetId(*id), stored, counted));
        }
    }
    let doomed = transaction.open_table(DOOMED)?;
    let doomed = doomed.iter()?.map(|row| Ok(row?.0.value())).collect::<Result<Vec<_>>>()?;
    let is_doomed = |(dataset, object): (u64, u64)| {
        doomed.iter().any(|(of, first, last)| *of == dataset && (*first..=*last).contains(&object))
    };
    let (with_rows, count) = read_all(&snapshot.rows, |id| datasets.contains_key(&id))?;
    report.table_rows = count;
    let is_owned = |dataset: &u64| datasets.contains_key(dataset) || is_doomed((*dataset, 0));
    report.lost_datasets.extend(with_rows.into_iter().filter(|id| !is_owned(id)).map(DatasetId));
    let kept = kept::check_files(snapshot)?;
    report.table_rows += kept.rows;
    report.unused_files = kept.unused;
    let mut objects = BTreeSet::new();
    for row in snapshot.objects.range::<(u64, u64)>(..)? {
        objects.insert(row?.0.value());
    }
    for key in objects.union(&walk.objects) {
        let is_owned = datasets.contains_key(&key.0) && (objects.contains(key) || kept.objects.contains(key));
        if !is_owned && !is_doomed(*key) {
            report.orphans.push((DatasetId(key.0), ObjectId(key.1)));
        }
    }
    check_branches(snapshot, &datasets, &is_owned, walk, report)?;
    datasets.iter().try_for_each(|(id, row)| check_pinned(snapshot, (*id, row), walk, report))?;
    for row in transaction.open_table(PIECES)?.iter()? {
        let first = row?.0.value();
        if !walk.pieces.contains(&first) {
            report.unused_pieces.push(Place::unpack(first));
        }
    }
    Ok(())
}
