//! The log's region goes away under volumes that are written: the file below its mapping is cut short.
//!
//! Nothing acknowledged is lost, a mirror goes on with the other side, and the side that was lost is never
//! read again, whatever it looks like when it comes back.

#![allow(unreachable_pub, missing_debug_implementations)]

#[path = "lost_region/bench.rs"]
mod bench;
#[path = "lost_region/marks.rs"]
mod marks;
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bench::*;
use fastness_blkdev::MemDevice;
use fastness_pool::{HookChanges, PoolError, Txg, TxgHook};
use fastness_store::{Consent, PoolLog, Store, StoreError};
use fastness_zil::{KindId, LogCause};
use fastness_zvol::Volume;

const THREADS: usize = 3;
const BLOCKS: usize = 64;
/// A block that no thread writes.
const SPARE: u64 = (THREADS * BLOCKS) as u64 * BLOCK;

/// What each thread was told to be durable of each of its blocks.
type Told = Vec<Vec<AtomicU64>>;

fn write_on(volume: &Volume, thread: usize, told: &Told, is_done: &AtomicBool) {
    for round in 1_u64.. {
        if is_done.load(Ordering::SeqCst) {
            return;
        }
        let block = (round * 7) as usize % BLOCKS;
        let mut data = vec![round as u8; BLOCK as usize];
        data[..8].copy_from_slice(&round.to_le_bytes());
        volume.write((thread * BLOCKS + block) as u64 * BLOCK, &data, round % 3 != 0).unwrap();
        if round % 3 == 0 {
            volume.flush().unwrap();
        }
        told[thread][block].store(round, Ordering::SeqCst);
    }
}

fn check(volume: &Volume, told: &Told) {
    for (thread, told) in told.iter().enumerate() {
        for (block, told) in told.iter().enumerate() {
            let (mut data, told) = (vec![0; BLOCK as usize], told.load(Ordering::SeqCst));
            volume.read((thread * BLOCKS + block) as u64 * BLOCK, &mut data).unwrap();
            let found = u64::from_le_bytes(data[..8].try_into().unwrap());
            assert!(found >= told, "thread {thread}, block {block}: {told} acknowledged, {found} there");
            assert!(data[8..].iter().all(|byte| *byte == found as u8), "a torn block");
        }
    }
}

/// Writes from several threads while `harm` does something to the log.
fn under_load(volume: &Volume, harm: impl FnOnce()) -> Told {
    let told: Told = (0..THREADS).map(|_| (0..BLOCKS).map(|_| AtomicU64::new(0)).collect()).collect();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (told, is_done) = (&told, &is_done);
            scope.spawn(move || write_on(volume, thread, told, is_done));
        }
        harm();
        is_done.store(true, Ordering::SeqCst);
    });
    told
}

#[test]
fn a_mirror_goes_on_without_a_side() {
    for (lost, other) in [("a", "b"), ("b", "a")] {
        for len_bytes in [0, 5 * MIB] {
            let (bench, store) = Bench::new(&["a", "b"], Duration::from_secs(3600));
            let volume = volume(&store);
            store.pool().sync().unwrap();
            volume.write(SPARE, &[1; 4096], true).unwrap();
            let before = std::fs::read(bench.path(lost)).unwrap();
            let told = under_load(&volume, || {
                std::thread::sleep(Duration::from_millis(20));
                bench.cut(lost, len_bytes);
                // All chunks are written some time.
                eventually("the side is lost", || out(&store.pool()) == [lost]);
                let before = logged(&log(&store));
                eventually("the log goes on", || logged(&log(&store)) > before + 200);
            });
            assert_eq!(log(&store).lost_regions().len(), 1);
            let text = log(&store).lost_regions()[0].1.source.to_string();
            assert!(text.contains("cut short"), "{text}");
            store.pool().sync().unwrap();
            volume.write(SPARE, &[2; 4096], true).unwrap();
            drop((volume, store));
            // It comes back as it was: what it has is old.
            put_back(&bench, lost, &before);
            std::fs::rename(bench.path(other), bench.path("hidden")).unwrap();
            let refused = bench.import(Consent::NONE).map(drop).unwrap_err();
            assert!(
                matches!(refused, StoreError::OtherLog { .. } | StoreError::Missing { .. }),
                "{refused:?}"
            );
            std::fs::rename(bench.path("hidden"), bench.path(other)).unwrap();
            let (store, report) = bench.import(Consent::NONE).unwrap();
            assert!(report.records > 0, "{report:?}");
            assert_eq!((out(&store.pool()), log(&store).regions().len()), (vec![lost.to_owned()], 1));
            let mut found = [0; 4096];
            open(&store).read(SPARE, &mut found).unwrap();
            assert_eq!(found, [2; 4096]);
            check(&open(&store), &told);
            assert!(store.pool().check().unwrap().is_clean());
        }
    }
}

/// The process dies between the loss and the txg that records it: neither side may lack what was
/// acknowledged.
#[test]
fn before_the_loss_is_recorded_either_side_is_whole() {
    for lost in ["a", "b"] {
        let (mut bench, store) = Bench::new(&["a", "b"], Duration::from_secs(3600));
        let volume = volume(&store);
        store.pool().sync().unwrap();
        volume.write(0, &[1; 4096], true).unwrap();
        // No txg ends while one is held open, so nobody who waits for one is told anything.
        let held = store.pool().begin_tx().unwrap();
        let copies = ["a", "b"].map(|name| std::fs::read(bench.path(name)).unwrap());
        bench.cut(lost, 0);
        volume.write(4096, &[2; 4096], false).unwrap();
        volume.write(8192, &[3; 4096], false).unwrap();
        assert_eq!(out(&store.pool()), [""; 0]);
        let stats = log(&store).stats()[0].1;
        assert_eq!(stats.unlogged_of(LogCause::SideLost), 2, "{stats:?}");
        let other = if lost == "a" { "b" } else { "a" };
        let (disk, left) = (bench.disk.image(), std::fs::read(bench.path(other)).unwrap());
        drop(held);
        drop((volume, store));
        // The lost side is there again, as it was when it went; and either side may be missing.
        for missing in [None, Some(other), Some(lost)] {
            bench.devices = vec![device(&Arc::new(MemDevice::from_image("disk", disk.clone(), 512)))];
            put_back(&bench, lost, &copies[usize::from(lost == "b")]);
            put_back(&bench, other, &left);
            if let Some(name) = missing {
                std::fs::remove_file(bench.path(name)).unwrap();
            }
            let (store, _) = bench.import(Consent::NONE).unwrap();
            let mut found = [0; 4096];
            open(&store).read(0, &mut found).unwrap();
            assert_eq!(found, [1; 4096], "{lost} lost, {missing:?} missing");
        }
    }
}

/// Writes to the volume while the txg that records the loss is being made durable.
struct WriteInSync {
    volume: Volume,
    log: Arc<PoolLog>,
    /// Writes that were not logged, at the time.
    refused: Arc<AtomicU64>,
}

impl TxgHook for WriteInSync {
    fn sync(&self, _: Txg, _: &mut HookChanges) -> Result<(), PoolError> {
        self.volume.write(0, &[7; 4096], false).unwrap();
        self.refused.store(self.log.stats()[0].1.unlogged_of(LogCause::SideLost), Ordering::SeqCst);
        Ok(())
    }
}

#[test]
fn the_log_goes_on_when_the_loss_is_durable_and_not_before() {
    let (bench, store) = Bench::new(&["a", "b"], Duration::from_secs(3600));
    let volume = volume(&store);
    store.pool().sync().unwrap();
    bench.cut("b", 0);
    let held = store.pool().begin_tx().unwrap();
    volume.write(0, &[1; 4096], false).unwrap();
    let refused = Arc::new(AtomicU64::new(0));
    let hook = WriteInSync { volume: open(&store), log: log(&store), refused: refused.clone() };
    store.pool().add_hook(Arc::new(hook));
    drop(held);
    eventually("the loss is recorded", || out(&store.pool()) == ["b"]);
    assert_eq!(refused.load(Ordering::SeqCst), 2, "the txg was not durable yet");
    let before = logged(&log(&store));
    volume.write(0, &[2; 4096], true).unwrap();
    assert!(logged(&log(&store)) > before);
}

#[test]
fn without_a_mirror_writers_wait_for_txgs() {
    let (bench, store) = Bench::new(&["a"], Duration::from_secs(3600));
    let volume = volume(&store);
    store.pool().sync().unwrap();
    let told = under_load(&volume, || {
        std::thread::sleep(Duration::from_millis(20));
        bench.cut("a", 3 * MIB);
        eventually("the log has failed", || {
            log(&store).stats()[0].1.unlogged_of(LogCause::Failed)
                + log(&store).stats()[0].1.fallbacks_of(LogCause::Failed)
                > 5
        });
    });
    assert_eq!(log(&store).lost_regions().len(), 1);
    eventually("nothing in it is needed", || out(&store.pool()) == ["a"]);
    drop((volume, store));
    let (store, _) = bench.import(Consent::NONE).unwrap();
    check(&open(&store), &told);
}

/// A write that nobody flushes finds out, too; what the log alone had is soon in a txg.
#[test]
fn a_loss_ends_the_txg_soon() {
    let (bench, store) = Bench::new(&["a"], Duration::from_secs(3600));
    let volume = volume(&store);
    store.pool().sync().unwrap();
    volume.write(0, &[1; 4096], true).unwrap();
    let open_txg = store.pool().open_txg();
    bench.cut("a", 0);
    volume.write(4096, &[2; 4096], false).unwrap();
    eventually("it syncs by itself", || store.pool().synced_txg() >= open_txg);
    drop((volume, store));
    let (store, _) = bench.import(Consent { missing: true, ..Consent::NONE }).unwrap();
    let mut found = [0; 8192];
    open(&store).read(0, &mut found).unwrap();
    assert_eq!((&found[..4096], &found[4096..]), (&[1; 4096][..], &[2; 4096][..]));
}

#[test]
fn both_sides_lost_are_as_one_that_was_alone() {
    let (bench, store) = Bench::new(&["a", "b"], Duration::from_secs(3600));
    let volume = volume(&store);
    store.pool().sync().unwrap();
    let told = under_load(&volume, || {
        std::thread::sleep(Duration::from_millis(20));
        bench.cut("b", 0);
        eventually("the first is lost", || out(&store.pool()) == ["b"]);
        bench.cut("a", 0);
        eventually("the log has failed", || log(&store).lost_regions().len() == 2);
        std::thread::sleep(Duration::from_millis(50));
    });
    eventually("nothing in them is needed", || out(&store.pool()) == ["a", "b"]);
    drop((volume, store));
    let (store, _) = bench.import(Consent::NONE).unwrap();
    check(&open(&store), &told);
}

/// What an operator does about it, while the volume is written.
#[test]
fn a_lost_region_is_replaced_removed_or_detached() {
    type Act = fn(&Bench, &Store);
    let id = |store: &Store, bench: &Bench, name: &str| {
        let config = PoolLog::config(&store.pool()).unwrap();
        config.regions.iter().find(|region| region.path == bench.path(name)).unwrap().id
    };
    let replace: Act = |bench, store| {
        let config = PoolLog::config(&store.pool()).unwrap();
        let old = config.regions.iter().find(|region| region.path == bench.path("a")).unwrap().id;
        log(store).replace_region(old, bench.region("new")).unwrap();
        assert_eq!(log(store).kind(), KindId::Pmem);
    };
    let remove: Act = |_, store| {
        log(store).remove_region().unwrap();
        assert_eq!(log(store).kind(), KindId::Lwb);
    };
    for (regions, act) in
        [(&["a"][..], replace), (&["a"], remove), (&["a", "b"], replace), (&["a", "b"], remove)]
    {
        let (bench, store) = Bench::new(regions, Duration::from_millis(50));
        let volume = volume(&store);
        store.pool().sync().unwrap();
        let told = under_load(&volume, || {
            bench.cut("a", 0);
            eventually("it is lost", || !log(&store).lost_regions().is_empty());
            if regions.len() == 2 {
                eventually("it is out", || out(&store.pool()) == ["a"]);
            }
            act(&bench, &store);
            assert!(log(&store).lost_regions().is_empty());
            let before = logged(&log(&store));
            eventually("it is logged again", || logged(&log(&store)) > before + 50);
        });
        drop((volume, store));
        let (store, _) = bench.import(Consent::NONE).unwrap();
        assert!(out(&store.pool()).is_empty());
        check(&open(&store), &told);
    }
    let (bench, store) = Bench::new(&["a", "b"], Duration::from_millis(50));
    let volume = volume(&store);
    bench.cut("a", 0);
    volume.write(0, &[1; 4096], true).unwrap();
    eventually("it is out", || out(&store.pool()) == ["a"]);
    log(&store).detach_region(id(&store, &bench, "a")).unwrap();
    assert_eq!((log(&store).regions().len(), log(&store).lost_regions().len()), (1, 0));
    // It is nobody's any more, and may be used again.
    std::fs::remove_file(bench.path("a")).unwrap();
    log(&store).attach_region(bench.region("a")).unwrap();
    assert_eq!((out(&store.pool()).len(), log(&store).regions().len()), (0, 2));
    // Another takes the place of one that is out.
    bench.cut("b", 0);
    volume.write(0, &[2; 4096], true).unwrap();
    eventually("it is out", || out(&store.pool()) == ["b"]);
    log(&store).attach_region(bench.region("c")).unwrap();
    assert_eq!(
        (out(&store.pool()).len(), log(&store).regions().len(), log(&store).lost_regions().len()),
        (0, 2, 0)
    );
}
