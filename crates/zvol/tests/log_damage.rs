//! A log of blocks whose medium changed after the pool stopped without a txg: whatever happened to one of its
//! blocks, an import brings back every write that was acknowledged, or says which log, device and block it
//! has lost.
//!
//! Blocks among the data, on a vdev for logs, and on a mirror of these; one thread, and several on several
//! volumes.

#[path = "../../pool/tests/support/mod.rs"]
mod rig;
mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fastness_blkdev::{BlockDevice, BlockError, DeviceInfo, MemImage, StatsSnapshot};
use fastness_lwb::{BlockSurvey, Found, survey};
use fastness_pool::{DATA_START_BYTES, Device, Pool, PoolOptions, Property, VdevSpec};
use fastness_store::survey::{Untouched, claim_dry, headers};
use fastness_store::{Consent, PoolLog, PoolSpace, StoreError, StoreOptions};
use fastness_zvol::{Volume, VolumeOptions};
use rig::{Rig, Rng, host, manual};
use support::{Parts, create, log, store_options};

const MIB: u64 = 1 << 20;
const SLOT: u64 = 4096;

/// A disk whose flushes take a while: blocks are written meanwhile, and do not say yet that those before are
/// durable.
struct Slow(Arc<dyn BlockDevice>);

impl BlockDevice for Slow {
    fn info(&self) -> &DeviceInfo {
        self.0.info()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), BlockError> {
        self.0.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), BlockError> {
        std::thread::sleep(Duration::from_micros(50));
        self.0.write_at(offset, data)
    }
    fn write_fua(&self, offset: u64, data: &[u8]) -> Result<(), BlockError> {
        self.0.write_fua(offset, data)
    }
    fn flush(&self) -> Result<(), BlockError> {
        std::thread::sleep(Duration::from_micros(500));
        self.0.flush()
    }
    fn discard(&self, offset: u64, len_bytes: u64) -> Result<(), BlockError> {
        self.0.discard(offset, len_bytes)
    }
    fn write_zeroes(&self, offset: u64, len_bytes: u64) -> Result<(), BlockError> {
        self.0.write_zeroes(offset, len_bytes)
    }
    fn stats(&self) -> StatsSnapshot {
        self.0.stats()
    }
    fn is_poisoned(&self) -> bool {
        self.0.is_poisoned()
    }
    fn crash_point(&self, name: &'static str) {
        self.0.crash_point(name);
    }
}

/// A pool that was stopped, and what was acknowledged: volume, offset, contents.
struct Stopped {
    images: Vec<MemImage>,
    /// The same a while before.
    earlier: Vec<MemImage>,
    acknowledged: Vec<(String, u64, Vec<u8>)>,
    /// Blocks of each volume's chain, in order.
    chains: BTreeMap<String, Vec<BlockSurvey>>,
}

#[derive(Debug, Clone, Copy)]
struct Layout {
    /// Devices of a vdev for logs; 0: the blocks are among the data.
    log_sides: usize,
    threads: u64,
    volumes: u64,
}

const LAYOUTS: [Layout; 6] = [
    Layout { log_sides: 0, threads: 1, volumes: 1 },
    Layout { log_sides: 0, threads: 6, volumes: 1 },
    Layout { log_sides: 0, threads: 6, volumes: 3 },
    Layout { log_sides: 1, threads: 1, volumes: 1 },
    Layout { log_sides: 1, threads: 6, volumes: 1 },
    Layout { log_sides: 1, threads: 6, volumes: 3 },
];

const MIRROR: Layout = Layout { log_sides: 2, threads: 4, volumes: 2 };

fn specs(rig: &Arc<Rig>) -> Vec<VdevSpec> {
    let slow = |device: Device| Device::new(device.path.clone(), Arc::new(Slow(device.device.clone())));
    let mut devices: Vec<Device> = rig.all().into_iter().map(slow).collect();
    let log = devices.split_off(1);
    let mut specs = vec![VdevSpec::mirror(devices)];
    specs.extend((!log.is_empty()).then(|| VdevSpec::mirror(log).log()));
    specs
}

fn name(volume: u64) -> String {
    format!("tank/v{volume}")
}

fn images(rig: &Rig) -> Vec<MemImage> {
    rig.devices.iter().map(|device| device.inner().image()).collect()
}

fn look(rig: &Rig) -> (Vec<MemImage>, BTreeMap<String, Vec<BlockSurvey>>) {
    let images = images(rig);
    let chains = chains(&images);
    (images, chains)
}

/// A block without records is there for what it says of those before.
fn has_records(block: &BlockSurvey) -> bool {
    block.newest_txg.0 > 0
}

/// Whether a later block says that this one was durable, if anything in it was acknowledged.
fn is_known(blocks: &[BlockSurvey], block: &BlockSurvey) -> bool {
    !has_records(block) || blocks.iter().any(|later| later.durable_seq >= block.seq)
}

impl Stopped {
    /// Nobody looks after idle logs.
    fn new(layout: Layout, seed: u64) -> Stopped {
        Stopped::of(manual(), layout, seed, |_| {})
    }

    /// The pool has threads, and its logs were idle for a while before it stopped.
    fn idle(layout: Layout, seed: u64, change: impl FnOnce(&PoolLog)) -> Stopped {
        let txg_timeout = Duration::from_secs(3600);
        Stopped::of(PoolOptions { has_txg_thread: true, txg_timeout, ..manual() }, layout, seed, change)
    }

    /// `change` does something to the log before anything is written.
    fn of(options: PoolOptions, layout: Layout, seed: u64, change: impl FnOnce(&PoolLog)) -> Stopped {
        let rig = Rig::fresh(1 + layout.log_sides, 12 * MIB, seed);
        let is_idle = options.has_txg_thread;
        let store = create(&specs(&rig), store_options(options));
        change(&log(&store));
        let properties = vec![(Property::VolBlockSize, SLOT), (Property::Compression, 0)];
        let options = VolumeOptions { properties };
        let volume = |number| Volume::create(&store, &name(number), MIB, &options).unwrap();
        let volumes: Vec<Volume> = (0..layout.volumes).map(volume).collect();
        store.pool().sync().unwrap();
        // Of a synced txg, so that the chains do not begin with their first blocks.
        volumes.iter().for_each(|volume| volume.write(MIB - SLOT, b"synced", true).unwrap());
        store.pool().sync().unwrap();
        let earlier = images(&rig);
        let acknowledged = std::thread::scope(|scope| {
            let write = |thread: u64| {
                let volumes = &volumes;
                move || {
                    let mut rng = Rng::new(seed * 100 + thread);
                    let mut done = Vec::new();
                    for slot in 0..16 {
                        let number = (thread + slot) % layout.volumes;
                        let at = (thread * 16 + slot) * SLOT;
                        let len = [8, 600, 4096][rng.below(3) as usize];
                        let data: Vec<u8> = (0..len).map(|_| rng.next() as u8 | 1).collect();
                        volumes[number as usize].write(at, &data, true).unwrap();
                        done.push((name(number), at, data));
                    }
                    done
                }
            };
            let threads: Vec<_> = (0..layout.threads).map(|thread| scope.spawn(write(thread))).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        let (mut images, mut chains) = look(&rig);
        let is_all_known = |blocks: &Vec<_>| blocks.iter().all(|block| is_known(blocks, block));
        // It takes some milliseconds, on a busy machine more.
        for _ in 0..if is_idle { 5000 } else { 0 } {
            if chains.values().all(is_all_known) {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
            (images, chains) = look(&rig);
        }
        let stopped = Stopped { images, earlier, acknowledged, chains };
        assert!(matches!(stopped.import(stopped.images.clone()), Outcome::Whole));
        stopped
    }

    /// Every block that has something that was acknowledged: volume, block.
    fn blocks(&self) -> impl Iterator<Item = (&str, &BlockSurvey)> {
        let all =
            self.chains.iter().flat_map(|(volume, blocks)| blocks.iter().map(move |block| (volume, block)));
        all.map(|(volume, block)| (&volume[..], block)).filter(|(_, block)| has_records(block))
    }

    /// Where a block is, first side or second: device, offset there, bytes written.
    fn place(block: &BlockSurvey, side: usize) -> (usize, u64, u64) {
        // Contents of 496 bytes in each sector, whole units.
        let written = u64::from(block.used_bytes).div_ceil(496).next_multiple_of(8) * 512;
        let place = block.extent.place;
        (place.device as usize + side, DATA_START_BYTES + place.offset, written)
    }

    /// Flips a bit anywhere in a block.
    fn flip(images: &mut [MemImage], block: &BlockSurvey, side: usize, rng: &mut Rng) {
        let (device, at, written) = Self::place(block, side);
        let at = at + rng.below(written);
        let mut byte = [0];
        images[device].read(at, &mut byte);
        images[device].write(at, &[byte[0] ^ 1 << rng.below(8)]);
    }

    /// What an import makes of these media.
    fn import(&self, images: Vec<MemImage>) -> Outcome {
        self.import_on(&Rig::new(images, 1))
    }

    fn import_on(&self, rig: &Arc<Rig>) -> Outcome {
        let cut = |error: &dyn std::fmt::Display| {
            assert!(rig.devices[0].is_power_cut(), "{error}");
            Outcome::Cut
        };
        let settings = StoreOptions { import: host(), ..store_options(manual()) };
        let store = match support::import(&mut Parts(rig.all()), &settings, Consent::NONE) {
            Ok((store, _)) => store,
            Err(StoreError::Claim { volume, problem, count }) => {
                let error = StoreError::Claim { volume: volume.clone(), problem, count };
                return Outcome::Refused { volume, text: error.to_string() };
            }
            Err(error) => return cut(&error),
        };
        let is_lost = |(volume, at, data): &&(String, u64, Vec<u8>)| {
            let volume = Volume::open(&store, volume).unwrap();
            let mut found = vec![0; data.len()];
            volume.read(*at, &mut found).unwrap();
            found != *data
        };
        match self.acknowledged.iter().filter(is_lost).count() {
            0 => Outcome::Whole,
            lost => Outcome::Silent(lost),
        }
    }
}

fn read_only(images: &[MemImage]) -> Arc<Pool> {
    let rig = Rig::new(images.to_vec(), 1);
    let options = PoolOptions { is_read_only: true, ..manual() };
    Arc::new(Pool::import_paused(&rig.all(), &host(), options).unwrap())
}

/// The blocks of all logs, as a pool that is only looked at shows them.
fn chains(images: &[MemImage]) -> BTreeMap<String, Vec<BlockSurvey>> {
    let pool = read_only(images);
    let blocks = |volume: fastness_store::survey::VolumeSurvey| {
        let chain = volume.chain().expect("each volume has a chain");
        let mut blocks = Vec::new();
        let space = Untouched(PoolSpace::new(pool.log_space()));
        let ended = survey(&space, &chain, |each| match each {
            Found::Block(block) => blocks.push(block),
            Found::Record(_) => {}
        });
        assert!(ended.is_clean() && blocks.len() > 2, "{ended}");
        (volume.name, blocks)
    };
    headers(&pool).unwrap().into_iter().map(blocks).collect()
}

#[derive(Debug)]
enum Outcome {
    /// Everything is there.
    Whole,
    /// So many acknowledged writes are missing, and nobody said so.
    Silent(usize),
    Refused {
        volume: String,
        text: String,
    },
    /// The power failed.
    Cut,
}

/// An import that is refused says of which volume, on which device, and which block.
fn check_refused(outcome: &Outcome, of: &str, block: &BlockSurvey, devices: &str) {
    let Outcome::Refused { volume, text } = outcome else { panic!("block {}: {outcome:?}", block.seq.0) };
    let place = format!("block {} ({}, {devices})", block.seq.0, block.extent.place);
    assert!(volume == of && text.contains(&place), "{place} of {of}: {text}");
}

#[test]
fn no_flipped_bit_in_any_block_costs_an_acknowledged_write_without_a_word() {
    for (number, layout) in LAYOUTS.into_iter().enumerate() {
        let stopped = Stopped::new(layout, number as u64);
        let mut rng = Rng::new(number as u64);
        for (volume, block) in stopped.blocks() {
            for round in 0..4 {
                let mut images = stopped.images.clone();
                Stopped::flip(&mut images, block, 0, &mut rng);
                if round == 0 {
                    let dry = claim_dry(&read_only(&images), Vec::new()).unwrap();
                    assert_eq!(dry.problems.len(), 1, "{layout:?}: log verify says so, too");
                }
                let devices = format!("disk{}", block.extent.place.device);
                check_refused(&stopped.import(images), volume, block, &devices);
            }
        }
    }
}

/// What was lost as a whole is missed as long as a later block says that it was durable. That is all blocks
/// but those that were acknowledged after the last one was written.
#[test]
fn a_block_that_was_lost_as_a_whole_is_missed_if_a_later_one_knows_of_it() {
    let (mut known, mut unknown) = (0, 0);
    for (number, layout) in LAYOUTS.into_iter().enumerate() {
        let counts = lose_each_block(&Stopped::new(layout, 10 + number as u64));
        (known, unknown) = (known + counts.0, unknown + counts.1);
    }
    assert!(known > 100 && unknown * 5 < known, "{known} {unknown}");
}

/// When nothing was written for a while, that is true of the last block, too.
#[test]
fn of_an_idle_log_every_block_that_was_lost_is_missed() {
    for (number, layout) in LAYOUTS.into_iter().enumerate() {
        let (known, unknown) = lose_each_block(&Stopped::idle(layout, 20 + number as u64, |_| {}));
        assert!(known > 10 && unknown == 0, "{layout:?}: {known} {unknown}");
    }
}

#[test]
fn so_is_every_block_of_a_log_that_was_on_persistent_memory_before() {
    let dir = tempfile::tempdir().unwrap();
    let there_and_back = |log: &PoolLog| {
        let path = dir.path().join("region");
        log.add_region(PoolLog::create_region(&path, 16 * MIB, true).unwrap(), path, true).unwrap();
        log.remove_region().unwrap();
    };
    let (known, unknown) = lose_each_block(&Stopped::idle(LAYOUTS[0], 30, there_and_back));
    assert!(known > 10 && unknown == 0, "{known} {unknown}");
}

/// How many blocks with records later ones know of, and how many not; of the former, none is lost without a
/// word.
fn lose_each_block(stopped: &Stopped) -> (u32, u32) {
    let (mut known, mut unknown) = (0, 0);
    for (volume, block) in stopped.blocks() {
        let (device, at, written) = Stopped::place(block, 0);
        for contents in ["zeroes", "older"] {
            let mut bytes = vec![0; written as usize];
            if contents == "older" {
                stopped.earlier[device].read(at, &mut bytes);
            }
            let mut images = stopped.images.clone();
            images[device].write(at, &bytes);
            let outcome = stopped.import(images);
            if is_known(&stopped.chains[volume], block) {
                check_refused(&outcome, volume, block, &format!("disk{device}"));
                known += 1;
            } else {
                assert!(matches!(outcome, Outcome::Whole | Outcome::Silent(1..)), "{outcome:?}");
                unknown += 1;
            }
        }
    }
    (known, unknown)
}

/// What one side has lost, the other one has; what both have lost is refused.
#[test]
fn a_damaged_side_of_a_mirror_is_healed() {
    let stopped = Stopped::new(MIRROR, 1);
    let mut rng = Rng::new(1);
    let mut images = stopped.images.clone();
    for (at, (_, block)) in stopped.blocks().enumerate() {
        Stopped::flip(&mut images, block, at % 2, &mut rng);
    }
    assert!(claim_dry(&read_only(&images), Vec::new()).unwrap().problems.is_empty());
    let outcome = stopped.import(images);
    assert!(matches!(outcome, Outcome::Whole), "{outcome:?}");
    for (volume, block) in stopped.blocks() {
        let mut images = stopped.images.clone();
        Stopped::flip(&mut images, block, 0, &mut rng);
        Stopped::flip(&mut images, block, 1, &mut rng);
        check_refused(&stopped.import(images), volume, block, "disk1, disk2");
    }
}

/// The power fails while a log is taken into use again; then a bit flips. What the pool has by then is there,
/// and what it still needs of the log is missed.
#[test]
fn damage_after_a_claim_that_was_cut_short_is_found() {
    let stopped = Stopped::new(Layout { log_sides: 1, threads: 2, volumes: 2 }, 1);
    let (mut refused, mut whole) = (0, 0);
    for cut_at in 1..40 {
        let mut rng = Rng::new(cut_at);
        let rig = Rig::new(stopped.images.clone(), cut_at);
        rig.cut_at.store(rig.ops.load(Ordering::SeqCst) + cut_at * 3, Ordering::SeqCst);
        stopped.import_on(&rig);
        let images = rig.crash(cut_at);
        let blocks: Vec<_> = stopped.blocks().collect();
        for _ in 0..4 {
            let (_, block) = blocks[rng.below(blocks.len() as u64) as usize];
            let mut images = images.clone();
            Stopped::flip(&mut images, block, 0, &mut rng);
            match stopped.import(images) {
                Outcome::Refused { .. } => refused += 1,
                Outcome::Whole => whole += 1,
                outcome => panic!("cut at {cut_at}: {outcome:?}"),
            }
        }
    }
    assert!(refused > 10 && whole > 0, "{refused} {whole}");
}
