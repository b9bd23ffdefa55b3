//! A pool, its log and its volumes on media that lose their power together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fastness_blkdev::MemImage;
use fastness_intent::{NewRegion, PoolLog, RegionConfig, RegionId, Tuning};
use fastness_pool::{Pool, PoolOptions, Property, VdevSpec};
use fastness_zil::KindId;
use fastness_zvol::{Volume, VolumeError, VolumeOptions};

use crate::oracle::{Change, Model};
use crate::power::{Bank, Disk, Pm, Power, Rng};
use crate::program::{Step, draw};

const DISK_BYTES: u64 = 12 << 20;
const LOG_DISK_BYTES: u64 = 9 << 20;

pub type Log = PoolLog<Pm>;

/// What a seed has.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    disks: usize,
    chunks: usize,
    chunk_bytes: usize,
    /// Longest write: one record, where those of kind pmem must be short.
    pub write_max: usize,
    volume_bytes: u64,
    block_bytes: u64,
}

impl Shape {
    pub fn draw(rng: &mut Rng) -> Shape {
        let (chunk_bytes, write_max) = [(32 << 10, 24 << 10), (256 << 10, 200_000)][rng.below(2) as usize];
        Shape {
            disks: 1 + rng.below(2) as usize,
            chunks: 3 + rng.below(6) as usize,
            chunk_bytes,
            write_max,
            volume_bytes: (256 << 10) << rng.below(2),
            block_bytes: 4096 << (2 * rng.below(2)),
        }
    }
}

/// A volume and what it must hold.
pub struct Open {
    pub volume: Option<Volume<Pm>>,
    pub name: String,
    pub model: Model,
    /// Its making has returned.
    pub is_certain: bool,
}

/// How often what was met, so that a run cannot pass without meeting it.
#[derive(Debug, Default)]
pub struct Met {
    pub cuts: AtomicU64,
    pub deaths: AtomicU64,
    pub cuts_of_imports: AtomicU64,
    pub cuts_of_changes: AtomicU64,
    pub replayed: AtomicU64,
    /// Records with the address of their data: committed, replayed.
    pub indirect: AtomicU64,
    pub indirect_replayed: AtomicU64,
    pub unlogged: AtomicU64,
    pub left_nothing: AtomicU64,
    pub left_part: AtomicU64,
    pub left_all: AtomicU64,
    pub to_pmem: AtomicU64,
    pub to_lwb: AtomicU64,
    pub vdevs_removed: AtomicU64,
    pub mirrors: AtomicU64,
    pub sides_changed: AtomicU64,
    pub sides_lost: AtomicU64,
    pub sides_back: AtomicU64,
    /// Rare: the power must fail between a record's header and its fence. `crates/prb/tests/mirror.rs` goes there.
    pub sides_repaired: AtomicU64,
}

impl Met {
    pub fn assert_all(&self) {
        let Met { cuts, deaths, cuts_of_imports, cuts_of_changes, replayed, unlogged, .. } = self;
        let Met { left_nothing, left_part, left_all, to_pmem, to_lwb, vdevs_removed, .. } = self;
        let Met { mirrors, sides_changed, sides_lost, sides_back, indirect, indirect_replayed, .. } = self;
        for counter in [cuts, deaths, cuts_of_imports, cuts_of_changes, replayed, unlogged]
            .into_iter()
            .chain([left_nothing, left_part, left_all, to_pmem, to_lwb, vdevs_removed])
            .chain([mirrors, sides_changed, sides_lost, sides_back, indirect, indirect_replayed])
        {
            assert!(counter.load(Ordering::Relaxed) > 0, "something never happened: {self:?}");
        }
    }
}

/// Which bank a region is.
pub fn bank_of(region: &RegionConfig) -> usize {
    usize::from(region.path.as_os_str() == "bank1")
}

pub fn note(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

pub struct World<'a> {
    pub met: &'a Met,
    pub shape: Shape,
    pub rng: Rng,
    pub power: Arc<Power>,
    pub disks: Vec<Disk>,
    pub banks: [Bank; 2],
    pub volumes: Vec<Open>,
    /// Vdevs for logs.
    pub log_vdevs: Vec<u16>,
    pub stack: Option<(Arc<Pool>, Arc<Log>)>,
    /// The log's kind and vdevs change often.
    pub is_restless: bool,
    /// What was done, for people.
    pub story: Vec<String>,
}

pub fn manual() -> PoolOptions {
    let (cache_bytes, meta_cache_bytes) = (64 << 20, 1 << 20);
    PoolOptions { has_txg_thread: false, cache_bytes, meta_cache_bytes, ..PoolOptions::default() }
}

/// One thread, one order.
pub const TUNING: Tuning = Tuning {
    ncommitters: Some(1),
    lets_log_fill: true,
    suspended_at_once: Some(1),
    // Low, so that many commits have some data in the log and some in its place.
    indirect_bytes_min: Some(12 << 10),
};

impl<'a> World<'a> {
    pub fn new(seed: u64, met: &'a Met) -> World<'a> {
        let mut rng = Rng::new(seed);
        let shape = Shape::draw(&mut rng);
        let power = Arc::new(Power::default());
        let disk =
            |n: usize| Disk::new(&format!("disk{n}"), MemImage::zeroed(DISK_BYTES), &power, seed + n as u64);
        let disks: Vec<Disk> = (0..shape.disks).map(disk).collect();
        let banks = [0, 1].map(|_| Bank::new(shape.chunks, shape.chunk_bytes, &mut rng, &power));
        let devices: Vec<_> = disks.iter().map(Disk::device).collect();
        let spec = match shape.disks {
            1 => VdevSpec::single(devices[0].clone()),
            _ => VdevSpec::mirror(devices),
        };
        let pool = Arc::new(Pool::create("tank", &[spec], manual()).unwrap());
        let log = Log::create_on(&pool, TUNING).unwrap();
        let story = vec![format!("{shape:?}")];
        let (volumes, log_vdevs) = (Vec::new(), Vec::new());
        World {
            met,
            shape,
            rng,
            power,
            disks,
            banks,
            volumes,
            log_vdevs,
            stack: Some((pool, log)),
            is_restless: false,
            story,
        }
    }

    pub fn pool(&self) -> &Arc<Pool> {
        &self.stack.as_ref().expect("the power is on").0
    }

    pub fn log(&self) -> &Arc<Log> {
        &self.stack.as_ref().expect("the power is on").1
    }

    pub fn is_lwb(&self) -> bool {
        self.log().kind() == KindId::Lwb
    }

    fn unlogged(&self, volume: usize) -> u64 {
        let id = self.volumes[volume].volume.as_ref().expect("it is open").dataset().id();
        let stats = self.log().stats();
        stats.iter().filter(|(of, _)| of.0 == id.0).map(|(_, stats)| stats.unlogged.iter().sum::<u64>()).sum()
    }

    /// A life up to a power cut, or to its end.
    pub fn live(&mut self) {
        let within = [12, 40, 200, 1000][self.rng.below(4) as usize];
        self.power.cut_in(1 + self.rng.below(within));
        self.is_restless = self.rng.one_in(2);
        for _ in 0..10 + self.rng.below(60) {
            let mut rng = self.rng.clone();
            let step = draw(self, &mut rng);
            self.rng = rng;
            self.run(&step);
            if self.power.is_off() {
                break;
            }
        }
    }

    /// Does a step; only a power cut lets it fail.
    pub fn run(&mut self, step: &Step) {
        let before = self.power.events.load(Ordering::SeqCst);
        let done = match step {
            Step::Write { volume, offset, data, is_fua } => {
                let change = self.begin(*volume, *offset, data.len(), Some(data.clone()));
                let done = |volume: &Volume<Pm>| volume.write(*offset as u64, data, *is_fua);
                self.change(*volume, change, *is_fua, done)
            }
            Step::Zero { volume, offset, len, is_fua, is_discard } => {
                let change = self.begin(*volume, *offset, *len, None);
                let done = |volume: &Volume<Pm>| match is_discard {
                    true => volume.discard(*offset as u64, *len as u64, *is_fua),
                    false => volume.write_zeroes(*offset as u64, *len as u64, *is_fua),
                };
                self.change(*volume, change, *is_fua, done)
            }
            Step::Flush { volume } => {
                let open = &mut self.volumes[*volume];
                let done = open.volume.as_ref().expect("it is open").flush();
                if done.is_ok() {
                    open.model.settle();
                }
                done.map_err(|error| error.to_string())
            }
            Step::Compare { volume } => self.compare(*volume),
            Step::Sync => self.pool().sync().map(drop).map_err(|error| error.to_string()),
            Step::Create => self.create(),
            step => self.change_log(step),
        };
        self.settle_synced();
        let events = before..self.power.events.load(Ordering::SeqCst);
        let kind = if self.is_lwb() { "lwb" } else { "pmem" };
        let how = match &done {
            Ok(()) => String::new(),
            Err(error) => format!(" FAILED: {error}"),
        };
        self.story.push(format!("{kind} {events:?} {step}{how}"));
        if let Err(error) = done {
            assert!(self.power.is_off(), "{step}: {error}");
            let is_change = !matches!(
                step,
                Step::Write { .. }
                    | Step::Zero { .. }
                    | Step::Flush { .. }
                    | Step::Sync
                    | Step::Compare { .. }
            );
            note(&self.met.cuts_of_changes, u64::from(is_change));
        }
    }

    fn begin(&self, volume: usize, offset: usize, len: usize, data: Option<Vec<u8>>) -> (Change, u64) {
        let txg = self.pool().open_txg().0;
        (Change { offset, len, data, txg, is_durable: false }, self.unlogged(volume))
    }

    fn change(
        &mut self,
        volume: usize,
        (change, unlogged): (Change, u64),
        is_fua: bool,
        act: impl FnOnce(&Volume<Pm>) -> Result<(), VolumeError>,
    ) -> Result<(), String> {
        let is_lwb = self.is_lwb();
        let open = &mut self.volumes[volume];
        open.model.change(change, is_lwb);
        let done = act(open.volume.as_ref().expect("it is open")).map_err(|error| error.to_string());
        let is_logged = self.unlogged(volume) == unlogged;
        note(&self.met.unlogged, u64::from(!is_logged));
        let model = &mut self.volumes[volume].model;
        match (&done, is_lwb) {
            // One chain has one order: with it everything before.
            (Ok(()), true) if is_fua => model.settle(),
            (Ok(()), false) if is_fua || is_logged => model.settle_last(),
            _ => {}
        }
        done
    }

    /// What is of a txg that is called synced is durable, whoever asked for it.
    pub fn settle_synced(&mut self) {
        let synced = self.pool().synced_txg().0;
        for open in &mut self.volumes {
            if open.model.window.last().is_some_and(|change| change.txg <= synced) {
                open.model.settle();
            }
        }
    }

    fn compare(&self, volume: usize) -> Result<(), String> {
        let open = &self.volumes[volume];
        let mut found = vec![0xaa; open.model.now.len()];
        open.volume.as_ref().expect("it is open").read(0, &mut found).map_err(|error| error.to_string())?;
        let differs = found.iter().zip(&open.model.now).position(|(found, now)| found != now);
        assert!(differs.is_none(), "v{volume} reads wrong from byte {differs:?} on");
        Ok(())
    }

    fn create(&mut self) -> Result<(), String> {
        let name = format!("tank/v{}", self.volumes.len());
        let options = VolumeOptions { properties: vec![(Property::VolBlockSize, self.shape.block_bytes)] };
        let made = Volume::create_on(self.pool(), Some(self.log()), &name, self.shape.volume_bytes, &options);
        let model = Model::new(vec![0; self.shape.volume_bytes as usize]);
        let (volume, failure) = match made {
            Ok(volume) => (Some(volume), Ok(())),
            Err(error) => (None, Err(error.to_string())),
        };
        self.volumes.push(Open { is_certain: volume.is_some(), volume, name, model });
        failure
    }

    /// The banks that the pool says its log is on, and whether each is out.
    pub fn regions(&self) -> Vec<(usize, bool)> {
        let config = PoolLog::config(self.pool()).unwrap_or_default();
        config.regions.iter().map(|region| (bank_of(region), region.is_out)).collect()
    }

    fn region_id(&self, bank: usize) -> RegionId {
        let config = PoolLog::config(self.pool()).expect("a description");
        config.regions.iter().find(|region| bank_of(region) == bank).expect("the log is on it").id
    }

    fn new_region(&self, bank: usize) -> NewRegion<Pm> {
        NewRegion { parts: self.banks[bank].parts(), path: format!("bank{bank}").into(), emulates: true }
    }

    fn change_log(&mut self, step: &Step) -> Result<(), String> {
        let (pool, log) = (self.pool().clone(), self.log().clone());
        match step {
            Step::AddRegion { bank } => {
                let done = log.add_regions_on(|| Ok(vec![self.new_region(*bank)]));
                note(&self.met.to_pmem, u64::from(done.is_ok()));
                done.map_err(|error| error.to_string())
            }
            Step::AddMirror => {
                let done = log.add_regions_on(|| Ok(vec![self.new_region(0), self.new_region(1)]));
                note(&self.met.mirrors, u64::from(done.is_ok()));
                done.map_err(|error| error.to_string())
            }
            Step::AttachRegion { bank } => {
                let done = log.attach_region(self.new_region(*bank));
                note(&self.met.sides_changed, u64::from(done.is_ok()));
                done.map_err(|error| error.to_string())
            }
            Step::DetachRegion { bank } => {
                let done = log.detach_region(self.region_id(*bank));
                note(&self.met.sides_changed, u64::from(done.is_ok()));
                done.map_err(|error| error.to_string())
            }
            Step::ReplaceRegion { old, new } => {
                let done = log.replace_region(self.region_id(*old), self.new_region(*new));
                note(&self.met.sides_changed, u64::from(done.is_ok()));
                done.map_err(|error| error.to_string())
            }
            Step::RemoveRegion => {
                let done = log.remove_region();
                note(&self.met.to_lwb, u64::from(done.is_ok()));
                done.map_err(|error| error.to_string())
            }
            Step::AddVdev => {
                let (path, seed) = (format!("log{}", self.disks.len()), self.rng.next());
                let disk = Disk::new(&path, MemImage::zeroed(LOG_DISK_BYTES), &self.power, seed);
                let spec = VdevSpec::single(disk.device()).log();
                self.disks.push(disk);
                let id = pool.add(&spec).map_err(|error| error.to_string())?;
                self.log_vdevs.push(id);
                Ok(())
            }
            Step::RemoveVdev { nth } => {
                log.remove_vdev(self.log_vdevs[*nth]).map_err(|error| error.to_string())?;
                self.log_vdevs.remove(*nth);
                note(&self.met.vdevs_removed, 1);
                Ok(())
            }
            _ => unreachable!("a change of the log"),
        }?;
        let config = PoolLog::config(&pool).map_err(|error| error.to_string())?;
        assert_eq!(config.kind, log.kind(), "{step} has returned, and the pool does not say so");
        if log.kind() == KindId::Pmem {
            // What the log before had is given back with the txgs that do without it.
            pool.sync().and_then(|_| pool.sync()).map_err(|error| error.to_string())?;
            let report = pool.check().map_err(|error| error.to_string())?;
            assert!(report.is_clean() && report.log_units == 0, "{step}: {report:?}");
        }
        Ok(())
    }

    /// So that two runs can be compared.
    pub fn fingerprint(&self) -> u64 {
        self.power.events.load(Ordering::SeqCst)
    }
}
