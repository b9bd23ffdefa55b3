//! Volumes with a log: what a crash leaves is every write that had returned, flushed or not, as long as the
//! log has room.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fastness_blkdev::{MemDevice, MemImage};
use fastness_pool::{Device, ImportOptions, Pool, PoolOptions, Property, VdevSpec};
use fastness_store::{Consent, PoolLog, RegionParts, ReplayReport, StoreError, Tuning, Txgs};
use fastness_zil::KindId;
use fastness_zvol::{Volume, VolumeError, VolumeOptions};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

fn options() -> PoolOptions {
    // No txg ends by itself within a test.
    PoolOptions { txg_timeout: Duration::from_secs(3600), ..PoolOptions::default() }
}

struct Bench {
    disk: Device,
    dir: tempfile::TempDir,
}

/// A pool with its log, and its volume.
type Open = (Arc<Pool>, Arc<PoolLog>, Volume);

impl Bench {
    fn new(is_pmem: bool) -> (Bench, Open) {
        let device = MemDevice::from_image("disk", MemImage::zeroed(64 * MIB), 512);
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let bench = Bench { disk: Device::new("disk", Arc::new(device)), dir };
        let pool =
            Arc::new(Pool::create("tank", &[VdevSpec::single(bench.disk.clone())], options()).unwrap());
        let log = PoolLog::create(&pool, Tuning::default()).unwrap();
        if is_pmem {
            let region = PoolLog::create_region(&bench.path(), 16 * MIB, true).unwrap();
            log.add_region(region, bench.path(), true).unwrap();
        }
        let small = VolumeOptions { properties: vec![(Property::VolBlockSize, 4096)] };
        let volume = Volume::create(&pool, Some(&log), "tank/v", MIB, &small).unwrap();
        pool.sync().unwrap();
        (bench, (pool, log, volume))
    }

    fn path(&self) -> std::path::PathBuf {
        self.dir.path().join("log")
    }

    /// What an import finds after everything in memory is gone.
    fn crash(&self, open: Open) -> Open {
        drop(open);
        let devices = std::slice::from_ref(&self.disk);
        let pool = Arc::new(Pool::import_paused(devices, &ImportOptions::default(), options()).unwrap());
        let (log, _) = import(&pool, region(&self.path()), Consent::NONE).unwrap();
        let volume = Volume::open(&pool, Some(&log), "tank/v").unwrap();
        (pool, log, volume)
    }
}

fn region(path: &Path) -> Vec<fastness_pmem::Region> {
    PoolLog::open_region(path, true).into_iter().collect()
}

fn import(
    pool: &Arc<Pool>,
    regions: Vec<fastness_pmem::Region>,
    consent: Consent,
) -> Result<(Arc<PoolLog>, ReplayReport), StoreError> {
    PoolLog::import(pool, RegionParts::all(regions), Txgs::Run, consent, Tuning::default(), &mut |_| {})
}

fn contents(volume: &Volume) -> Vec<u8> {
    let mut bytes = vec![0xee; volume.size_bytes() as usize];
    volume.read(0, &mut bytes).unwrap();
    bytes
}

/// The volume is closed, by all who had it, and opened again.
fn reopened((pool, log, volume): Open) -> Open {
    drop(volume);
    let volume = Volume::open(&pool, Some(&log), "tank/v").unwrap();
    (pool, log, volume)
}

fn set_sync(pool: &Pool, value: &str) {
    let value = Property::Sync.parse(value).unwrap();
    pool.transact(|tx| pool.dataset("tank/v")?.set(tx, Property::Sync, Some(value))).unwrap();
}

#[derive(Debug, Clone)]
enum Step {
    Write { offset: u64, len: u64, fill: u8, is_fua: bool },
    Zero { offset: u64, len: u64 },
    Discard { offset: u64, len: u64 },
    Resize { blocks: u64 },
    Flush,
    Sync,
    Reopen,
    SetSync { is_disabled: bool },
    Crash,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let range = (0..MIB, 1..200_000u64);
    let step = prop_oneof![
        6 => (range.clone(), any::<u8>(), any::<bool>())
            .prop_map(|((offset, len), fill, is_fua)| Step::Write { offset, len, fill, is_fua }),
        2 => range.clone().prop_map(|(offset, len)| Step::Zero { offset, len }),
        2 => range.prop_map(|(offset, len)| Step::Discard { offset, len }),
        1 => (1..256u64).prop_map(|blocks| Step::Resize { blocks }),
        2 => Just(Step::Flush),
        1 => Just(Step::Sync),
        2 => Just(Step::Reopen),
        1 => any::<bool>().prop_map(|is_disabled| Step::SetSync { is_disabled }),
        2 => Just(Step::Crash),
    ];
    prop::collection::vec(step, 1..30)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_crash_takes_nothing_that_kind_pmem_had_returned(steps in steps()) {
        run(steps, true)?;
    }

    #[test]
    fn a_crash_takes_nothing_that_kind_lwb_was_asked_to_keep(steps in steps()) {
        run(steps, false)?;
    }
}

/// Kind pmem has each write that has returned. Kind lwb has those before a flush or a write with FUA, so that
/// each crash comes behind one.
fn run(steps: Vec<Step>, is_pmem: bool) -> Result<(), TestCaseError> {
    let (bench, mut open) = Bench::new(is_pmem);
    let mut now = vec![0; MIB as usize];
    // Whether writes may have been made while nothing was logged.
    let mut has_unlogged = false;
    for step in steps {
        let volume = &open.2;
        let clip = |offset: u64, len: u64| {
            let offset = offset.min(now.len() as u64);
            offset as usize..(offset + len).min(now.len() as u64) as usize
        };
        match step {
            Step::Write { offset, len, fill, is_fua } => {
                let range = clip(offset, len);
                let data: Vec<u8> = range.clone().map(|at| fill.wrapping_add((at / 512) as u8)).collect();
                volume.write(range.start as u64, &data, is_fua).unwrap();
                now[range].copy_from_slice(&data);
            }
            Step::Zero { offset, len } => {
                let range = clip(offset, len);
                volume.write_zeroes(range.start as u64, range.len() as u64, false).unwrap();
                now[range].fill(0);
            }
            Step::Discard { offset, len } => {
                let range = clip(offset, len);
                volume.discard(range.start as u64, range.len() as u64, false).unwrap();
                now[range].fill(0);
            }
            Step::Resize { blocks } => {
                volume.resize(blocks * 4096).unwrap();
                now.resize(blocks as usize * 4096, 0);
            }
            Step::Flush => volume.flush().unwrap(),
            Step::Sync => drop(open.0.sync().unwrap()),
            Step::Reopen => open = reopened(open),
            Step::SetSync { is_disabled } => {
                set_sync(&open.0, if is_disabled { "disabled" } else { "standard" });
                has_unlogged = true;
            }
            Step::Crash => {
                if !is_pmem || has_unlogged {
                    set_sync(&open.0, "standard");
                    volume.flush().unwrap();
                }
                has_unlogged = false;
                open = bench.crash(open);
                // The property is as the last synced txg has it.
                set_sync(&open.0, "standard");
            }
        }
        prop_assert!(contents(&open.2) == now);
    }
    set_sync(&open.0, "standard");
    open.2.flush().unwrap();
    open = bench.crash(open);
    prop_assert!(contents(&open.2) == now);
    prop_assert!(open.0.check().unwrap().is_clean());
    Ok(())
}

#[test]
fn a_flush_covers_what_was_written_before_the_volume_was_closed_and_opened() {
    for is_pmem in [false, true] {
        let (bench, open) = Bench::new(is_pmem);
        if is_pmem {
            // Kind pmem has logged every write that returned; so let there be one that it was not shown.
            set_sync(&open.0, "disabled");
        }
        open.2.write(4096, &[0x5a; 4096], false).unwrap();
        set_sync(&open.0, "standard");
        let open = reopened(open);
        open.2.flush().unwrap();
        let open = bench.crash(open);
        let mut found = [0; 4096];
        open.2.read(4096, &mut found).unwrap();
        assert!(found == [0x5a; 4096], "flushed, and lost (kind pmem: {is_pmem})");
    }
}

#[test]
fn a_kind_that_changes_while_a_volume_is_closed_takes_nothing_from_a_later_flush() {
    let (bench, open) = Bench::new(false);
    open.2.write(4096, &[0x5a; 4096], false).unwrap();
    let (pool, log, volume) = open;
    drop(volume);
    let region = PoolLog::create_region(&bench.path(), 16 * MIB, true).unwrap();
    log.add_region(region, bench.path(), true).unwrap();
    let volume = Volume::open(&pool, Some(&log), "tank/v").unwrap();
    volume.flush().unwrap();
    let open = bench.crash((pool, log, volume));
    assert!(contents(&open.2)[4096..8192] == [0x5a; 4096]);
}

#[test]
fn the_log_of_a_closed_volume_goes_when_all_that_it_had_has_synced() {
    let (_bench, (pool, log, volume)) = Bench::new(false);
    let id = volume.dataset().id();
    let first = Arc::downgrade(&log.volume(id).unwrap());
    volume.write(0, &[1; 4096], false).unwrap();
    drop(volume);
    assert!(first.upgrade().is_some(), "a flush to come needs it");
    pool.sync().unwrap();
    assert!(first.upgrade().is_none(), "it is kept for nothing");
    assert!(log.stats().is_empty());
}

#[test]
fn a_log_that_fills_makes_txgs_end_and_nobody_waits_for_one() {
    let (bench, open) = Bench::new(true);
    let (first, data) = (open.0.synced_txg(), [0x77; 4096]);
    // Three times the log.
    for at in 0..(48 * MIB / 4096) {
        open.2.write(at % 256 * 4096, &data, true).unwrap();
    }
    // By itself none ends within a test.
    assert!(open.0.synced_txg() > first, "no txg has ended");
    let waited: u64 = open.1.stats().iter().map(|(_, stats)| stats.fallbacks_total()).sum();
    assert_eq!(waited, 0, "writes waited for a whole txg");
    let open = bench.crash(open);
    assert!(contents(&open.2).iter().all(|byte| *byte == 0x77));
}

#[test]
fn threads_on_overlapping_ranges_leave_what_was_read_last() {
    let (bench, open) = Bench::new(true);
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let volume = &open.2;
            scope.spawn(move || {
                for round in 0..60u64 {
                    let offset = (round * 7 + u64::from(thread)) % 13 * 2048;
                    volume.write(offset, &vec![thread * 60 + round as u8; 5000], round % 9 == 0).unwrap();
                }
            });
        }
    });
    let before = contents(&open.2);
    let open = bench.crash(open);
    assert!(contents(&open.2) == before);
}

#[test]
fn a_pool_takes_no_log_but_its_own() {
    let (bench, open) = Bench::new(true);
    let (other, other_open) = Bench::new(true);
    drop((open, other_open));
    let devices = std::slice::from_ref(&bench.disk);
    let open_pool = || Arc::new(Pool::import_paused(devices, &ImportOptions::default(), options()).unwrap());
    let refused = import(&open_pool(), region(&other.path()), Consent::NONE).unwrap_err();
    assert!(refused.to_string().contains("the pool has log"), "{refused}");
    let refused = import(&open_pool(), Vec::new(), Consent::NONE).unwrap_err();
    assert!(refused.to_string().contains("not here"), "{refused}");
    let missing = Consent { missing: true, ..Consent::NONE };
    let (log, _) = import(&open_pool(), region(&other.path()), missing).unwrap();
    assert_eq!(log.kind(), KindId::Lwb);
    drop(log);
    // From now on the pool has none.
    let (log, _) = import(&open_pool(), Vec::new(), Consent::NONE).unwrap();
    assert_eq!(log.kind(), KindId::Lwb);
}

#[test]
fn a_long_write_with_fua_waits_if_any_part_of_it_is_not_in_the_log() {
    let (_bench, open) = Bench::new(true);
    let (pool, log, volume) = &open;
    volume.resize(4 * MIB).unwrap();
    // The write is cut into three transactions. The first and the last are on the commit list; the second,
    // which may go straight to the log while an earlier one is listed, is logged nowhere.
    let logged = log.volume(volume.dataset().id()).unwrap();
    let until = |is_so: &dyn Fn() -> bool| {
        while !is_so() {
            std::thread::yield_now();
        }
    };
    let part = 64 << 10;
    let (second, third) = (logged.ranges.lock(part, 1), logged.ranges.lock(2 * part, 1));
    logged.zil.set_bypass(false);
    let txg = pool.open_txg();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| volume.write(0, &vec![7; 2 * part as usize + 4096], true).unwrap());
        until(&|| logged.zil.pending_records() == 1);
        logged.zil.set_bypass(true);
        drop(second);
        until(&|| logged.zil.stats().snapshot().unlogged.iter().sum::<u64>() > 0);
        logged.zil.set_bypass(false);
        drop(third);
        writer.join().unwrap();
    });
    assert!(pool.synced_txg() >= txg, "acknowledged, and neither in the log nor synced");
}

#[test]
fn a_volume_that_shrinks_beside_writes_stays_small() {
    for is_logged in [false, true] {
        let (bench, (pool, log, volume)) = Bench::new(true);
        let own = (!is_logged).then(|| Volume::open(&pool, None, "tank/v").unwrap());
        let volume = own.unwrap_or(volume);
        let data = vec![0x33; 4 * MIB as usize];
        for round in 0..20 {
            volume.resize(4 * MIB).unwrap();
            let outcome = std::thread::scope(|scope| {
                let writer = scope.spawn(|| volume.write(0, &data, false));
                // Some rounds begin before the write, some after it; most are in the middle.
                std::thread::sleep(Duration::from_micros(50 * round));
                volume.resize(4096).unwrap();
                writer.join().unwrap()
            });
            assert_eq!(volume.size_bytes(), 4096, "it has grown again (logged: {is_logged})");
            match outcome {
                Ok(()) | Err(VolumeError::OutOfRange { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        volume.flush().unwrap();
        let open = bench.crash((pool, log, volume));
        assert_eq!(open.2.size_bytes(), 4096, "it is larger after a crash (logged: {is_logged})");
    }
}
