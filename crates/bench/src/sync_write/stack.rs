//! Pools with volumes and a log of some kind, to be written to by turns.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fastness_pmem::model::{DeviceModel, DeviceProfile, ModelledView, Stall};
use fastness_store::{
    Device, LogData, NewRegion, Pool, PoolLog, PoolOptions, Property, RegionParts, Store, Tuning, VdevClass,
    VdevSpec,
};
use fastness_zvol::{Volume, VolumeOptions};

use crate::error::{Context, Result, wrong};
use crate::pm_device::PmDevice;
use crate::pool::{Numbers, Place, noise, store_options};

/// Bytes of a write, and of a block.
pub(crate) const BLOCK_BYTES: u64 = 4096;
const MIB: u64 = 1 << 20;

/// What a volume's synchronous writes wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogKind {
    /// A log of kind pmem in emulated PM.
    Pmem,
    /// A log of kind lwb on a log vdev that is the same emulated PM.
    LwbInMemory,
    /// None: `sync=disabled`, and each write waits for its transaction group ([`Writer::of_txgs`]).
    Txg,
}

/// What a stack is made of.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) kind: LogKind,
    pub(crate) volumes: usize,
    pub(crate) volume_bytes: u64,
    pub(crate) device_bytes: u64,
    pub(crate) region_bytes: u64,
    pub(crate) tuning: Tuning,
    /// Whether records go past the commit list.
    pub(crate) has_bypass: bool,
    pub(crate) log_data: LogData,
    /// What is read back from the log takes as long as on this device.
    pub(crate) reads_like: Option<DeviceProfile>,
    pub(crate) pool: PoolOptions,
}

impl Default for Plan {
    /// One volume. A txg syncs when it is told to: [`Stack::settle`] does so between turns, so that on a
    /// machine with few CPUs what is timed is the writer and not the txg thread beside it.
    fn default() -> Self {
        let pool = PoolOptions { txg_timeout: Duration::from_secs(3600), ..PoolOptions::default() };
        Self {
            kind: LogKind::Pmem,
            volumes: 1,
            volume_bytes: 64 * MIB,
            device_bytes: 1024 * MIB,
            region_bytes: 512 * MIB,
            tuning: Tuning::default(),
            has_bypass: true,
            log_data: LogData::default(),
            reads_like: None,
            pool,
        }
    }
}

/// A folder in memory, gone in the end.
pub(crate) struct Memory(PathBuf);

impl Memory {
    pub(crate) fn new() -> Result<Self> {
        let folder = PathBuf::from(format!("/dev/shm/fastness-bench-sync-{}", std::process::id()));
        std::fs::create_dir(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        Ok(Self(folder))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // What is left then is for the user to see.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Where stacks are made: the pool's device in the folder of the benchmarks, the log's region in memory.
pub(crate) struct Site {
    pub(crate) place: Place,
    pub(crate) memory: Memory,
}

impl Site {
    pub(crate) fn medium(&self) -> String {
        format!("emulated PM (DRAM, tmpfs) for the log, {} for the pool", self.place.medium())
    }
}

/// A pool with volumes `bench/0`, `bench/1`, and so on.
pub(crate) struct Stack {
    pub(crate) volumes: Vec<Volume>,
    pub(crate) store: Arc<Store>,
}

impl Stack {
    /// Makes the files `name` anew, every byte of them written once, and the pool in them. The files' names
    /// are gone on return, so that nothing is left however the program ends.
    pub(crate) fn new(site: &Site, name: &str, plan: &Plan) -> Result<Stack> {
        let stack = Stack::kept(site, name, plan)?;
        site.place.remove(name)?;
        if matches!(plan.kind, LogKind::Pmem | LogKind::LwbInMemory) {
            std::fs::remove_file(site.memory.path(name))?;
        }
        Ok(stack)
    }

    /// As [`new`](Self::new); the files stay until the site goes, to be imported.
    pub(crate) fn kept(site: &Site, name: &str, plan: &Plan) -> Result<Stack> {
        drop(site.place.written_file(name, plan.device_bytes)?);
        let mut vdevs = vec![VdevSpec::single(Device::open(site.place.path(name))?)];
        let region = || PoolLog::create_region(&site.memory.path(name), plan.region_bytes, true);
        if plan.kind == LogKind::LwbInMemory {
            let device = PmDevice::new("log", region()?.into_range());
            let devices = vec![Device::new("log", Arc::new(device))];
            vdevs.push(VdevSpec { class: VdevClass::Log, devices });
        }
        let pool = Pool::create("bench", &vdevs, plan.pool.clone())?;
        let store = Store::create(pool, store_options(plan.pool.clone(), plan.tuning))?;
        let log = store.log().ok_or_else(|| wrong("a new pool has a log"))?;
        if plan.kind == LogKind::Pmem {
            let path = site.memory.path(name);
            let mut parts = RegionParts::of(region()?)?;
            if let Some(profile) = plan.reads_like
                && let Some(view) = parts.view.take()
            {
                let device = Arc::new(DeviceModel::new(profile, Stall::Burn));
                parts.view = Some(Arc::new(ModelledView::new(view, device)));
            }
            log.add_regions(|| Ok(vec![NewRegion { parts, path, emulates: true }]))?;
        }
        let options = VolumeOptions { properties: vec![(Property::VolBlockSize, BLOCK_BYTES)] };
        let volume =
            |index: usize| Volume::create(&store, &format!("bench/{index}"), plan.volume_bytes, &options);
        let volumes = (0..plan.volumes).map(volume).collect::<Result<Vec<_>, _>>()?;
        log.set_bypass(plan.has_bypass);
        store.pool().transact(|tx| store.pool().set_log_data(tx, plan.log_data))?;
        store.pool().sync()?;
        let stack = Stack { volumes, store };
        if plan.kind == LogKind::Txg {
            (0..plan.volumes).try_for_each(|index| stack.disable(index))?;
        }
        Ok(stack)
    }

    /// Gives a volume the property `sync=disabled`.
    pub(crate) fn disable(&self, index: usize) -> Result<()> {
        let value = Property::Sync.parse("disabled")?;
        let dataset = self.volumes[index].dataset();
        self.store.pool().transact(|tx| dataset.set(tx, Property::Sync, Some(value)))?;
        Ok(())
    }

    /// Syncs what was written, so that the log is empty and the next turn meets no txg.
    pub(crate) fn settle(&self) -> Result<()> {
        self.store.pool().sync()?;
        Ok(())
    }

    /// Writes every block of each volume and syncs, twice: buffers, tables and the log's pages are there
    /// then.
    pub(crate) fn warm(&self) -> Result<()> {
        for _ in 0..2 {
            for volume in &self.volumes {
                let mut writer = Writer::new(volume, 1);
                writer.write(volume.size_bytes() / BLOCK_BYTES)?;
                self.settle()?;
            }
        }
        Ok(())
    }

    /// How many synchronous writes waited for a txg although there is a log: if any, a row is about something
    /// else.
    pub(crate) fn fallbacks(&self) -> u64 {
        self.store.log().iter().flat_map(|log| log.stats()).map(|(_, stats)| stats.fallbacks_total()).sum()
    }
}

/// Writes with FUA, at random: blocks of 4 KiB, unless it is told otherwise.
pub(crate) struct Writer<'a> {
    pub(crate) volume: &'a Volume,
    /// Its txgs are what each write waits for.
    waits_for: Option<Arc<Pool>>,
    numbers: Numbers,
    data: Vec<u8>,
    blocks: u64,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(volume: &'a Volume, seed: u64) -> Self {
        Self::of_bytes(volume, seed, BLOCK_BYTES)
    }

    /// Writes of so many bytes, a multiple of a block, each at a multiple of that.
    pub(crate) fn of_bytes(volume: &'a Volume, seed: u64, write_bytes: u64) -> Self {
        let (data, blocks) = (noise(write_bytes as usize, seed), volume.size_bytes() / write_bytes);
        Self { volume, waits_for: None, numbers: Numbers(seed), data, blocks }
    }

    /// Of the first volume of a stack of kind [`LogKind::Txg`].
    pub(crate) fn of_txgs(stack: &'a Stack, seed: u64) -> Self {
        Self { waits_for: Some(stack.store.pool()), ..Self::new(&stack.volumes[0], seed) }
    }

    pub(crate) fn write_one(&mut self) -> Result<()> {
        let offset = self.numbers.below(self.blocks) * self.data.len() as u64;
        self.volume.write(offset, &self.data, true)?;
        if let Some(pool) = &self.waits_for {
            pool.wait_synced(pool.open_txg())?;
        }
        Ok(())
    }

    pub(crate) fn write(&mut self, count: u64) -> Result<()> {
        (0..count).try_for_each(|_| self.write_one())
    }
}
