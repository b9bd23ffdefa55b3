//! Creating and importing pools.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::{Database, ReadableDatabase, ReadableTable};

use crate::devices::config::{PoolConfig, PoolState, VdevClass};
use crate::devices::label::{self, Uberblock};
use crate::devices::vdev::{Device, Side, Vdevs};
use crate::error::{PoolError, Result};
use crate::ids::{Guid, Txg};
use crate::import::find::{Found, find};
use crate::import::options::{Host, ImportOptions, VdevSpec};
use crate::log_space::blocks::LogBlocks;
use crate::metadata::branches::Branches;
use crate::metadata::file::MetaFile;
use crate::metadata::references;
use crate::metadata::snapshot::Snapshot;
use crate::metadata::tables::{
    self, AUX, CLEARED, DATASETS, DOOMED, DatasetKind, DatasetRow, NUMBERS, SPACE, USAGE,
};
use crate::namespace::created::{CREATED, now};
use crate::namespace::names::check_component;
use crate::namespace::props::Values;
use crate::namespace::settings::{LogData, SETTINGS, Settings};
use crate::objects::cleared::Cleared;
use crate::objects::object::RANGE_BYTES;
use crate::pool::Pool;
use crate::space::alloc::Allocator;
use crate::space::room::Room;
use crate::space::thick;
use crate::state::Shared;
use crate::state::cache::Blocks;
use crate::state::datasets::{DatasetCore, Datasets, Namespace};
use crate::state::devices::Devices;
use crate::state::options::PoolOptions;
use crate::state::space::{Backlog, Space};
use crate::state::tables::Tables;
use crate::state::txgs::Txgs;
use crate::txg::pipeline::Pipeline;
use crate::upkeep::damaged;
use fastness_sync::order::{Mutex, lock, read};

impl Pool {
    /// Creates a pool on devices, whose contents are lost.
    ///
    /// Persistence: on return the empty pool is durable. A crash during the call leaves no pool, or an empty
    /// one.
    ///
    /// # Errors
    /// [`PoolError::EmptyVdev`], [`PoolError::OnlyLogVdevs`], [`PoolError::BlockSize`],
    /// [`PoolError::TooSmall`], [`PoolError::Invalid`] name, and those of the devices.
    pub fn create(name: &str, vdevs: &[VdevSpec], options: PoolOptions) -> Result<Pool> {
        check_component(name)?;
        if !vdevs.iter().any(|vdev| vdev.class == VdevClass::Normal) {
            return Err(PoolError::OnlyLogVdevs);
        }
        let built: Vec<_> = vdevs
            .iter()
            .enumerate()
            .map(|(id, spec)| Ok(Arc::new(spec.build(id as u16)?)))
            .collect::<Result<_>>()?;
        for device in vdevs.iter().flat_map(|vdev| &vdev.devices) {
            label::erase(&*device.device)?;
            device.device.flush()?;
        }
        let host = Host::current();
        let config = PoolConfig {
            guid: Guid::random(),
            name: name.to_owned(),
            generation: 0,
            txg: Txg(0),
            state: PoolState::Active,
            host_id: host.id,
            host_name: host.name,
            vdevs: built.iter().map(|vdev| vdev.config()).collect(),
        };
        let row = DatasetRow {
            parent: 0,
            kind: DatasetKind::Folder,
            name: name.to_owned(),
            values: Values::default(),
        };
        let shared = open_shared(config, Arc::new(Vdevs::new(built)), None, options, true)?;
        shared.txgs.changes(Txg(1)).datasets.insert(1, Some(row.encode()));
        shared.txgs.changes(Txg(1)).aux.insert((1, CREATED.to_vec()), Some(now()));
        let none = Branches::default();
        add_dataset(&mut fastness_sync::order::write(&shared.datasets.namespace), 1, row, (1, 0), &none);
        fastness_sync::order::write(&shared.datasets.namespace).next_id = 2;
        read(&shared.datasets.namespace).refresh(1);
        shared.sync_txg()?;
        // Last: without labels there is no pool.
        shared.write_labels(|_| ())?;
        let pool = Pool::paused(Arc::new(shared));
        pool.start_txgs()?;
        Ok(pool)
    }

    /// Imports the pool that the devices belong to, as of its last synced txg.
    ///
    /// All devices must belong to one pool. A missing side that is known to be stale only degrades the pool.
    /// If a missing side was current as far as the devices know, they may themselves be the ones left
    /// behind, and nothing on them can tell: that is an error unless [`ImportOptions::allows_degraded`]. On
    /// return labels say that this host has the pool, and which sides are stale.
    ///
    /// A pool that another host has not exported is imported without force if all its devices fence that
    /// host ([`DeviceInfo::fences_others`](fastness_blkdev::DeviceInfo::fences_others)).
    ///
    /// # Errors
    /// One for each way to fail, with the device: [`PoolError::NoLabel`], [`PoolError::DamagedLabels`],
    /// [`PoolError::OtherVersion`], [`PoolError::UnknownFeature`], [`PoolError::ForeignPool`],
    /// [`PoolError::Removed`], [`PoolError::MissingDevice`], [`PoolError::MissingSide`],
    /// [`PoolError::MissingLog`], [`PoolError::Split`], [`PoolError::InUseByHost`],
    /// [`PoolError::NoUberblock`], [`PoolError::Destroyed`]; [`PoolError::Damaged`] metadata. Use by another
    /// process is detected when the device is opened. Nothing was changed.
    pub fn import(devices: &[Device], import: &ImportOptions, options: PoolOptions) -> Result<Pool> {
        let pool = Pool::import_paused(devices, import, options)?;
        pool.start_txgs()?;
        Ok(pool)
    }

    /// As [`import`](Self::import), but no txg ends before [`start_txgs`](Self::start_txgs): whatever an
    /// owner must store in the first txg of an import (the claim of its log) is sure to be in it. Waiting
    /// for a txg before that is a deadlock.
    ///
    /// # Errors
    /// As [`import`](Self::import).
    pub fn import_paused(devices: &[Device], import: &ImportOptions, options: PoolOptions) -> Result<Pool> {
        let found = find(devices, import)?;
        let Found { mut config, vdevs, uberblock } = found;
        if config.state == PoolState::Destroyed && !import.allows_destroyed {
            return Err(PoolError::Destroyed { pool: config.name });
        }
        let is_others = config.state == PoolState::Active && config.host_id != import.host.id;
        if is_others && !import.is_forced && !is_fenced(&vdevs) {
            let (host_name, host_id) = (config.host_name, config.host_id);
            return Err(PoolError::InUseByHost { pool: config.name, host_name, host_id });
        }
        if let Some(name) = &import.rename {
            check_component(name)?;
            config.name.clone_from(name);
        }
        // A pool that was destroyed had synced everything as well.
        let was_exported = std::mem::replace(&mut config.state, PoolState::Active) != PoolState::Active;
        config.host_id = import.host.id;
        config.host_name.clone_from(&import.host.name);
        let shared = open_shared(config, vdevs, Some(uberblock), options, was_exported)?;
        if !shared.options.is_read_only {
            shared.write_labels(|_| ())?;
        }
        Ok(Pool::paused(Arc::new(shared)))
    }
}

/// Whether the devices themselves prove that no other host can write to the pool: all sides that it has are
/// here, and opening each of them has fenced whoever had it. One side elsewhere would be enough to go on
/// there.
fn is_fenced(vdevs: &Vdevs) -> bool {
    let fences = |side: &Arc<Side>| side.device.as_ref().is_some_and(|device| device.info().fences_others);
    vdevs.all().iter().all(|vdev| vdev.sides().iter().all(fences))
}

/// Assembles the pool; `uberblock` is `None` for a new one.
fn open_shared(
    config: PoolConfig,
    vdevs: Arc<Vdevs>,
    uberblock: Option<Uberblock>,
    options: PoolOptions,
    was_exported: bool,
) -> Result<Shared> {
    let mut allocator = Allocator::default();
    for vdev in vdevs.all().iter().filter(|vdev| vdev.class == VdevClass::Normal) {
        allocator.add_vdev(vdev.id, vdev.units());
    }
    let allocator = Arc::new(Mutex::new(allocator));
    let meta = MetaFile::new(vdevs.clone(), allocator.clone(), options.has_txg_thread);
    let synced = match &uberblock {
        Some(uberblock) => {
            meta.load(&uberblock.root)?;
            uberblock.txg
        }
        None => Txg(0),
    };
    let mut builder = Database::builder();
    builder.set_cache_size(options.meta_cache_bytes);
    let database = builder.create_with_backend(meta.clone())?;
    if uberblock.is_none() {
        let transaction = database.begin_write()?;
        tables::create_all(&transaction)?;
        transaction.commit()?;
    }
    let mut namespace = Namespace::default();
    // Not locked meanwhile: reading the tables takes the lock of the engine's file.
    let mut loading = std::mem::take(&mut *lock(&allocator));
    let branches = Branches::load(&database.begin_read()?)?;
    load_rows(&database, synced, &mut namespace, &mut loading, &branches)?;
    *lock(&allocator) = loading;
    namespace.name_root(&config.name);
    let damage = damaged::load(&database)?;
    let room = Room::default();
    room.set_datasets(namespace.by_id.len());
    {
        let mut allocator = lock(&allocator);
        allocator.note_synced();
        room.set_free(allocator.room_bytes(), allocator.slop_bytes());
    }
    let log = LogBlocks::new(&vdevs);
    let has_shared = references::has_any(&database.begin_read()?)?;
    let has_doomed = {
        let doomed = database.begin_read()?.open_table(DOOMED)?;
        doomed.first()?.is_some()
    };
    let cleared = Cleared::load(&database.begin_read()?.open_table(CLEARED)?)?;
    let pipeline = Pipeline::new(synced, options.dirty_max_bytes);
    pipeline.add_dirty(cleared.len() as u64 * RANGE_BYTES);
    let has_cleared = !cleared.is_empty();
    let has_pruning = branches.has_pruning();
    let snapshot = Snapshot::take(&database, Arc::new(cleared), Arc::new(branches))?;
    let settings = match namespace.root() {
        Some(root) => {
            Settings::of_stored(snapshot.aux.get((root, SETTINGS))?.as_ref().map(|row| row.value()))?
        }
        None => Settings::default(),
    };
    settings.check(&config.name, options.is_read_only)?;
    let blocks = Blocks::new(options.cache_bytes, options.dirty_max_bytes);
    blocks.logs.set_only_copy(settings.log_data() == LogData::Pm);
    let packers = if options.has_txg_thread { packers() } else { 1 };
    let shared = Shared {
        devices: Devices::new(vdevs, config, uberblock.unwrap_or_default(), was_exported),
        space: Space::new(allocator, room, log, has_shared),
        tables: Tables::new(meta, database, snapshot),
        datasets: Datasets::new(namespace, synced, settings),
        txgs: Txgs::new(pipeline, packers),
        backlog: Backlog::new(has_doomed, has_cleared, has_pruning),
        blocks,
        damage: Mutex::new(damage),
        is_closed: AtomicBool::new(false),
        must_check: AtomicBool::new(false),
        options,
    };
    Ok(shared)
}

fn packers() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(8)
}

fn add_dataset(
    namespace: &mut Namespace,
    id: u64,
    row: DatasetRow,
    (next_object, used): (u64, u64),
    branches: &Branches,
) {
    namespace.children.insert((row.parent, row.name.clone()), id);
    let core = DatasetCore::new(id, Txg(0), row, next_object, used);
    core.has_snapshots.store(branches.has_past(id), Ordering::SeqCst);
    namespace.by_id.insert(id, Arc::new(DatasetCore { base: Mutex::new(branches.base(id)), ..core }));
}

/// Loads what is kept in memory: datasets and free space.
fn load_rows(
    database: &Database,
    synced: Txg,
    namespace: &mut Namespace,
    allocator: &mut Allocator,
    branches: &Branches,
) -> Result<()> {
    let transaction = database.begin_read()?;
    let numbers = transaction.open_table(NUMBERS)?;
    if let Some(txg) = numbers.get(tables::TXG)?
        && txg.value() != synced.0
    {
        return Err(PoolError::bad_value(
            "numbers",
            format!("txg {} below uberblock of {synced}", txg.value()),
        ));
    }
    namespace.next_id = numbers.get(tables::NEXT_DATASET)?.map_or(1, |next| next.value());
    let (usage, aux) = (transaction.open_table(USAGE)?, transaction.open_table(AUX)?);
    for row in transaction.open_table(DATASETS)?.iter()? {
        let (id, row) = row?;
        let usage = usage.get(id.value())?.map_or((1, 0), |usage| usage.value());
        add_dataset(namespace, id.value(), DatasetRow::decode(row.value())?, usage, branches);
        let core = &namespace.by_id[&id.value()];
        if core.thick_bytes() > 0
            && let Some(pinned) = aux.get((id.value(), thick::PINNED))?
            && let Some(bytes) = thick::decode(pinned.value())
        {
            core.pinned_bytes.store(bytes, Ordering::SeqCst);
        }
    }
    if let Some(root) = namespace.root() {
        namespace.refresh(root);
    }
    for row in transaction.open_table(SPACE)?.iter()? {
        let (key, bitmap) = row?;
        let (vdev, region) = key.value();
        allocator.load(vdev, region, bitmap.value())?;
    }
    Ok(())
}
