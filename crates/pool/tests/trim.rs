//! A trim discards what is free, and nothing else: not what is allocated meanwhile, not what the last txg
//! has freed, not with room that was promised.

mod support;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use fastness_blkdev::{BlockDevice, BlockError, DeviceInfo, MemDevice, StatsSnapshot};
use fastness_pool::{
    Dataset, DatasetKind, Device, Object, ObjectId, Pool, PoolError, PoolOptions, Property, TrimPoint, Tx,
    VdevSpec,
};
use support::{Rig, Rng, host, manual};

const MIB: u64 = 1 << 20;
const BLOCK_BYTES: u64 = 4096;

type Meanwhile = Box<dyn FnMut() + Send>;

/// Memory that does something else before it discards, and scribbles over what it discards.
struct Busy {
    memory: MemDevice,
    meanwhile: Mutex<Option<Meanwhile>>,
    /// Before the next flush.
    before_flush: Mutex<Option<Meanwhile>>,
    discarded_bytes: AtomicU64,
}

impl BlockDevice for Busy {
    fn info(&self) -> &DeviceInfo {
        self.memory.info()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), BlockError> {
        self.memory.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), BlockError> {
        self.memory.write_at(offset, data)
    }

    fn write_fua(&self, offset: u64, data: &[u8]) -> Result<(), BlockError> {
        self.memory.write_fua(offset, data)
    }

    fn flush(&self) -> Result<(), BlockError> {
        let before = self.before_flush.lock().unwrap().take();
        if let Some(mut before) = before {
            before();
        }
        self.memory.flush()
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> Result<(), BlockError> {
        let meanwhile = self.meanwhile.lock().unwrap().take();
        if let Some(mut meanwhile) = meanwhile {
            meanwhile();
            *self.meanwhile.lock().unwrap() = Some(meanwhile);
        }
        self.discarded_bytes.fetch_add(len_bytes, Ordering::SeqCst);
        self.memory.write_at(offset, &vec![0xdd; len_bytes as usize])
    }

    fn write_zeroes(&self, offset: u64, len_bytes: u64) -> Result<(), BlockError> {
        self.memory.write_zeroes(offset, len_bytes)
    }

    fn stats(&self) -> StatsSnapshot {
        self.memory.stats()
    }

    fn is_poisoned(&self) -> bool {
        self.memory.is_poisoned()
    }
}

struct World {
    device: Arc<Busy>,
    pool: Arc<Pool>,
    rng: Rng,
}

fn noise(rng: &mut Rng, len: u64) -> Vec<u8> {
    (0..len / 8).flat_map(|_| rng.next().to_le_bytes()).collect()
}

impl World {
    fn new(options: PoolOptions) -> World {
        let memory = MemDevice::new("a", 64 * MIB);
        let device = Arc::new(Busy {
            memory,
            meanwhile: Mutex::new(None),
            before_flush: Mutex::new(None),
            discarded_bytes: AtomicU64::new(0),
        });
        let specs = [VdevSpec::single(Device::new("a", device.clone()))];
        let pool = Arc::new(Pool::create("tank", &specs, options).unwrap());
        let world = World { device, pool, rng: Rng::new(1) };
        for name in ["tank/v", "tank/w"] {
            world.tx(|tx| {
                let properties = [(Property::VolBlockSize, BLOCK_BYTES)];
                let kind = DatasetKind::Volume;
                world.pool.create_dataset(tx, name, kind, &properties).unwrap().create_object(tx).unwrap();
            });
        }
        world.pool.sync().unwrap();
        world
    }

    fn tx<T>(&self, change: impl FnOnce(&Tx) -> T) -> T {
        change(&self.pool.begin_tx().unwrap())
    }

    fn dataset(&self, name: &str) -> Dataset {
        self.pool.dataset(name).unwrap()
    }

    fn data(&self, name: &str) -> Object {
        self.dataset(name).object(ObjectId(1)).unwrap()
    }

    fn trim(&self) -> u64 {
        trim(&self.pool)
    }

    /// Everything is there and right.
    fn check(&self) {
        let report = self.pool.scrub(|_| true).unwrap();
        assert!(report.lost.is_empty() && report.wrong_copies == 0, "{report:?}");
        assert!(self.pool.check().unwrap().is_clean());
    }
}

fn trim(pool: &Pool) -> u64 {
    let (mut point, mut bytes) = (Some(TrimPoint::default()), 0);
    while let Some(from) = point {
        let step = pool.trim_step(from, None).unwrap();
        assert!(step.next.is_none_or(|next| next > from), "it makes progress");
        (point, bytes) = (step.next, bytes + step.discarded_bytes);
    }
    bytes
}

#[test]
fn all_that_is_free_is_discarded_and_nothing_else() {
    let mut world = World::new(manual());
    let data = noise(&mut world.rng, 8 * MIB);
    world.tx(|tx| world.data("tank/v").write(tx, 0, &data).unwrap());
    world.pool.sync().unwrap();
    let bytes = world.trim();
    let free = world.pool.status().free_bytes;
    assert!(bytes >= free && bytes < 64 * MIB - 8 * MIB, "{bytes} of {free}");
    assert_eq!(world.device.discarded_bytes.load(Ordering::SeqCst), bytes);
    world.check();
    let mut found = vec![0; data.len()];
    world.data("tank/v").read(0, &mut found).unwrap();
    assert!(found == data);
    let (done, total) = world.pool.trim_progress(None);
    assert_eq!(done, total);
    assert!(world.pool.trim_progress(Some(TrimPoint { vdev: 0, unit: 256 })) == (MIB, total));
}

#[test]
fn what_is_allocated_meanwhile_is_not_discarded() {
    let mut world = World::new(manual());
    let data = noise(&mut world.rng, MIB);
    world.tx(|tx| world.data("tank/v").write(tx, 0, &data).unwrap());
    world.pool.sync().unwrap();
    let (pool, mut rng) = (world.pool.clone(), Rng::new(2));
    let calls = Arc::new(AtomicU64::new(0));
    let of_device = calls.clone();
    *world.device.meanwhile.lock().unwrap() = Some(Box::new(move || {
        let at = of_device.fetch_add(1, Ordering::SeqCst) % 8;
        let object = pool.dataset("tank/w").unwrap().object(ObjectId(1)).unwrap();
        let data = noise(&mut rng, MIB);
        object.write(&pool.begin_tx().unwrap(), at * MIB, &data).unwrap();
        pool.sync().unwrap();
    }));
    world.trim();
    *world.device.meanwhile.lock().unwrap() = None;
    assert!(calls.load(Ordering::SeqCst) > 3);
    world.check();
}

/// What a step holds is allocated, and nothing refers to it: a check that saw that would call it leaked.
#[test]
fn a_check_meanwhile_finds_nothing() {
    let mut world = World::new(manual());
    let data = noise(&mut world.rng, MIB);
    world.tx(|tx| world.data("tank/v").write(tx, 0, &data).unwrap());
    world.pool.sync().unwrap();
    let checks = Arc::new(Mutex::new(Vec::new()));
    let (pool, of_device) = (world.pool.clone(), checks.clone());
    *world.device.meanwhile.lock().unwrap() = Some(Box::new(move || {
        let pool = pool.clone();
        let check = std::thread::spawn(move || pool.check().unwrap());
        // It may wait for the step, so nobody waits for it here.
        let ends = std::time::Instant::now() + std::time::Duration::from_millis(200);
        while !check.is_finished() && std::time::Instant::now() < ends {
            std::thread::yield_now();
        }
        of_device.lock().unwrap().push(check);
    }));
    world.trim();
    *world.device.meanwhile.lock().unwrap() = None;
    let checks = std::mem::take(&mut *checks.lock().unwrap());
    assert!(!checks.is_empty());
    for check in checks {
        let report = check.join().unwrap();
        assert!(report.is_clean(), "{} leaked", report.leaked.len());
    }
    world.check();
}

#[test]
fn what_was_freed_is_discarded_when_its_txg_is_durable() {
    let mut world = World::new(manual());
    world.pool.note_freed(true);
    let data = noise(&mut world.rng, 4 * MIB);
    world.tx(|tx| world.data("tank/v").write(tx, 0, &data).unwrap());
    world.pool.sync().unwrap();
    world.pool.trim_freed().unwrap();
    world.tx(|tx| world.data("tank/v").punch(tx, 0, 4 * MIB).unwrap());
    assert_eq!(world.pool.trim_freed().unwrap(), 0, "the last durable txg has it");
    world.pool.sync().unwrap();
    while world.pool.is_freeing() {
        world.pool.sync().unwrap();
    }
    let bytes = world.pool.trim_freed().unwrap();
    assert!((4 * MIB..5 * MIB).contains(&bytes), "{bytes}");
    assert_eq!(world.pool.trim_freed().unwrap(), 0, "once");
    world.pool.note_freed(false);
    world.check();
}

/// The txg that frees is written, and not durable yet: a power cut goes back to the one before.
#[test]
fn what_a_txg_frees_is_there_until_it_is_durable() {
    let mut world = World::new(manual());
    world.pool.note_freed(true);
    for _ in 0..2 {
        let data = noise(&mut world.rng, 4 * MIB);
        world.tx(|tx| world.data("tank/v").write(tx, 0, &data).unwrap());
        let (pool, device) = (world.pool.clone(), world.device.clone());
        let left = Arc::new(Mutex::new(None));
        let of_device = left.clone();
        *world.device.before_flush.lock().unwrap() = Some(Box::new(move || {
            // By a thread of its own, as a trim is.
            let pool = pool.clone();
            let trims = std::thread::spawn(move || {
                pool.trim_freed().unwrap();
                trim(&pool);
            });
            trims.join().unwrap();
            *of_device.lock().unwrap() = Some(device.memory.image());
        }));
        world.pool.sync().unwrap();
        let image = left.lock().unwrap().take().unwrap();
        let found = Arc::new(MemDevice::from_image("a", image, 512));
        let pool = Pool::import(&[Device::new("a", found)], &host(), manual()).unwrap();
        assert!(pool.synced_txg() < world.pool.synced_txg());
        let report = pool.scrub(|_| true).unwrap();
        assert!(report.lost.is_empty() && report.wrong_copies == 0, "{report:?}");
    }
    world.check();
}

#[test]
fn what_is_held_is_not_available_and_is_again_afterwards() {
    let world = World::new(manual());
    let available = |pool: &Pool| pool.dataset("tank/w").unwrap().available_bytes().0;
    let (before, pool) = (available(&world.pool), world.pool.clone());
    let calls = Arc::new(AtomicU64::new(0));
    let of_device = calls.clone();
    *world.device.meanwhile.lock().unwrap() = Some(Box::new(move || {
        of_device.fetch_add(1, Ordering::SeqCst);
        let during = available(&pool);
        assert!((before * 3 / 4..before - MIB).contains(&during), "{during} of {before}");
    }));
    world.trim();
    assert!(calls.load(Ordering::SeqCst) > 0);
    assert_eq!(available(&world.pool), before);
}

/// What is kept for a thick volume stays available to it.
#[test]
fn what_is_kept_for_others_is_not_held() {
    let mut world = World::new(manual());
    let thick = 40 * MIB;
    world.tx(|tx| world.dataset("tank/v").set(tx, Property::RefReservation, Some(thick)).unwrap());
    let mut block = 0;
    loop {
        let data = noise(&mut world.rng, 16 * BLOCK_BYTES);
        let object = world.data("tank/w");
        match world.tx(|tx| object.write(tx, block * BLOCK_BYTES, &data)) {
            Ok(()) => block += 16,
            Err(PoolError::NoSpace { .. }) => break,
            Err(error) => panic!("{error}"),
        }
        world.pool.sync().unwrap();
    }
    world.tx(|tx| world.data("tank/w").punch(tx, 0, 2 * MIB).unwrap());
    while world.pool.is_freeing() || world.pool.dataset("tank/w").unwrap().available_bytes().0 < MIB {
        world.pool.sync().unwrap();
    }
    let (pool, calls) = (world.pool.clone(), Arc::new(AtomicU64::new(0)));
    let of_device = calls.clone();
    *world.device.meanwhile.lock().unwrap() = Some(Box::new(move || {
        of_device.fetch_add(1, Ordering::SeqCst);
        let available = pool.dataset("tank/v").unwrap().available_bytes().0;
        assert!(available >= thick, "{available}");
    }));
    world.trim();
    assert!(calls.load(Ordering::SeqCst) > 0, "a step held something");
}

/// A thick volume is overwritten while a trim holds what it holds.
#[test]
fn room_that_was_promised_is_not_held() {
    let mut world = World::new(PoolOptions { has_txg_thread: true, ..manual() });
    let thick = 16 * MIB;
    world.tx(|tx| world.dataset("tank/v").set(tx, Property::RefReservation, Some(thick)).unwrap());
    world.pool.sync().unwrap();
    let mut block = 0;
    loop {
        let data = noise(&mut world.rng, 64 * BLOCK_BYTES);
        let object = world.data("tank/w");
        match world.pool.transact(|tx| object.write(tx, block * BLOCK_BYTES, &data)) {
            Ok(_) => block += 64,
            Err(PoolError::NoSpace { .. }) => break,
            Err(error) => panic!("{error}"),
        }
    }
    let (pool, mut rng) = (world.pool.clone(), Rng::new(3));
    let calls = Arc::new(AtomicU64::new(0));
    let of_device = calls.clone();
    *world.device.meanwhile.lock().unwrap() = Some(Box::new(move || {
        let at = of_device.fetch_add(1, Ordering::SeqCst) % 16;
        let object = pool.dataset("tank/v").unwrap().object(ObjectId(1)).unwrap();
        let data = noise(&mut rng, MIB);
        let ((), txg) = pool.transact(|tx| object.write(tx, at * MIB, &data)).unwrap();
        pool.wait_synced(txg).unwrap();
    }));
    // Room that nobody was promised, so that there is something to hold.
    world.pool.transact(|tx| world.data("tank/w").punch(tx, 0, 4 * MIB)).unwrap();
    world.pool.sync().unwrap();
    while calls.load(Ordering::SeqCst) < 24 {
        let before = calls.load(Ordering::SeqCst);
        world.trim();
        if calls.load(Ordering::SeqCst) == before {
            break;
        }
    }
    *world.device.meanwhile.lock().unwrap() = None;
    assert!(calls.load(Ordering::SeqCst) > 0, "a step held something");
    world.check();
}

#[test]
fn no_step_begins_after_the_end() {
    let world = World::new(manual());
    world.pool.export().unwrap();
    assert!(matches!(world.pool.trim_step(TrimPoint::default(), None), Err(PoolError::Closed)));
    assert_eq!(world.device.discarded_bytes.load(Ordering::SeqCst), 0);
}

/// Trims, changes and power cuts in any order: what had synced is there.
#[test]
fn a_power_cut_during_a_trim_loses_nothing() {
    let seeds = std::env::var("FASTNESS_TRIM_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(40);
    let mut cut = 0;
    for seed in 0..seeds {
        let mut rng = Rng::new(7000 + seed);
        let mut rig = Rig::fresh(2, 32 * MIB, seed);
        let specs = [VdevSpec::mirror(rig.all())];
        let mut pool = Pool::create("tank", &specs, manual()).unwrap();
        pool.note_freed(seed % 2 == 0);
        {
            let tx = pool.begin_tx().unwrap();
            let properties = [(Property::VolBlockSize, BLOCK_BYTES)];
            let kind = DatasetKind::Volume;
            pool.create_dataset(&tx, "tank/v", kind, &properties).unwrap().create_object(&tx).unwrap();
        }
        pool.sync().unwrap();
        let blocks = 512;
        let (mut model, mut synced) = (vec![0_u8; blocks], vec![0_u8; blocks]);
        let mut point = TrimPoint::default();
        for step in 0..60 {
            let object = pool.dataset("tank/v").unwrap().object(ObjectId(1)).unwrap();
            let mut may_be = None;
            let result = match rng.below(8) {
                0..=2 => {
                    let (at, len, byte) = (rng.below(448), 1 + rng.below(64), 1 + rng.below(250) as u8);
                    // Of each block only the first byte is compressible away.
                    let bytes: Vec<u8> = (0..len)
                        .flat_map(|_| {
                            let mut block = noise(&mut rng, BLOCK_BYTES);
                            block[0] = byte;
                            block
                        })
                        .collect();
                    let tx = pool.begin_tx().unwrap();
                    model[at as usize..(at + len) as usize].fill(byte);
                    object.write(&tx, at * BLOCK_BYTES, &bytes)
                }
                3 => {
                    let (at, len) = (rng.below(448), 1 + rng.below(64));
                    let tx = pool.begin_tx().unwrap();
                    model[at as usize..(at + len) as usize].fill(0);
                    object.punch(&tx, at * BLOCK_BYTES, len * BLOCK_BYTES)
                }
                what @ (4 | 5) => {
                    if rng.below(4) == 0 {
                        let now = rig.ops.load(Ordering::SeqCst);
                        rig.cut_at.store(now + 1 + rng.below(20), Ordering::SeqCst);
                    }
                    match what {
                        4 => pool.trim_step(point, None).map(|step| point = step.next.unwrap_or_default()),
                        _ => pool.trim_freed().map(drop),
                    }
                }
                _ => {
                    may_be = Some(model.clone());
                    pool.sync().map(drop)
                }
            };
            match (result, may_be) {
                (Ok(()), Some(now)) => synced = now,
                (Ok(()), None) if rig.cut_at.load(Ordering::SeqCst) == u64::MAX => {}
                (_, may_be) => {
                    cut += 1;
                    drop(object);
                    drop(pool);
                    rig = Rig::new(rig.crash(rng.next()), seed);
                    pool = Pool::import(&rig.all(), &host(), manual()).unwrap();
                    pool.note_freed(seed % 2 == 0);
                    let object = pool.dataset("tank/v").unwrap().object(ObjectId(1)).unwrap();
                    let mut found = vec![0; blocks * BLOCK_BYTES as usize];
                    let len = object.size_bytes().min(found.len() as u64) as usize;
                    object.read(0, &mut found[..len]).unwrap();
                    let found: Vec<u8> = found.chunks(BLOCK_BYTES as usize).map(|block| block[0]).collect();
                    let is_right = found == synced || may_be.as_ref() == Some(&found);
                    assert!(is_right, "seed {seed}, step {step}");
                    (model, synced) = (found.clone(), found);
                    let report = pool.scrub(|_| true).unwrap();
                    assert!(report.lost.is_empty(), "seed {seed}, step {step}: {report:?}");
                }
            }
        }
        assert!(pool.check().unwrap().is_clean(), "seed {seed}");
    }
    assert!(cut > seeds, "{cut}");
}
