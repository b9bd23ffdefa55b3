//! How long files live: what is open, forgotten, without a name, or made again under its old one.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};

use fastness_testkit::Rng;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::suspended::{break_disk, pool, suspend};
use crate::used::wait_until_erased;
use crate::{LOGS, Mounted, bench, mounted};

const LARGE: usize = 1 << 20;

fn contents(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn create(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path).unwrap()
}

/// Makes durable, in the log, what was done with names.
fn sync_names(files: &Mounted) {
    File::open(&files.at).unwrap().sync_all().unwrap();
}

#[test]
fn what_is_open_without_a_name_is_whole_after_a_suspended_pool_was_cleared() {
    LOGS.into_iter().for_each(cleared);
}

fn cleared(log: &str) {
    let Some(files) = pool(log) else { return };
    let large = Rng(7).bytes(LARGE);
    let make = |name: &str| {
        let mut file = create(&files.path(name));
        file.write_all(&large).unwrap();
        file
    };
    let (removed, replaced, changed) = (make("removed"), make("replaced"), make("changed"));
    fs::create_dir(files.path("folder")).unwrap();
    let folder = File::open(files.path("folder")).unwrap();
    files.bench.ok("pool sync tank");
    // In the log alone, and in memory.
    fs::remove_file(files.path("removed")).unwrap();
    fs::write(files.path("other"), "other").unwrap();
    fs::rename(files.path("other"), files.path("replaced")).unwrap();
    fs::remove_dir(files.path("folder")).unwrap();
    sync_names(&files);
    fs::remove_file(files.path("changed")).unwrap();
    changed.write_all_at(b"changed", 5000).unwrap();
    let flags = OFlags::TMPFILE | OFlags::RDWR;
    let unnamed = File::from(rustix::fs::open(&files.at, flags, Mode::from_raw_mode(0o600)).unwrap());
    unnamed.write_all_at(b"unnamed", 0).unwrap();
    suspend(&files);
    break_disk(&files, false);
    files.bench.ok("pool clear tank");

    let mut expected = large.clone();
    expected[5000..5007].copy_from_slice(b"changed");
    assert!(contents(&removed) == large && contents(&replaced) == large, "{log}");
    assert!(contents(&changed) == expected && contents(&unnamed) == b"unnamed", "{log}");
    for file in [&removed, &replaced, &changed, &unnamed] {
        file.write_all_at(b"goes on", 100).unwrap();
        file.sync_all().unwrap();
        assert_eq!((&contents(file)[100..107], file.metadata().unwrap().nlink()), (&b"goes on"[..], 0));
    }
    assert_eq!((folder.metadata().unwrap().nlink(), files.check()), (0, 5));
    drop((removed, replaced, changed, unnamed, folder));
    wait_until_erased(&files);
}

/// What lost its last user while nothing could be erased is erased later.
#[test]
fn a_file_that_is_closed_while_the_pool_is_suspended_is_erased_when_it_goes_on() {
    let Some(files) = pool("") else { return };
    let open = create(&files.path("a"));
    fs::remove_file(files.path("a")).unwrap();
    suspend(&files);
    drop(open);
    // The kernel forgets it a moment later.
    std::thread::sleep(Duration::from_millis(200));
    break_disk(&files, false);
    files.bench.ok("pool clear tank");
    assert_eq!(files.check(), 1);
    fs::write(files.path("b"), "").unwrap();
    fs::remove_file(files.path("b")).unwrap();
    wait_until_erased(&files);
}

#[test]
fn a_name_that_is_made_again_is_another_file() {
    let Some(files) = mounted("") else { return };
    let path = files.path("a");
    let mut all: Vec<(File, u64)> = Vec::new();
    for generation in 0..5_u8 {
        let file = create(&path);
        file.write_all_at(&[generation; 100], 0).unwrap();
        let number = file.metadata().unwrap().ino();
        assert!(all.iter().all(|(_, other)| *other != number), "a number was given twice");
        all.push((file, number));
        if generation % 2 == 0 {
            fs::remove_file(&path).unwrap();
        } else {
            fs::write(files.path("b"), [9; 100]).unwrap();
            fs::rename(files.path("b"), &path).unwrap();
            fs::remove_file(&path).unwrap();
        }
    }
    for (generation, (file, number)) in all.iter().enumerate() {
        assert_eq!((contents(file), file.metadata().unwrap().ino()), (vec![generation as u8; 100], *number));
    }
    drop(all);
    wait_until_erased(&files);
}

/// Looks, lists, links and removes at once. What is open stays what it was; in the end nothing is left.
#[test]
fn no_file_in_use_becomes_stale_however_often_it_is_found_and_forgotten() {
    let Some(files) = mounted("") else { return };
    let end = Instant::now() + Duration::from_secs(3);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let at = &files.at;
            scope.spawn(move || churn(at, thread, end));
        }
    });
    for entry in fs::read_dir(&files.at).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    wait_until_erased(&files);
}

fn churn(at: &Path, thread: u64, end: Instant) {
    let mut rng = Rng(thread + 1);
    let path = |name: u64| at.join(format!("file-{name}"));
    let is_gone = |error: std::io::Error| {
        let usual = [Some(Errno::NOENT.raw_os_error()), Some(Errno::EXIST.raw_os_error())];
        assert!(usual.contains(&error.raw_os_error()), "{error}");
    };
    let mut opened: Option<(File, [u8; 8])> = None;
    while Instant::now() < end {
        let (one, two) = (path(rng.below(12)), path(rng.below(12)));
        match rng.below(8) {
            0 | 1 => {
                let new = OpenOptions::new().read(true).write(true).create_new(true).open(&one);
                if let Ok(file) = new.map_err(is_gone) {
                    let text = rng.next().to_le_bytes();
                    file.write_all_at(&text, 0).unwrap();
                    opened = Some((file, text));
                }
            }
            2 => fs::hard_link(&one, &two).unwrap_or_else(is_gone),
            3 | 4 => fs::remove_file(&one).unwrap_or_else(is_gone),
            5 => fs::rename(&one, &two).unwrap_or_else(is_gone),
            6 => {
                let names = fs::read_dir(at).unwrap();
                names.filter_map(|name| name.unwrap().metadata().map_err(is_gone).ok()).for_each(drop);
            }
            _ => drop(File::open(&one).map(|mut file| file.read(&mut [0; 8]).unwrap()).map_err(is_gone)),
        }
        if let Some((file, text)) = &mut opened {
            let mut found = [0; 8];
            file.seek(SeekFrom::Start(0)).unwrap();
            file.read_exact(&mut found).unwrap();
            assert_eq!(found, *text);
            file.sync_data().unwrap();
        }
    }
}

/// Descriptors of a dead server stay dead, and disturb nothing, when its mount has been replaced.
#[test]
fn descriptors_of_a_server_that_died_give_errors_while_the_new_one_serves() {
    let Some(files) = bench() else { return };
    let at = files.bench.path("demo/files");
    let up = files.bench.up_with_files("demo --size 64M --emulate-pm --pm-size 16M");
    fs::create_dir(at.join("folder")).unwrap();
    let file = create(&at.join("a"));
    file.write_all_at(b"durable", 0).unwrap();
    file.sync_all().unwrap();
    let folder = File::open(at.join("folder")).unwrap();
    let unlinked = create(&at.join("unlinked"));
    fs::remove_file(at.join("unlinked")).unwrap();
    up.kill();
    let up = files.bench.up_with_files("demo");
    let is_dead = |what: &str, error: Errno| {
        assert!([Errno::NOTCONN, Errno::CONNABORTED, Errno::CANCELED].contains(&error), "{what}: {error}");
    };
    is_dead("write", rustix::io::pwrite(&file, b"x", 0).unwrap_err());
    is_dead("fsync", rustix::fs::fsync(&file).unwrap_err());
    is_dead("statfs", rustix::fs::fstatfs(&file).unwrap_err());
    is_dead("truncate", rustix::fs::ftruncate(&unlinked, 5).unwrap_err());
    is_dead("create", rustix::fs::mkdirat(&folder, "new", Mode::RWXU).unwrap_err());
    is_dead("look up", rustix::fs::statat(&folder, "new", rustix::fs::AtFlags::empty()).unwrap_err());
    // Nothing of that reached the new server, and closing does not.
    assert_eq!(fs::read(at.join("a")).unwrap(), b"durable");
    drop((file, unlinked, folder));
    assert_eq!(fs::read(at.join("a")).unwrap(), b"durable");
    assert!(!at.join("folder/new").exists() && at.join("folder").exists());
    rustix::fs::renameat(CWD, at.join("a"), CWD, at.join("folder/a")).unwrap();
    assert_eq!(up.interrupt(), Some(0));
}
