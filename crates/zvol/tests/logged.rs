//! Volumes with a log: what a crash leaves is every write that had returned, flushed or not, as long as the
//! log has room.

mod support;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fastness_blkdev::MemImage;
use fastness_pool::{Device, Property, VdevSpec};
use fastness_store::{Consent, Demand, Given, PoolLog, RegionParts, Store, StoreError, Tx};
use fastness_zil::KindId;
use fastness_zvol::{Volume, VolumeError, VolumeOptions};
use proptest::prelude::*;
use support::{create, log, manual, memory, store_options};

const MIB: u64 = 1 << 20;

struct Bench {
    disk: Device,
    dir: tempfile::TempDir,
}

/// A store, and its volume.
type Open = (Arc<Store>, Volume);

impl Bench {
    fn new(is_pmem: bool) -> (Bench, Open) {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let bench = Bench { disk: memory("disk", MemImage::zeroed(64 * MIB)), dir };
        let store = create(&[VdevSpec::single(bench.disk.clone())], store_options(manual()));
        if is_pmem {
            bench.add_region(&store);
        }
        let small = VolumeOptions { properties: vec![(Property::VolBlockSize, 4096)] };
        let volume = Volume::create(&store, "tank/v", MIB, &small).unwrap();
        store.pool().sync().unwrap();
        (bench, (store, volume))
    }

    fn add_region(&self, store: &Store) {
        let region = PoolLog::create_region(&self.path(), 16 * MIB, true).unwrap();
        log(store).add_region(region, self.path(), true).unwrap();
    }

    fn path(&self) -> std::path::PathBuf {
        self.dir.path().join("log")
    }

    /// What an import finds after everything in memory is gone.
    fn crash(&self, open: Open) -> Open {
        drop(open);
        let store = self.import(region(&self.path()), Consent::NONE).unwrap();
        let volume = Volume::open(&store, "tank/v").unwrap();
        (store, volume)
    }

    fn import(&self, regions: Vec<RegionParts>, consent: Consent) -> Result<Arc<Store>, StoreError> {
        let mut parts = Given { devices: vec![self.disk.clone()], regions };
        Ok(support::import(&mut parts, &store_options(manual()), consent)?.0)
    }
}

fn region(path: &Path) -> Vec<RegionParts> {
    PoolLog::open_region(path, true).map(|region| RegionParts::of(region).unwrap()).into_iter().collect()
}

fn contents(volume: &Volume) -> Vec<u8> {
    let mut bytes = vec![0xee; volume.size_bytes() as usize];
    volume.read(0, &mut bytes).unwrap();
    bytes
}

/// The volume is closed, by all who had it, and opened again.
fn reopened((store, volume): Open) -> Open {
    drop(volume);
    let volume = Volume::open(&store, "tank/v").unwrap();
    (store, volume)
}

fn set_sync(store: &Store, value: &str) {
    let pool = store.pool();
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
        let volume = &open.1;
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
            Step::Sync => drop(open.0.pool().sync().unwrap()),
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
        prop_assert!(contents(&open.1) == now);
    }
    set_sync(&open.0, "standard");
    open.1.flush().unwrap();
    open = bench.crash(open);
    prop_assert!(contents(&open.1) == now);
    prop_assert!(open.0.pool().check().unwrap().is_clean());
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
        open.1.write(4096, &[0x5a; 4096], false).unwrap();
        set_sync(&open.0, "standard");
        let open = reopened(open);
        open.1.flush().unwrap();
        let open = bench.crash(open);
        let mut found = [0; 4096];
        open.1.read(4096, &mut found).unwrap();
        assert!(found == [0x5a; 4096], "flushed, and lost (kind pmem: {is_pmem})");
    }
}

#[test]
fn a_kind_that_changes_while_a_volume_is_closed_takes_nothing_from_a_later_flush() {
    let (bench, open) = Bench::new(false);
    open.1.write(4096, &[0x5a; 4096], false).unwrap();
    let (store, volume) = open;
    drop(volume);
    bench.add_region(&store);
    let volume = Volume::open(&store, "tank/v").unwrap();
    volume.flush().unwrap();
    let open = bench.crash((store, volume));
    assert!(contents(&open.1)[4096..8192] == [0x5a; 4096]);
}

#[test]
fn a_log_that_fills_makes_txgs_end_and_nobody_waits_for_one() {
    let (bench, open) = Bench::new(true);
    let (first, data) = (open.0.pool().synced_txg(), [0x77; 4096]);
    // Three times the log.
    for at in 0..(48 * MIB / 4096) {
        open.1.write(at % 256 * 4096, &data, true).unwrap();
    }
    // By itself none ends within a test.
    assert!(open.0.pool().synced_txg() > first, "no txg has ended");
    let waited: u64 = log(&open.0).stats().iter().map(|(_, stats)| stats.fallbacks_total()).sum();
    assert_eq!(waited, 0, "writes waited for a whole txg");
    let open = bench.crash(open);
    assert!(contents(&open.1).iter().all(|byte| *byte == 0x77));
}

#[test]
fn threads_on_overlapping_ranges_leave_what_was_read_last() {
    let (bench, open) = Bench::new(true);
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let volume = &open.1;
            scope.spawn(move || {
                for round in 0..60u64 {
                    let offset = (round * 7 + u64::from(thread)) % 13 * 2048;
                    volume.write(offset, &vec![thread * 60 + round as u8; 5000], round % 9 == 0).unwrap();
                }
            });
        }
    });
    let before = contents(&open.1);
    let open = bench.crash(open);
    assert!(contents(&open.1) == before);
}

#[test]
fn a_pool_takes_no_log_but_its_own() {
    let (bench, open) = Bench::new(true);
    let (other, other_open) = Bench::new(true);
    drop((open, other_open));
    let refused = bench.import(region(&other.path()), Consent::NONE).unwrap_err();
    assert!(refused.to_string().contains("the pool has log"), "{refused}");
    let refused = bench.import(Vec::new(), Consent::NONE).unwrap_err();
    assert!(refused.to_string().contains("not here"), "{refused}");
    let missing = Consent { missing: true, ..Consent::NONE };
    let store = bench.import(region(&other.path()), missing).unwrap();
    assert_eq!(log(&store).kind(), KindId::Lwb);
    drop(store);
    // From now on the pool has none.
    let store = bench.import(Vec::new(), Consent::NONE).unwrap();
    assert_eq!(log(&store).kind(), KindId::Lwb);
}

#[test]
fn a_long_write_with_fua_waits_if_any_part_of_it_is_not_in_the_log() {
    let (_bench, open) = Bench::new(true);
    let (store, volume) = &open;
    volume.resize(4 * MIB).unwrap();
    let (pool, log) = (store.pool(), log(store));
    // The write is cut into three transactions. The first and the last are on the commit list; the second,
    // which may go straight to the log while an earlier one is listed, is logged nowhere.
    let until = |is_so: &dyn Fn() -> bool| {
        while !is_so() {
            std::thread::yield_now();
        }
    };
    let part = 64 << 10;
    let (held, second, third) = (AtomicU64::new(0), AtomicBool::new(true), AtomicBool::new(true));
    // A change of a range that takes a while, and is logged nowhere because nothing is changed.
    let other = store.dataset("tank/v").unwrap();
    let hold = |at: u64, is_held: &AtomicBool| {
        let wait = |_: &Tx| {
            held.fetch_add(1, Ordering::SeqCst);
            until(&|| !is_held.load(Ordering::SeqCst));
            Ok(())
        };
        drop(other.change(Demand::Flush, at..at + 1, wait, |_| true).unwrap());
    };
    log.set_bypass(false);
    let txg = pool.open_txg();
    let listed = || log.stats()[0].1.assigned.iter().sum::<u64>();
    let before = listed();
    std::thread::scope(|scope| {
        scope.spawn(|| hold(part, &second));
        scope.spawn(|| hold(2 * part, &third));
        until(&|| held.load(Ordering::SeqCst) == 2);
        let writer = scope.spawn(|| volume.write(0, &vec![7; 2 * part as usize + 4096], true).unwrap());
        until(&|| listed() == before + 1);
        log.set_bypass(true);
        second.store(false, Ordering::SeqCst);
        until(&|| log.stats()[0].1.unlogged.iter().sum::<u64>() > 0);
        log.set_bypass(false);
        third.store(false, Ordering::SeqCst);
        writer.join().unwrap();
    });
    assert_eq!(listed(), before + 2);
    assert!(pool.synced_txg() >= txg, "acknowledged, and neither in the log nor synced");
}

#[test]
fn a_volume_that_shrinks_beside_writes_stays_small() {
    for is_logged in [false, true] {
        let (bench, (store, volume)) = Bench::new(true);
        if !is_logged {
            set_sync(&store, "disabled");
        }
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
        if !is_logged {
            set_sync(&store, "standard");
        }
        volume.flush().unwrap();
        let open = bench.crash((store, volume));
        assert_eq!(open.1.size_bytes(), 4096, "it is larger after a crash (logged: {is_logged})");
    }
}
