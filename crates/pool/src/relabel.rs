//! Labels of a running pool: written when its configuration changes, or a device becomes stale.

use std::sync::atomic::Ordering;

use crate::config::{DeviceState, PoolConfig};
use crate::error::Result;
use crate::state::Shared;
use crate::sync_util::lock;

impl Shared {
    /// Changes the configuration and writes it onto all devices, durably.
    pub(crate) fn write_labels(&self, change: impl FnOnce(&mut PoolConfig)) -> Result<()> {
        let mut config = lock(&self.config);
        let mut next = config.clone();
        change(&mut next);
        loop {
            config.generation += 1;
            next.generation = config.generation;
            next.txg = self.pipeline.open_txg();
            next.vdevs = self.vdevs.all().iter().map(|vdev| vdev.config()).collect();
            // If it fails, `config` still is what labels are known to say: who asks tries again.
            self.has_unsure_labels.store(true, Ordering::SeqCst);
            self.vdevs.write_config(&next)?;
            self.has_unsure_labels.store(false, Ordering::SeqCst);
            if !self.labels_lag(&next) {
                *config = next;
                return Ok(());
            }
            // A device that failed just now is stale, and the others must say so. Each round costs one.
        }
    }

    /// Whether a device has become stale, or current, that labels say otherwise of, or it is not known what
    /// they say.
    pub(crate) fn labels_lag(&self, config: &PoolConfig) -> bool {
        if self.has_unsure_labels.load(Ordering::SeqCst) {
            return true;
        }
        let known = config.vdevs.iter().flat_map(|vdev| &vdev.devices);
        let known = known.filter(|device| device.state != DeviceState::Online).map(|device| device.guid);
        !known.eq(self.vdevs.stale())
    }
}
