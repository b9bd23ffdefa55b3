//! Reading a device's labels, and clearing them, without importing its pool.

use crate::devices::config::PoolConfig;
use crate::devices::label::{erase, read_labels};
use crate::devices::vdev::Device;
use crate::error::Result;
use crate::ids::{Guid, Txg};

/// What the labels of a device say.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Probe {
    /// The device's own name.
    pub guid: Guid,
    /// The pool, as this device knows it; another device of the pool may know more (a higher generation).
    pub config: PoolConfig,
    /// The newest txg that the device has.
    pub txg: Option<Txg>,
}

impl Device {
    /// Reads the labels; changes nothing.
    ///
    /// # Errors
    /// [`NoLabel`](crate::PoolError::NoLabel), [`DamagedLabels`](crate::PoolError::DamagedLabels),
    /// [`OtherVersion`](crate::PoolError::OtherVersion).
    pub fn probe(&self) -> Result<Probe> {
        let labels = read_labels(&self.path, &self.device)?;
        Ok(Probe {
            guid: labels.device,
            config: labels.config,
            txg: labels.uberblock.map(|uberblock| uberblock.txg),
        })
    }

    /// Writes zeroes over both labels: no search finds the device as part of a pool any more. What it holds
    /// besides stays. The pool, if it still needs the device, can no longer be imported with it. Durable on
    /// return.
    ///
    /// # Errors
    /// [`PoolError::Device`](crate::PoolError::Device): a label may be left.
    pub fn clear_labels(&self) -> Result<()> {
        erase(&*self.device)?;
        // PERSIST: the device is given away. A label that came back with the power would make it part of the
        // pool again.
        self.device.flush()?;
        Ok(())
    }
}
