//! A pool, its log and its volumes on media that lose their power together.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use fastness_base::chain;
use fastness_blkdev::MemImage;
use fastness_pool::{DatasetKind, ErrorKind, Host, ImportOptions, Pool, PoolError, PoolOptions, TrimPoint};
use fastness_store::{Kinds, PoolLog, Store, StoreError, StoreOptions, Tuning};
use fastness_testkit::media::{Bank, Disk, Power};
use fastness_zil::KindId;
use fastness_zpl::FileReplay;
use fastness_zvol::VolumeReplay;

use crate::arrivals::Arrival;
use crate::copies::{Copied, Role};
use crate::files::Files;
use crate::full;
use crate::met::{Met, note};
use crate::program::Step;
use crate::promotions::Promotion;
use crate::rng::Rng;
use crate::schedule::gate;
use crate::shape::{Shape, Swarm};
use crate::snapshots::Snap;
use crate::volumes::Vol;

/// Why a step failed.
#[derive(Debug)]
pub struct Failure {
    pub kind: ErrorKind,
    pub text: String,
}

/// How the pool was before a step.
pub struct Was {
    is_suspended: bool,
    is_exposed: bool,
    /// Faults that were given to devices.
    faults: u64,
}

pub type Done = Result<(), Failure>;

impl Failure {
    /// There was no room.
    pub fn is_for_room(&self) -> bool {
        self.kind == ErrorKind::NoSpace
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<PoolError> for Failure {
    fn from(error: PoolError) -> Failure {
        Failure { kind: error.kind(), text: chain(&error) }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        Failure { kind: error.kind(), text: chain(&error) }
    }
}

pub struct World<'a> {
    pub met: &'a Met,
    pub seed: u64,
    /// Steps to leave out: life, number.
    pub skipped: &'a BTreeSet<(u64, u64)>,
    pub shape: Shape,
    pub swarm: Swarm,
    /// Of what comes at the end of a life.
    pub rng: Rng,
    pub life: u64,
    /// Number of the step in its life.
    pub step: u64,
    /// It is done inside of another.
    pub is_nested: bool,
    pub power: Arc<Power>,
    pub disks: Vec<Disk>,
    /// How many there have been.
    pub disks_ever: usize,
    pub banks: [Bank; 2],
    pub volumes: Vec<Vol>,
    /// From old to new.
    pub snapshots: Vec<Snap>,
    pub snapshots_ever: u64,
    /// Units of data and rows of the new pool.
    pub in_use_first: (u64, u64),
    pub promoting: Option<Promotion>,
    pub arrivals: Vec<Arrival>,
    pub files: Option<Files>,
    /// All names that a volume ever had.
    pub names: BTreeSet<String>,
    /// Where the next trim goes on.
    pub trim_point: TrimPoint,
    /// Vdevs for logs.
    pub log_vdevs: Vec<u16>,
    pub stack: Option<Arc<Store>>,
    /// A suspended pool was given up, and the next import of it has failed so far.
    pub is_given_up: bool,
    /// Devices as they were.
    pub copies: Vec<Copied>,
    /// What each disk was to the pool at the end of the last life.
    pub roles: BTreeMap<String, Role>,
    /// The logs' media record all that was acknowledged.
    pub is_idle: bool,
    /// The newest txg that was called durable.
    pub synced: u64,
    /// The next import must not do with one side of a mirror of regions.
    pub needs_both_banks: bool,
    /// A side has something else than its vdev until the next scrub.
    pub has_wrong_copies: bool,
    /// Faults that were given to devices.
    pub faults: u64,
    /// A region was cut short in this life.
    pub was_cut: bool,
    /// No import goes on without losing something, and has said so.
    pub is_over: bool,
    /// What was done, for people: with the life and number of each step.
    pub story: Vec<String>,
}

pub fn manual() -> PoolOptions {
    let (cache_bytes, meta_cache_bytes) = (64 << 20, 1 << 20);
    PoolOptions { has_txg_thread: false, cache_bytes, meta_cache_bytes, ..PoolOptions::default() }
}

/// Of the txgs of a change of names, about.
const EVENTS_OF_TXG: u64 = 24;

/// One thread, one order.
pub const TUNING: Tuning = Tuning {
    ncommitters: Some(1),
    lets_log_fill: true,
    suspended_at_once: Some(1),
    // Low, so that many commits have some data in the log and some in its place.
    indirect_bytes_min: Some(12 << 10),
};

pub fn options() -> StoreOptions {
    StoreOptions {
        pool: manual(),
        import: ImportOptions { host: Host::current(), ..ImportOptions::default() },
        tuning: TUNING,
        kinds: Kinds::default()
            .with(DatasetKind::Volume, VolumeReplay)
            .with(DatasetKind::Filesystem, FileReplay::default()),
        ..StoreOptions::default()
    }
}

impl<'a> World<'a> {
    pub fn new(seed: u64, met: &'a Met, skipped: &'a BTreeSet<(u64, u64)>) -> World<'a> {
        let mut rng = Rng::new(seed);
        let (shape, swarm) = (Shape::draw(&mut rng), Swarm::draw(&mut rng));
        let power = Arc::new(Power::with_gate(gate));
        let banks = [0, 1].map(|_| Bank::new(shape.chunks, shape.chunk_bytes, &mut rng.0, &power));
        let images = full::images(&shape);
        let disk = |(n, image): (usize, MemImage)| Disk::new(&format!("disk{n}"), image, &power, seed);
        let disks: Vec<Disk> = images.into_iter().enumerate().map(disk).collect();
        note(&met.full_pools, u64::from(shape.leaves_bytes.is_some()));
        let story = vec![format!("{shape:?}"), format!("{swarm:?}")];
        let mut world = World {
            met,
            seed,
            skipped,
            shape,
            swarm,
            rng,
            life: 0,
            step: 0,
            is_nested: false,
            power,
            disks_ever: disks.len(),
            disks,
            banks,
            volumes: Vec::new(),
            snapshots: Vec::new(),
            snapshots_ever: 0,
            in_use_first: (0, 0),
            promoting: None,
            arrivals: Vec::new(),
            files: None,
            names: BTreeSet::new(),
            trim_point: TrimPoint::default(),
            log_vdevs: Vec::new(),
            stack: None,
            is_given_up: false,
            copies: Vec::new(),
            roles: BTreeMap::new(),
            is_idle: false,
            synced: 0,
            needs_both_banks: false,
            has_wrong_copies: false,
            faults: 0,
            was_cut: false,
            is_over: false,
            story,
        };
        world.import().expect("a new pool");
        world.in_use_first = world.in_use();
        if world.swarm.has_files() {
            world.make_files();
        }
        world
    }

    pub fn store(&self) -> &Arc<Store> {
        self.stack.as_ref().expect("the power is on")
    }

    pub fn pool(&self) -> Arc<Pool> {
        self.store().pool()
    }

    pub fn log(&self) -> Arc<PoolLog> {
        self.store().log().expect("an import")
    }

    /// Whether there is an import, suspended or not.
    pub fn is_imported(&self) -> bool {
        self.stack.is_some() && !self.is_given_up
    }

    pub fn is_lwb(&self) -> bool {
        self.log().kind() == KindId::Lwb
    }

    pub fn is_full(&self) -> bool {
        self.shape.leaves_bytes.is_some()
    }

    /// A life up to a power cut, or to its end.
    pub fn live(&mut self, life: u64) {
        self.life = life;
        self.was_cut = false;
        self.rng = Rng::of_step(self.seed, life, u64::MAX);
        let steps = 10 + self.rng.below(60);
        let (from, within) = (self.rng.below(steps), self.rng.pick(&[4, 12, 40, 200, 1000]));
        let (is_never, near) = (self.rng.one_in(8), 1 + self.rng.below(within));
        let cut_in = if is_never { u64::MAX } else { near };
        for step in 0..steps {
            if step == from {
                self.power.cut_in(cut_in);
            }
            self.step = step;
            self.step_once();
            if self.power.is_off() {
                break;
            }
        }
    }

    /// Now and then the power fails within the next few events: within what begins now.
    pub fn cut_soon(&self, rng: &mut Rng, one_in: u64) {
        if rng.one_in(one_in) {
            self.power.cut_in(1 + rng.below(EVENTS_OF_TXG));
        }
    }

    /// Does a step; it may fail for a power cut, for a device that fails, and a request for want of room.
    pub fn run(&mut self, step: &Step, name: &str) {
        let before = self.power.events();
        let was = Was {
            is_suspended: self.is_suspended(),
            is_exposed: self.is_imported() && self.is_exposed(),
            faults: self.faults,
        };
        let kind = if !self.is_imported() {
            "none"
        } else if self.is_lwb() {
            "lwb"
        } else {
            "pmem"
        };
        self.is_idle = false;
        let done = match step {
            Step::Idle => {
                self.is_idle = self.log().witness() && !self.power.is_off();
                note(&self.met.idle, u64::from(self.is_idle));
                Ok(())
            }
            Step::Sync => self.pool().sync().map(drop).map_err(Failure::from),
            Step::Clear { seed } => self.clear(*seed),
            Step::Race { ops, seed } => self.race(ops, *seed, &was),
            Step::ChangeFiles { seed } => self.change_files(*seed),
            Step::SyncFiles { seed } => self.sync_files(*seed),
            Step::RaceFiles { seed } => self.race_files(*seed, &was),
            Step::Copy { of, is_bank } => {
                self.copy(*of, *is_bank);
                Ok(())
            }
            Step::AddVdev { .. } | Step::RemoveVdev { .. } => self.change_vdevs(step),
            step if step.is_of_log() => self.change_log(step),
            step if step.is_of_devices() => self.change_devices(step),
            step => self.request(step),
        };
        self.settle_synced();
        let events = before..self.power.events();
        let how = match &done {
            Ok(()) => String::new(),
            Err(error) => format!(" FAILED: {error}"),
        };
        self.story.push(format!("{name} {kind} {events:?} {step}{how}"));
        let has_synced = done.is_ok() && matches!(step, Step::Sync);
        note(&self.met.synced_full, u64::from(self.is_full() && has_synced));
        note(&self.met.elsewhere, u64::from(has_synced && self.lacks_room()));
        if let Err(failure) = done {
            self.excuse(step, &failure, &was);
        }
        if !was.is_suspended && !self.power.is_off() && self.is_suspended() {
            assert!(was.is_exposed || self.is_exposed(), "{step} suspends the pool");
            note(&self.met.suspended, 1);
        }
    }

    /// Whether a pool takes no changes, or was given up for that.
    pub fn is_suspended(&self) -> bool {
        !self.is_imported() || self.pool().is_suspended()
    }

    pub fn excuse(&self, step: &Step, failure: &Failure, was: &Was) {
        if self.power.is_off() {
            return note(&self.met.cuts_of_changes, u64::from(!step.is_plain()));
        }
        if failure.kind == ErrorKind::NoSpace && step.is_request() {
            return note(&self.met.no_space, 1);
        }
        let is_excused = match step {
            Step::Clear { .. } => self.excuses_clear(failure),
            step if step.is_plain() || step.is_request() => {
                was.is_suspended || was.is_exposed || self.is_exposed()
            }
            // These need all devices, all the time.
            _ => was.is_suspended || self.is_any_loud() || was.faults < self.faults,
        };
        let is_short = failure.kind == ErrorKind::NoSpace && !self.is_any_loud() && !self.lacks_room();
        assert!(is_excused && !is_short, "{step}: {failure}");
        note(&self.met.failed_steps, 1);
    }

    /// What is of a txg that is called synced is durable, whoever asked for it.
    pub fn settle_synced(&mut self) {
        if !self.is_imported() {
            return;
        }
        let synced = self.pool().synced_txg().0;
        self.synced = synced;
        self.volumes.iter_mut().for_each(|open| open.model.settle_txg(synced));
        self.settle_files(synced);
    }
}
