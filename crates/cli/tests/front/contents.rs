//! Bytes: appended, allocated, cut out, sought for; lengths that the directory cannot hold.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FallocateFlags, SeekFrom, StatxFlags, fallocate, seek};
use rustix::io::Errno;

use crate::{folder, mounted};

#[test]
fn appends_of_several_writers_are_all_there() {
    let Some(mut files) = mounted() else { return };
    const WRITERS: u8 = 4;
    const TIMES: usize = 50;
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let path = files.at("log");
            scope.spawn(move || {
                let mut log = OpenOptions::new().create(true).append(true).open(path).unwrap();
                (0..TIMES).for_each(|_| log.write_all(&[b'a' + writer; 3000]).unwrap());
            });
        }
    });
    files.kill_and_recover();
    let bytes = fs::read(files.below("log")).unwrap();
    assert_eq!(bytes.len(), usize::from(WRITERS) * TIMES * 3000);
    for writer in 0..WRITERS {
        assert_eq!(bytes.iter().filter(|byte| **byte == b'a' + writer).count(), TIMES * 3000);
    }
    // Wherever it was told to write.
    let Some(files) = mounted() else { return };
    fs::write(files.at("a"), "text").unwrap();
    let append = OpenOptions::new().append(true).open(files.at("a")).unwrap();
    append.write_all_at(b" more", 0).unwrap();
    assert_eq!(fs::read(files.at("a")).unwrap(), b"text more");
}

#[test]
fn ranges_are_allocated_punched_and_zeroed() {
    let Some(mut files) = mounted() else { return };
    let path = files.at("a");
    fs::write(&path, vec![b'x'; 40_000]).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let keep = FallocateFlags::KEEP_SIZE;
    fallocate(&file, FallocateFlags::PUNCH_HOLE | keep, 5_000, 10_000).unwrap();
    let mut expected = vec![b'x'; 40_000];
    expected[5_000..15_000].fill(0);
    assert_eq!(fs::read(&path).unwrap(), expected);
    fallocate(&file, FallocateFlags::empty(), 30_000, 20_000).unwrap();
    expected.resize(50_000, 0);
    assert_eq!(fs::read(&path).unwrap(), expected);
    fallocate(&file, keep, 50_000, 20_000).unwrap();
    assert_eq!(file.metadata().unwrap().size(), 50_000);
    // Over bytes that only PM has.
    file.write_all_at(&[b'y'; 9_000], 4_096).unwrap();
    fallocate(&file, FallocateFlags::PUNCH_HOLE | keep, 8_192, 4_096).unwrap();
    expected[4_096..13_096].fill(b'y');
    expected[8_192..12_288].fill(0);
    assert_eq!(fs::read(&path).unwrap(), expected);
    drop(file);
    files.kill_and_recover();
    assert_eq!(fs::read(files.below("a")).unwrap(), expected);
}

#[test]
fn holes_and_data_are_found_although_only_pm_has_them() {
    let Some(files) = mounted() else { return };
    let file = File::create_new(files.at("a")).unwrap();
    file.write_all_at(b"data", 1 << 20).unwrap();
    file.set_len(3 << 20).unwrap();
    file.write_all_at(b"data", 2 << 20).unwrap();
    let at = |from| seek(&file, from).unwrap();
    assert_eq!(at(SeekFrom::Data(0)), 1 << 20);
    assert_eq!(at(SeekFrom::Hole(1 << 20)), (1 << 20) + 4096);
    assert_eq!(at(SeekFrom::Data((1 << 20) + 4096)), 2 << 20);
    assert_eq!(seek(&file, SeekFrom::Data((2 << 20) + 4096)), Err(Errno::NXIO));
}

#[test]
fn a_write_that_the_directory_can_never_take_is_refused() {
    let Some(mut files) = folder() else { return };
    // On a disk: a file in memory can have any length.
    let disk = || tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (directory, beside) = (disk(), disk());
    fs::remove_dir(files.bench.path("dir")).unwrap();
    symlink(directory.path(), files.bench.path("dir")).unwrap();
    files.mount("");
    let open = |path| File::options().create(true).write(true).truncate(false).open(path).unwrap();
    let (file, plain) = (open(files.at("a")), open(beside.path().join("plain")));
    for offset in [1 << 42, 1 << 44, 1 << 55, (1 << 62) + 5, i64::MAX as u64 - 8192] {
        let errors = [&file, &plain].map(|file| file.write_all_at(b"far", offset).err());
        let [here, there] = errors.map(|error| error.and_then(|error| error.raw_os_error()));
        assert_eq!(here, there, "at {offset:x}");
    }
    assert_eq!(file.metadata().unwrap().size(), plain.metadata().unwrap().size());
    drop(file);
    files.bench.ok("responder flush pm");
}

/// What `tar` takes for a file that changes as it is read.
#[test]
fn a_flush_moves_no_time_that_was_seen() {
    let Some(mut files) = mounted() else { return };
    let times = |path: &Path| {
        let flags = AtFlags::STATX_FORCE_SYNC;
        let found = rustix::fs::statx(CWD, path, flags, StatxFlags::BASIC_STATS).unwrap();
        [found.stx_mtime, found.stx_ctime].map(|time| (time.tv_sec, time.tv_nsec))
    };
    let path = files.at("file");
    for round in 0..3 {
        fs::write(&path, format!("round {round}")).unwrap();
        let before = times(&path);
        std::thread::sleep(std::time::Duration::from_millis(30));
        files.bench.ok("responder flush pm");
        assert_eq!(times(&path), before);
        let below = fs::metadata(files.below("file")).unwrap();
        assert_eq!((below.mtime(), below.mtime_nsec()), (before[0].0, i64::from(before[0].1)));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640 + round)).unwrap();
        let changed = times(&path);
        assert!(changed[0] == before[0] && changed[1] > before[1], "{before:?}, {changed:?}");
        files.bench.ok("responder flush pm");
        assert_eq!(times(&path), changed);
    }
    assert!(files.interrupted().status.success());
}
