//! Persistent memory as a block device: against an array, and every crash image of it.

use std::ops::ControlFlow;

use fastness_bench::PmDevice;
use fastness_blkdev::{BlockDevice, Cause, ErrorKind, Operation};
use fastness_pm_model::{Budget, Config, Fault, RecordStyle, Recorder, explore};
use fastness_pmem::Region;
use fastness_store::{Device, Pool, PoolOptions, VdevSpec};
use proptest::prelude::*;

fn in_memory(len_bytes: u64) -> PmDevice {
    PmDevice::new("pm", Region::anonymous(len_bytes).unwrap().into_range())
}

/// A write is durable when it has returned, over the border of two parts too, with FUA or not.
#[test]
fn what_has_returned_survives_every_crash() {
    for has_fua in [false, true] {
        let recorder = Recorder::new(vec![0; 4096], RecordStyle::NonTemporal);
        let device = PmDevice::of_parts("pm", vec![recorder.range(0, 1024), recorder.range(1024, 3072)]);
        for round in 1..=3_u8 {
            let write = if has_fua { PmDevice::write_fua } else { PmDevice::write_at };
            write(&device, 512, &[round; 1024]).unwrap();
            recorder.mark(u64::from(round));
        }
        let (mut images, mut newer) = (0, 0);
        let budget = Budget { exhaustive_limit: 1 << 12, ..Budget::default() };
        explore(&recorder.trace(), &Config::default(), budget, &mut |point| {
            let least = point.last_mark.unwrap_or(0) as u8;
            assert!(point.image[512..1536].iter().all(|byte| *byte >= least), "behind mark {least}");
            newer += usize::from(point.image[512..1536].iter().any(|byte| *byte > least));
            images += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
        assert!(images > 100 && newer > 100, "{images} images, {newer} with something of the next write");
    }
}

#[test]
fn a_failed_fence_poisons() {
    let recorder = Recorder::new(vec![0; 8192], RecordStyle::NonTemporal);
    let mut range = recorder.range(0, 8192);
    range.inject(Fault::FailFence { after: 0 });
    let device = PmDevice::of_parts("pm", vec![range]);
    let error = device.write_at(0, &[1; 512]).unwrap_err();
    assert_eq!((error.operation, error.kind()), (Operation::Write, ErrorKind::MediaFailed));
    assert!(device.is_poisoned());
    for result in [device.flush(), device.write_at(512, &[1; 512]), device.write_fua(0, &[1; 512])] {
        assert!(matches!(result.unwrap_err().cause, Cause::Poisoned));
    }
    device.read_at(0, &mut [0; 512]).unwrap();
}

#[test]
fn poison_of_the_medium_is_an_error_with_its_place() {
    let recorder = Recorder::new(vec![7; 8192], RecordStyle::NonTemporal);
    let mut range = recorder.range(4096, 4096);
    range.inject(Fault::Poison(1024..1088));
    let device = PmDevice::of_parts("pm", vec![recorder.range(0, 4096), range]);
    let error = device.read_at(4096, &mut [0; 4096]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::MediaFailed);
    assert!(format!("{:?}", error.cause).contains("5120"), "{error:?}");
    device.read_at(0, &mut [0; 4096]).unwrap();
}

#[test]
fn what_no_device_can_do_is_refused() {
    let device = in_memory(1 << 20);
    assert!(matches!(device.write_at(1, &[0; 512]).unwrap_err().cause, Cause::Misaligned { .. }));
    assert!(matches!(device.write_at(0, &[0; 100]).unwrap_err().cause, Cause::Misaligned { .. }));
    assert!(matches!(device.write_zeroes(1 << 20, 512).unwrap_err().cause, Cause::OutOfRange { .. }));
    assert!(matches!(
        device.read_at(u64::MAX - 511, &mut [0; 512]).unwrap_err().cause,
        Cause::OutOfRange { .. }
    ));
    assert!(device.write_zeroes(0, u64::MAX - 511).is_err());
    device.write_at(1 << 20, &[]).unwrap();
    assert_eq!(device.stats().of(Operation::Write).ops, 1);
}

proptest! {
    #[test]
    fn behaves_like_an_array(
        ops in proptest::collection::vec((0..3u8, 0..2000u64, 0..300usize, any::<u8>()), 1..60),
    ) {
        const LEN: u64 = 1 << 20;
        let device = in_memory(LEN);
        let mut array = vec![0; LEN as usize];
        for (op, block, blocks, byte) in ops {
            let offset = block * 512;
            let len = (blocks * 512).min((LEN - offset) as usize);
            let range = offset as usize..offset as usize + len;
            match op {
                0 => {
                    let data: Vec<u8> = (0..len).map(|at| byte.wrapping_add((at / 64) as u8)).collect();
                    device.write_at(offset, &data).unwrap();
                    array[range].copy_from_slice(&data);
                }
                1 => {
                    device.write_zeroes(offset, len as u64).unwrap();
                    array[range].fill(0);
                }
                _ => {
                    let mut buf = vec![1; len];
                    device.read_at(offset, &mut buf).unwrap();
                    prop_assert!(buf == array[range]);
                }
            }
        }
    }
}

/// An ordinary log vdev of a pool.
#[test]
fn a_pool_takes_it_for_logs() {
    let device = |name: &str| Device::new(name, std::sync::Arc::new(in_memory(9 << 20)));
    let specs = [VdevSpec::single(device("data")), VdevSpec::mirror([device("log1"), device("log2")]).log()];
    let pool = Pool::create("tank", &specs, PoolOptions::default()).unwrap();
    let space = pool.log_space();
    let threads = std::thread::available_parallelism().map_or(2, usize::from).min(4);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let space = &space;
            scope.spawn(move || {
                for round in 0..50 {
                    let place = space.allocate(8192).unwrap();
                    assert_eq!(place.vdev, 1);
                    let data = vec![(thread * 50 + round) as u8; 8192];
                    space.write(place, &data).unwrap();
                    space.flush(&[1]).unwrap();
                    let mut buf = vec![0; 8192];
                    assert!(space.read_checked(place, &mut buf, &mut |buf| *buf == data[..]).unwrap());
                }
            });
        }
    });
    pool.sync().unwrap();
    assert!(pool.check().unwrap().is_clean());
    pool.export().unwrap();
}
