//! Labels that are cleared: the device belongs to no pool any more, whatever happens then.

use std::sync::Arc;

use fastness_blkdev::{FaultPlan, Faulty, MemDevice};
use fastness_pool::{Device, Pool, PoolError, PoolOptions, VdevSpec};

/// A device of a pool that is not imported.
fn labelled() -> (Arc<Faulty<MemDevice>>, Device) {
    let disk = Arc::new(Faulty::new(MemDevice::new("disk", 64 << 20), FaultPlan::new(7)));
    let device = || Device::new("disk", disk.clone());
    drop(Pool::create("tank", &[VdevSpec::single(device())], PoolOptions::default()).unwrap());
    let device = device();
    assert_eq!(device.probe().unwrap().config.name, "tank");
    (disk, device)
}

#[test]
fn cleared_labels_do_not_come_back_after_a_power_cut() {
    for seed in 0..20 {
        let (disk, device) = labelled();
        device.clear_labels().unwrap();
        let image = disk.crash_image(seed);
        let after = Device::new("disk", Arc::new(MemDevice::from_image("disk", image, 512)));
        assert!(matches!(after.probe(), Err(PoolError::NoLabel { .. })), "seed {seed}");
    }
}

#[test]
fn a_device_that_fails_says_so() {
    let (disk, device) = labelled();
    disk.vanish();
    assert!(device.clear_labels().is_err());
    disk.come_back();
    assert_eq!(device.probe().unwrap().config.name, "tank");
}
