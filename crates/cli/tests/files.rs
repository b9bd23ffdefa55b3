//! Files through the kernel: mounts, kills, what is told when something is in the way.
//!
//! Needs /dev/fuse, and root; without them each test says so and does nothing.
#![allow(clippy::print_stderr, reason = "a test that is skipped says why")]

mod support;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use support::Bench;

const UP: &str = "demo --size 256M --emulate-pm";

/// Whether this machine and user can mount.
fn can_mount() -> bool {
    let can =
        rustix::process::geteuid().is_root() && fs::File::options().write(true).open("/dev/fuse").is_ok();
    if !can {
        eprintln!("SKIPPED: only root can mount, and /dev/fuse must be there");
    }
    can
}

/// Unmounts what a failed test left.
struct Unmounted(PathBuf);

impl Drop for Unmounted {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

fn files(bench: &Bench) -> (PathBuf, Unmounted) {
    let path = bench.path("demo/files");
    (path.clone(), Unmounted(path))
}

#[test]
fn what_was_synced_survives_the_servers_death() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    let (path, _guard) = files(&bench);
    let acknowledged = Mutex::new(Vec::<(String, Vec<u8>)>::new());
    for round in 0..6_u64 {
        let up = bench.up_with_files(UP);
        assert!(up.said.contains("(demo/files, mounted)"), "{}", up.said);
        for (name, bytes) in &*acknowledged.lock().unwrap() {
            assert_eq!(&fs::read(path.join(name)).unwrap_or_else(|error| panic!("{name}: {error}")), bytes);
        }
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for writer in 0..2 {
                let (path, acknowledged, is_over) = (&path, &acknowledged, &is_over);
                scope.spawn(move || write_until(path, &format!("{round}-{writer}"), acknowledged, is_over));
            }
            std::thread::sleep(Duration::from_millis(200 + 70 * round));
            up.kill();
            is_over.store(true, Ordering::SeqCst);
        });
    }
    let up = bench.up_with_files(UP);
    let acknowledged = acknowledged.into_inner().unwrap();
    assert!(acknowledged.len() > 20, "{} files", acknowledged.len());
    for (name, bytes) in &acknowledged {
        assert_eq!(&fs::read(path.join(name)).unwrap(), bytes, "{name}");
    }
    assert!(bench.ok("fs check demo/files").contains("nothing is wrong"));
    assert_eq!(up.interrupt(), Some(0));
    assert!(fs::read_dir(&path).unwrap().next().is_none(), "it is unmounted");
}

/// Writes files and renames them, as programs do that want no half file; notes what was synced.
fn write_until(
    path: &Path,
    prefix: &str,
    acknowledged: &Mutex<Vec<(String, Vec<u8>)>>,
    is_over: &AtomicBool,
) {
    for number in 0.. {
        let (name, temporary) = (format!("{prefix}-{number}"), format!("{prefix}.tmp"));
        let bytes = format!("{name} ").repeat(1 + number * 37 % 2000).into_bytes();
        let write = || -> std::io::Result<()> {
            let mut file = fs::File::create(path.join(&temporary))?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            fs::rename(path.join(&temporary), path.join(&name))?;
            fs::File::open(path)?.sync_all()
        };
        match write() {
            Ok(()) => acknowledged.lock().unwrap().push((name, bytes)),
            Err(_) => return,
        }
        if is_over.load(Ordering::SeqCst) {
            return;
        }
    }
}

#[test]
fn files_do_what_programs_expect() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    let (path, _guard) = files(&bench);
    let up = bench.up_with_files(UP);
    let at = |name: &str| path.join(name);
    fs::create_dir(at("d")).unwrap();
    fs::write(at("d/a"), "bytes").unwrap();
    symlink("d/a", at("link")).unwrap();
    assert_eq!(fs::read_to_string(at("link")).unwrap(), "bytes");
    fs::hard_link(at("d/a"), at("second")).unwrap();
    assert_eq!(fs::metadata(at("second")).unwrap().nlink(), 2);

    // A file without a name is there for as long as it is open.
    let mut open = fs::File::options().read(true).write(true).open(at("second")).unwrap();
    fs::remove_file(at("second")).unwrap();
    fs::remove_file(at("d/a")).unwrap();
    open.write_all(b"other").unwrap();
    let mut bytes = [0; 5];
    open.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"other");
    assert_eq!(open.metadata().unwrap().nlink(), 0);
    drop(open);
    let begun = Instant::now();
    while !bench.ok("fs check demo/files").contains(" 0 without a name") {
        assert!(begun.elapsed() < Duration::from_secs(20), "the file is not erased");
        std::thread::sleep(Duration::from_millis(20));
    }

    // O_TMPFILE, then a name.
    const O_TMPFILE: i32 = 0o20_200_000;
    let mut unnamed = fs::File::options().read(true).write(true).custom_flags(O_TMPFILE).open(&path).unwrap();
    unnamed.write_all(b"unnamed").unwrap();
    let of = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&unnamed));
    let cwd = rustix::fs::CWD;
    rustix::fs::linkat(cwd, &of, cwd, at("named"), rustix::fs::AtFlags::SYMLINK_FOLLOW).unwrap();
    assert_eq!(fs::read_to_string(at("named")).unwrap(), "unnamed");

    // Many names, listed in two parts.
    fs::create_dir(at("many")).unwrap();
    for number in 0..3000 {
        fs::write(at(&format!("many/{number}")), "").unwrap();
    }
    assert_eq!(fs::read_dir(at("many")).unwrap().count(), 3000);

    // Holes.
    let sparse = fs::File::create(at("sparse")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    sparse.write_all_at(b"end", (1 << 40) - 3).unwrap();
    sparse.sync_all().unwrap();
    let metadata = fs::metadata(at("sparse")).unwrap();
    assert!(metadata.len() == 1 << 40 && metadata.blocks() < 2000, "{metadata:?}");
    assert!(metadata.created().is_ok(), "the time of creation is known");
    assert_eq!(up.interrupt(), Some(0));

    // It is all there after an export, and can be read-only.
    let up = bench.up_with_files(&format!("{UP} --no-mount"));
    fs::create_dir(bench.path("elsewhere")).unwrap();
    let elsewhere = bench.path("elsewhere");
    let _elsewhere = Unmounted(elsewhere.clone());
    bench.ok("fs mount demo/files elsewhere -o ro --once");
    let mut text = String::new();
    fs::File::open(elsewhere.join("named")).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "unnamed");
    let refused = fs::write(elsewhere.join("new"), "").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    bench.ok("fs unmount elsewhere");
    assert_eq!(up.interrupt(), Some(0));
}

#[test]
fn mounts_that_cannot_be_say_why() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    let (path, _guard) = files(&bench);
    let up = bench.up_with_files(UP);
    bench.ok("fs create demo/more");
    fs::create_dir(bench.path("here")).unwrap();
    fs::write(bench.path("file"), "").unwrap();
    let again = bench.fails("fs mount demo/files here", 4);
    assert!(again.contains("is mounted at") && again.contains("demo/files"), "{again}");
    assert!(bench.fails("fs mount demo/more file", 3).contains("no directory"));
    assert!(bench.fails("fs mount demo/more missing", 3).contains("cannot be a mount point"));
    assert!(bench.fails("fs mount demo/volume here", 3).contains("no file system"));
    assert!(bench.fails("fs mount demo/more here -o bogus", 3).contains("bogus"));
    assert!(bench.fails("fs create demo/more", 3).contains("demo/more"));
    let occupied = bench.fails(&format!("fs mount demo/more {}", path.display()), 4);
    assert!(occupied.contains("something is mounted"), "{occupied}");
    assert!(bench.fails("dataset destroy demo/files", 4).contains("fs unmount demo/files"));

    // In use.
    let open = fs::File::create(path.join("open")).unwrap();
    assert!(bench.fails("fs unmount demo/files", 4).contains("in use"));
    assert!(bench.ok("fs list").contains("demo/files"));
    bench.ok("fs unmount demo/files --force");
    assert!(open.sync_all().is_err(), "programs in it get errors");
    drop(open);
    assert!(bench.fails("fs unmount demo/files", 3).contains("is not mounted"));

    // Unmounted by somebody else, and mounted again.
    bench.ok("fs mount demo/more here");
    rustix::mount::unmount(bench.path("here"), rustix::mount::UnmountFlags::empty()).unwrap();
    let begun = Instant::now();
    while bench.ok("fs list").contains("/here") {
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
    bench.ok("fs mount demo/more here");
    assert_eq!(up.interrupt(), Some(0));

    // An import mounts what was mounted, also where a server that died has left a mount.
    let here = Unmounted(bench.path("here"));
    let up = bench.up(UP);
    assert!(bench.ok("fs list").contains("/here"));
    fs::File::create(here.0.join("a")).unwrap().sync_all().unwrap();
    up.kill();
    assert!(fs::read_dir(&here.0).is_err(), "the server is dead");
    let up = bench.up(UP);
    assert_eq!(fs::read_dir(&here.0).unwrap().count(), 1);
    bench.ok("pool export demo");
    drop(up);
    assert_eq!(fs::read_dir(&here.0).unwrap().count(), 0);
}
