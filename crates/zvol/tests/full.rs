//! Volumes of a pool that is full: what was flushed is replayed after a crash, and what was acknowledged is
//! there after a suspension, whatever of it went through the log.

#[path = "../../pool/tests/support/mod.rs"]
mod rig;
mod support;

use std::sync::Arc;

use fastness_blkdev::{Fault, FaultPlan, On, Operation, When};
use fastness_pool::{ErrorKind, Pool, PoolOptions, Property, Txg, VdevSpec};
use fastness_store::{Consent, PoolLog, Store, StoreError, StoreOptions, Tuning};
use fastness_zvol::{Volume, VolumeError, VolumeOptions};
use rig::{Rig, Rng, host, manual};
use support::{Parts, create, log, store_options};

const MIB: u64 = 1 << 20;
const SIZE: u64 = 48 * MIB;
const BLOCKS: [u64; 4] = [512, 4096, 16 << 10, 128 << 10];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Log {
    /// Log-write blocks among the data, and large writes in their places.
    Among,
    /// Log-write blocks on a vdev of their own.
    Vdev,
    Pmem,
}

struct World {
    log: Log,
    rig: Arc<Rig>,
    /// It has the region.
    _dir: tempfile::TempDir,
    /// The store, and its volume.
    open: Option<(Arc<Store>, Volume)>,
    bytes: Vec<u8>,
    block: u64,
    rng: Rng,
}

fn options() -> PoolOptions {
    PoolOptions { frees_per_txg: 20, ..manual() }
}

fn settings(pool: PoolOptions) -> StoreOptions {
    let tuning = Tuning { indirect_bytes_min: Some(64 << 10), ..Tuning::default() };
    StoreOptions { tuning, import: host(), ..store_options(pool) }
}

fn is_no_space(error: &VolumeError) -> bool {
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error:?}");
    true
}

impl World {
    fn new(log: Log, block: u64, seed: u64) -> World {
        let rig = Rig::fresh(if log == Log::Vdev { 2 } else { 1 }, 24 * MIB, seed);
        let mut specs = vec![VdevSpec::single(rig.device(0))];
        if log == Log::Vdev {
            specs.push(VdevSpec::single(rig.device(1)).log());
        }
        let store = create(&specs, settings(options()));
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let path = dir.path().join("log");
        if log == Log::Pmem {
            let region = PoolLog::create_region(&path, 16 * MIB, true).unwrap();
            support::log(&store).add_region(region, path, true).unwrap();
        }
        let properties = vec![(Property::VolBlockSize, block)];
        let volume = Volume::create(&store, "tank/v", SIZE, &VolumeOptions { properties });
        store.pool().sync().unwrap();
        let open = Some((store, volume.unwrap()));
        World { log, rig, _dir: dir, open, bytes: vec![0; SIZE as usize], block, rng: Rng::new(seed) }
    }

    fn pool(&self) -> Arc<Pool> {
        self.open.as_ref().unwrap().0.pool()
    }

    fn volume(&self) -> &Volume {
        &self.open.as_ref().unwrap().1
    }

    fn write(&mut self, offset: u64, len: u64, is_fua: bool) -> bool {
        let len = len.min(SIZE - offset);
        let data: Vec<u8> = (0..len).map(|_| self.rng.next() as u8 | 1).collect();
        match self.volume().write(offset, &data, is_fua) {
            Ok(()) => self.bytes[offset as usize..][..data.len()].copy_from_slice(&data),
            Err(error) => return !is_no_space(&error),
        }
        true
    }

    fn discard(&mut self, offset: u64, len: u64) -> bool {
        let len = len.min(SIZE - offset);
        match self.volume().discard(offset, len, false) {
            Ok(()) => self.bytes[offset as usize..][..len as usize].fill(0),
            Err(error) => return !is_no_space(&error),
        }
        true
    }

    /// To the last byte; then some of it is freed, and taken again by changes that no txg has.
    fn fill(&mut self) {
        let mut at = 0;
        loop {
            let before = at;
            while self.write(at, self.block, false) {
                at += self.block;
            }
            self.pool().sync().unwrap();
            if before == at {
                break;
            }
        }
        assert!(self.discard(0, at / 3));
        for _ in 0..20 {
            self.pool().sync().unwrap();
        }
        let mut refused = 0;
        while refused < 30 {
            let offset = self.rng.below(SIZE - 1);
            // In one transaction: of a longer write, a part may find room.
            let len = self.rng.below(self.block.max(64 << 10)) + 1;
            let is_done = match self.rng.below(8) {
                0 => self.discard(offset, len),
                1 => self.write(offset, len, true),
                2 => self.write(offset, self.block, false) && self.write(offset, self.block / 2, false),
                _ => self.write(offset / self.block * self.block, self.block, false),
            };
            refused += u64::from(!is_done);
        }
    }

    fn compare(&self) {
        let mut found = vec![0xee; SIZE as usize];
        self.volume().read(0, &mut found).unwrap();
        let differs = found.iter().zip(&self.bytes).position(|(a, b)| a != b);
        assert_eq!(differs, None, "{:?}, blocks of {}", self.log, self.block);
    }

    /// Everything was flushed; the power fails; an import has it, and the pool can be used.
    fn crash(&mut self) {
        self.crash_into(options());
    }

    fn crash_into(&mut self, options: PoolOptions) {
        self.volume().flush().unwrap();
        drop(self.open.take());
        self.rig = Rig::new(self.rig.crash(1), 1);
        let imported = support::import(&mut Parts(self.rig.all()), &settings(options), Consent::NONE);
        let (store, _) = imported.unwrap_or_else(|error| panic!("{:?}, {}: {error:?}", self.log, self.block));
        assert_eq!(log(&store).regions().len(), usize::from(self.log == Log::Pmem));
        let volume = Volume::open(&store, "tank/v").unwrap();
        self.open = Some((store, volume));
        self.compare();
        assert!(self.pool().check().unwrap().is_clean());
    }

    /// The newest txg that is durable.
    fn synced(&self) -> Txg {
        let read_only = PoolOptions { is_read_only: true, ..options() };
        Pool::import(&self.rig.all(), &host(), read_only).unwrap().synced_txg()
    }

    /// The disks are replaced under the pool: what was not flushed is lost in part.
    fn reopen(&mut self, plan: &FaultPlan) {
        for device in &self.rig.devices {
            device.set_plan(FaultPlan::new(0));
            device.reopen(self.rng.next()).unwrap();
            device.set_plan(plan.clone());
        }
    }

    /// The disk fails a flush, and is back; what was acknowledged is taken over. `fails`: not by the first
    /// import that tries, whose first txg no disk takes.
    fn suspend_and_clear(&mut self, fails: bool) {
        if self.rng.below(2) == 0 {
            self.volume().flush().unwrap();
        }
        // So that there is something to sync.
        assert!(self.discard(0, 1));
        let plan = FaultPlan::new(0).rule(On::Only(Operation::Flush), When::From(1), Fault::Errno(5));
        self.rig.devices[0].set_plan(plan);
        assert!(self.pool().sync().is_err());
        self.compare();
        let (store, volume) = self.open.take().unwrap();
        drop(volume);
        self.reopen(&FaultPlan::new(0));
        let before = self.synced();
        let clear = |world: &World| store.clear(&mut Parts(world.rig.all()), false, &mut Vec::new());
        if fails {
            self.reopen(&FaultPlan::new(0).rule(On::Writes, When::From(1), Fault::Errno(5)));
            let error = clear(self).unwrap_err();
            assert!(matches!(error, StoreError::Pool(_)) && error.kind() != ErrorKind::NoSpace, "{error:?}");
            assert!(store.pool().is_suspended());
            self.reopen(&FaultPlan::new(0));
            assert_eq!(self.synced(), before, "nothing is durable");
        }
        clear(self).unwrap_or_else(|error| panic!("{:?}, {}: {error:?}", self.log, self.block));
        assert_eq!(store.pool().synced_txg(), before.next(), "nothing synced in between");
        let volume = Volume::open(&store, "tank/v").unwrap();
        self.open = Some((store, volume));
        self.compare();
        assert!(self.pool().check().unwrap().is_clean());
    }

    /// All of it can be discarded, and used again.
    fn empty(&mut self) {
        for part in 0..48 {
            assert!(self.discard(part * MIB, MIB), "{:?}, blocks of {}", self.log, self.block);
            self.pool().sync().unwrap();
        }
        for _ in 0..60 {
            self.pool().sync().unwrap();
        }
        assert_eq!(self.pool().dataset("tank/v").unwrap().used_bytes(), 0);
        assert!(self.write(5 * MIB, MIB, true));
        self.crash();
    }
}

#[test]
fn what_was_flushed_into_a_full_pool_is_replayed() {
    for log in [Log::Among, Log::Vdev, Log::Pmem] {
        for (seed, block) in (0..).zip(BLOCKS) {
            let mut world = World::new(log, block, seed);
            world.fill();
            world.crash();
            world.fill();
            world.crash();
            world.empty();
        }
    }
}

/// In one txg a block that was written three times takes room once; in several, while it is written again,
/// twice.
#[test]
fn a_replay_of_several_txgs_finds_room_for_what_was_written_again() {
    for log in [Log::Vdev, Log::Pmem] {
        for (seed, block) in (20..).zip(BLOCKS) {
            let mut world = World::new(log, block, seed);
            let mut at = 0;
            while world.write(at, block, false)
                || world.pool().sync().is_ok() && world.write(at, block, false)
            {
                at += block;
            }
            let part = (at / 4).next_multiple_of(block);
            assert!(world.discard(0, part));
            (0..20).for_each(|_| assert!(world.pool().sync().unwrap().0 > 0));
            let mut end = 0;
            while world.write(end, block, false) {
                end += block;
            }
            assert!(end > part / 3 && world.discard(end - 4 * block, 4 * block));
            for _ in 0..2 {
                (0..end / block - 4).for_each(|index| assert!(world.write(index * block, block, false)));
            }
            let txg_timeout = std::time::Duration::from_millis(1);
            let dirty_max_bytes = 1 << 20;
            world.crash_into(PoolOptions { has_txg_thread: true, txg_timeout, dirty_max_bytes, ..options() });
        }
    }
}

#[test]
fn what_a_full_pool_has_acknowledged_is_there_after_it_was_cleared() {
    for log in [Log::Among, Log::Vdev, Log::Pmem] {
        for (seed, block) in (10..).zip(BLOCKS) {
            let mut world = World::new(log, block, seed);
            world.fill();
            world.suspend_and_clear(seed % 2 == 0);
            world.fill();
            world.suspend_and_clear(seed % 2 == 1);
            world.empty();
        }
    }
}
