//! Devices that another search looks at: each has them for a moment, as an owner would.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fastness_base::ErrorKind;
use fastness_daemon::{Among, StartError, clear_labels, find_devices, scan};
use fastness_store::{Device, Pool, PoolOptions, VdevSpec};
use tempfile::TempDir;

const SEARCHES: usize = 50;

/// A folder with an exported pool on a mirror of two files.
fn bench() -> (TempDir, [PathBuf; 2]) {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let paths = ["one", "two"].map(|name| dir.path().join(name));
    let sides: Vec<_> = paths.iter().map(|path| Device::create_sparse(path, 64 << 20).unwrap()).collect();
    Pool::create("tank", &[VdevSpec::mirror(sides)], PoolOptions::default()).unwrap().export().unwrap();
    (dir, paths)
}

fn find(places: &[PathBuf], patience: Duration) -> Result<Vec<Device>, StartError> {
    find_devices("tank", places, Among::Existing, patience, &mut |_| ()).map(|found| found.devices)
}

#[test]
fn a_pool_is_found_while_others_look_at_its_devices() {
    let (dir, _) = bench();
    let places = [dir.path().to_owned()];
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                scan(&places);
                thread::sleep(Duration::from_millis(3));
            }
        });
        let count = |_| find(&places, Duration::from_secs(60)).map(|devices| devices.len());
        let found: Vec<_> = (0..SEARCHES).map(count).collect();
        is_over.store(true, Ordering::Relaxed);
        assert!(found.iter().all(|count| matches!(count, Ok(2))), "{found:?}");
    });
}

#[test]
fn a_device_that_stays_in_use_is_busy_in_the_end() {
    let (_dir, paths) = bench();
    let _owners = paths.each_ref().map(|path| Device::open(path).unwrap());
    let error = find(&paths, Duration::from_millis(200)).map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
}

#[test]
fn labels_are_cleared_once_another_search_has_looked_at_the_device() {
    let (_dir, [path, _]) = bench();
    let other = Device::open_to_look(&path).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(100));
            drop(other);
        });
        clear_labels(&path, true).unwrap();
    });
    assert!(Device::open(&path).unwrap().probe().is_err());
}
