//! Real block devices: loop devices over files. Needs root, so it runs only when asked for:
//! `FASTNESS_TEST_LOOP=1 cargo test -p fastness-blkdev --test loop_device`.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use fastness_blkdev::{
    AlignedBuf, BlockDevice, Cause, DeviceKind, Direct, EngineChoice, ErrorKind, OpenError, OpenOptions,
    Request, WriteCache,
};

const LEN: u64 = 8 << 20;

fn is_asked_for() -> bool {
    let is_asked = std::env::var_os("FASTNESS_TEST_LOOP").is_some();
    if !is_asked {
        use std::io::Write;
        let mut stderr = std::io::stderr();
        writeln!(stderr, "SKIPPED loop devices: FASTNESS_TEST_LOOP is not set").unwrap();
    }
    is_asked
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A loop device that goes away at the end.
struct Loop(PathBuf);

impl Loop {
    fn new(backing: &Path, sector_bytes: &str) -> Loop {
        let backing = backing.to_str().unwrap();
        Loop(run("losetup", &["--find", "--show", "--sector-size", sector_bytes, backing]).into())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        run("losetup", &["--detach", self.0.to_str().unwrap()]);
    }
}

/// A small tmpfs that goes away at the end.
struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    fn new(size: &str) -> Tmpfs {
        let folder = support::folder();
        run(
            "mount",
            &["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs", folder.path().to_str().unwrap()],
        );
        Tmpfs(folder)
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        run("umount", &["--lazy", self.0.path().to_str().unwrap()]);
    }
}

fn sparse(path: &Path) {
    fs::File::create(path).unwrap().set_len(LEN).unwrap();
}

#[test]
fn a_disk_is_what_it_says() {
    if !is_asked_for() {
        return;
    }
    let folder = support::folder();
    let backing = folder.path().join("backing");
    sparse(&backing);
    for sector_bytes in [512, 4096] {
        let disk = Loop::new(&backing, &sector_bytes.to_string());
        for direct in [Direct::Off, Direct::On] {
            let device = OpenOptions::new().direct(direct).open(&disk.0).unwrap();
            let info = device.info();
            assert_eq!(
                (info.kind, info.len_bytes, info.is_direct),
                (DeviceKind::Block, LEN, direct == Direct::On)
            );
            assert_eq!(info.logical_block_bytes, sector_bytes);
            assert_eq!(info.write_cache == WriteCache::PageCache, direct == Direct::Off);
            assert!(matches!(OpenOptions::new().open(&disk.0).unwrap_err(), OpenError::InUse { .. }));
            exercise(&device);
        }
        let too_small = OpenOptions::new().logical_block_bytes(sector_bytes / 2).open(&disk.0).unwrap_err();
        assert!(matches!(too_small, OpenError::Geometry { .. }), "{too_small}");
        let device = OpenOptions::new().read_only(true).open(&disk.0).unwrap();
        assert!(matches!(device.write_at(0, &[0; 4096]).unwrap_err().cause, Cause::ReadOnly));
    }
}

fn exercise(device: &dyn BlockDevice) {
    let data = AlignedBuf::copy_of(&[0x5a; 4096], 4096);
    let mut batch: Vec<_> =
        (0..64).map(|at| Request::Write { offset: at * 8192, data: &data, fua: at % 16 == 0 }).collect();
    device.run_batch(&mut batch).into_iter().for_each(|result| result.unwrap());
    device.flush().unwrap();
    device.write_zeroes(8192, 4096).unwrap();
    device.discard(16384, 4096).unwrap();
    device.write_fua(24576, &[1; 4096]).unwrap();
    let mut read = vec![0; 4 * 8192];
    device.read_at(0, &mut read).unwrap();
    assert_eq!((read[0], read[8192], read[24576]), (0x5a, 0, 1));
}

/// The disk's file has no room: the page cache takes the writes, and the flush finds out. The kernel says so
/// once.
#[test]
fn a_flush_that_really_fails_poisons_and_reopening_shows_the_loss() {
    if !is_asked_for() {
        return;
    }
    let tmpfs = Tmpfs::new("1M");
    let backing = tmpfs.0.path().join("backing");
    sparse(&backing);
    let disk = Loop::new(&backing, "512");
    let open = || OpenOptions::new().direct(Direct::Off).engine(EngineChoice::Psync).open(&disk.0).unwrap();
    let device = open();
    device.write_at(0, &vec![7; 4 << 20]).unwrap();
    let error = device.flush().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::MediaFailed | ErrorKind::NoSpace), "{error}");
    assert!(matches!(device.flush().unwrap_err().cause, Cause::Poisoned));
    assert!(matches!(device.write_fua(0, &[0; 512]).unwrap_err().cause, Cause::Poisoned));
    drop(device);
    let device = open();
    let mut read = vec![0; 4 << 20];
    device.read_at(0, &mut read).unwrap();
    let kept = read.iter().filter(|&&byte| byte == 7).count();
    assert!(kept < 2 << 20, "{kept} bytes cannot be on a medium of one MiB");
    device.flush().unwrap();
}

/// The same disk without room, past the page cache and through a ring: each request has its own error.
#[test]
fn a_fua_write_of_a_batch_that_really_fails_poisons() {
    if !is_asked_for() {
        return;
    }
    let tmpfs = Tmpfs::new("1M");
    let backing = tmpfs.0.path().join("backing");
    sparse(&backing);
    let disk = Loop::new(&backing, "512");
    let open = || OpenOptions::new().direct(Direct::On).engine(EngineChoice::Uring).open(&disk.0).unwrap();
    let data = AlignedBuf::copy_of(&vec![7; 64 << 10], 4096);
    for fua in [false, true] {
        let device = open();
        let mut batch: Vec<_> =
            (0..64).map(|at| Request::Write { offset: at << 16, data: &data, fua }).collect();
        let results = device.run_batch(&mut batch);
        let failed: Vec<_> = results
            .iter()
            .enumerate()
            .filter_map(|(at, result)| Some((at, result.as_ref().err()?)))
            .collect();
        assert!(failed.len() >= 48, "one MiB has room for 16");
        for (at, error) in failed {
            assert!((at << 16..(at + 1) << 16).contains(&(error.offset as usize)), "{error}");
            assert!(matches!(error.kind(), ErrorKind::MediaFailed | ErrorKind::NoSpace), "{error}");
        }
        assert_eq!(device.is_poisoned(), fua);
        assert_eq!(
            device.write_zeroes(0, 512).is_err_and(|error| matches!(error.cause, Cause::Poisoned)),
            fua
        );
    }
}
