//! A directory of the system's, a region in memory, and threads.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fastness_pmem::{OpenOptions, PmRange, Region};
use fastness_responder::*;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Timespec, Timestamps};

fn region(folder: &Path) -> PmRange {
    let path = folder.join("region");
    let options = OpenOptions::new();
    let region = match path.exists() {
        true => Region::open(&path, &options),
        false => Region::create_file(&path, 16 << 20, &options),
    };
    region.unwrap().into_range()
}

fn create(folder: &Path, root: &Path) -> Cache<PmRange> {
    fs::create_dir_all(root).unwrap();
    Cache::create(region(folder), Arc::new(Directory::open(root).unwrap()), &Options::new()).unwrap()
}

fn open(folder: &Path, root: &Path) -> Result<(Cache<PmRange>, Recovered), Error> {
    Cache::open(region(folder), Arc::new(Directory::open(root).unwrap()), &Options::new())
}

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    fastness_testkit::Rng(seed).bytes(len)
}

#[test]
fn a_directory_alone_has_everything_after_a_recovery() {
    let temporary = tempfile::tempdir().unwrap();
    let (folder, root) = (temporary.path(), temporary.path().join("directory"));
    let cache = create(folder, &root);
    fs::create_dir(root.join("sub")).unwrap();
    let data = pattern(1, 40_000);
    let file = cache.open_file(Path::new("sub/a"), Some(0o640), 0).unwrap();
    cache.write(&file, 100, &data).unwrap();
    cache.append(&file, b"the end").unwrap();
    let expected = [vec![0; 100], data, b"the end".to_vec()].concat();
    assert_eq!(cache.stat(&file).unwrap().size, expected.len() as u64);
    assert_eq!(fs::read(root.join("sub/a")).unwrap(), b"");
    drop(cache); // A crash does no more to the process.

    // Names change without the cache.
    fs::rename(root.join("sub"), root.join("moved")).unwrap();
    let (cache, recovered) = open(folder, &root).unwrap();
    assert_eq!((recovered.dirty_chunks, recovered.orphaned_chunks), (10, 0));
    cache.flush().unwrap();
    assert_eq!(fs::read(root.join("moved/a")).unwrap(), expected);
    let written = cache.stat_path(Path::new("moved/a")).unwrap().modified_ns;
    let modified = fs::metadata(root.join("moved/a")).unwrap().modified().unwrap();
    assert_eq!(modified.duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos(), u128::from(written));
    cache.detach().map_err(|failed| failed.1).unwrap();
    assert!(!root.join(".fastness-responder").exists());
}

/// The clock of a cache goes in steps; what the directory itself notes is exact, and so may be ahead of it.
#[test]
fn a_write_is_later_than_what_the_directory_has_just_noted() {
    const NOW_NS: u64 = 1_700_000_000_000_000_000;
    let temporary = tempfile::tempdir().unwrap();
    let (folder, root) = (temporary.path(), temporary.path().join("directory"));
    fs::create_dir(&root).unwrap();
    let options = Options::new().clock(|| NOW_NS);
    let cache = Cache::create(region(folder), Arc::new(Directory::open(&root).unwrap()), &options).unwrap();
    let since = |ns: u64| std::time::UNIX_EPOCH + std::time::Duration::from_nanos(ns);
    let noted = |name: &str, ns: u64| {
        fs::File::create(root.join(name)).unwrap().set_modified(since(ns)).unwrap();
        let file = cache.open_file(Path::new(name), None, 0).unwrap();
        cache.write(&file, 0, b"text").unwrap();
        cache.stat(&file).unwrap().modified_ns
    };
    assert_eq!(noted("ahead", NOW_NS + 5_000_000), NOW_NS + 5_000_001);
    assert_eq!(noted("behind", NOW_NS - 5_000_000), NOW_NS + 5_000_002, "later than any other");
}

/// Looking at a link is no read of it, and one that the directory loses leads where it led.
#[test]
fn symbolic_links() {
    let temporary = tempfile::tempdir().unwrap();
    let (folder, root) = (temporary.path(), temporary.path().join("directory"));
    let cache = create(folder, &root);
    let (link, below) = (Path::new("link"), root.join("link"));
    cache.make(link, || std::os::unix::fs::symlink("target", &below).map(|()| ((), true))).unwrap();
    let (time, stay) = (Timespec { tv_sec: 1000, tv_nsec: 0 }, AtFlags::SYMLINK_NOFOLLOW);
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(CWD, &below, &times, stay).unwrap();
    let held = rustix::fs::open(&below, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty()).unwrap();
    cache.settle(&PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()))).unwrap();
    cache.rename(link, Path::new("moved")).unwrap();
    cache.rename(Path::new("moved"), link).unwrap();
    assert_eq!(fs::symlink_metadata(&below).unwrap().atime(), 1000);
    drop((cache, held));
    fs::remove_file(&below).unwrap();
    let (_cache, recovered) = open(folder, &root).unwrap();
    assert_eq!(recovered.made_again, 1);
    assert_eq!(fs::read_link(&below).unwrap(), Path::new("target"));
}

#[test]
fn names_lengths_and_links() {
    let temporary = tempfile::tempdir().unwrap();
    let (folder, root) = (temporary.path(), temporary.path().join("directory"));
    let cache = create(folder, &root);
    let file = cache.open_file(Path::new("a"), Some(0o600), 0).unwrap();
    cache.write(&file, 0, &pattern(2, 9000)).unwrap();
    cache.link(Path::new("a"), Path::new("b")).unwrap();
    cache.unlink(Path::new("a")).unwrap();
    cache.truncate(&file, 5000).unwrap();
    cache.truncate(&file, 6000).unwrap();
    cache.rename(Path::new("b"), Path::new("c")).unwrap();
    let other = cache.open_file(Path::new("other"), Some(0o600), 0).unwrap();
    cache.write(&other, 0, b"gone").unwrap();
    cache.close(other).unwrap();
    cache.rename(Path::new("c"), Path::new("other")).unwrap();
    drop(cache);
    let (cache, recovered) = open(folder, &root).unwrap();
    assert_eq!(recovered.orphaned_chunks, 0);
    cache.flush().unwrap();
    let expected = [&pattern(2, 9000)[..5000], &[0; 1000]].concat();
    assert_eq!(fs::read(root.join("other")).unwrap(), expected);
    assert_eq!(cache.stat_path(Path::new("other")).unwrap().links, 1);
}

#[test]
fn a_copy_of_the_directory_is_refused() {
    let temporary = tempfile::tempdir().unwrap();
    let (folder, root) = (temporary.path(), temporary.path().join("directory"));
    drop(create(folder, &root));
    let copy = folder.join("copy");
    fs::create_dir(&copy).unwrap();
    fs::copy(root.join(".fastness-responder"), copy.join(".fastness-responder")).unwrap();
    assert!(matches!(open(folder, &copy), Err(Error::WrongDirectory(_))));
    fs::write(copy.join(".fastness-responder"), b"damaged").unwrap();
    assert!(matches!(open(folder, &copy), Err(Error::Backing { .. })));
    assert!(open(folder, &root).is_ok());
}

#[test]
fn a_file_that_several_threads_create_is_created_once() {
    let temporary = tempfile::tempdir().unwrap();
    let (folder, root) = (temporary.path(), temporary.path().join("directory"));
    let (cache, start) = (create(folder, &root), std::sync::Barrier::new(4));
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (cache, start) = (&cache, &start);
            scope.spawn(move || {
                for round in 0..50 {
                    start.wait();
                    let path = format!("new {round}");
                    let file = cache.open_file(Path::new(&path), Some(0o600), 0).unwrap();
                    cache.write(&file, thread * 100, &[1; 100]).unwrap();
                    start.wait();
                    assert_eq!(cache.stat(&file).unwrap().size, 400);
                    cache.close(file).unwrap();
                }
            });
        }
    });
}

/// Threads write to files of their own and to one that they share, while the flusher runs.
#[test]
fn threads_and_the_flusher() {
    let temporary = tempfile::tempdir().unwrap();
    let (folder, root) = (temporary.path(), temporary.path().join("directory"));
    let cache = Arc::new(create(folder, &root));
    let flusher = Flusher::start(Arc::clone(&cache), Duration::from_millis(1));
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let cache = &cache;
            scope.spawn(move || {
                let own = cache.open_file(Path::new(&thread.to_string()), Some(0o600), 0).unwrap();
                let shared = cache.open_file(Path::new("shared"), Some(0o600), 0).unwrap();
                let mut rng = fastness_testkit::Rng(thread);
                let mut content = vec![0; 100_000];
                cache.write(&own, 0, &content).unwrap();
                for _ in 0..60 {
                    let (at, len) = (rng.index(90_000), 1 + rng.index(9_000));
                    content[at..at + len].fill(rng.next() as u8);
                    cache.write(&own, at as u64, &content[at..at + len]).unwrap();
                    // Blocks that readers must never see in two halves.
                    cache.write(&shared, 3000, &[thread as u8 + 1; 6000]).unwrap();
                    let mut block = [0; 6000];
                    cache.read(&shared, 3000, &mut block).unwrap();
                    assert!(block.iter().all(|byte| *byte == block[0]), "a torn write");
                }
                let mut found = vec![0; content.len()];
                assert_eq!(cache.read(&own, 0, &mut found).unwrap(), content.len());
                assert!(found == content);
                cache.flush_file(&own).unwrap();
                cache.close(own).unwrap();
                cache.close(shared).unwrap();
            });
        }
    });
    drop(flusher);
    cache.flush().unwrap();
    let status = cache.status().unwrap();
    assert_eq!((status.dirty_chunks, status.failures.len()), (0, 0));
    assert!(status.counts.flushed > 100);
    assert_eq!(fs::metadata(root.join("shared")).unwrap().len(), 9000);
}

/// The flusher needs nobody to ask for it.
#[test]
fn the_flusher_brings_everything_to_the_directory() {
    let temporary = tempfile::tempdir().unwrap();
    let (folder, root) = (temporary.path(), temporary.path().join("directory"));
    let cache = Arc::new(create(folder, &root));
    let flusher = Flusher::start(Arc::clone(&cache), PERIOD_DEFAULT);
    let file = cache.open_file(Path::new("a"), Some(0o600), 0).unwrap();
    cache.write(&file, 0, b"in time").unwrap();
    for _ in 0..1000 {
        if cache.status().unwrap().dirty_chunks == 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(fs::read(root.join("a")).unwrap(), b"in time");
    drop(flusher);
}

/// A file that is elsewhere while its cache is opened comes back, with its chunks or with its truncation.
#[test]
fn files_that_come_back_have_their_data() {
    let temporary = tempfile::tempdir().unwrap();
    let (folder, root) = (temporary.path(), temporary.path().join("directory"));
    let cache = create(folder, &root);
    let file = cache.open_file(Path::new("a"), Some(0o600), 0).unwrap();
    // What the directory has not confirmed is made again.
    cache.flush().unwrap();
    cache.write(&file, 0, b"acknowledged").unwrap();
    drop(cache);
    fs::rename(root.join("a"), folder.join("elsewhere")).unwrap();
    let (cache, recovered) = open(folder, &root).unwrap();
    assert_eq!(recovered.orphaned_chunks, 1);
    fs::rename(folder.join("elsewhere"), root.join("b")).unwrap();
    let file = cache.open_file(Path::new("b"), None, 0).unwrap();
    let mut found = [0; 20];
    assert_eq!(cache.read(&file, 0, &mut found).unwrap(), 12);
    cache.flush().unwrap();
    assert_eq!(cache.status().unwrap().dirty_chunks, 0);
    assert_eq!(fs::read(root.join("b")).unwrap(), b"acknowledged");
}

/// A front end had found it, and opens it only afterwards. Its chunks go with its name; its bytes do not.
#[test]
fn a_file_that_is_opened_after_it_has_lost_its_name_has_its_bytes() {
    let temporary = tempfile::tempdir().unwrap();
    let (folder, root) = (temporary.path(), temporary.path().join("directory"));
    let cache = create(folder, &root);
    let data = pattern(1, 40_000);
    for (renames, is_open) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut file = Some(cache.open_file(Path::new("a"), Some(0o600), 0).unwrap());
        cache.write(file.as_ref().unwrap(), 100, &data).unwrap();
        cache.flush().unwrap();
        cache.write(file.as_ref().unwrap(), 5_000, b"text").unwrap();
        cache.append(file.as_ref().unwrap(), b"the end").unwrap();
        let mut expected = [vec![0; 100], data.clone(), b"the end".to_vec()].concat();
        expected[5_000..5_004].copy_from_slice(b"text");
        let found = fs::File::open(root.join("a")).unwrap();
        let path = PathBuf::from(format!("/proc/self/fd/{}", found.as_raw_fd()));
        if !is_open {
            cache.close(file.take().unwrap()).unwrap();
        }
        if renames {
            cache.close(cache.open_file(Path::new("b"), Some(0o600), 0).unwrap()).unwrap();
            cache.rename(Path::new("b"), Path::new("a")).unwrap();
        } else {
            cache.unlink(Path::new("a")).unwrap();
        }
        for at in 0..3 {
            let again = cache.open_file(&path, None, 0).unwrap();
            let mut bytes = vec![1; expected.len() + 1];
            assert_eq!(
                cache.read(&again, 0, &mut bytes).unwrap(),
                expected.len(),
                "{renames} {is_open} {at}"
            );
            assert!(bytes[..expected.len()] == expected, "{renames} {is_open} {at}");
            // It is written to without a name, and leaves nothing in PM.
            cache.write(&again, 7, &[at]).unwrap();
            expected[7] = at;
            cache.close(again).unwrap();
            file.take().into_iter().for_each(|file| cache.close(file).unwrap());
            assert_eq!(cache.status().unwrap().dirty_chunks, 0);
        }
    }
    drop(cache);
    let (_, recovered) = open(folder, &root).unwrap();
    assert_eq!((recovered.dirty_chunks, recovered.orphaned_chunks, recovered.removals), (0, 0, 0));
}

#[test]
fn a_write_that_the_directory_can_never_take_is_refused() {
    let temporary = tempfile::tempdir().unwrap();
    let (folder, root) = (temporary.path(), temporary.path().join("directory"));
    let cache = create(folder, &root);
    let file = cache.open_file(Path::new("a"), Some(0o600), 0).unwrap();
    let plain = fs::File::create(folder.join("plain")).unwrap();
    // What is too far depends on the file system: 16 TiB with ext4.
    for offset in [1 << 40, (1 << 44) - 8192, 1 << 44, 1 << 55, 1 << 62] {
        let before = cache.stat(&file).unwrap().size;
        let refused = plain.write_at(b"text", offset).err().and_then(|error| error.raw_os_error());
        let written = cache.write(&file, offset, b"text").err();
        assert_eq!(written.as_ref().map(Error::errno), refused, "at {offset:x}: {written:?}");
        cache.flush().unwrap();
        if refused.is_some() {
            assert_eq!(cache.stat(&file).unwrap().size, before);
        }
    }
    cache.close(file).unwrap();
}

/// A front end has asked the directory, then the file leaves the cache, and then the front end asks that.
#[test]
fn attributes_are_not_older_than_what_the_directory_was_given() {
    let temporary = tempfile::tempdir().unwrap();
    let (folder, root) = (temporary.path(), temporary.path().join("directory"));
    let cache = create(folder, &root);
    let file = cache.open_file(Path::new("a"), Some(0o600), 0).unwrap();
    cache.write(&file, 0, b"bytes").unwrap();
    cache.close(file).unwrap();
    let found = fs::File::open(root.join("a")).unwrap();
    let ask = || Ok(Stat::from(&found.metadata()?));
    let before = ask().unwrap();
    assert_eq!((before.size, cache.current(before, ask).unwrap().size), (0, 5));
    cache.unlink(Path::new("a")).unwrap();
    assert_eq!(cache.current(before, ask).unwrap().size, 5);
}
