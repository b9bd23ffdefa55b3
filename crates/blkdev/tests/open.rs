//! Opening, creating, alignment: what is accepted, and how the rest is refused.

mod support;

use std::fs;
use std::io::Write;

use fastness_blkdev::{
    AlignedBuf, BlockDevice, Cause, DeviceKind, Direct, Engine, EngineChoice, ErrorKind, OpenError,
    OpenOptions, Request, WriteCache,
};

const LEN: u64 = 256 << 10;

fn plain() -> OpenOptions {
    OpenOptions::new().direct(Direct::Off).engine(EngineChoice::Psync)
}

#[test]
fn a_created_file_is_zeroes_that_last() {
    let folder = support::folder();
    let path = folder.path().join("device");
    let device = plain().create(&path, LEN).unwrap();
    let info = device.info();
    assert_eq!((info.kind, info.engine, info.len_bytes), (DeviceKind::File, Engine::Psync, LEN));
    assert_eq!((info.logical_block_bytes, info.memory_align_bytes), (512, 1));
    assert_eq!(info.write_cache, WriteCache::PageCache);
    assert_eq!(&*info.name, path.to_str().unwrap());
    let mut contents = vec![1; LEN as usize];
    device.read_at(0, &mut contents).unwrap();
    assert!(contents.iter().all(|&byte| byte == 0));
    device.write_fua(4096, &[7; 4096]).unwrap();
    drop(device);
    assert_eq!(fs::metadata(&path).unwrap().len(), LEN);
    let device = plain().read_only(true).open(&path).unwrap();
    device.read_at(0, &mut contents).unwrap();
    assert_eq!(contents.iter().filter(|&&byte| byte == 7).count(), 4096);
    assert!(matches!(device.write_at(0, &[0; 512]).unwrap_err().cause, Cause::ReadOnly));
    device.flush().unwrap();
}

#[test]
fn what_cannot_be_opened() {
    let folder = support::folder();
    let path = folder.path().join("device");
    let missing = plain().open(&path).unwrap_err();
    assert!(matches!(missing, OpenError::NotFound { .. }) && missing.kind() == ErrorKind::Invalid);
    assert!(matches!(
        plain().open(folder.path()).unwrap_err(),
        OpenError::UnsupportedType { found: "directory", .. }
    ));
    let null = plain().open("/dev/null").unwrap_err();
    assert!(matches!(null, OpenError::UnsupportedType { found: "character device", .. }), "{null}");

    fs::File::create(&path).unwrap();
    assert!(matches!(plain().open(&path).unwrap_err(), OpenError::Geometry { .. }), "an empty file");
    assert!(matches!(plain().create(&path, LEN).unwrap_err(), OpenError::AlreadyExists { .. }));
    fs::File::create(&path).unwrap().write_all(&[1; 1000]).unwrap();
    assert!(matches!(plain().open(&path).unwrap_err(), OpenError::Geometry { .. }), "half a block");
    fs::File::create(&path).unwrap().write_all(&[1; 4096]).unwrap();
    for block_bytes in [0, 1, 256, 1000, 131_072] {
        let error = plain().logical_block_bytes(block_bytes).open(&path).unwrap_err();
        assert!(matches!(error, OpenError::Geometry { .. }), "{error}");
    }
    let other = folder.path().join("other");
    assert!(matches!(plain().create(&other, 0).unwrap_err(), OpenError::Geometry { .. }));
    assert!(matches!(plain().create(&other, 1000).unwrap_err(), OpenError::Geometry { .. }));
    assert!(matches!(plain().create(&other, 1 << 60).unwrap_err(), OpenError::NoSpace { .. }));
    assert!(!other.exists(), "no half-made file is left");
}

#[test]
fn a_file_has_one_writer_or_many_readers() {
    let folder = support::folder();
    let path = folder.path().join("device");
    let writer = plain().create(&path, LEN).unwrap();
    let error = plain().open(&path).unwrap_err();
    assert!(matches!(error, OpenError::InUse { .. }) && error.kind() == ErrorKind::Retry);
    assert!(matches!(plain().read_only(true).open(&path).unwrap_err(), OpenError::InUse { .. }));
    plain().exclusive(false).open(&path).unwrap();
    drop(writer);
    let reader = plain().read_only(true).open(&path).unwrap();
    plain().read_only(true).open(&path).unwrap();
    assert!(matches!(plain().open(&path).unwrap_err(), OpenError::InUse { .. }));
    drop(reader);
    plain().open(&path).unwrap();
}

#[test]
fn two_handles_see_one_device() {
    let folder = support::folder();
    let path = folder.path().join("device");
    let first = plain().exclusive(false).create(&path, LEN).unwrap();
    let second = plain().exclusive(false).open(&path).unwrap();
    first.write_at(0, &[5; 512]).unwrap();
    let mut read = [0; 512];
    second.read_at(0, &mut read).unwrap();
    assert_eq!(read, [5; 512]);
}

/// Every block size, offset, length and memory alignment: accepted exactly if offset and length are whole
/// blocks.
#[test]
fn alignment_matrix() {
    let folder = support::folder();
    for direct in [Direct::Off, Direct::On] {
        for engine in [EngineChoice::Psync, EngineChoice::Uring] {
            for block_bytes in [512, 1024, 4096, 65536] {
                let name = format!("{direct:?} {engine:?} {block_bytes}");
                let options =
                    OpenOptions::new().direct(direct).engine(engine).logical_block_bytes(block_bytes);
                let device = match options.create(folder.path().join(&name), LEN) {
                    Ok(device) => device,
                    Err(
                        error @ (OpenError::DirectUnavailable { .. } | OpenError::UringUnavailable { .. }),
                    ) => {
                        support::skip(&name, &error);
                        continue;
                    }
                    Err(error) => panic!("{name}: {error}"),
                };
                assert_eq!(device.logical_block_bytes(), block_bytes);
                try_alignments(&device, u64::from(block_bytes));
            }
        }
    }
}

fn try_alignments(device: &dyn BlockDevice, unit: u64) {
    let mut memory = AlignedBuf::zeroed(4 << 16, 4096);
    for offset in [0, 1, 511, 512, unit / 2, unit, unit + 512, 3 * unit, LEN - unit, LEN, LEN + unit] {
        for len in [0, 1, 512, unit / 2, unit, unit + 1, 2 * unit] {
            for shift in [0usize, 1, 4, 512] {
                let buf = &mut memory[shift..shift + len as usize];
                let is_whole = offset.is_multiple_of(unit) && len.is_multiple_of(unit);
                let is_inside = offset + len <= LEN;
                let outcomes = [
                    device.write_at(offset, buf),
                    device.read_at(offset, buf),
                    device
                        .run_batch(&mut [
                            Request::Read { offset, buf },
                            Request::Read { offset: 0, buf: &mut [] },
                        ])
                        .remove(0),
                ];
                for outcome in outcomes {
                    match outcome {
                        Ok(()) => assert!(is_whole && is_inside, "{offset} {len} {shift}"),
                        Err(error) if !is_whole => {
                            assert!(matches!(error.cause, Cause::Misaligned { .. }), "{error}");
                        }
                        Err(error) => {
                            assert!(!is_inside && matches!(error.cause, Cause::OutOfRange { .. }), "{error}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn auto_falls_back_and_says_so() {
    let path = std::path::Path::new("/dev/shm");
    let Ok(folder) = tempfile::TempDir::new_in(path) else { return };
    let device = OpenOptions::new().create(folder.path().join("device"), LEN).unwrap();
    let info = device.info();
    // Newer kernels have direct I/O on tmpfs.
    assert_eq!(info.is_direct, !info.notes.iter().any(|note| note.contains("O_DIRECT")));
    drop(device);
    let file = folder.path().join("device");
    match OpenOptions::new().direct(Direct::On).open(&file) {
        Ok(device) => assert!(device.info().is_direct),
        Err(error) => assert!(matches!(error, OpenError::DirectUnavailable { .. }), "{error}"),
    }
}

#[test]
fn a_hole_is_zeroes_and_gives_room_back() {
    use std::os::unix::fs::MetadataExt;
    let folder = support::folder();
    let path = folder.path().join("device");
    let device = plain().create(&path, LEN).unwrap();
    if !device.info().can_discard {
        return;
    }
    device.write_at(0, &vec![1; LEN as usize]).unwrap();
    device.flush().unwrap();
    let before = fs::metadata(&path).unwrap().blocks();
    device.discard(0, LEN / 2).unwrap();
    let mut read = vec![9; LEN as usize];
    device.read_at(0, &mut read).unwrap();
    assert_eq!(read.iter().filter(|&&byte| byte == 0).count() as u64, LEN / 2);
    device.flush().unwrap();
    assert!(fs::metadata(&path).unwrap().blocks() < before);
    assert_eq!(fs::metadata(&path).unwrap().len(), LEN);
}

#[test]
fn a_truncated_file_is_an_error_at_the_place() {
    let folder = support::folder();
    for (name, options) in support::file_options() {
        let path = folder.path().join(name);
        let device = match options.create(&path, LEN) {
            Ok(device) => device,
            Err(error) => {
                support::skip(name, &error);
                continue;
            }
        };
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(LEN / 2).unwrap();
        let mut buf = vec![0; 16384];
        let error = device.read_at(LEN / 2 - 8192, &mut buf).unwrap_err();
        assert!(matches!(error.cause, Cause::Ended), "{error}");
        assert_eq!(error.offset, LEN / 2);
        let mut other = vec![0; 4096];
        let results = device.run_batch(&mut [
            Request::Read { offset: LEN / 2 - 8192, buf: &mut buf },
            Request::Read { offset: 0, buf: &mut other },
        ]);
        assert_eq!(results[0].as_ref().unwrap_err().offset, LEN / 2);
        assert!(results[1].is_ok());
    }
}

#[test]
fn a_file_that_grows_is_used_to_its_end_when_that_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    let device = OpenOptions::new().create(&path, LEN).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600, "for its owner alone");
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(2 * LEN + 1).unwrap();
    assert_eq!(device.len_bytes(), LEN);
    assert!(device.write_at(LEN, &[7; 4096]).is_err());
    assert_eq!(device.take_growth().unwrap(), 2 * LEN);
    let device: std::sync::Arc<dyn BlockDevice> = std::sync::Arc::new(device);
    assert_eq!((device.len_bytes(), device.take_growth().unwrap()), (2 * LEN, 2 * LEN));
    device.write_at(2 * LEN - 4096, &[7; 4096]).unwrap();
    assert!(device.write_at(2 * LEN, &[7; 4096]).is_err());
    file.set_len(LEN).unwrap();
    assert_eq!(device.take_growth().unwrap(), 2 * LEN, "what was there stays expected");
}
