//! A region that fails takes no marks of txgs any more. The next import must neither refuse the pool for it,
//! nor take what came back for current.

use std::sync::{Mutex, OnceLock};

use fastness_blkdev::MemImage;
use fastness_store::LogImportStep;

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

fn refusal(result: Result<(Arc<Store>, fastness_store::ReplayReport), StoreError>) -> String {
    let error = result.map(drop).unwrap_err();
    assert!(matches!(error, StoreError::Copy { .. }), "{error:?}");
    error.to_string()
}

/// Nothing is written: the mark alone finds out. The first txg without a mark says that the region is out.
#[test]
fn a_side_without_a_mark_is_out_with_the_same_txg() {
    for (lost, other) in [("a", "b"), ("b", "a")] {
        let (mut bench, store) = Bench::new(&["a", "b"], HOUR);
        let volume = volume(&store);
        store.pool().sync().unwrap();
        volume.write(0, &[1; 4096], true).unwrap();
        let before = std::fs::read(bench.path(lost)).unwrap();
        bench.cut(lost, 0);
        let txg = store.pool().open_txg();
        store.pool().sync().unwrap();
        assert_eq!((store.pool().synced_txg(), out(&store.pool())), (txg, vec![lost.to_owned()]));
        let at_once = (bench.disk.image(), std::fs::read(bench.path(other)).unwrap(), 1);
        volume.write(0, &[2; 4096], true).unwrap();
        store.pool().sync().unwrap();
        volume.write(0, &[3; 4096], true).unwrap();
        let later = (bench.disk.image(), std::fs::read(bench.path(other)).unwrap(), 3);
        drop((volume, store));
        for (disk, left, fill) in [at_once, later] {
            put_back_disk(&mut bench, &disk);
            put_back(&bench, other, &left);
            put_back(&bench, lost, &before);
            let (store, _) = bench.import(Consent::NONE).unwrap();
            assert_eq!((out(&store.pool()), log(&store).kind()), (vec![lost.to_owned()], KindId::Pmem));
            assert_eq!(block(&open(&store), 0), fill);
            drop(store);
            // Alone it is not taken: what was logged since is not in it.
            put_back_disk(&mut bench, &disk);
            std::fs::remove_file(bench.path(other)).unwrap();
            bench.import(Consent::NONE).map(drop).unwrap_err();
        }
    }
}

/// The pool did not record anything about the side: it was whole until the end, and is put back from a copy.
#[test]
fn a_stale_side_that_is_not_out_is_refused_by_name() {
    let (mut bench, store) = Bench::new(&["a", "b"], HOUR);
    let volume = volume(&store);
    let before = std::fs::read(bench.path("b")).unwrap();
    store.pool().sync().unwrap();
    volume.write(0, &[1; 4096], true).unwrap();
    let disk = bench.disk.image();
    drop((volume, store));
    put_back_disk(&mut bench, &disk);
    put_back(&bench, "b", &before);
    let whole = std::fs::read(bench.path("a")).unwrap();
    std::fs::remove_file(bench.path("a")).unwrap();
    let text = refusal(bench.import(Consent::NONE));
    assert!(text.contains("/b") && text.contains("before the pool's"), "{text}");
    put_back(&bench, "a", &whole);
    let (store, _) = bench.import(Consent::NONE).unwrap();
    assert_eq!((out(&store.pool()), block(&open(&store), 0)), (vec!["b".to_owned()], 1));
}

/// The region that all is in is lost, and nothing else happens.
#[test]
fn a_region_is_not_asked_for_once_nothing_in_it_counts() {
    for regions in [&["a"][..], &["a", "b"]] {
        let (bench, store) = Bench::new(regions, HOUR);
        let volume = volume(&store);
        store.pool().sync().unwrap();
        volume.write(0, &[1; 4096], true).unwrap();
        let before: Vec<_> = regions.iter().map(|name| std::fs::read(bench.path(name)).unwrap()).collect();
        regions.iter().for_each(|name| bench.cut(name, 0));
        store.pool().sync().unwrap();
        // No timer ends that txg, and no writer.
        eventually("nothing in it is needed", || out(&store.pool()) == *regions);
        volume.write(4096, &[2; 4096], true).unwrap();
        assert!(logged(&log(&store)) > 0);
        drop((volume, store));
        // Gone, short, or there again as it was.
        regions.iter().zip(&before).for_each(|(name, before)| put_back(&bench, name, before));
        let (store, report) = bench.import(Consent::NONE).unwrap();
        assert_eq!((report.records, report.is_forgotten), (0, false));
        assert_eq!(
            (log(&store).kind(), PoolLog::config(&store.pool()).unwrap().regions.len()),
            (KindId::Lwb, 0)
        );
        let volume = open(&store);
        assert_eq!((block(&volume, 0), block(&volume, 4096)), (1, 2));
        // The new log works, and is found again.
        volume.write(0, &[3; 4096], true).unwrap();
        drop((volume, store));
        let (store, report) = bench.import(Consent::NONE).unwrap();
        assert_eq!((report.records, block(&open(&store), 0)), (1, 3));
    }
}

/// Writes into the next txg while this one is committed, and cuts the region then.
struct LogAndCut {
    disk: Arc<MemDevice>,
    path: std::path::PathBuf,
    volume: OnceLock<Volume>,
    done: Mutex<Option<Cut>>,
}

struct Cut {
    /// The txg that was being committed.
    txg: Txg,
    /// What the region had.
    region: Vec<u8>,
    /// The pool's disk when the txg was durable.
    disk: Option<MemImage>,
}

impl TxgHook for LogAndCut {
    fn sync(&self, txg: Txg, _: &mut HookChanges) -> Result<(), PoolError> {
        let mut done = self.done.lock().unwrap();
        if let (Some(volume), None) = (self.volume.get(), &*done) {
            volume.write(0, &[2; 4096], true).unwrap();
            let region = std::fs::read(&self.path).unwrap();
            std::fs::File::options().write(true).open(&self.path).unwrap().set_len(0).unwrap();
            *done = Some(Cut { txg, region, disk: None });
        }
        Ok(())
    }

    fn synced(&self, txg: Txg) {
        if let Some(cut) = self.done.lock().unwrap().as_mut().filter(|cut| cut.txg == txg) {
            cut.disk = Some(self.disk.image());
        }
    }
}

/// The txg during which the loss is noticed does not have what was logged meanwhile: the region is needed
/// until the next one is durable.
#[test]
fn what_was_logged_while_a_txg_was_committed_is_not_given_up() {
    let mut hook = None;
    let (mut bench, store) = Bench::with_hook(&["a"], HOUR, |bench| {
        let (disk, path) = (bench.disk.clone(), bench.path("a"));
        let of_bench = Arc::new(LogAndCut { disk, path, volume: OnceLock::new(), done: Mutex::default() });
        hook = Some(of_bench.clone());
        Some(of_bench as Arc<dyn TxgHook>)
    });
    let hook = hook.unwrap();
    let volume = volume(&store);
    store.pool().sync().unwrap();
    volume.write(0, &[1; 4096], true).unwrap();
    assert!(hook.volume.set(open(&store)).is_ok());
    store.pool().sync().unwrap();
    eventually("the next one follows", || out(&store.pool()) == ["a"]);
    let Cut { region, disk, .. } = hook.done.lock().unwrap().take().unwrap();
    let durable = bench.disk.image();
    assert_eq!(block(&volume, 0), 2);
    // The pool stays: it has the hook, and that has a volume of it.
    drop((volume, store, hook));
    // The power failed when the first was durable.
    put_back_disk(&mut bench, &disk.unwrap());
    bench.import(Consent::NONE).map(drop).unwrap_err();
    put_back(&bench, "a", &region);
    let text = refusal(bench.import(Consent::NONE));
    assert!(text.contains("/a"), "{text}");
    // And after the second.
    put_back_disk(&mut bench, &durable);
    let (store, _) = bench.import(Consent::NONE).unwrap();
    assert_eq!(block(&open(&store), 0), 2);
}

/// Records that are being replayed are in the region only.
#[test]
fn a_region_that_is_lost_in_a_replay_is_needed_still() {
    let (mut bench, store) = Bench::new(&["a"], HOUR);
    let volume = volume(&store);
    store.pool().sync().unwrap();
    volume.write(0, &[1; 4096], true).unwrap();
    drop((volume, store));
    let mut crash = None;
    let imported = bench.import_telling(Consent::NONE, &mut |pool, step| {
        if let LogImportStep::Replay(_) = step {
            bench.cut("a", 0);
            for _ in 0..4 {
                pool.sync().unwrap();
            }
            assert!(out(pool).is_empty());
            crash = Some(bench.disk.image());
        }
    });
    assert!(imported.is_err());
    drop(imported);
    put_back_disk(&mut bench, &crash.unwrap());
    bench.import(Consent::NONE).map(drop).unwrap_err();
}
