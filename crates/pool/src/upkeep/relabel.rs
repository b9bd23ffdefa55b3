//! Labels of a running pool: written when its configuration changes, or a device becomes stale.

use std::sync::atomic::Ordering;

use crate::devices::config::{DeviceState, PoolConfig};
use crate::error::Result;
use crate::state::Shared;
use fastness_sync::order::lock;

impl Shared {
    /// Changes the configuration and writes it onto all devices, durably.
    pub(crate) fn write_labels(&self, change: impl FnOnce(&mut PoolConfig)) -> Result<()> {
        let mut config = lock(&self.devices.config);
        let mut next = config.clone();
        change(&mut next);
        loop {
            config.generation += 1;
            next.generation = config.generation;
            next.txg = self.txgs.pipeline.open_txg();
            next.vdevs = self.devices.vdevs.all().iter().map(|vdev| vdev.config()).collect();
            // If this fails, `config` is still what labels are known to say: a caller that compares tries
            // again.
            self.devices.has_unsure_labels.store(true, Ordering::SeqCst);
            self.devices.vdevs.write_config(&next)?;
            self.devices.has_unsure_labels.store(false, Ordering::SeqCst);
            if !self.labels_lag(&next) {
                *config = next;
                return Ok(());
            }
            // A device that just failed is stale, and the others must say so. Each round loses one device.
        }
    }

    /// Whether the labels are out of date about which devices are stale, or it is unknown what they say.
    pub(crate) fn labels_lag(&self, config: &PoolConfig) -> bool {
        if self.devices.has_unsure_labels.load(Ordering::SeqCst) {
            return true;
        }
        let known = config.vdevs.iter().flat_map(|vdev| &vdev.devices);
        let known = known.filter(|device| device.state != DeviceState::Online).map(|device| device.guid);
        !known.eq(self.devices.vdevs.stale())
    }
}
