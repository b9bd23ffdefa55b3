//! What programs do with files.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FlockOperation, Mode, OFlags, RenameFlags, SeekFrom as Find, XattrFlags,
};
use rustix::io::Errno;

use crate::mapping::Mapping;
use crate::{LOGS, Mounted, mounted};

/// Files without a name are erased when the kernel has forgotten them, a moment later.
pub fn wait_until_erased(files: &Mounted) {
    for _ in 0..100 {
        if files.check() == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("files without a name stay");
}

#[test]
fn a_file_without_a_name_lives_as_long_as_it_is_open() {
    let Some(files) = mounted("") else { return };
    let path = files.path("a");
    fs::write(&path, "text").unwrap();
    let mut open = File::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!((files.check(), open.metadata().unwrap().nlink()), (1, 0));
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "text");
    drop(open);
    wait_until_erased(&files);
}

/// The kernel knows such files from the listing alone.
#[test]
fn a_file_that_the_kernel_knows_from_a_listing_stays_while_it_is_open() {
    let Some(files) = mounted("") else { return };
    for name in 0..20 {
        fs::write(files.path(&name.to_string()), "text").unwrap();
    }
    files.bench.unmount("tank/home");
    files.bench.ok("fs mount tank/home at");
    let listed = fs::read_dir(&files.at).unwrap();
    assert_eq!(listed.map(|entry| entry.unwrap().metadata().unwrap().len()).sum::<u64>(), 80);
    for name in 0..20 {
        let path = files.path(&name.to_string());
        let mut open = File::open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let mut text = String::new();
        open.read_to_string(&mut text).unwrap();
        assert_eq!(text, "text");
    }
    wait_until_erased(&files);
}

#[test]
fn a_file_without_a_name_is_linked_or_vanishes() {
    let Some(files) = mounted("") else { return };
    let unnamed = |flags: OFlags| {
        let flags = OFlags::TMPFILE | OFlags::RDWR | flags;
        File::from(rustix::fs::open(&files.at, flags, Mode::from_raw_mode(0o640)).unwrap())
    };
    let link = |file: &File| {
        let from = format!("/proc/self/fd/{}", file.as_raw_fd());
        rustix::fs::linkat(CWD, from, CWD, files.path("linked"), AtFlags::SYMLINK_FOLLOW)
    };
    let mut kept = unnamed(OFlags::empty());
    kept.write_all(b"text").unwrap();
    link(&kept).unwrap();
    let made = fs::metadata(files.path("linked")).unwrap();
    assert_eq!((made.len(), made.mode() & 0o777, made.nlink()), (4, 0o640, 1));
    fs::remove_file(files.path("linked")).unwrap();
    assert_eq!(link(&unnamed(OFlags::EXCL)), Err(Errno::NOENT));
    drop(unnamed(OFlags::empty()));
    drop(kept);
    wait_until_erased(&files);
    // Open at a crash: nothing uses it afterwards.
    let _open = unnamed(OFlags::empty());
    files.bench.ok("pool sync tank");
    assert_eq!(files.check(), 1);
    files.kill();
    files.bench.ok("pool import tank");
    assert_eq!(files.check(), 0);
}

#[test]
fn a_mapping_and_reads_and_writes_see_the_same_bytes() {
    LOGS.into_iter().for_each(mapped);
}

fn mapped(log: &str) {
    let Some(files) = mounted(log) else { return };
    let open = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(files.path("a"));
    let file = open.unwrap();
    file.set_len(16384).unwrap();
    let mapping = Mapping::of(&file, 16384);
    mapping.write(5000, b"mapped");
    let mut bytes = [0; 6];
    file.read_exact_at(&mut bytes, 5000).unwrap();
    assert_eq!(&bytes, b"mapped");
    file.write_all_at(b"written", 12000).unwrap();
    assert_eq!(mapping.read(12000, 7), b"written");
    mapping.sync().unwrap();
    files.kill();
    files.bench.ok("pool import tank");
    let after = fs::read(files.path("a")).unwrap();
    assert_eq!(
        (after.len(), &after[5000..5006], &after[12000..12007]),
        (16384, &b"mapped"[..], &b"written"[..])
    );
}

#[test]
fn locks_are_between_programs() {
    let Some(files) = mounted("") else { return };
    let one = File::create(files.path("a")).unwrap();
    rustix::fs::flock(&one, FlockOperation::LockExclusive).unwrap();
    let path = files.path("a");
    let path = path.to_str().unwrap();
    let locked = |how: &str| Command::new("flock").args([how, "-n", path, "true"]).status();
    let Ok(refused) = locked("-s") else { return println!("SKIPPED: there is no flock") };
    assert_eq!(refused.code(), Some(1));
    rustix::fs::flock(&one, FlockOperation::Unlock).unwrap();
    assert!(locked("-x").unwrap().success());
}

#[test]
fn ranges_are_allocated_punched_zeroed_sought_and_copied() {
    let Some(files) = mounted("") else { return };
    let open =
        || OpenOptions::new().read(true).write(true).create(true).truncate(false).open(files.path("a"));
    let mut file = open().unwrap();
    file.write_all(&[7; 1 << 20]).unwrap();
    let allocate = |flags, offset, len| rustix::fs::fallocate(&file, flags, offset, len);
    allocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 256 << 10, 512 << 10).unwrap();
    allocate(FallocateFlags::KEEP_SIZE, 1 << 20, 1 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 1 << 20);
    allocate(FallocateFlags::ZERO_RANGE, 1 << 20, 4096).unwrap();
    assert_eq!(file.metadata().unwrap().len(), (1 << 20) + 4096);
    for refused in [FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE] {
        assert_eq!(allocate(refused, 0, 4096), Err(Errno::OPNOTSUPP));
    }
    assert_eq!(rustix::fs::seek(&file, Find::Hole(0)), Ok(256 << 10));
    assert_eq!(rustix::fs::seek(&file, Find::Data(256 << 10)), Ok(768 << 10));
    let copy = File::create(files.path("b")).unwrap();
    let (mut from, mut to) = (0, 0);
    while rustix::fs::copy_file_range(&file, Some(&mut from), &copy, Some(&mut to), 1 << 21).unwrap() > 0 {}
    assert!(fs::read(files.path("a")).unwrap() == fs::read(files.path("b")).unwrap());
    file.seek(SeekFrom::Start(1 << 40)).unwrap();
    file.write_all(b"far").unwrap();
    assert!(file.metadata().unwrap().blocks() * 512 < 4 << 20);
}

#[test]
fn names_are_exchanged_kept_and_left_as_whiteouts() {
    let Some(files) = mounted("") else { return };
    fs::write(files.path("a"), "a").unwrap();
    fs::write(files.path("b"), "b").unwrap();
    let rename = |flags| rustix::fs::renameat_with(CWD, files.path("a"), CWD, files.path("b"), flags);
    assert_eq!(rename(RenameFlags::NOREPLACE), Err(Errno::EXIST));
    rename(RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read_to_string(files.path("a")).unwrap(), "b");
    rename(RenameFlags::WHITEOUT).unwrap();
    let whiteout = fs::metadata(files.path("a")).unwrap();
    assert_eq!((whiteout.mode(), whiteout.rdev()), (0o020_000, 0));
    fs::create_dir_all(files.path("x/y")).unwrap();
    assert_eq!(fs::rename(files.path("x"), files.path("x/y/z")).unwrap_err().raw_os_error(), Some(22));
    wait_until_erased(&files);
}

#[test]
fn attributes_of_programs() {
    let Some(files) = mounted("") else { return };
    let path = files.path("a");
    fs::write(&path, "").unwrap();
    let set = |name: &str, value: &[u8], flags| rustix::fs::setxattr(&path, name, value, flags);
    set("user.a", b"value", XattrFlags::CREATE).unwrap();
    assert_eq!(set("user.a", b"other", XattrFlags::CREATE), Err(Errno::EXIST));
    assert_eq!(set("user.b", b"other", XattrFlags::REPLACE), Err(Errno::NODATA));
    set("trusted.empty", b"", XattrFlags::empty()).unwrap();
    let mut value = [0; 16];
    assert_eq!(rustix::fs::getxattr(&path, "user.a", &mut value), Ok(5));
    assert_eq!(rustix::fs::getxattr(&path, "trusted.empty", &mut value), Ok(0));
    assert_eq!(rustix::fs::getxattr(&path, "user.a", &mut value[..4]), Err(Errno::RANGE));
    rustix::fs::removexattr(&path, "user.a").unwrap();
    assert_eq!(rustix::fs::getxattr(&path, "user.a", &mut value), Err(Errno::NODATA));
}

#[test]
fn a_write_of_another_user_clears_the_bits_that_lend_an_identity() {
    let Some(files) = mounted("") else { return };
    fs::set_permissions(files.bench.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let path = files.path("a");
    fs::write(&path, "text").unwrap();
    let line = format!("printf more >> {}", path.display());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
    assert!(Command::new("sh").args(["-c", &line]).uid(1000).gid(1000).status().unwrap().success());
    assert_eq!(fs::metadata(&path).unwrap().mode(), 0o100_777);
    assert_eq!(fs::read_to_string(&path).unwrap(), "textmore");
    // And one who may not write does not.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    assert!(!Command::new("sh").args(["-c", &line]).uid(1000).gid(1000).status().unwrap().success());
}

#[test]
fn a_directory_is_listed_while_it_changes() {
    let Some(files) = mounted("") else { return };
    let name = |n: u32| files.path(&format!("file-{n}"));
    for n in 0..3000 {
        File::create(name(n)).unwrap();
    }
    // Names that stay are listed exactly once, whatever goes and comes meanwhile.
    let mut listed = Vec::new();
    for (n, entry) in fs::read_dir(&files.at).unwrap().enumerate() {
        listed.push(entry.unwrap().file_name().into_string().unwrap());
        if n < 500 {
            fs::remove_file(name(2500 + n as u32)).unwrap();
            File::create(name(10_000 + n as u32)).unwrap();
        }
    }
    for n in 0..2500 {
        let wanted = format!("file-{n}");
        assert_eq!(listed.iter().filter(|name| **name == wanted).count(), 1, "{wanted}");
    }
    assert_eq!(fs::read_dir(&files.at).unwrap().count(), 3000);
    assert_eq!(files.check(), 0);
}

#[test]
fn a_file_opened_for_synchronous_writes_needs_no_fsync() {
    LOGS.into_iter().for_each(synchronous);
}

fn synchronous(log: &str) {
    const O_DSYNC: i32 = 0o10_000;
    let Some(files) = mounted(log) else { return };
    let open = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(O_DSYNC)
        .open(files.path("a"));
    let mut file = open.unwrap();
    for byte in 0..50 {
        file.write_all(&[byte; 100]).unwrap();
    }
    files.kill();
    files.bench.ok("pool import tank");
    let bytes = fs::read(files.path("a")).unwrap();
    assert!(bytes.len() == 5000 && bytes.chunks(100).enumerate().all(|(n, part)| part == [n as u8; 100]));
}

/// The kernel looks whether a file is being executed before anything is cut off.
#[test]
fn a_program_that_runs_is_not_truncated() {
    let Some(files) = mounted("") else { return };
    let program = files.path("sleep");
    fs::copy("/bin/sleep", &program).unwrap();
    let mut running = Command::new(&program).arg("30").spawn().unwrap();
    for flags in [OFlags::WRONLY, OFlags::RDONLY] {
        let opened = rustix::fs::open(&program, flags | OFlags::TRUNC, Mode::empty());
        assert_eq!(opened.unwrap_err(), Errno::TXTBSY);
    }
    assert_eq!(fs::metadata(&program).unwrap().len(), fs::metadata("/bin/sleep").unwrap().len());
    running.kill().unwrap();
    running.wait().unwrap();
    File::create(&program).unwrap();
    assert_eq!(fs::metadata(&program).unwrap().len(), 0);
}
