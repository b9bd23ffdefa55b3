//! A block log in a pool's log space, appended to and committed while txgs sync; sides of mirrors that fail;
//! the power fails at a random operation; sides are lost or rot; import, claim, replay: every acknowledged
//! record is there.
//!
//! `FASTNESS_LOG_SEEDS=FROM..TO` runs others than the default 0..150; one seed is one schedule.

#[path = "../../pool/tests/support/mod.rs"]
mod support;

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastness_blkdev::{BlockDevice, ErrorKind, Fault, FaultPlan, MemImage, On, Operation, When};
use fastness_lwb::{Claimed, CommitError, Header, Log, Lsn, OnLoss, Options, Txg, claim};
use fastness_pool::{
    DATA_START_BYTES, DatasetId, DeviceState, HookChanges, LABEL_BYTES, Pool, PoolError, PoolOptions,
    TxgHook, UNIT_BYTES, VdevSpec,
};
use fastness_store::PoolSpace;
use support::{Rig, Rng, degraded, host, manual};

const LEN_BYTES: u64 = 9 << 20;
const ROOT: DatasetId = DatasetId(1);
const KEY: &[u8] = b"block log";

type PoolLog = Arc<Log<PoolSpace>>;
type Records = Vec<(Lsn, Txg, Vec<u8>)>;

struct Hook(PoolLog);

impl TxgHook for Hook {
    fn sync(&self, txg: Txg, changes: &mut HookChanges) -> Result<(), PoolError> {
        changes.put(ROOT, KEY, Some(&self.0.sync_header(txg).encode()));
        Ok(())
    }

    fn synced(&self, txg: Txg) {
        self.0.synced(txg);
    }
}

/// Sides of the vdev for data, and of one for logs.
#[derive(Debug, Clone, Copy)]
struct Layout {
    data: usize,
    log: usize,
}

const LAYOUTS: [Layout; 6] = [
    Layout { data: 1, log: 0 },
    Layout { data: 2, log: 0 },
    Layout { data: 3, log: 0 },
    Layout { data: 1, log: 1 },
    Layout { data: 1, log: 2 },
    Layout { data: 2, log: 2 },
];

impl Layout {
    fn specs(self, rig: &Arc<Rig>) -> Vec<VdevSpec> {
        let mut devices = rig.all();
        let log = devices.split_off(self.data);
        let mut specs = vec![VdevSpec::mirror(devices)];
        specs.extend((!log.is_empty()).then(|| VdevSpec::mirror(log).log()));
        specs
    }

    /// Devices of the vdev that the log uses.
    fn log_devices(self) -> std::ops::Range<usize> {
        if self.log > 0 { self.data..self.data + self.log } else { 0..self.data }
    }
}

/// A new log that is up.
fn start(pool: &Pool) -> PoolLog {
    let options = Options { block_bytes_max: 16 << 10, ..Options::default() };
    let log = Arc::new(Log::new(PoolSpace::new(pool.log_space()), pool.synced_txg(), options));
    log.start();
    pool.add_hook(Arc::new(Hook(log.clone())));
    pool.sync().unwrap();
    assert!(log.status().is_up);
    log
}

fn recover(pool: &Pool) -> (Claimed<PoolSpace>, Records) {
    let stored = pool.dataset("tank").unwrap().synced_aux(KEY).unwrap();
    let header = stored.map_or(Header::None, |bytes| Header::decode(&bytes).unwrap());
    let first_txg = Txg(pool.synced_txg().0 + 1);
    let space = PoolSpace::new(pool.log_space());
    let mut claimed =
        claim(space.clone(), &header, first_txg, OnLoss::Fail).unwrap_or_else(|e| panic!("{e}"));
    let units: u64 = claimed.extents().iter().map(|extent| u64::from(extent.len_bytes) / UNIT_BYTES).sum();
    let report = pool.check().unwrap();
    assert!(report.is_clean() && report.log_units == units, "claimed is what is held: {report:?}");
    let stored = claimed.header();
    let tx = pool.begin_tx().unwrap();
    pool.put_aux(&tx, ROOT, KEY, Some(&stored.encode()));
    drop(tx);
    pool.start_txgs().unwrap();
    pool.sync().unwrap();
    let mut records = Records::new();
    let replayed = claimed.replay(|record, _| {
        records.push((record.lsn, record.txg, record.bytes.to_vec()));
        Ok::<_, Infallible>(())
    });
    replayed.unwrap_or_else(|error| panic!("{error}"));
    (claimed, records)
}

/// Replayed is a prefix of what was appended and has not synced, with everything committed.
fn check(records: &Records, appended: &Records, synced: Txg, committed: Lsn) {
    let unsynced: Vec<_> = appended.iter().filter(|(_, txg, _)| *txg > synced).collect();
    for (at, record) in records.iter().enumerate() {
        assert!(
            unsynced.get(at).is_some_and(|appended| **appended == *record),
            "record {at}: {:?}",
            record.0
        );
    }
    let needed = unsynced.iter().filter(|(lsn, ..)| *lsn <= committed).count();
    assert!(records.len() >= needed, "{} records replayed, {needed} acknowledged", records.len());
}

#[derive(Debug, Default)]
struct Met {
    replayed: AtomicU64,
    cuts: AtomicU64,
    stale_sides: AtomicU64,
    failed_commits: AtomicU64,
    lost_sides: AtomicU64,
    rotten_sides: AtomicU64,
    resilvers: AtomicU64,
    healed: AtomicU64,
}

fn note(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

/// Appends, commits and syncs until the power fails or the steps are done; what was appended, and what
/// committed.
fn work(
    pool: &Pool,
    rig: &Arc<Rig>,
    log: &PoolLog,
    rng: &mut Rng,
    met: &Met,
    mirrored: bool,
) -> (Records, Lsn) {
    let (mut appended, mut committed) = (Records::new(), Lsn(0));
    let is_cut = || rig.devices[0].is_power_cut();
    for _ in 0..40 + rng.below(60) {
        let Ok(tx) = pool.begin_tx() else { break };
        let txg = tx.txg();
        let len = [10, 3000, 9000, 30_000][rng.below(4) as usize] + rng.below(50);
        let bytes: Vec<u8> = (0..len).map(|_| rng.next() as u8).collect();
        let lsn = log.append(txg, &bytes);
        appended.push((lsn, txg, bytes));
        if rng.below(4) == 0 {
            let object = pool.dataset("tank").unwrap().create_object(&tx).unwrap();
            // A pool that is full is another test.
            let _ = object.write(&tx, 0, &rng.bytes(20_000));
        }
        drop(tx);
        match rng.below(8) {
            0..5 => match log.commit(lsn) {
                Ok(()) => committed = lsn,
                Err(error) => {
                    let is_start = matches!(error, CommitError::NotStarted);
                    assert!(!mirrored || is_cut() || is_start || !log.status().is_up, "{error}");
                    note(&met.failed_commits, 1);
                }
            },
            5 if pool.sync().is_err() => break,
            6 => {
                for side in
                    pool.status().vdevs.into_iter().flat_map(|vdev| vdev.2).filter(|side| side.is_stale)
                {
                    note(&met.resilvers, u64::from(pool.resilver(side.guid, |_| true).is_ok()));
                }
            }
            _ => {}
        }
    }
    let status = pool.status();
    let sides = status.vdevs.iter().flat_map(|vdev| &vdev.2);
    note(&met.stale_sides, sides.filter(|side| side.is_stale).count() as u64);
    (appended, committed)
}

/// Devices of a range that the newest labels call current.
fn current(rig: &Arc<Rig>, range: std::ops::Range<usize>) -> Vec<usize> {
    let newest =
        rig.all().iter().filter_map(|device| device.probe().ok()).max_by_key(|probe| probe.config.generation);
    let config = newest.unwrap().config;
    let is_current = |index: &usize| {
        let mut devices = config.vdevs.iter().flat_map(|vdev| &vdev.devices);
        devices.any(|device| device.path == format!("disk{index}") && device.state == DeviceState::Online)
    };
    range.filter(is_current).collect()
}

/// Imports what the power cut left, with a side missing or rotten where another one is current.
fn import_what_is_left(rig: Arc<Rig>, layout: Layout, rng: &mut Rng, met: &Met) -> (Arc<Rig>, Pool) {
    let mut left: Vec<usize> = (0..rig.devices.len()).collect();
    let mut images: Vec<MemImage> = rig.devices.iter().map(|device| device.inner().image()).collect();
    let sides = current(&rig, layout.log_devices());
    if sides.len() > 1 {
        let struck = sides[rng.below(sides.len() as u64) as usize];
        match rng.below(3) {
            0 => {
                left.retain(|index| *index != struck);
                note(&met.lost_sides, 1);
            }
            1 => {
                for unit in 0..(LEN_BYTES - 2 * LABEL_BYTES) / UNIT_BYTES - 1 {
                    images[struck]
                        .write(DATA_START_BYTES + unit * UNIT_BYTES + 1000, &rng.next().to_le_bytes());
                }
                note(&met.rotten_sides, 1);
            }
            _ => {}
        }
    }
    let rig = Rig::new(images, rng.next());
    let devices: Vec<_> = left.iter().map(|index| rig.device(*index)).collect();
    let options = if left.len() < rig.devices.len() { degraded() } else { host() };
    let pool = Pool::import_paused(&devices, &options, manual()).unwrap_or_else(|error| panic!("{error:?}"));
    (rig, pool)
}

fn run(seed: u64, met: &Met) {
    let mut rng = Rng::new(seed);
    let layout = LAYOUTS[seed as usize % LAYOUTS.len()];
    let mut rig = Rig::fresh(layout.data + layout.log, LEN_BYTES, seed);
    let mut pool = Pool::create("tank", &layout.specs(&rig), manual()).unwrap();
    for _ in 0..3 {
        let log = start(&pool);
        let sides = layout.log_devices();
        let mirrored = sides.len() > 1;
        if mirrored && rng.below(2) == 0 {
            let on = [On::Writes, On::Only(Operation::Flush)][rng.below(2) as usize];
            let plan = FaultPlan::new(seed).rule(on, When::Nth(1 + rng.below(50)), Fault::Errno(5));
            let current = current(&rig, sides.clone());
            let stale = sides.clone().find(|index| !current.contains(index));
            rig.devices[stale.unwrap_or(sides.start + rng.below(sides.len() as u64) as usize)].set_plan(plan);
        }
        let now = rig.ops.load(Ordering::SeqCst);
        rig.cut_at.store(now + 1 + rng.below(600), Ordering::SeqCst);
        let (appended, committed) = work(&pool, &rig, &log, &mut rng, met, mirrored);
        note(&met.cuts, u64::from(rig.devices[0].is_power_cut()));
        drop((log, pool));
        rig = Rig::new(rig.crash(rng.next()), rng.next());
        (rig, pool) = import_what_is_left(rig, layout, &mut rng, met);
        let synced = pool.synced_txg();
        let (mut claimed, records) = recover(&pool);
        check(&records, &appended, synced, committed);
        note(&met.replayed, records.len() as u64);
        if rng.below(2) == 0 {
            // Another crash, after the txg with the claimed header.
            drop((claimed, pool));
            rig = Rig::new(rig.crash(rng.next()), rng.next());
            let there: Vec<_> = rig.all().into_iter().filter(|device| device.probe().is_ok()).collect();
            pool = Pool::import_paused(&there, &host(), manual()).unwrap_or_else(|error| panic!("{error:?}"));
            let again;
            (claimed, again) = recover(&pool);
            assert!(again == records, "{} records, then {}", records.len(), again.len());
        }
        let sides = pool.status().vdevs.into_iter().flat_map(|vdev| vdev.2);
        for side in sides.filter(|side| side.is_stale) {
            note(&met.resilvers, u64::from(side.is_present && pool.resilver(side.guid, |_| true).is_ok()));
        }
        note(
            &met.healed,
            pool.status().vdevs.iter().flat_map(|vdev| &vdev.2).map(|side| side.errors.healed).sum(),
        );
        let tx = pool.begin_tx().unwrap();
        pool.put_aux(&tx, ROOT, KEY, None);
        drop(tx);
        pool.sync().unwrap();
        claimed.release();
        pool.scrub(|_| true).unwrap();
        assert!(pool.check().unwrap().is_clean() && pool.log_space().extents().is_empty());
        // The missing side comes back as another device.
        let missing = pool.status().vdevs.into_iter().flat_map(|vdev| vdev.2).find(|side| !side.is_present);
        if missing.is_some() {
            return;
        }
    }
}

#[test]
fn what_was_acknowledged_survives_crashes_with_a_side_lost_or_rotten() {
    let met = Met::default();
    let seeds = match std::env::var("FASTNESS_LOG_SEEDS") {
        Ok(text) => {
            let (from, to) = text.split_once("..").expect("FROM..TO");
            from.parse().unwrap()..to.parse().unwrap()
        }
        Err(_) => 0..150,
    };
    for seed in seeds.clone() {
        if let Err(panic) = std::panic::catch_unwind(|| run(seed, &met)) {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            panic!("seed {seed}: {}", text.or(panic.downcast_ref::<&str>().copied()).unwrap_or_default());
        }
    }
    if seeds.end - seeds.start >= 150 {
        let Met { replayed, cuts, stale_sides, failed_commits, lost_sides, rotten_sides, resilvers, healed } =
            &met;
        for counter in
            [replayed, cuts, stale_sides, failed_commits, lost_sides, rotten_sides, resilvers, healed]
        {
            assert!(counter.load(Ordering::Relaxed) > 0, "something never happened: {met:?}");
        }
    }
}

/// Several threads commit while the pool's own thread syncs, and the sides of mirrors are written at a time.
#[test]
fn threads_that_commit_lose_nothing_they_were_promised() {
    for seed in 0..12 {
        let mut rng = Rng::new(seed);
        let layout = LAYOUTS[seed as usize % LAYOUTS.len()];
        let rig = Rig::fresh(layout.data + layout.log, LEN_BYTES, seed);
        let options = PoolOptions { has_txg_thread: true, txg_timeout: Duration::from_millis(5), ..manual() };
        let pool = Pool::create("tank", &layout.specs(&rig), options).unwrap();
        let log = start(&pool);
        if layout.log_devices().len() > 1 && seed % 2 == 0 {
            let plan = FaultPlan::new(seed).rule(On::Any, When::Nth(1 + rng.below(100)), Fault::Errno(5));
            rig.devices[layout.log_devices().start].set_plan(plan);
        }
        rig.cut_at.store(rig.ops.load(Ordering::SeqCst) + 200 + rng.below(2000), Ordering::SeqCst);
        let (appended, committed) = (Mutex::new(Records::new()), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (pool, log, rig, appended, committed) = (&pool, &log, &rig, &appended, &committed);
                scope.spawn(move || {
                    let mut rng = Rng::new(seed * 10 + thread);
                    while !rig.devices[0].is_power_cut() {
                        let Ok(tx) = pool.begin_tx() else { return };
                        let bytes: Vec<u8> = (0..rng.below(5000)).map(|_| rng.next() as u8).collect();
                        let txg = tx.txg();
                        let lsn = {
                            let mut appended = appended.lock().unwrap();
                            let lsn = log.append(txg, &bytes);
                            appended.push((lsn, txg, bytes));
                            lsn
                        };
                        drop(tx);
                        if log.commit(lsn).is_ok() {
                            committed.fetch_max(lsn.0, Ordering::SeqCst);
                        } else if pool.wait_synced(txg).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        drop((log, pool));
        let rig = Rig::new(rig.crash(seed), seed);
        let pool = Pool::import_paused(&rig.all(), &host(), manual()).unwrap();
        let synced = pool.synced_txg();
        let (_, records) = recover(&pool);
        check(&records, &appended.into_inner().unwrap(), synced, Lsn(committed.into_inner()));
    }
}

#[test]
fn a_vdev_for_logs_is_emptied_and_removed_under_a_log() {
    let rig = Rig::fresh(2, LEN_BYTES, 1);
    let layout = Layout { data: 1, log: 1 };
    let pool = Pool::create("tank", &layout.specs(&rig), manual()).unwrap();
    let log = start(&pool);
    let append = |bytes: &[u8]| log.append(pool.open_txg(), bytes);
    log.commit(append(b"one")).unwrap();
    assert!(matches!(pool.remove(1).unwrap_err(), PoolError::LogInUse { vdev: 1, .. }));
    // The log goes on elsewhere: its chain is there until a new one has taken its place.
    log.stop();
    assert!(log.commit(append(b"two")).is_err());
    for _ in 0..3 {
        pool.sync().unwrap();
    }
    pool.remove(1).unwrap();
    log.resume();
    pool.sync().unwrap();
    pool.sync().unwrap();
    let lsn = append(b"three");
    log.commit(lsn).unwrap();
    assert!(log.extents().iter().all(|extent| extent.place.device == 0));
    assert!(pool.check().unwrap().is_clean());
    let rig = Rig::new(rig.crash(1), 1);
    let pool = Pool::import_paused(&[rig.device(0)], &host(), manual()).unwrap();
    let (_, records) = recover(&pool);
    assert_eq!(records.iter().map(|(.., bytes)| &bytes[..]).collect::<Vec<_>>(), [b"three"]);
}

#[test]
fn a_full_pool_takes_no_log_blocks_and_goes_on() {
    let rig = Rig::fresh(1, LEN_BYTES, 1);
    let pool = Pool::create("tank", &Layout { data: 1, log: 0 }.specs(&rig), manual()).unwrap();
    let log = start(&pool);
    let object = {
        let tx = pool.begin_tx().unwrap();
        let object = pool.dataset("tank").unwrap().create_object(&tx).unwrap();
        let mut rng = Rng::new(1);
        let mut at = 0;
        let mut part = || (0..65_536).map(|_| rng.next() as u8).collect::<Vec<u8>>();
        while object.write(&tx, at, &part()).is_ok() {
            at += 65_536;
        }
        object
    };
    pool.sync().unwrap();
    let error = loop {
        let lsn = log.append(pool.open_txg(), &[1; 12_000]);
        if let Err(error) = log.commit(lsn) {
            break error;
        }
    };
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    pool.sync().unwrap();
    assert!(pool.check().unwrap().is_clean());
    let tx = pool.begin_tx().unwrap();
    object.truncate(&tx, 0).unwrap();
    drop(tx);
    for _ in 0..4 {
        pool.sync().unwrap();
    }
    log.commit(log.append(pool.open_txg(), b"there is room again")).unwrap();
    assert!(pool.check().unwrap().is_clean());
}

/// A block that one side has torn is found on the other, wherever it is in the chain; and its end is not
/// taken for it.
#[test]
fn a_block_is_read_from_whichever_side_has_it() {
    let rig = Rig::fresh(2, LEN_BYTES, 1);
    let pool = Pool::create("tank", &Layout { data: 2, log: 0 }.specs(&rig), manual()).unwrap();
    let log = start(&pool);
    for number in 0..6_u8 {
        log.commit(log.append(pool.open_txg(), &[number; 5000])).unwrap();
    }
    let places: Vec<_> = log.extents().iter().map(|extent| extent.place).collect();
    let written = log.status().blocks as usize;
    drop((log, pool));
    let mut images = rig.crash(1);
    for (at, place) in places.iter().enumerate() {
        let offset = DATA_START_BYTES + place.offset + 300;
        images[at % 2].write(offset, b"rot");
    }
    let rig = Rig::new(images, 1);
    let last = DATA_START_BYTES + places[written].offset;
    let unreadable = FaultPlan::new(1).rule_in(
        last..last + 512,
        On::Only(Operation::Read),
        When::From(1),
        Fault::Errno(5),
    );
    rig.devices[0].set_plan(unreadable);
    let pool = Pool::import_paused(&rig.all(), &host(), manual()).unwrap();
    let (_, records) = recover(&pool);
    assert_eq!(records.len(), 6);
    let healed: u64 = pool.status().vdevs[0].2.iter().map(|side| side.errors.healed).sum();
    assert_eq!(healed as usize, written.div_ceil(2), "those that were tried before the right one");
    rig.devices.iter().for_each(|device| assert!(!device.is_poisoned()));
}
