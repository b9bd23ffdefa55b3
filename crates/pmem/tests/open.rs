//! Opening regions: every kind, every refusal, what is reported.

mod common;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

use common::{child_path, disk_dir, pattern, run_child, skipped};
use fastness_pmem::{
    BadBlocks, DomainSource, Durability, ErrorKind, Kernel, Medium, MsyncMode, NoSum, OpenOptions,
    PersistenceDomain, Region, RegionError, RegionKind, WriteMethod,
};

const LEN: u64 = 64 * 1024;

fn options() -> OpenOptions {
    OpenOptions::new()
}

fn file_of(dir: &Path, len: u64) -> PathBuf {
    let path = dir.join(format!("file-{len}"));
    File::create(&path).unwrap().set_len(len).unwrap();
    path
}

#[test]
fn missing_and_existing_paths() {
    let dir = disk_dir();
    let path = dir.path().join("region");
    let error = Region::open(&path, &options()).unwrap_err();
    assert!(matches!(&error, RegionError::NotFound { path: found } if *found == path), "{error}");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    drop(Region::create_file(&path, LEN, &options()).unwrap());
    let error = Region::create_file(&path, LEN, &options()).unwrap_err();
    assert!(matches!(error, RegionError::AlreadyExists { .. }), "{error}");
    assert_eq!(path.metadata().unwrap().len(), LEN, "untouched");
    for taken in [dir.path(), Path::new("/dev/null")] {
        assert!(Region::create_file(taken, LEN, &options()).is_err(), "{}", taken.display());
    }
    // What a process leaves that is killed between the first two system calls.
    let left = dir.path().join("left");
    fs::File::create(&left).unwrap();
    let first = Region::create_file(&left, LEN, &options()).unwrap();
    assert_eq!(left.metadata().unwrap().len(), LEN);
    let error = Region::create_file(&left, LEN, &options()).unwrap_err();
    assert!(matches!(error, RegionError::AlreadyOpen { .. }) && left.exists(), "{error}");
    drop(first);
    assert!(matches!(
        Region::create_file(dir.path().join("no/region"), LEN, &options()).unwrap_err(),
        RegionError::NotFound { .. }
    ));
}

#[test]
fn lengths_that_do_not_fit() {
    let dir = disk_dir();
    for (len, min, too_small) in
        [(0, 0, true), (4095, 0, true), (4096, 8192, true), (4097, 0, false), (LEN + 64, 0, false)]
    {
        let error = Region::open(file_of(dir.path(), len), &options().min_len_bytes(min)).unwrap_err();
        let created =
            Region::create_file(dir.path().join("new"), len, &options().min_len_bytes(min)).unwrap_err();
        for error in [error, created] {
            assert_eq!(matches!(error, RegionError::TooSmall { .. }), too_small, "{len}: {error}");
            assert_eq!(matches!(error, RegionError::Misaligned { .. }), !too_small, "{len}: {error}");
            assert_eq!(error.kind(), ErrorKind::Invalid);
        }
    }
    assert!(!dir.path().join("new").exists());
    assert!(matches!(Region::anonymous(100).unwrap_err(), RegionError::TooSmall { .. }));
    assert!(matches!(Region::anonymous(5000).unwrap_err(), RegionError::Misaligned { .. }));
}

#[test]
fn unwritable_file() {
    // Not even root may open this for writing.
    let path = Path::new("/sys/devices/system/cpu/online");
    if !path.exists() {
        return skipped("a read-only file", &"no such attribute in sysfs");
    }
    let error = Region::open(path, &options()).unwrap_err();
    assert!(matches!(error, RegionError::ReadOnly { .. }), "{error}");
    assert_eq!(error.kind(), ErrorKind::Denied);
}

#[test]
fn one_owner_at_a_time() {
    if let Some(path) = child_path() {
        let error = Region::open(path, &options()).unwrap_err();
        assert!(matches!(error, RegionError::AlreadyOpen { .. }), "{error}");
        return;
    }
    let dir = disk_dir();
    let path = dir.path().join("region");
    let region = Region::create_file(&path, LEN, &options()).unwrap();
    let error = Region::open(&path, &options()).unwrap_err();
    assert!(matches!(error, RegionError::AlreadyOpen { .. }), "{error}");
    assert_eq!(error.kind(), ErrorKind::Retry);
    let alias = dir.path().join("alias");
    symlink(&path, &alias).unwrap();
    assert!(matches!(Region::open(&alias, &options()).unwrap_err(), RegionError::AlreadyOpen { .. }));
    assert!(run_child("one_owner_at_a_time", &path).success());
    // The last range keeps the lock.
    let (low, high) = region.into_range().split_at(4096).unwrap();
    drop(low);
    assert!(Region::open(&path, &options()).is_err());
    drop(high);
    Region::open(&path, &options()).unwrap();
}

#[test]
fn types_that_are_no_region() {
    let dir = disk_dir();
    let fifo = dir.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let socket = dir.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).ok();
    let mut cases = vec![
        (dir.path().to_path_buf(), "directory"),
        (fifo, "named pipe"),
        (PathBuf::from("/dev/null"), "not devdax"),
    ];
    if socket.exists() {
        cases.push((socket, "socket"));
    }
    for (path, text) in cases {
        let error = Region::open(&path, &options()).unwrap_err();
        assert!(matches!(error, RegionError::UnsupportedType { .. }), "{error}");
        assert!(error.to_string().contains(text), "{error}");
    }
}

/// Any block device of this machine.
fn block_device() -> Option<PathBuf> {
    let is_block = |path: &PathBuf| path.metadata().is_ok_and(|found| found.file_type().is_block_device());
    fs::read_dir("/dev").ok()?.flatten().map(|entry| entry.path()).find(is_block)
}

#[test]
fn block_devices_are_refused_with_the_way_out() {
    let Some(path) = block_device() else {
        return skipped("block devices", &"there is none in /dev");
    };
    let error = Region::open(&path, &options().sysfs_root("/nonexistent")).unwrap_err();
    assert!(matches!(error, RegionError::BlockDevice { is_pm: false, namespace: None, .. }), "{error}");

    let tree = tempfile::tempdir().unwrap();
    let region = tree.path().join("devices/ndbus0/region3");
    let device = region.join("namespace3.1/block/pmem3.1");
    fs::create_dir_all(&device).unwrap();
    fs::write(region.join("mappings"), "0\n").unwrap();
    let rdev = path.metadata().unwrap().rdev();
    link_device(tree.path(), "block", rdev, &device);
    let error = Region::open(&path, &options().sysfs_root(tree.path())).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("ndctl create-namespace --mode=devdax -f -e namespace3.1"), "{text}");
    assert!(text.contains("cannot be mapped for DAX from user space"), "{text}");
    assert!(text.contains("erases"), "{text}");
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

fn link_device(tree: &Path, class: &str, rdev: u64, device: &Path) {
    let links = tree.join("dev").join(class);
    fs::create_dir_all(&links).unwrap();
    let (major, minor) = (rustix::fs::major(rdev), rustix::fs::minor(rdev));
    symlink(device, links.join(format!("{major}:{minor}"))).unwrap();
}

/// A fake sysfs says that /dev/zero, which maps as shared memory, is a devdax device.
fn devdax_tree(domain: &str, size: &str) -> tempfile::TempDir {
    let tree = tempfile::tempdir().unwrap();
    let region = tree.path().join("devices/ndbus0/region0");
    let device = region.join("dax0.0/dax0.0");
    let dimm = tree.path().join("devices/ndbus0/nmem0/nfit");
    for dir in [&device, &dimm, &tree.path().join("bus/dax")] {
        fs::create_dir_all(dir).unwrap();
    }
    for (path, text) in [
        (region.join("persistence_domain"), domain),
        (region.join("mappings"), "1\n"),
        (region.join("mapping0"), "nmem0,0,4194304,0\n"),
        (region.join("badblocks"), ""),
        (dimm.join("dirty_shutdown"), "5\n"),
        (device.join("size"), size),
        (device.join("align"), "2097152\n"),
    ] {
        fs::write(path, text).unwrap();
    }
    symlink(tree.path().join("bus/dax"), device.join("subsystem")).unwrap();
    link_device(tree.path(), "char", Path::new("/dev/zero").metadata().unwrap().rdev(), &device);
    tree
}

/// One test for all, because the device can be open once.
#[test]
#[cfg(target_arch = "x86_64")]
fn devdax_as_sysfs_describes_it() {
    let open = |domain: &str, size: &str, options: OpenOptions| {
        let tree = devdax_tree(domain, size);
        let options = options.sysfs_root(tree.path());
        // Another run of the tests on this machine may hold the device for a moment.
        loop {
            match Region::open("/dev/zero", &options) {
                Err(RegionError::AlreadyOpen { .. }) => {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
                result => return result,
            }
        }
    };
    let region = match open("memory_controller\n", "4194304\n", options()) {
        Err(error @ RegionError::ReadOnly { .. }) => return skipped("devdax", &error),
        region => region.unwrap(),
    };
    let info = region.info().clone();
    assert_eq!((info.kind, info.len_bytes, info.align_bytes), (RegionKind::DevDax, 4 << 20, 2 << 20));
    assert_eq!(info.persistence_domain, PersistenceDomain::MemoryController);
    assert_eq!(info.domain_source, DomainSource::Sysfs);
    assert_eq!(info.durability, Durability::PowerFail);
    assert_eq!(info.unsafe_shutdowns, Some(5));
    assert_eq!(info.bad_blocks, BadBlocks::InRegion(vec![]));
    assert!(!info.msync);
    let text = info.to_string();
    assert!(
        text.contains("memory controller (ADR)") && text.contains("everything fenced is there"),
        "{text}"
    );
    let mut range = region.into_range();
    range.copy(0, &pattern(1000, 0), 1024, &mut NoSum);
    range.fence().unwrap();
    drop(range);

    let info = open("cpu_cache\n", "4194304\n", options()).unwrap().info().clone();
    assert!(matches!(info.kernel, Kernel::Plain | Kernel::PlainAvx2), "{info}");
    assert_eq!(info.durability, Durability::PowerFail);

    let info = open("\n", "4194304\n", options()).unwrap().info().clone();
    assert_eq!(
        (info.persistence_domain, info.durability),
        (PersistenceDomain::Unknown, Durability::ProcessCrash)
    );
    assert!(info.to_string().contains("the persistence domain is not known"), "{info}");

    let vouched = options().persistence_domain(PersistenceDomain::CpuCache);
    let info = open("\n", "4194304\n", vouched).unwrap().info().clone();
    assert_eq!((info.domain_source, info.durability), (DomainSource::Override, Durability::PowerFail));
    assert!(info.to_string().contains("according to the caller"), "{info}");

    for domain in ["memory_controller\n", "\n"] {
        let error = open(domain, "4194304\n", options().write_method(WriteMethod::PlainStore)).unwrap_err();
        assert!(matches!(error, RegionError::MethodUnavailable { .. }), "{error}");
    }
    let error = open("\n", "3145728\n", options()).unwrap_err();
    assert!(matches!(error, RegionError::Misaligned { align_bytes: 0x20_0000, .. }), "{error}");
    let error = open("\n", "\n", options()).unwrap_err();
    assert!(matches!(error, RegionError::Io { .. }), "{error}");
}

#[test]
fn no_space_leaves_no_file() {
    let dir = disk_dir();
    let path = dir.path().join("region");
    let probe = Region::create_file(dir.path().join("probe"), LEN, &options()).unwrap();
    if probe.info().kind == RegionKind::Tmpfs {
        return skipped("no space", &"the build directory is in memory, which must not be filled");
    }
    let error = Region::create_file(&path, 1 << 62, &options()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    assert!(matches!(error, RegionError::NoSpace { len_bytes, .. } if len_bytes == 1 << 62), "{error}");
    assert!(!path.exists());
}

#[test]
fn files_are_allocated_whole() {
    const SECTOR_BYTES: u64 = 512;
    let dir = disk_dir();
    let created = dir.path().join("created");
    drop(Region::create_file(&created, LEN, &options()).unwrap());
    let sparse = file_of(dir.path(), LEN);
    File::options().write(true).open(&sparse).unwrap().write_all(b"kept").unwrap();
    drop(Region::open(&sparse, &options()).unwrap());
    for path in [created, sparse.clone()] {
        let metadata = path.metadata().unwrap();
        assert_eq!(metadata.len(), LEN);
        assert!(metadata.blocks() * SECTOR_BYTES >= LEN, "{} has holes", path.display());
    }
    let bytes = fs::read(sparse).unwrap();
    assert_eq!(&bytes[..4], b"kept");
    assert!(bytes[4..].iter().all(|&byte| byte == 0));
}

#[test]
fn created_files_are_private_unless_told_otherwise() {
    let dir = disk_dir();
    let path = dir.path().join("region");
    drop(Region::create_file(&path, LEN, &options()).unwrap());
    assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
    fs::remove_file(&path).unwrap();
    drop(Region::create_file(&path, LEN, &options().mode(0o400)).unwrap());
    assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o400);
}

#[test]
fn ordinary_file() {
    let dir = disk_dir();
    let region = Region::create_file(dir.path().join("region"), LEN, &options()).unwrap();
    let info = region.info();
    match info.kind {
        RegionKind::File => {
            assert!(info.msync);
            assert_eq!(info.durability, Durability::PowerFail);
            assert!(info.to_string().contains("then msync"), "{info}");
        }
        other => skipped("ordinary file", &format!("the build directory's files are: {other}")),
    }
}

#[test]
fn emulated_pm_never_survives_a_power_cut() {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
        return skipped("tmpfs", &"cannot write to /dev/shm");
    };
    for domain in [PersistenceDomain::MemoryController, PersistenceDomain::CpuCache] {
        for msync in [MsyncMode::Auto, MsyncMode::Always, MsyncMode::Never] {
            let options = options().persistence_domain(domain).msync(msync);
            let path = dir.path().join("region");
            let tmpfs = Region::create_file(&path, LEN, &options).unwrap();
            let memory = Region::anonymous_with(LEN, &options).unwrap();
            assert_eq!(tmpfs.info().kind, RegionKind::Tmpfs);
            assert_eq!(tmpfs.info().msync, msync == MsyncMode::Always);
            assert_eq!(memory.info().kind, RegionKind::Anonymous);
            assert!(!memory.info().msync);
            for info in [tmpfs.info(), memory.info()] {
                assert_eq!(info.durability, Durability::ProcessCrash);
                assert!(info.to_string().contains("after a power cut: nothing is left"), "{info}");
            }
            let mut range = tmpfs.into_range();
            range.copy(0, &[1; 64], 64, &mut NoSum);
            range.fence().unwrap();
            fs::remove_file(path).unwrap();
        }
    }
}

#[test]
fn every_write_method_that_the_cpu_has_writes() {
    for method in [
        WriteMethod::Auto,
        WriteMethod::NonTemporal,
        WriteMethod::StoreFlush,
        WriteMethod::PlainStore,
        WriteMethod::Movdir64b,
    ] {
        let region = match Region::anonymous_with(LEN, &options().write_method(method)) {
            Err(error @ RegionError::MethodUnavailable { .. }) => {
                skipped(&format!("{method:?}"), &error);
                continue;
            }
            region => region.unwrap(),
        };
        let mut range = region.into_range();
        range.copy(0, &pattern(777, 0), 832, &mut NoSum);
        range.fence().unwrap();
        let mut back = vec![0; 777];
        range.read(0, &mut back).unwrap();
        assert_eq!(back, pattern(777, 0));
    }
}

#[test]
fn a_region_that_is_joined_has_the_same_bytes_and_keeps_the_lock() {
    let dir = disk_dir();
    let path = dir.path().join("region");
    let first = Region::create_file(&path, LEN, &options().msync(MsyncMode::Never)).unwrap();
    let second = Region::join(first.descriptor().unwrap(), &options().msync(MsyncMode::Never)).unwrap();
    assert_eq!(first.info(), second.info());
    let (mut first, mut second) = (first.into_range(), second.into_range());
    first.copy(128, &pattern(64, 1), 64, &mut NoSum);
    first.fence().unwrap();
    let mut read = [0; 64];
    second.read(128, &mut read).unwrap();
    assert_eq!(read[..], pattern(64, 1)[..]);
    second.copy(128, &pattern(64, 2), 64, &mut NoSum);
    drop(first);
    let refused = Region::open(&path, &options()).unwrap_err();
    assert!(matches!(refused, RegionError::AlreadyOpen { .. }), "{refused}");
    drop(second);
    let again = Region::open(&path, &options()).unwrap().into_range();
    again.read(128, &mut read).unwrap();
    assert_eq!(read[..], pattern(64, 2)[..]);
}

#[test]
fn what_is_no_region_is_not_joined() {
    let dir = disk_dir();
    let join = |file: File| Region::join(file.into(), &options()).unwrap_err();
    assert!(matches!(join(File::open("/dev/null").unwrap()), RegionError::UnsupportedType { .. }));
    assert!(matches!(join(File::open(dir.path()).unwrap()), RegionError::UnsupportedType { .. }));
    assert!(matches!(join(File::open(file_of(dir.path(), 0)).unwrap()), RegionError::TooSmall { .. }));
    assert!(Region::anonymous(LEN).unwrap().descriptor().is_err());
}
